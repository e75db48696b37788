"""Rules before the queue: what they keep back, when they are asked again, and that a replay asks none of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from kit.drive import Drive, policy_named
from kit.dump import dump
from kit.loads import SECOND
from kit.mutants import FailsFor
from msgspec import json, structs

from cosched.model.job import After, Job, JobState
from space_scheduler.eligibility.dependency import DEPENDENCY
from space_scheduler.eligibility.rule import Moment, Rule, Wait
from space_scheduler.machine import events as ev
from space_scheduler.machine.decision import Decision
from space_scheduler.machine.record import IllegalTransition
from space_scheduler.machine.snapshot import SavedState
from space_scheduler.machine.state import SchedulerState
from space_scheduler.policy.interface import Plan, Snapshot


@dataclass
class Scripted:
    """A rule that says what its test wants, and remembers of which jobs it was asked."""

    says: Callable[[Job, Moment], Wait | None]
    name: str = "scripted"
    asked: list[int] = field(default_factory=list)

    def wait(self, job: Job, moment: Moment) -> Wait | None:
        self.asked.append(job.id)
        return self.says(job, moment)


class Seen:
    """FCFS that remembers which jobs it was shown."""

    def __init__(self) -> None:
        self.policy = policy_named("fcfs")
        self.order = self.policy.order
        self.jobs: set[int] = set()
        self.plans = 0

    def plan(self, snapshot: Snapshot) -> Plan:
        self.plans += 1
        self.jobs |= {job.id for job in snapshot.queue} | {job.id for job in snapshot.changes.submitted}
        return self.policy.plan(snapshot)


class Ruled(Drive):
    """A machine with rules; each of its events is also replayed, and lived through by a machine that is restored."""

    def __init__(self, *rules: Rule, procs: int = 4, policy: Any = "fcfs") -> None:
        self.rules: Sequence[Rule] = rules
        self.policy = policy_named(policy) if isinstance(policy, str) else policy
        self.state = SchedulerState(self.policy, None, rules)
        self.replayed = SchedulerState(policy_named("fcfs"))
        self.now_s = 0.0
        self.join(procs)
        self.decide()

    def handle(self, event: ev.Event) -> list[Any]:
        now_us = round(self.now_s * SECOND)
        instructions = super().handle(event)
        decided = self.state.decision() if isinstance(event, ev.Boundary) else None
        kept = None if decided is None else json.decode(json.encode(decided), type=Decision)
        assert self.replayed.replay(event, now_us, kept) == instructions
        if isinstance(event, ev.Boundary):
            assert self.replayed.snapshot().waiting in (None, self.state.snapshot().waiting) or decided is None
            saved = json.decode(json.encode(self.state.snapshot()), type=SavedState)
            restored = SchedulerState.restore(self.policy, None, saved, self.rules)
            assert dump(restored) == dump(self.state)
            self.state = restored
        return instructions

    def after(self, job_id: int, preceding: int, think_s: int = 0, procs: int = 1, ended_s: int | None = None) -> None:
        follows = After(preceding, think_s * SECOND, None if ended_s is None else ended_s * SECOND)
        now_us = round(self.now_s * SECOND)
        self.handle(ev.JobSubmitted(Job(job_id, procs, 60 * SECOND, now_us, after=follows)))

    def states(self) -> dict[int, str]:
        return {job_id: record.state.value for job_id, record in self.state.records.items()}


def until(at_s: int) -> Scripted:
    return Scripted(lambda job, moment: Wait(until_us=at_s * SECOND) if moment.now_us < at_s * SECOND else None)


def test_job_that_a_rule_keeps_back_waits_and_the_policy_does_not_see_it() -> None:
    policy, rule = Seen(), until(50)
    drive = Ruled(rule, policy=policy)
    drive.submit(1, procs=1, estimate_s=60)
    assert drive.decide() == ["timer 50 s: WAKE"]
    assert (drive.states(), drive.why(1), drive.queued()) == ({1: "waiting"}, "NOT_ELIGIBLE", [])
    assert (policy.jobs, policy.plans) == (set(), 1), "the plan of the first pass alone, when processors joined"
    drive.at(50).timer()
    assert drive.decide() == ["start 1 on 1 (limit 60 s): FITS, free_procs 4"]
    assert [state.value for _, state in drive.state.records[1].story] == ["queued", "waiting", "queued", "starting"]


def test_rule_is_asked_again_when_it_said_and_never_in_between() -> None:
    rule = until(50)
    drive = Ruled(rule)
    drive.submit(1, procs=1, estimate_s=60)
    drive.decide()
    for second in range(1, 50):
        drive.at(second).join(1)
        drive.decide()
    assert rule.asked == [1]
    drive.at(50).timer()
    drive.decide()
    assert rule.asked == [1, 1]


@pytest.mark.parametrize(("until_s", "asked_s"), [(10, 11), (5, 11), (None, 70)])
def test_rule_that_names_no_later_time_is_asked_again_soon(until_s: int | None, asked_s: int) -> None:
    wait = Wait(until_us=None if until_s is None else until_s * SECOND)
    drive = Ruled(Scripted(lambda job, moment: wait)).at(10)
    drive.submit(1, procs=1, estimate_s=60)
    assert drive.decide() == [f"timer {asked_s} s: WAKE"]


def test_rules_are_passed_one_after_the_other() -> None:
    first, second = until(10), Scripted(until(20).says, "second")
    drive = Ruled(first, second)
    drive.submit(1, procs=1, estimate_s=60)
    drive.decide()
    assert (first.asked, second.asked) == ([1], [])
    drive.at(10).timer()
    assert drive.decide() == ["timer 20 s: WAKE"]
    drive.at(20).timer()
    assert drive.decide()[0].startswith("start 1 ")
    assert (first.asked, second.asked) == ([1, 1], [1, 1])


def test_release_frees_a_held_job_and_nothing_else() -> None:
    drive = Ruled(until(50))
    drive.submit(1, procs=1, estimate_s=60)
    drive.decide()
    with pytest.raises(IllegalTransition):
        drive.release(1)
    drive.hold(1)
    assert drive.why(1) == "HELD"
    drive.release(1)
    assert (drive.job_state(1), drive.why(1)) == (JobState.WAITING, "NOT_ELIGIBLE")
    drive.hold(1)
    drive.at(50).timer()
    drive.decide()
    assert (drive.job_state(1), drive.why(1)) == (JobState.WAITING, "HELD")
    drive.at(60).release(1)
    assert drive.decide()[0].startswith("start 1 ")


def test_hold_of_a_held_job_is_refused() -> None:
    drive = Ruled()
    drive.submit(1, procs=1, estimate_s=60)
    drive.hold(1)
    with pytest.raises(IllegalTransition, match="job 1 cannot go from waiting to waiting"):
        drive.hold(1)


@pytest.mark.parametrize("says", [lambda job, moment: 1 // 0, lambda job, moment: "later"])
def test_rule_that_fails_lets_its_job_wait_and_others_start(says: Callable[[Job, Moment], Any]) -> None:
    rule = Scripted(lambda job, moment: says(job, moment) if job.id == 1 else None)
    drive = Ruled(rule)
    drive.submit(1, procs=1, estimate_s=60)
    drive.submit(2, procs=1, estimate_s=60)
    told = drive.decide()
    assert told[0].startswith("start 2 ")
    assert told[1] == "timer 60 s: WAKE"
    assert (drive.job_state(1), drive.why(1)) == (JobState.WAITING, "RULE_FAILED")
    rule.says = lambda job, moment: None
    drive.at(60).timer()
    assert drive.decide()[0].startswith("start 1 ")


def test_job_of_a_rule_that_is_no_longer_there_is_queued_after_a_restart() -> None:
    drive = Ruled(until(50))
    drive.submit(1, procs=1, estimate_s=60)
    drive.decide()
    saved = drive.state.snapshot()
    state = SchedulerState.restore(drive.policy, None, saved, ())
    told = state.handle(ev.Boundary(), SECOND)
    assert [type(each).__name__ for each in told] == ["Start"]
    kept = SchedulerState.restore(drive.policy, None, saved)
    assert kept.handle(ev.Boundary(), SECOND) == []
    assert kept.records[1].state is JobState.WAITING, "a state that asks no rules leaves it where it is"


def test_queue_position_is_by_time_of_eligibility() -> None:
    drive = Ruled(Scripted(lambda job, moment: until(10).says(job, moment) if job.id in (1, 2) else None), procs=1)
    for job_id in (1, 2, 3, 4):
        drive.submit(job_id, procs=1, estimate_s=60)
    drive.decide_and_launch()  # job 3 runs
    assert drive.queued() == [4]
    drive.at(10).timer()
    drive.submit(5, procs=1, estimate_s=60)
    drive.decide()
    assert drive.queued() == [4, 1, 2, 5], "of one instant, in order of submission"


# the rule dependency


def test_dependent_job_starts_after_the_end_and_the_think_time() -> None:
    drive = Ruled(DEPENDENCY)
    drive.submit(1, procs=1, estimate_s=60)
    drive.after(2, 1, think_s=30)
    drive.decide_and_launch()
    assert (drive.states(), drive.why(2)) == ({1: "running", 2: "waiting"}, "AFTER_JOB, job 1")
    drive.at(40).ended(1)
    assert drive.decide() == ["timer 70 s: WAKE"]
    assert drive.why(2) == "THINK_TIME, job 1, until 70 s"
    drive.at(70).timer()
    assert drive.decide()[0].startswith("start 2 ")


@pytest.mark.parametrize("outcome", [JobState.FAILED, JobState.TIMED_OUT, JobState.COMPLETED])
def test_dependent_job_starts_in_the_pass_of_the_end_however_that_was(outcome: JobState) -> None:
    drive = Ruled(DEPENDENCY)
    drive.submit(1, procs=1, estimate_s=60)
    drive.after(2, 1)
    drive.decide_and_launch()
    drive.at(5).ended(1, outcome)
    assert drive.decide()[0].startswith("start 2 ")


def test_dependent_job_is_queued_when_the_other_is_cancelled_while_it_waits() -> None:
    drive = Ruled(DEPENDENCY)
    drive.submit(1, procs=1, estimate_s=60)
    drive.hold(1)
    drive.after(2, 1)
    drive.decide()
    drive.at(5).cancel(1)
    assert drive.decide()[0].startswith("start 2 ")


def test_think_time_counts_from_a_simultaneous_end_of_the_preceding_job() -> None:
    drive = Ruled(DEPENDENCY)
    drive.submit(1, procs=1, estimate_s=60)
    drive.decide_and_launch()
    drive.at(60).after(2, 1, think_s=30)
    drive.ended(1)
    assert drive.decide() == ["timer 90 s: WAKE"]


@pytest.mark.parametrize("preceding", [2, 7])
def test_job_after_itself_or_an_unknown_one_does_not_wait(preceding: int) -> None:
    drive = Ruled(DEPENDENCY)
    drive.after(2, preceding, think_s=30)
    assert drive.decide()[0].startswith("start 2 ")


def test_think_time_counts_from_an_end_before_the_submission() -> None:
    drive = Ruled(DEPENDENCY)
    drive.at(100).after(2, 1, think_s=30, ended_s=80)
    assert drive.decide() == ["timer 110 s: WAKE"]


def test_chain_of_a_thousand_jobs_runs_once_and_in_order() -> None:
    state = SchedulerState(policy_named("easy"), None, (DEPENDENCY,))
    state.handle(ev.NodesJoined(8), 0)
    for job_id in range(1, 1001):
        follows = After(job_id - 1, SECOND) if job_id > 1 else None
        state.handle(ev.JobSubmitted(Job(job_id, 2, 60 * SECOND, 0, after=follows)), 0)
    started, now_us = [], 0
    while state.records:
        told: list[Any] = state.handle(ev.Boundary(), now_us)
        starts = [each.job.id for each in told if type(each).__name__ == "Start"]
        started += starts
        for job_id in starts:
            state.handle(ev.JobLaunched(job_id), now_us)
            now_us += SECOND
            state.handle(ev.JobEnded(job_id), now_us)
        if not starts:
            assert state.machine.timer_us is not None
            now_us = state.machine.timer_us
            state.handle(ev.TimerDue(), now_us)
    state.validate()
    assert started == [*range(1, 1001)]


@pytest.mark.parametrize("field", ["held", "gates", "ended"])
def test_loss_of_a_saved_rule_field_is_detected(field: str) -> None:
    drive = Ruled(DEPENDENCY)
    drive.submit(1, procs=1, estimate_s=60)
    drive.after(2, 1)
    drive.submit(3, procs=1, estimate_s=60)
    drive.hold(3)
    drive.decide_and_launch()
    drive.ended(1)
    saved = drive.state.snapshot()
    assert saved.waiting is not None
    left_out = structs.replace(
        saved, waiting=structs.replace(saved.waiting, **{field: type(getattr(saved.waiting, field))()})
    )
    as_it_is, missing = (SchedulerState.restore(drive.policy, None, each, drive.rules) for each in (saved, left_out))

    def ends(state: SchedulerState) -> list[object]:
        return [event for each in (ev.Boundary(), ev.JobReleased(3), ev.Boundary()) for event in state.handle(each, 0)]

    expected = ends(as_it_is)
    try:
        missing.validate()
        found = ends(missing)
    except (AssertionError, IllegalTransition):
        return
    assert found != expected


@pytest.mark.usefixtures("sets_aside")
def test_snapshot_of_version_0_1_is_read_with_held_and_set_aside_jobs_waiting() -> None:
    drive = Drive(FailsFor(policy_named("fcfs"), lambda job: job.id in (2, 4)), procs=1).with_jobs(1, 1, 1, 1).planned()
    drive.hold(3)
    drive.hold(4)
    saved = json.decode(json.encode(drive.state.snapshot()))
    del saved["waiting"]
    for job in saved["jobs"]:
        was = {2: "queued", 3: "held", 4: "held"}.get(job["job"]["id"])
        if was is not None:
            job["state"] = was
            job["story"] = [[0, "queued"]] + ([[0, was]] if was == "held" else [])
    found = SchedulerState.restore(drive.state.policy, None, json.decode(json.encode(saved), type=SavedState))
    found.validate()
    states = {job_id: (record.state.value, record.reason.why.name) for job_id, record in found.records.items()}
    assert {job_id: states[job_id] for job_id in (2, 3, 4)} == {
        2: ("waiting", "SET_ASIDE"),
        3: ("waiting", "HELD"),
        4: ("waiting", "HELD"),
    }
    assert found.snapshot().waiting == drive.state.snapshot().waiting

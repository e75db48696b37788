"""A job with which planning fails is left out of passes alone: all others start, and it is tried again."""

from collections.abc import Callable

import pytest
from kit.drive import Drive, policy_named
from kit.loads import SECOND
from kit.mutants import FITS, FailsFor, Told

from cosched.model.job import Job, JobState
from cosched.model.width import Range
from space_scheduler.eligibility.set_aside import EARLIEST_US, LATEST_US
from space_scheduler.machine import blame
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Resize, SetAside, Tell
from space_scheduler.machine.record import IllegalTransition
from space_scheduler.machine.rules import BadPlan
from space_scheduler.machine.state import SchedulerState
from space_scheduler.plugins import resolve
from space_scheduler.policy.interface import Plan, PlannedStart
from space_scheduler.reasons import Reason, Why

pytestmark = pytest.mark.usefixtures("sets_aside")

ERROR = "ZeroDivisionError: division by zero"
EARLIEST_S, LATEST_S = EARLIEST_US // SECOND, LATEST_US // SECOND
FAILURES = {
    "raises": ERROR,
    "names": ERROR,
    "misplaces": r"job 2 (1048576 processors) cannot start with 3 free: fewer processors are free than the job needs",
}


def planted(*bad: int, policy: str = "fcfs", how: str = "raises") -> FailsFor:
    """A policy that fails while one of these jobs waits."""
    return FailsFor(resolve(policy), lambda job: job.id in bad, how)


def aside(drive: Drive) -> dict[int, tuple[float, int]]:
    """Since when each job is set aside, and how often it was tried."""
    return {each.job_id: (each.since_us / SECOND, each.tries) for each in drive.state.machine.jobs.aside}


def three_jobs(policy: FailsFor) -> Drive:
    """Four processors, and jobs 1, 2, 3 of one each."""
    drive = Drive(policy, procs=4).with_jobs(1, 1, 1)
    return drive


@pytest.mark.parametrize("how", FAILURES)
def test_others_start_and_the_job_waits_with_the_error(how: str) -> None:
    drive = three_jobs(planted(2, how=how))
    told = drive.decide()
    assert told[0].startswith(f"set aside 2: {FAILURES[how].partition(' with ')[0]}")
    assert start_of(told, 1)
    assert start_of(told, 3)
    assert (drive.job_state(2), drive.queued()) == (JobState.WAITING, [])
    assert drive.why(2) == "SET_ASIDE, since 0 s, tries 1"
    (entry,) = drive.state.machine.jobs.aside
    assert entry.problem.startswith(FAILURES[how].partition(" with ")[0])


def test_job_that_is_back_has_its_old_place_in_the_queue() -> None:
    policy = planted(2)
    drive = Drive(policy, procs=1).with_jobs(1, 1, 1)
    drive.decide()
    assert drive.queued() == [3]
    cause_gone(policy)
    drive.at(EARLIEST_S).timer()
    drive.decide()
    assert drive.queued() == [2, 3]


def test_policy_that_fails_whatever_is_left_out_starts_nothing() -> None:
    class Broken:
        order = staticmethod(policy_named("fcfs").order)
        plans = 0

        def plan(self, snapshot: object) -> Plan:
            self.plans += 1
            raise ZeroDivisionError("division by zero")

    policy = Broken()
    drive = Drive.__new__(Drive)
    drive.state, drive.now_s = SchedulerState(policy), 0.0
    for event in (ev.NodesJoined(4), ev.JobSubmitted(Job(1, 1, 60 * SECOND, 0))):
        drive.state.handle(event, 0)
    with pytest.raises(ZeroDivisionError):
        drive.state.handle(ev.Boundary(), 0)
    assert policy.plans <= 3, "it is found out at once"
    assert not aside(drive)
    assert drive.job_state(1) is JobState.QUEUED


def test_plan_that_names_no_job_of_the_queue_is_refused_whole() -> None:
    """As a policy that always answers with the same bad plan."""
    job = Job(1, 5, 60 * SECOND, 0)
    state = SchedulerState(Told(Plan([PlannedStart(job, FITS)])))
    for event in (ev.NodesJoined(4), ev.NodesJoined(1), ev.JobSubmitted(job), ev.NodesDrained(1)):
        state.handle(event, 0)
    with pytest.raises(BadPlan, match=r"job 1 \(5 processors\) cannot start with 4 free"):
        state.handle(ev.Boundary(), 0)


# tried again


def cause_gone(policy: FailsFor) -> None:
    policy.bad = lambda job: False


def start_of(told: list[str], job_id: int) -> bool:
    return any(line.startswith(f"start {job_id} ") for line in told)


CHANGES: dict[str, Callable[[Drive], object]] = {
    "what jobs hold": lambda drive: drive.ended(1),
    "the nodes": lambda drive: drive.join(1),
    "the policy": lambda drive: drive.handle(ev.RulesChanged("another")),
}


@pytest.mark.parametrize("what", CHANGES)
def test_it_starts_once_the_cause_is_gone_and_anything_has_changed(what: str) -> None:
    policy = planted(2)
    drive = three_jobs(policy)
    drive.decide_and_launch()
    drive.at(EARLIEST_S).timer()
    drive.decide()  # for the starts of the first pass
    cause_gone(policy)
    drive.at(10).timer()
    assert not start_of(drive.decide(), 2), "nothing has changed"
    CHANGES[what](drive)
    assert start_of(drive.decide(), 2)
    assert not aside(drive)


def test_it_is_tried_every_ten_minutes_though_nothing_changes() -> None:
    policy = planted(2)
    drive = three_jobs(policy)
    told = drive.decide_and_launch()
    assert told[-1] == f"timer {EARLIEST_S} s: WAKE", "the pass itself has changed what jobs hold"
    drive.at(EARLIEST_S).timer()
    assert drive.decide() == [f"timer {EARLIEST_S + LATEST_S} s: TRY_AGAIN"]
    cause_gone(policy)
    drive.at(EARLIEST_S + LATEST_S).timer()
    assert start_of(drive.decide(), 2)


def test_it_is_tried_once_a_second_at_most() -> None:
    policy = planted(2)
    drive = three_jobs(policy)
    drive.decide_and_launch()
    plans = {}
    for tenth in range(1, 41):  # a processor comes and goes each tenth of a second
        drive.at(tenth / 10).join(1)
        drive.drain(1)
        before = policy.plans
        drive.decide()
        plans[tenth] = policy.plans - before
    assert {tenth for tenth, count in plans.items() if count == 2} == {10, 20, 30, 40}
    assert set(plans.values()) == {1, 2}
    assert aside(drive) == {2: (0, 5)}


def test_job_that_is_back_and_does_not_fit_is_told_so() -> None:
    policy = planted(2)
    drive = Drive(policy, procs=1).with_jobs(1, 1).planned()
    cause_gone(policy)
    drive.at(EARLIEST_S).timer()
    assert drive.decide() == ["tell 2 nothing promised: TRIED_AGAIN"]
    assert (drive.queued(), drive.why(2)) == ([2], "NOT_ENOUGH_FREE, procs 1, free_procs 0")


# what becomes of it meanwhile


def test_cancelled_while_set_aside() -> None:
    drive = three_jobs(planted(2))
    drive.decide_and_launch()
    drive.cancel(2)
    assert not aside(drive)
    assert 2 not in drive.state.records
    drive.at(EARLIEST_S).timer()
    assert drive.decide() == []


def test_held_while_set_aside_is_not_tried_and_is_when_released() -> None:
    policy = planted(2)
    drive = three_jobs(policy)
    drive.decide_and_launch()
    drive.hold(2)
    assert (drive.job_state(2), drive.why(2)) == (JobState.WAITING, "HELD")
    drive.at(700).timer()
    before = policy.plans
    drive.decide()
    assert policy.plans == before + 1
    cause_gone(policy)
    drive.at(701).release(2)
    assert (drive.job_state(2), drive.why(2)) == (JobState.WAITING, "SET_ASIDE, since 0 s, tries 1")
    assert start_of(drive.decide(), 2)


def test_release_is_for_held_jobs_alone() -> None:
    drive = three_jobs(planted(2))
    drive.decide()
    with pytest.raises(IllegalTransition):
        drive.release(2)


def test_hold_and_release_again_and_again_try_it_once_a_second() -> None:
    policy = planted(2)
    drive = three_jobs(policy)
    drive.decide_and_launch()
    drive.at(1).timer()
    drive.decide()
    before = policy.plans
    for tenth in range(11, 31):
        drive.at(tenth / 10).hold(2)
        drive.release(2)
        drive.decide()
    assert policy.plans - before == 20 + 2, "a plan for each pass, and a try at 2 and at 3 seconds"


def test_resubmitted_under_another_number_is_set_aside_as_well() -> None:
    drive = three_jobs(planted(2, 4))
    drive.decide_and_launch()
    drive.cancel(2)
    drive.submit(4, procs=1, estimate_s=60)
    drive.submit(5, procs=1, estimate_s=60)
    assert start_of(drive.decide(), 5)
    assert set(aside(drive)) == {4}


def test_node_drained_and_resumed_while_set_aside() -> None:
    policy = planted(2)
    drive = Drive(policy, nodes={"a": (2,), "b": (1,)}).with_jobs(1, 1, 1).planned()
    drive.at(2).drain_node("b")
    drive.decide()
    cause_gone(policy)
    drive.at(3).resume_node("b")
    assert start_of(drive.decide(), 2)


# promises to others


@pytest.mark.parametrize(("policy", "then"), [("easy", 101), ("conservative", 160)])
def test_head_that_is_set_aside_blocks_nobody(policy: str, then: float) -> None:
    """Job 2 wants the whole machine; with its reservation, job 3 would wait for it.

    When it is back, EASY reserves for it as the head; conservative keeps what it has promised to job 4 meanwhile.
    """
    bad = planted(policy=policy)
    drive = Drive(bad, procs=4).with_jobs(2, 4).planned()
    assert drive.promise_s(2) == 60
    bad.bad = lambda job: job.id == 2
    drive.at(1).submit(3, procs=2, estimate_s=100)
    told = drive.decide_and_launch()
    assert start_of(told, 3)
    assert (drive.promise_s(2), set(aside(drive))) == (None, {2})
    drive.at(2).submit(4, procs=2, estimate_s=100)
    drive.decide()
    assert drive.promise_s(4) == 60
    cause_gone(bad)
    drive.at(60).ended(1)
    drive.decide_and_launch()
    assert not aside(drive)
    assert drive.promise_s(2) == then
    assert drive.job_state(4) is (JobState.QUEUED if policy == "easy" else JobState.RUNNING)


# jobs that run


def test_job_whose_resize_fails_keeps_its_shape_and_others_start() -> None:
    policy = FailsFor(resolve("equipartition"), lambda job: job.id == 1, "resizes")
    drive = Drive(policy, procs=4)
    drive.handle(ev.JobSubmitted(Job(1, 4, 60 * SECOND, 0, shape=Range(1, 4, malleable=True))))
    drive.decide_and_launch()
    drive.at(1).submit(2, procs=1, estimate_s=60)
    told = drive.decide()
    assert told[0] == "set aside 1: job 1 cannot be resized: the plan changes it twice"
    assert (drive.job_state(1), drive.state.records[1].allocation.procs) == (JobState.RUNNING, 4)
    assert drive.why(1).startswith("SET_ASIDE")
    drive.ended(1)
    assert not aside(drive)
    assert start_of(drive.decide(), 2)


def test_running_job_for_which_the_policy_raises_keeps_its_shape_and_others_start() -> None:
    """It is found without a name: with what it holds fixed, the policy does not raise."""

    class Raises(FailsFor):
        def plan(self, snapshot: object) -> Plan:
            if any(each.resizable and self.bad(each.job) for each in snapshot.running()):  # type: ignore[attr-defined]
                raise KeyError("shape")
            return self.policy.plan(snapshot)  # type: ignore[arg-type]

    drive = Drive(Raises(resolve("equipartition"), lambda job: job.id == 2), procs=6)
    for job_id in (1, 2, 3):
        drive.handle(ev.JobSubmitted(Job(job_id, 2, 60 * SECOND, 0, shape=Range(1, 6, malleable=True))))
    drive.decide_and_launch()
    drive.at(1).submit(4, procs=1, estimate_s=60)
    told = drive.handle(ev.Boundary())
    assert [each.job_id for each in told if isinstance(each, SetAside)] == [2]
    assert {each.job_id for each in told if isinstance(each, Resize)} <= {1, 3}
    drive.state.validate()


# many


def test_thousand_such_jobs_do_not_slow_the_passes_of_others() -> None:
    """Counted in plans and in jobs that the policy is shown, over two minutes in which a job ends each second."""
    bad = set(range(1, 1001))

    def lived(*planted_jobs: int) -> FailsFor:
        policy = planted(*planted_jobs, policy="easy")
        drive = Drive(policy, procs=4)
        for job_id in planted_jobs:
            drive.state.handle(ev.JobSubmitted(Job(job_id, 1, 60 * SECOND, 0)), 0)
        drive.decide()
        policy.plans = policy.jobs = 0
        for second in range(1, 121):
            drive.at(second).submit(2000 + second, procs=4, estimate_s=60)
            if second > 1:
                drive.ended(2000 + second - 1)
            drive.decide_and_launch()
            assert drive.job_state(2000 + second) is JobState.RUNNING, "it does not wait for those that fail"
        assert set(aside(drive)) == {*planted_jobs}
        return policy

    alone, beside = lived(), lived(*bad)
    assert alone.plans == 120
    assert beside.plans - alone.plans <= 120 * blame.MOST_PLANS_AGAIN
    assert beside.jobs - alone.jobs <= 2 * 120 * blame.MOST_PLANS_AGAIN, "each try shows the policy one of them more"


def test_thousand_such_jobs_are_found_in_one_pass_and_each_is_tried_within_ten_minutes() -> None:
    policy = planted(*range(1, 1001))
    drive = Drive(policy, procs=4)
    for job_id in range(1, 1003):
        drive.state.handle(ev.JobSubmitted(Job(job_id, 1, 60 * SECOND, 0)), 0)
    before = policy.plans
    drive.decide_and_launch()
    assert policy.plans - before <= blame.MOST_PLANS + 1
    assert set(aside(drive)) >= set(range(1, 1001))
    for second in range(1, 600):
        drive.at(second).timer()
        drive.decide_and_launch()
    assert {drive.job_state(job_id) for job_id in (1001, 1002)} == {JobState.RUNNING}
    assert {job_id for job_id, (_, tries) in aside(drive).items() if tries} == set(range(1, 1001))


def test_all_of_them_are_back_within_seconds_of_the_cause() -> None:
    policy = planted(*range(1, 1001))
    drive = Drive(policy, procs=2000)
    for job_id in range(1, 1001):
        drive.state.handle(ev.JobSubmitted(Job(job_id, 1, 60 * SECOND, 0)), 0)
    drive.decide()
    cause_gone(policy)
    for second in range(1, 4):
        drive.at(second).timer()
        drive.decide()
    assert not aside(drive)
    assert not drive.queued()


def test_reason_and_instructions_name_the_event_that_led_to_them() -> None:
    drive = three_jobs(planted(2))
    told = drive.handle(ev.Boundary())
    (found,) = [each for each in told if isinstance(each, SetAside)]
    assert found == SetAside(2, ERROR, ev.Boundary(), Reason(Why.SET_ASIDE, {"since_us": 0, "tries": 1}))
    assert not any(isinstance(each, Tell) for each in told)

"""Every event in any order: users change their minds, launches are slow, jobs overrun, nodes go and come back.

After each step every invariant is walked and the machine is compared with a plain account of the same events; a promise
that moves later is told with its cause; an event that does not fit changes nothing. At the end comes a quiet tail: all
held jobs are released, all nodes are back, every job ends at its estimate, and everything must have ended.
"""

from collections import Counter
from collections.abc import Set
from typing import Any, ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import seed, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cosched.model.job import TERMINAL, Job, JobState
from cosched.model.time import FOREVER_US
from kit.drive import policy_named
from kit.dump import dump
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Instruction, Kill, SetTimer, Start, Tell
from space_scheduler.machine.record import IllegalTransition, Infeasible, UnknownJob
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.state import SchedulerState
from space_scheduler.policy.future import Schedule, Timetable, Version
from space_scheduler.policy.select.early_end import EarlyEnd
from space_scheduler.reasons import Why

CAUSES = {Why.OVERRUN, Why.LATE_LAUNCH, Why.CAPACITY_CHANGED}
HOLDING = (JobState.STARTING, JobState.RUNNING, JobState.ENDING)
ALIVE = (JobState.QUEUED, JobState.WAITING, *HOLDING)
NOBODY = 10_000
pick = st.integers(0, 1 << 16)
shapes = st.tuples(st.integers(1, 6), st.integers(1, 8))  # processors, estimate in tens of microseconds


class WhateverHappens(RuleBasedStateMachine):
    policy: ClassVar[str]
    promises: ClassVar[bool]  # whether a promise may move later only with a cause
    machine_rules: ClassVar[MachineRules] = MachineRules()
    make: ClassVar[type[SchedulerState]] = SchedulerState
    fired: ClassVar[Counter[str]]  # what happened in all runs of this machine, by site

    def __init__(self) -> None:
        super().__init__()
        self.state = self.make(policy_named(self.policy), self.machine_rules)
        self.now = 0
        self.jobs: dict[int, Job] = {}
        self.states: dict[int, JobState] = {}
        self.in_service = 0
        self.installed = 0
        self.timer = FOREVER_US
        self.promised: dict[int, int] = {}
        self.overtaken: set[int] = set()  # promised before a released job went to its old place, ahead of them
        self.broken = False
        self.causes = CAUSES  # of promises that move later

    # the account of the same events

    def those(self, *states: JobState) -> list[int]:
        return [job_id for job_id, state in self.states.items() if state in states]

    def one_of(self, which: int, *states: JobState) -> int:
        candidates = self.those(*states)
        return candidates[which % len(candidates)] if candidates else NOBODY

    def free(self) -> int:
        return self.in_service - sum(self.jobs[job_id].procs for job_id in self.those(*HOLDING))

    def tell(self, event: ev.Event) -> list[Instruction]:
        instructions: list[Any] = self.state.handle(event, self.now)
        assert all(instruction.cause == event for instruction in instructions)
        return instructions

    def ends(self, job_id: int, outcome: JobState) -> None:
        assert self.states[job_id] not in TERMINAL
        self.states[job_id] = outcome
        self.promised.pop(job_id, None)

    def comes_back(self) -> None:
        """A released job takes its place: conservative finds it a hole, backfill(n) sees another head."""
        if not self.policy.startswith("conservative"):
            self.overtaken |= self.promised.keys()

    def new_job(self, procs: int, estimate_us: int) -> Job:
        return Job(len(self.jobs), procs, estimate_us, self.now)

    def could_never_start(self, job: Job) -> bool:
        return job.procs > self.installed

    def all_nodes_are_back(self) -> None:
        self.join(self.installed - self.in_service)

    # what users do

    @initialize(procs=st.integers(2, 6), jobs=st.lists(shapes, min_size=2, max_size=6), launch=st.booleans())
    def a_busy_machine(self, procs: int, jobs: list[tuple[int, int]], launch: bool) -> None:
        self.join(procs)
        self.submit(jobs)
        self.decide()
        if launch:
            self.all_launched()

    @rule(jobs=st.lists(shapes, min_size=1, max_size=3))
    def submit(self, jobs: list[tuple[int, int]]) -> None:
        for procs, estimate in jobs:
            job = self.new_job(procs, estimate * 10)
            if self.could_never_start(job):
                with pytest.raises(Infeasible):
                    self.tell(ev.JobSubmitted(job))
                self.fired["refused"] += 1
                continue
            assert self.tell(ev.JobSubmitted(job)) == []
            self.jobs[job.id] = job
            self.states[job.id] = JobState.QUEUED

    @precondition(lambda self: self.those(JobState.QUEUED))
    @rule(which=pick)
    def hold(self, which: int) -> None:
        job_id = self.one_of(which, JobState.QUEUED)
        assert self.tell(ev.JobHeld(job_id)) == []
        self.states[job_id] = JobState.WAITING
        self.promised.pop(job_id, None)

    @precondition(lambda self: self.those(JobState.WAITING))
    @rule(which=pick)
    def release(self, which: int) -> None:
        job_id = self.one_of(which, JobState.WAITING)
        assert self.tell(ev.JobReleased(job_id)) == []
        self.states[job_id] = JobState.QUEUED
        self.comes_back()

    @precondition(lambda self: self.those(JobState.QUEUED))
    @rule(which=pick)
    def is_held_for_a_pass(self, which: int) -> None:
        self.hold(which)
        self.decide()
        self.release(0)
        self.decide()

    @precondition(lambda self: self.those(*ALIVE))
    @rule(which=pick)
    def cancel(self, which: int) -> None:
        job_id = self.one_of(which, *ALIVE)
        if self.states[job_id] is JobState.ENDING:
            with pytest.raises(IllegalTransition):
                self.tell(ev.JobCancelled(job_id))
            return
        instructions = self.tell(ev.JobCancelled(job_id))
        self.fired[f"cancelled while {self.states[job_id]}"] += 1
        if self.states[job_id] in HOLDING:
            (kill,) = instructions
            assert isinstance(kill, Kill)
            assert (kill.job_id, kill.reason.why) == (job_id, Why.CANCELLED)
            self.states[job_id] = JobState.ENDING
        else:
            assert instructions == []
            self.ends(job_id, JobState.CANCELLED)

    # what nodes report

    @precondition(lambda self: self.those(JobState.STARTING))
    @rule(which=pick)
    def launched(self, which: int) -> None:
        job_id = self.one_of(which, JobState.STARTING)
        self.fired["launched late"] += self.state.records[job_id].started_us != self.now
        assert self.tell(ev.JobLaunched(job_id)) == []
        self.states[job_id] = JobState.RUNNING

    @precondition(lambda self: self.those(JobState.STARTING))
    @rule(which=pick, delay=st.sampled_from([5, 30]))
    def launched_late(self, which: int, delay: int) -> None:
        self.now += delay
        self.launched(which)
        self.decide()

    @precondition(lambda self: self.those(JobState.STARTING))
    @rule()
    def all_launched(self) -> None:
        for _ in self.those(JobState.STARTING):
            self.launched(0)

    @precondition(lambda self: self.those(JobState.STARTING))
    @rule(which=pick)
    def cancelled_while_starting_and_launched_all_the_same(self, which: int) -> None:
        job_id = self.one_of(which, JobState.STARTING)
        self.tell(ev.JobCancelled(job_id))
        self.states[job_id] = JobState.ENDING
        self.fired["cancelled while starting"] += 1
        self.launched_though_cancelled_meanwhile(0)

    @precondition(lambda self: self.those(JobState.ENDING))
    @rule(which=pick)
    def launched_though_cancelled_meanwhile(self, which: int) -> None:
        job_id = self.one_of(which, JobState.ENDING)
        assert self.tell(ev.JobLaunched(job_id)) == []
        self.fired["launched though cancelled"] += 1

    @precondition(lambda self: self.those(JobState.RUNNING, JobState.ENDING))
    @rule(which=pick, outcome=st.sampled_from([JobState.COMPLETED, JobState.FAILED, JobState.TIMED_OUT]))
    def ended(self, which: int, outcome: JobState) -> None:
        job_id = self.one_of(which, JobState.RUNNING, JobState.ENDING)
        assert self.tell(ev.JobEnded(job_id, outcome)) == []
        self.ends(job_id, outcome)
        self.fired["ended"] += 1

    @precondition(lambda self: self.those(JobState.STARTING))
    @rule(which=pick)
    def launch_failed(self, which: int) -> None:
        job_id = self.one_of(which, JobState.STARTING)
        assert self.tell(ev.JobEnded(job_id, JobState.LAUNCH_FAILED)) == []
        self.ends(job_id, JobState.LAUNCH_FAILED)
        self.fired["launch failed"] += 1

    @rule(procs=st.integers(1, 4))
    def join(self, procs: int) -> None:
        assert self.tell(ev.NodesJoined(procs)) == []
        self.in_service += procs
        self.installed = max(self.installed, self.in_service)

    @rule(procs=st.integers(1, 4))
    def drain(self, procs: int) -> None:
        procs = min(procs, self.in_service)
        assert self.tell(ev.NodesDrained(procs)) == []
        self.in_service -= procs
        self.fired["drained below what is free"] += self.free() < 0

    @rule(which=pick, procs=st.integers(1, 4), gangs=st.integers(0, 2))
    def lose(self, which: int, procs: int, gangs: int) -> None:
        holding = self.those(*HOLDING)
        gone = [holding[(which + i) % len(holding)] for i in range(min(gangs, len(holding)))]
        procs = min(procs, max(0, self.free()) + sum(self.jobs[job_id].procs for job_id in gone), self.in_service)
        assert self.tell(ev.NodesLost(procs, tuple(gone))) == []
        for job_id in gone:
            self.ends(job_id, JobState.NODE_LOST)
            self.fired["gang lost"] += 1
        self.in_service -= procs

    # time and passes

    @rule(duration=st.sampled_from([1, 5, 10, 10, 20, 40, 70_000_000]))
    def time_passes(self, duration: int) -> None:
        """Whatever should have happened meanwhile is late."""
        self.now += duration

    @precondition(lambda self: self.those(*HOLDING))
    @rule()
    def time_passes_to_the_next_predicted_end(self) -> None:
        self.now = max(self.now, min(self.state.records[job_id].end_us for job_id in self.those(*HOLDING)))

    @precondition(lambda self: self.timer != FOREVER_US)
    @rule()
    def the_timer_is_due(self) -> None:
        self.fired["timer late"] += self.timer < self.now
        self.now, self.timer = max(self.now, self.timer), FOREVER_US
        assert self.tell(ev.TimerDue()) == []

    @rule()
    def decide(self) -> None:
        waiting = self.those(JobState.QUEUED)
        for instruction in self.tell(ev.Boundary()):
            if isinstance(instruction, Start):
                self.start(instruction)
            elif isinstance(instruction, Tell):
                assert instruction.job_id in waiting
                self.told(instruction)
            else:
                assert isinstance(instruction, SetTimer)
                assert instruction.at_us > self.now
                self.timer = instruction.at_us
        self.promises_are_as_told()

    @rule(duration=st.sampled_from([0, 1, 5, 10, 30]))
    def time_passes_and_what_starts_is_up_at_once(self, duration: int) -> None:
        self.now += duration
        self.decide()
        self.all_launched()

    def start(self, start: Start) -> None:
        assert start.job == self.jobs[start.job.id]
        assert self.states[start.job.id] is JobState.QUEUED
        assert start.allocation.procs == start.job.procs
        assert start.limit_us == (start.job.estimate_us if self.machine_rules.kill_at_limit else None)
        if not self.machine_rules.release_at_limit:
            assert start.job.procs <= self.free()
        self.states[start.job.id] = JobState.STARTING
        self.promised.pop(start.job.id, None)
        self.fired[f"started: {start.reason.why.name}"] += 1

    def told(self, tell: Tell) -> None:
        assert tell.promised_us > self.now
        before_us = FOREVER_US if tell.job_id in self.overtaken else self.promised.get(tell.job_id, FOREVER_US)
        if self.promises and tell.promised_us > before_us:
            again = {Why.RESCHEDULED} if self.policy == "conservative(anew)" else set()
            assert tell.reason.why in self.causes | again, f"{tell}, from {before_us}"
            self.fired[f"moved later: {tell.reason.why.name}"] += 1
        self.promised[tell.job_id] = tell.promised_us
        self.overtaken.discard(tell.job_id)

    def promises_are_as_told(self) -> None:
        """What was told last is what the record says, and for conservative what is reserved, for every waiting job."""
        for job_id in self.those(JobState.QUEUED):
            assert self.state.records[job_id].promise_us == self.promised.get(job_id)
        if isinstance(memory := self.state.memory, Schedule | Version):
            queued = {job_id: self.promised.get(job_id) for job_id in self.those(JobState.QUEUED)}
            assert memory.starts_us == queued
        elif isinstance(memory, Timetable):
            queued = {job_id: self.promised.get(job_id) for job_id in self.those(JobState.QUEUED)}
            assert {job_id: reserved.start_us for job_id, reserved in memory.reserved.items()} == queued

    # what does not fit

    def misfits(self, which: int) -> list[tuple[ev.Event, type[Exception]]]:
        found: list[tuple[ev.Event, type[Exception]]] = [(ev.NodesDrained(self.in_service + 1), ValueError)]
        for job_id in {NOBODY, self.one_of(which, *TERMINAL)}:
            found += [(kind(job_id), UnknownJob) for kind in (ev.JobHeld, ev.JobReleased, ev.JobCancelled)]
            found += [(ev.JobLaunched(job_id), UnknownJob), (ev.JobEnded(job_id), UnknownJob)]
            found += [(ev.NodesLost(0, (job_id,)), UnknownJob)]
        if (waiting := self.one_of(which, JobState.QUEUED, JobState.WAITING)) != NOBODY:
            found += [(ev.JobEnded(waiting, outcome), IllegalTransition) for outcome in sorted(TERMINAL)]
            found += [(ev.JobLaunched(waiting), IllegalTransition), (ev.NodesLost(0, (waiting,)), IllegalTransition)]
            found += [(ev.JobSubmitted(self.jobs[waiting]), ValueError)]
        if (queued := self.one_of(which, JobState.QUEUED)) != NOBODY:
            found += [(ev.JobReleased(queued), IllegalTransition)]
        if (starting := self.one_of(which, JobState.STARTING)) != NOBODY:
            found += [(ev.JobEnded(starting, JobState.COMPLETED), IllegalTransition)]
        if (running := self.one_of(which, JobState.RUNNING)) != NOBODY:
            found += [(ev.JobLaunched(running), IllegalTransition), (ev.JobProgress(running, -1), ValueError)]
        if (holding := self.one_of(which, *HOLDING)) != NOBODY:
            found += [(ev.JobHeld(holding), IllegalTransition), (ev.JobReleased(holding), IllegalTransition)]
            found += [(ev.JobEnded(holding, JobState.RUNNING), ValueError)]
            found += [(ev.NodesLost(0, (holding, NOBODY)), UnknownJob)]
            found += [(ev.NodesLost(0, (holding, holding)), ValueError)]
            found += [(ev.NodesLost(self.in_service + 1, (holding,)), ValueError)]
        return found

    @rule(which=pick)
    def events_that_do_not_fit_change_nothing(self, which: int) -> None:
        before = dump(self.state)
        self.broken = True  # until shown otherwise: a broken machine has no quiet tail
        for event, error in self.misfits(which):
            with pytest.raises(error):
                self.tell(event)
            self.fired[f"misfit: {type(event).__name__} {error.__name__}"] += 1
        assert dump(self.state) == before
        with pytest.raises(ValueError, match="time went back"):
            self.state.handle(ev.Boundary(), self.now - 1)
        assert dump(self.state) == before
        self.broken = False

    # what holds throughout

    @invariant()
    def every_invariant_holds(self) -> None:
        self.state.validate()

    @invariant()
    def the_account_agrees(self) -> None:
        alive = {job_id: state for job_id, state in self.states.items() if state not in TERMINAL}
        assert {job_id: record.state for job_id, record in self.state.records.items()} == alive
        assert [job.id for job in self.state.queue] == self.those(JobState.QUEUED)  # numbers rise with arrival
        assert self.state.machine.capacity.procs_total == self.in_service
        if not self.machine_rules.release_at_limit:
            assert self.state.machine.capacity.free_procs == self.free()
        for job_id in alive:
            assert self.state.explain(job_id).why in Why

    def teardown(self) -> None:
        """The quiet tail."""
        if self.broken:
            return
        for job_id in self.those(JobState.WAITING):
            self.tell(ev.JobReleased(job_id))
            self.states[job_id] = JobState.QUEUED
            self.comes_back()
        self.all_nodes_are_back()
        for _ in range(4 * len(self.jobs) + 4):
            self.decide()
            for job_id in self.those(JobState.STARTING):
                self.tell(ev.JobLaunched(job_id))
                self.states[job_id] = JobState.RUNNING
            next_end = min((self.state.records[i].end_us for i in self.those(*HOLDING)), default=FOREVER_US)
            if min(next_end, self.timer) == FOREVER_US:
                break
            self.now = max(self.now, min(next_end, self.timer))
            for job_id in self.those(*HOLDING):
                if self.state.records[job_id].end_us <= self.now:
                    self.tell(ev.JobEnded(job_id))
                    self.ends(job_id, JobState.COMPLETED)
            if self.timer <= self.now:
                self.the_timer_is_due()
            self.every_invariant_holds()
            self.the_account_agrees()
        assert self.those(*HOLDING, JobState.QUEUED, JobState.WAITING) == []
        assert self.state.machine.capacity.free_procs == self.in_service == self.installed


class WhateverIsMeasured(WhateverHappens):
    """The same, and nodes measure how far the jobs are."""

    @precondition(lambda self: self.those(JobState.RUNNING, JobState.ENDING))
    @rule(which=pick, tenths=st.integers(0, 12))
    def has_done(self, which: int, tenths: int) -> None:
        """A job is so far by what its nodes have measured; after its end was wanted, that changes nothing."""
        job_id = self.one_of(which, JobState.RUNNING, JobState.ENDING)
        self.causes = CAUSES | {Why.PROGRESS}
        record, estimate_us = self.state.records[job_id], self.jobs[job_id].estimate_us
        predicted_us = record.end_us
        assert self.tell(ev.JobProgress(job_id, estimate_us * tenths // 10)) == []
        if self.states[job_id] is JobState.ENDING or not record.holding.counted:
            assert record.end_us == predicted_us
        else:
            left_us = max(1, estimate_us - estimate_us * tenths // 10)
            assert record.end_us - self.now >= left_us, "no rate is above that of a job alone"
        self.fired["measured progress"] += 1


WITH_PROMISES = ["easy", "sjbf", *(f"conservative({choice})" for choice in EarlyEnd)]
WITHOUT = ["fcfs", "bestfit", "fpfs(2)", "firstfit", "backfill(3)"]
SITES = {
    *(f"cancelled while {state}" for state in (JobState.QUEUED, JobState.WAITING, JobState.STARTING, JobState.RUNNING)),
    *(
        "ended",
        "launch failed",
        "launched late",
        "launched though cancelled",
        "gang lost",
        "drained below what is free",
    ),
    *("misfit: JobEnded IllegalTransition", "misfit: NodesLost UnknownJob", "misfit: NodesLost ValueError"),
}


#: Examples of one exploration, each of up to 60 steps; and how often more are drawn where a site has not occurred.
EXAMPLES, ROUNDS = max(40, settings().max_examples * 2 // 5), 12
#: Among so many, a mutant has to be found.
FURTHER = 120


def explore_all(policy: str, sites: Set[str], of: type[WhateverHappens] = WhateverHappens, *, first: int = 1) -> None:
    """Run the machine, with other seeds until each of the sites has occurred; ``first`` is one with which all do."""
    fired: Counter[str] = Counter()
    for number in range(first, first + ROUNDS):
        fired += explore(policy, of=of, number=number)
        if not sites - set(+fired):
            return
    assert sites - set(+fired) == set(), "these never happened"


def explore(
    policy: str,
    make: type[SchedulerState] = SchedulerState,
    *,
    kill_at_limit: bool = True,
    of: type[WhateverHappens] = WhateverHappens,
    number: int | None = None,
    **how: Any,
) -> Counter[str]:
    """Run the machine; returns how often each site fired. ``number``: the seed, instead of the one of the machine."""
    body = {
        "policy": policy,
        "promises": policy in WITH_PROMISES,
        "make": make,
        "machine_rules": MachineRules(kill_at_limit=kill_at_limit, launch_retries=1),
        "fired": Counter(),
    }
    machine: type[WhateverHappens] = type("WhateverHappens", (of,), body)
    machine = machine if number is None else seed(number)(machine)
    how.setdefault("max_examples", EXAMPLES)
    run_state_machine_as_test(machine, settings=settings(stateful_step_count=60, **how))
    return machine.fired

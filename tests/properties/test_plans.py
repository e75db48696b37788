"""A plan is applied at once or not at all, and checked with the function that planned it."""

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import given
from kit.checks import Broken, hold
from kit.drive import Drive
from kit.dump import dump
from kit.mutants import FITS, Gullible, HalfApplier, Told

from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from space_scheduler import feasibility
from space_scheduler.machine import events as ev
from space_scheduler.machine.state import BadPlan, SchedulerState
from space_scheduler.policy.interface import Plan, PlannedStart, Snapshot
from space_scheduler.policy.order import fcfs
from space_scheduler.reasons import Reason, Why

RESERVED = Reason(Why.RESERVED)
Machine = Callable[[Told], SchedulerState]


def start(job: Job) -> PlannedStart:
    return PlannedStart(job, FITS)


def waiting_machine(machine: Machine, policy: Told) -> tuple[SchedulerState, list[Job]]:
    """Four processors, one of them busy with job 0; jobs 1 (two processors), 2 (two) and 3 (four) wait, at 10 s."""
    jobs = [Job(0, 1, 60_000_000, 0), Job(1, 2, 1, 0), Job(2, 2, 1, 0), Job(3, 4, 1, 0)]
    state = machine(policy)
    policy.answer = Plan([start(jobs[0])])
    for event in (ev.NodesJoined(4), ev.JobSubmitted(jobs[0]), ev.Boundary(), ev.JobLaunched(0)):
        state.handle(event, 0)
    for job in jobs[1:]:
        state.handle(ev.JobSubmitted(job), 10_000_000)
    return state, jobs


BAD_PLANS: dict[str, Callable[[list[Job]], Plan]] = {
    "over-commits together": lambda jobs: Plan([start(jobs[1]), start(jobs[2])]),
    "over-commits alone": lambda jobs: Plan([start(jobs[1]), start(jobs[3])]),
    "starts one twice": lambda jobs: Plan([start(jobs[1]), start(jobs[1])]),
    "starts one that runs": lambda jobs: Plan([start(jobs[1]), start(jobs[0])]),
    "starts a stranger": lambda jobs: Plan([start(jobs[1]), start(Job(9, 1, 1, 0))]),
    "starts a narrower copy": lambda jobs: Plan([start(jobs[1]), start(Job(3, 1, 1, 0))]),
    "wakes in the past": lambda jobs: Plan([start(jobs[1])], wake_us=10_000_000),
    "tells a stranger": lambda jobs: Plan([start(jobs[1])], told=[(9, FOREVER_US, RESERVED)]),
    "tells one that it starts": lambda jobs: Plan([start(jobs[1])], told=[(1, 20_000_000, RESERVED)]),
    "promises the past": lambda jobs: Plan([start(jobs[1])], told=[(2, 9_999_999, RESERVED)]),
}


def refused_whole(machine: Machine, bad: Callable[[list[Job]], Plan]) -> None:
    policy = Told(Plan())
    state, jobs = waiting_machine(machine, policy)
    before = dump(state)
    policy.answer = bad(jobs)
    try:
        state.handle(ev.Boundary(), 10_000_000)
    except BadPlan:
        hold(dump(state) == before, "refused, but something of it was applied")
    else:
        raise Broken("not refused")
    state.validate()
    # what changed is not forgotten: the next pass, with a good plan, is run
    policy.answer = Plan([start(jobs[2])])
    (started,) = state.handle(ev.Boundary(), 10_000_000)
    hold(started.job == jobs[2], "the next pass does something else")


@pytest.mark.parametrize("what", BAD_PLANS)
def test_a_bad_plan_is_refused_whole(what: str) -> None:
    refused_whole(SchedulerState, BAD_PLANS[what])


@pytest.mark.parametrize("what", ["over-commits together", "over-commits alone", "wakes in the past"])
def test_refused_whole_catches_the_gullible_and_the_half_applier(what: str) -> None:
    for mutant in (Gullible, HalfApplier):
        with pytest.raises(Broken):
            refused_whole(mutant, BAD_PLANS[what])


def test_a_refused_plan_says_who_and_why() -> None:
    policy = Told(Plan())
    state, jobs = waiting_machine(SchedulerState, policy)
    policy.answer = BAD_PLANS["over-commits alone"](jobs)
    with pytest.raises(BadPlan, match=r"job 3 \(4 processors\) cannot start with 1 free: fewer processors are free"):
        state.handle(ev.Boundary(), 10_000_000)


def test_a_policy_that_fails_loses_nothing() -> None:
    """What changed before a policy raised is still news at the next pass."""

    class Fails:
        order = staticmethod(fcfs)
        failed = False

        def plan(self, snapshot: Snapshot) -> Plan:
            if not self.failed:
                self.failed = True
                raise ZeroDivisionError
            return Plan([start(job) for job in snapshot.changes.submitted])

    state = SchedulerState(Fails())
    state.handle(ev.NodesJoined(4), 0)
    state.handle(ev.JobSubmitted(Job(1, 1, 1, 0)), 0)
    with pytest.raises(ZeroDivisionError):
        state.handle(ev.Boundary(), 0)
    (started,) = state.handle(ev.Boundary(), 0)
    assert started.job.id == 1


# --- one feasibility function -----------------------------------------------------------------------------------------

widths = st.lists(st.integers(1, 5), min_size=1, max_size=6)


def planning_and_application_agree(machine: type[SchedulerState], running: list[int], procs: int) -> None:
    """A job that the feasibility function admits can be started, and no other."""
    policy = Told(Plan())
    state = machine(policy)
    state.handle(ev.NodesJoined(5), 0)
    for number, width in enumerate(running):
        job = Job(number, width, 10, 0)
        state.handle(ev.JobSubmitted(job), 0)
        if width <= state.free_procs:
            policy.answer = Plan([start(job)])
            state.handle(ev.Boundary(), 0)
    job = Job(99, procs, 10, 0)
    state.handle(ev.JobSubmitted(job), 0)
    admitted = feasibility.obstacle(procs, 10, 0, state.free_procs) is None
    hold((state.explain(99).why is not Why.NOT_ENOUGH_FREE) == admitted, "it is explained otherwise")
    policy.answer = Plan([start(job)])
    try:
        state.handle(ev.Boundary(), 0)
    except BadPlan:
        hold(not admitted, "admitted and refused")
    else:
        hold(admitted, "not admitted and started")


@given(running=widths, procs=st.integers(1, 5))
def test_one_feasibility_function_plans_applies_and_explains(running: list[int], procs: int) -> None:
    planning_and_application_agree(SchedulerState, running, procs)


def test_another_feasibility_at_application_would_be_found() -> None:
    class Generous(SchedulerState):
        def _check(self, plan: Plan) -> None:
            self.machine.capacity.free_procs += 1
            try:
                super()._check(plan)
            finally:
                self.machine.capacity.free_procs -= 1

    planning_and_application_agree(Generous, [2], 3)
    with pytest.raises(Broken, match="not admitted and started"):
        planning_and_application_agree(Generous, [2], 4)


def test_explaining_uses_the_numbers_of_now() -> None:
    drive = Drive("fcfs", procs=4)
    drive.submit(1, procs=3, estimate_s=60)
    drive.submit(2, procs=2, estimate_s=60)
    drive.decide_and_launch()
    assert drive.state.explain(2).numbers == {"procs": 2, "free_procs": 1}
    drive.ended(1)
    assert drive.state.explain(2) == Reason(Why.NOT_CHOSEN, {"free_procs": 4})  # the head: behind nobody

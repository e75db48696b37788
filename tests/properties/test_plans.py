"""A plan is applied at once or not at all, and checked with the function that planned it."""

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import given
from kit.checks import Broken, hold
from kit.drive import Drive, said
from kit.dump import dump
from kit.mutants import FITS, Gullible, HalfApplier, Told

from cosched.model.allocation import Allocation, Share
from cosched.model.job import Job, JobState
from cosched.model.time import FOREVER_US
from cosched.model.width import Components, Range, Shape
from space_scheduler import feasibility
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Start
from space_scheduler.machine.rules import BadPlan
from space_scheduler.machine.state import SchedulerState
from space_scheduler.policy.interface import Plan, PlannedAnswer, PlannedRequeue, PlannedResize, PlannedStart, Snapshot
from space_scheduler.policy.order import fcfs
from space_scheduler.policy.queue import JobQueue
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
    hold(isinstance(started, Start) and started.job == jobs[2], "the next pass does something else")


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


# --- changes of running jobs ------------------------------------------------------------------------------------------

WHY = Reason(Why.SHRUNK)


def resized(job: Job, procs: int) -> PlannedResize:
    return PlannedResize(job, WHY, Allocation(procs))


def running_machine(policy: Told, *, requeue: bool = False, asks: int = 0) -> tuple[SchedulerState, list[Job]]:
    """Eight processors: jobs 0 (4 of 2 to 6) and 1 (3, rigid) run, 2 is launched (1); 3 (4 of 2 to 4) waits."""
    shapes = (Range(2, 6, malleable=True, ask_more=asks), None, None, Range(2, 4))
    jobs = [
        Job(at, procs, 60_000_000, 0, shape=shapes[at], requeue=requeue, foldable=at != 1)
        for at, procs in enumerate((4, 3, 1, 4))
    ]
    state = SchedulerState(policy)
    policy.answer = Plan([start(job) for job in jobs[:3]])
    events = (ev.NodesJoined(8), *map(ev.JobSubmitted, jobs), ev.Boundary(), ev.JobLaunched(0), ev.JobLaunched(1))
    for event in events:
        state.handle(event, 0)
    state.handle(ev.ResizeAsked(0, asks) if asks else ev.NodesDrained(0), 10_000_000)
    return state, jobs


BAD_CHANGES: dict[str, tuple[str, Callable[[list[Job]], Plan]]] = {
    "widens beyond the machine": ("fewer processors are free", lambda jobs: Plan([resized(jobs[0], 5)])),
    "widens beyond its range": ("cannot have 7", lambda jobs: Plan([resized(jobs[0], 7)])),
    "shrinks below its range": ("cannot have 1", lambda jobs: Plan([resized(jobs[0], 1)])),
    "shrinks a rigid job": ("cannot have 2", lambda jobs: Plan([resized(jobs[1], 2)])),
    "changes nothing": ("holds that already", lambda jobs: Plan([resized(jobs[0], 4)])),
    "names nodes": (
        "nothing that it can hold",
        lambda jobs: Plan([PlannedResize(jobs[0], WHY, Allocation(2, (Share("a", 2),)))]),
    ),
    "resizes what starts": ("it is starting", lambda jobs: Plan([resized(jobs[2], 2)])),
    "resizes what waits": ("it is queued", lambda jobs: Plan([resized(jobs[3], 2)])),
    "resizes a stranger": ("not here", lambda jobs: Plan([resized(Job(9, 4, 1, 0), 2)])),
    "resizes twice": ("changes it twice", lambda jobs: Plan([resized(jobs[0], 2), resized(jobs[0], 3)])),
    "folds a job that may not be": (
        "its 3 processes cannot be folded to 2",
        lambda jobs: Plan([PlannedResize(jobs[1], WHY, Allocation(2, folded=3))]),
    ),
    "moves the processes of a folded job": (
        "it is folded: its 4 processes stay where they are",
        lambda jobs: Plan([PlannedResize(jobs[0], WHY, Allocation(2, folded=3))]),
    ),
    "ends what starts": ("it is starting", lambda jobs: Plan([PlannedRequeue(jobs[2], WHY)])),
    "ends and resizes": ("changes it twice", lambda jobs: Plan([PlannedRequeue(jobs[0], WHY), resized(jobs[0], 2)])),
    "starts beside too little": (
        "fewer processors are free",
        lambda jobs: Plan([resized(jobs[0], 2), PlannedStart(jobs[3], FITS, Allocation(3))]),
    ),
    "starts outside of a range": (
        "cannot have 1",
        lambda jobs: Plan([resized(jobs[0], 2), PlannedStart(jobs[3], FITS, Allocation(1))]),
    ),
}


@pytest.mark.parametrize("what", BAD_CHANGES)
def test_a_bad_change_is_refused_with_the_whole_plan(what: str) -> None:
    policy = Told(Plan())
    state, jobs = running_machine(policy)
    before = dump(state)
    said, bad = BAD_CHANGES[what]
    policy.answer = bad(jobs)
    with pytest.raises(BadPlan, match=said):
        state.handle(ev.Boundary(), 10_000_000)
    assert dump(state) == before
    state.validate()


def answered(job: Job, given: int, *left: int) -> Plan:
    return Plan([PlannedAnswer(job, WHY, given, left)])


@pytest.mark.parametrize(
    ("asks", "bad", "words"),
    [
        (2, lambda jobs: answered(Job(9, 1, 1, 0), 0), "it is not here"),
        (2, lambda jobs: answered(jobs[3], 0), "it is not here"),
        (0, lambda jobs: answered(jobs[0], 2), r"it asked for \(\)"),
        (2, lambda jobs: answered(jobs[0], 0, 1), r"it asked for \(2,\)"),
        (2, lambda jobs: answered(jobs[0], 3), "it cannot be given 3 more"),
        (2, lambda jobs: answered(jobs[0], -1), "it cannot be given -1 more"),
        (2, lambda jobs: Plan([*answered(jobs[0], 0, 2).changes] * 2), "the plan answers it twice"),
    ],
)
def test_answer_that_does_not_fit_the_request_is_refused(
    asks: int, bad: Callable[[list[Job]], Plan], words: str
) -> None:
    policy = Told(Plan())
    state, jobs = running_machine(policy, asks=asks)
    before, policy.answer = dump(state), bad(jobs)
    with pytest.raises(BadPlan, match=f"cannot be answered: {words}"):
        state.handle(ev.Boundary(), 10_000_000)
    assert dump(state) == before


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (ev.JobResized(0), "job 0 was not to be resized"),
        (ev.ResizeFailed(0, "no"), "job 0 was not to be resized"),
        (ev.ResizeAsked(0, 3), "job 0 of width .* cannot ask for 3 processes more"),
        (ev.ResizeAsked(1, 1), "job 1 of width .* cannot ask for 1 processes more"),
        (ev.ProgramMeasured("solver", "gpu"), "a program cannot be of the kind 'gpu': there are cpu and comm"),
        (ev.ProgramMeasured("solver", "cpu", 1001), "a program cannot be a user of 1001 thousandths"),
    ],
)
def test_event_that_no_running_job_can_have_is_refused(event: ev.Event, words: str) -> None:
    state, _ = running_machine(Told(Plan()))
    before = dump(state)
    with pytest.raises(ValueError, match=words):
        state.handle(event, 10_000_000)
    assert dump(state) == before


@pytest.mark.parametrize(
    "shape",
    [
        Range(0, 4),
        Range(4, 3),
        Range(1, 2),
        Range(1, 4, (2, 1)),
        Range(1, 4, (1, 2)),
        Components((1, 0, 2)),
        Range(1, 4, (), (2,)),
        Range(1, 4, (1, 4), (2,)),
        Range(1, 4, (1, 4), (2, 0)),
    ],
)
def test_a_shape_that_cannot_be_is_refused(shape: Shape) -> None:
    state = SchedulerState(Told(Plan()))
    state.handle(ev.NodesJoined(8), 0)
    with pytest.raises(ValueError, match="cannot have the shape"):
        state.handle(ev.JobSubmitted(Job(1, 3, 1, 0, shape=shape)), 0)
    assert not state.records
    state.handle(ev.JobSubmitted(Job(1, 3, 1, 0, shape=Components((2, 1)))), 0)


def test_a_start_is_sent_when_what_it_needs_is_given_back() -> None:
    policy = Told(Plan())
    state, jobs = running_machine(policy)
    policy.answer = Plan([PlannedStart(jobs[3], FITS, Allocation(2)), resized(jobs[0], 2)])  # put in order
    assert said(state.handle(ev.Boundary(), 10_000_000)) == [
        "resize 0 from 4 to 2: SHRUNK",
        "pace 0 0.5",
        "tell 3 10 s: AWAITS_PROCESSORS",
    ]
    assert (state.machine.capacity.free_procs, state.records[3].holding.held) == (0, None)
    assert state.explain(3).why is Why.AWAITS_PROCESSORS
    assert said(state.handle(ev.JobResized(0), 25_000_000)) == ["start 3 on 2 (limit 60 s): FITS", "pace 3 0.5"]
    assert state.records[3].end_us == 25_000_000 + 2 * 60_000_000  # with half of the processors it asked for
    assert state.records[0].end_us == 10_000_000 + 2 * 50_000_000
    state.validate()


def test_explain_names_cancelled_requeued_job_that_blocks_a_start() -> None:
    policy = Told(Plan())
    state, jobs = running_machine(policy)
    requeued = PlannedRequeue(jobs[0], Reason(Why.ABORTED))
    policy.answer = Plan([requeued, PlannedStart(jobs[3], FITS, Allocation(2))])
    state.handle(ev.Boundary(), 10_000_000)
    assert state.explain(3).numbers["blocking_job"] == 0
    state.handle(ev.JobCancelled(0), 11_000_000)
    assert state.explain(3).numbers["blocking_job"] == 0
    assert state.explain(0).numbers["waiting_job"] == 3


def test_a_start_waits_again_where_what_it_needs_is_refused() -> None:
    policy = Told(Plan())
    state, jobs = running_machine(policy)
    policy.answer = Plan([resized(jobs[0], 2), PlannedStart(jobs[3], FITS, Allocation(2))])
    state.handle(ev.Boundary(), 10_000_000)
    assert said(state.handle(ev.ResizeFailed(0, "dust"), 25_000_000)) == [
        "tell 3 nothing promised: RESIZE_REFUSED",
        "pace 0 1",
    ]
    assert state.records[3].state is JobState.QUEUED
    assert (state.records[0].holding.held, state.machine.capacity.free_procs) == (Allocation(4), 0)
    policy.answer = Plan()
    assert state.handle(ev.Boundary(), 25_000_000) == []
    assert state.passes == 3
    state.validate()


def test_a_job_that_a_plan_ends_waits_again_in_its_old_place() -> None:
    policy = Told(Plan())
    state, jobs = running_machine(policy)
    policy.answer = Plan([PlannedStart(jobs[3], FITS), PlannedRequeue(jobs[0], Reason(Why.ABORTED))])
    told = said(state.handle(ev.Boundary(), 10_000_000))
    assert told == ["kill 0: ABORTED", "tell 3 10 s: AWAITS_PROCESSORS"]
    assert said(state.handle(ev.JobEnded(0, JobState.CANCELLED), 11_000_000)) == ["start 3 on 4 (limit 60 s): FITS"]
    assert [job.id for job in state.queue] == [0]
    assert state.records[0].left == 0
    state.validate()


@pytest.mark.parametrize("requeue", [False, True])
def test_a_job_that_a_plan_ends_and_that_loses_a_node_waits_again_by_its_users_word_alone(requeue: bool) -> None:
    """It may still run on that node."""
    policy = Told(Plan())
    state, jobs = running_machine(policy, requeue=requeue)
    policy.answer = Plan([PlannedRequeue(jobs[0], Reason(Why.ABORTED))])
    state.handle(ev.Boundary(), 10_000_000)
    state.handle(ev.JobEnded(0, JobState.NODE_LOST), 11_000_000)
    assert (0 in state.records) == requeue
    if requeue:
        assert state.records[0].reason.why is Why.REQUEUED
        policy.answer = Plan()
        state.handle(ev.Boundary(), 12_000_000)
    state.validate()


def test_who_is_cancelled_while_a_plan_ends_it_is_cancelled() -> None:
    policy = Told(Plan())
    state, jobs = running_machine(policy)
    policy.answer = Plan([PlannedRequeue(jobs[0], Reason(Why.ABORTED))])
    state.handle(ev.Boundary(), 10_000_000)
    assert state.handle(ev.JobCancelled(0), 10_000_001) == []
    state.handle(ev.JobEnded(0, JobState.CANCELLED), 11_000_000)
    assert 0 not in state.records


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
    assert isinstance(started, Start)
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
        if width <= state.machine.capacity.free_procs:
            policy.answer = Plan([start(job)])
            state.handle(ev.Boundary(), 0)
    job = Job(99, procs, 10, 0)
    state.handle(ev.JobSubmitted(job), 0)
    admitted = feasibility.obstacle(procs, 10, 0, state.machine.capacity.free_procs) is None
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
        def _check(self, plan: Plan, queue: JobQueue) -> None:
            self.machine.capacity.free_procs += 1
            try:
                super()._check(plan, queue)
            finally:
                self.machine.capacity.free_procs -= 1

    planning_and_application_agree(Generous, [2], 3)
    with pytest.raises(Broken, match="not admitted and started"):
        planning_and_application_agree(Generous, [2], 4)


def test_explaining_uses_the_numbers_of_now() -> None:
    drive = Drive("fcfs", procs=4).with_jobs(3, 2).planned()
    assert drive.state.explain(2).numbers == {"procs": 2, "free_procs": 1}
    drive.ended(1)
    assert drive.state.explain(2) == Reason(Why.NOT_CHOSEN, {"free_procs": 4})  # the head: behind nobody

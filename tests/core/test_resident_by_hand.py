"""Resident jobs by hand: where their processes are on named nodes, which of them are enabled, and how fast they go."""

from fractions import Fraction

import pytest
from kit.carried_out import Machine
from kit.loads import J, workload
from kit.mutants import FITS, Told

from cosched.model.allocation import Allocation, on_nodes
from cosched.model.coscheduling import Mode
from cosched.model.job import Job
from cosched.model.node import Node
from cosched.model.width import Components, Range
from cosched.workload import shapes
from space_scheduler.feasibility import Room
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Answer
from space_scheduler.machine.rules import BadPlan
from space_scheduler.machine.state import SchedulerState
from space_scheduler.plugins import resolve
from space_scheduler.policy.interface import Changes, Plan, PlannedAnswer, PlannedResize, PlannedStart
from space_scheduler.policy.place import PLACES
from space_scheduler.policy.reshape.free import FreeProcs
from space_scheduler.policy.reshape.resident import shrunk, widened
from space_scheduler.progress import NodeCpu, Occupancy, Sharing, speed_up
from space_scheduler.reasons import Reason, Why
from space_scheduler.simulator.host import Site, simulate

S = 1_000_000


def resident(number: int, least: int, most: int, memory: int = 0, procs: int = 0, **more: object) -> Job:
    """A job; ``procs``: its own width, where its most is more than could ever be enabled."""
    shape = Range(least, most, malleable=True, resident=True)
    return Job(number, procs or most, 100 * S, 0, memory_bytes=memory, shape=shape, **more)  # type: ignore[arg-type]


def rigid(number: int, procs: int) -> Job:
    return Job(number, procs, 100 * S, 0)


def test_all_processes_are_there_and_those_of_its_share_enabled() -> None:
    made = Machine(4, 4)
    made.submit(0, resident(1, 1, 8))
    assert made.holds(1) == [("a", 4, 4), ("b", 4, 4)]
    made.submit(1, resident(2, 1, 8))
    assert made.holds(1) == [("a", 4, 4), ("b", 4, 0)], "the last node gives first"
    assert made.holds(2) == [("b", 4, 4), ("a", 4, 0)], "its script runs where most is enabled"
    made.submit(2, resident(3, 1, 8))
    assert made.holds(1) == [("a", 4, 3), ("b", 4, 0)]
    assert made.holds(2) == [("b", 4, 3), ("a", 4, 0)]
    assert made.holds(3) == [("a", 4, 1), ("b", 4, 1)]
    made.happen(3, ev.JobEnded(1))
    assert made.holds(2) == [("b", 4, 3), ("a", 4, 1)], "its first node is full, so it is enabled on its other one"
    assert made.holds(3) == [("a", 4, 3), ("b", 4, 1)]
    made.happen(4, ev.JobEnded(2))
    assert made.holds(3) == [("a", 4, 4), ("b", 4, 4)]


def test_what_it_cannot_have_on_its_nodes_is_anothers_in_the_same_pass() -> None:
    """1 lies on a, where 3 is; half of the machine would be its share, and it can have 3 of it."""
    made = Machine(4, 8)
    made.submit(0, resident(1, 1, 4), rigid(3, 1), resident(2, 1, 12))
    assert made.holds(1) == [("a", 4, 4)]
    assert made.holds(3) == [("b", 1, 1)]
    assert made.holds(2) == [("b", 8, 7), ("a", 4, 0)]
    made.happen(1, ev.JobEnded(1))
    assert made.holds(2) == [("b", 8, 7), ("a", 4, 4)]


def test_a_share_that_has_no_place_goes_to_a_plain_malleable_job() -> None:
    """Of 12 processors 1 would have 6, and has processes for 4; 2 has 8 of them, and not 6."""
    made = Machine(2, 10, memory=100)
    made.submit(0, resident(1, 1, 8, memory=50, procs=4))
    assert made.holds(1) == [("a", 2, 2), ("b", 2, 2)], "memory is there for two on each"
    made.submit(1, Job(2, 8, 100 * S, 0, shape=Range(1, 8, malleable=True)))
    assert made.holds(1) == [("a", 2, 2), ("b", 2, 2)]
    assert made.holds(2) == [("b", 8, 8)]


def test_fewer_processes_are_there_where_memory_does_not_do_and_none_is_added_later() -> None:
    made = Machine(4, 4, memory=40)
    made.submit(0, Job(1, 1, 100 * S, 0, memory_bytes=30), resident(2, 2, 8, memory=10, procs=8))
    assert made.holds(2) == [("a", 1, 1), ("b", 4, 4)]
    made.happen(1, ev.JobEnded(1))
    assert made.holds(2) == [("a", 1, 1), ("b", 4, 4)]


def test_sleeping_processes_hold_memory() -> None:
    made = Machine(4, 4, memory=40)
    made.submit(0, rigid(1, 4), resident(2, 1, 8, memory=10))
    assert made.holds(2) == [("b", 4, 4), ("a", 4, 0)]
    made.submit(1, resident(3, 1, 1, memory=1))
    assert 3 in made.state.queue.ids(), "a processor can be had, and no byte"
    made.happen(2, ev.JobEnded(2))
    assert made.holds(3) == [("b", 1, 1)]


def test_nodes_are_exchanged_for_roomier_ones_where_few_may_be_used() -> None:
    """Most is free on a and b; with two nodes all eight processes fit on c and one of them alone."""
    made = Machine(3, 3, 5, max_nodes_per_job=2)
    made.submit(0, Job(1, 3, 100 * S, 0), Job(2, 3, 100 * S, 0), Job(3, 3, 100 * S, 0))
    assert [made.holds(job) for job in (1, 2, 3)] == [[("a", 3, 3)], [("b", 3, 3)], [("c", 3, 3)]]
    made.happen(1, ev.JobEnded(1), ev.JobEnded(2))
    made.submit(2, resident(4, 1, 8))
    assert made.holds(4) == [("a", 3, 3), ("c", 5, 2)]


def test_nodes_where_its_launch_has_failed_are_avoided() -> None:
    made = Machine(4, 4)
    made.submit(0, resident(1, 1, 8, procs=4, avoid=("a",)))
    assert made.holds(1) == [("b", 4, 4)]


def test_a_node_that_has_less_than_is_held_there_takes_nobody_who_sleeps_either() -> None:
    made = Machine(4, 4)
    made.submit(0, rigid(1, 3))
    made.happen(1, ev.NodeJoined(Node("a", 2, 100)))
    made.submit(2, resident(2, 1, 6, procs=4))
    assert made.holds(2) == [("b", 4, 3)], "three of six are 1's"


def test_a_job_that_has_no_place_takes_no_processors_from_others() -> None:
    """2 has memory for none of its processes beside those of 1, which has all processors until then, and keeps them."""
    made = Machine(4, 4, memory=40)
    made.submit(0, resident(1, 1, 8, memory=10))
    made.submit(1, Job(2, 4, 100 * S, 0, memory_bytes=1))
    assert made.holds(1) == [("a", 4, 4), ("b", 4, 4)]
    assert 2 in made.state.queue.ids()


def test_a_drained_node_of_it_gets_nothing_and_the_others_do() -> None:
    made = Machine(4, 4)
    made.submit(0, resident(1, 1, 8))
    made.submit(1, rigid(2, 5))
    assert made.holds(1) == [("a", 4, 3), ("b", 4, 0)]
    made.happen(2, ev.NodeDrained("b", "a test"))
    made.happen(3, ev.JobEnded(2))
    assert made.holds(1) == [("a", 4, 4), ("b", 4, 0)]
    made.happen(4, ev.NodeResumed("b"))
    assert made.holds(1) == [("a", 4, 4), ("b", 4, 4)]


def test_a_lost_node_ends_it_though_all_sleep_there() -> None:
    made = Machine(4, 4)
    made.submit(0, resident(1, 1, 8))
    made.submit(1, rigid(2, 4))
    assert made.holds(1) == [("a", 4, 4), ("b", 4, 0)]
    made.happen(2, ev.NodeLost("b"))
    assert made.state.records[1].state.value == "ending"


# counted processors


def test_counted_processors_and_how_fast_it_goes() -> None:
    made = Machine(procs=8)
    made.submit(0, resident(1, 2, 8))
    assert made.state.records[1].allocation == Allocation(8)
    made.submit(10, rigid(2, 5))
    record = made.state.records[1]
    assert record.allocation == Allocation(3, folded=8)
    assert str(record.reason) == (
        "shrunk: others need some of its processors (before_procs=8, procs=3, present_processes=8)"
    )
    assert record.rate_ppm == Fraction(3, 8) * 1_000_000, "by its processors, not by 1 / ⌈8/3⌉"
    assert record.end_us == 10 * S + 240 * S, "90 s of 8 on 3"


def test_it_is_as_fast_as_its_shape_says_and_suspended_it_does_nothing() -> None:
    shape = Range(1, 8, (1, 2, 8), (10, 19, 40), malleable=True, resident=True)
    job = Job(1, 8, 100 * S, 0, shape=shape)
    assert speed_up(job, Allocation(2, folded=8)) == Fraction(19, 40)
    assert speed_up(job, Allocation(0, folded=8)) == 0
    assert shape.present() == 8
    assert [shape.present(n) for n in (1, 3, 7, 8, 9)] == [1, 2, 2, 8, 8]


def test_how_many_processes_are_there() -> None:
    shape = Range(3, 8, malleable=True, ask_more=4, ask_fewer=2, resident=True)
    assert shape.present() == 12, "with those that it may ask for"
    assert [shape.present(n) for n in (2, 3, 9, 13)] == [None, 3, 9, 12]
    assert Range(1, 2, resident=True).trouble() == "its processes are to stay, and it is not malleable"


def test_it_is_not_folded() -> None:
    """BFM's window expires, and the job that was backfilled keeps what it has: its head is told."""
    made = Machine(procs=16, policy="fjt1+bfm")
    made.submit(0, Job(1, 8, 50 * S, 0), Job(2, 14, 60 * S, 0), resident(3, 8, 8))
    made.happen(50, ev.JobEnded(1))
    assert made.state.records[3].allocation == Allocation(8)
    assert made.state.explain(2).why is Why.NOT_FOLDABLE


def test_it_starts_on_a_processor_for_each_of_its_processes_under_fjt4() -> None:
    made = Machine(procs=8, policy="fjt4")
    made.submit(0, rigid(1, 6), resident(2, 2, 8, long=True))
    assert made.state.records[2].allocation == Allocation(2)


@pytest.mark.parametrize(("policy", "given"), [("keep", 0), ("part", 2), ("wait", 0)])
def test_requests_are_bounded_by_the_processes_that_are_there(policy: str, given: int) -> None:
    """Six are there, for memory's sake; beside at least 4 it asks for 4 more, which whoever ends could not give it."""
    made = Machine(4, 4, memory=30, policy=f"equipartition({policy})")
    shape = Range(4, 6, malleable=True, ask_more=4, resident=True)
    made.submit(0, Job(1, 6, 100 * S, 0, memory_bytes=10, shape=shape))
    assert made.holds(1) == [("a", 3, 3), ("b", 3, 3)]
    made.happen(1, ev.ResizeAsked(1, 4))
    (answer,) = [each for each in made.told if isinstance(each, Answer)]
    assert (answer.given, answer.waits, made.state.records[1].asks) == (given, False, ())


def test_a_request_wakes_processes_that_were_there_all_the_time() -> None:
    made = Machine(4, 4)
    made.submit(0, Job(1, 2, 100 * S, 0, shape=Range(2, 2, malleable=True, ask_more=3, resident=True)))
    assert made.holds(1) == [("a", 4, 2), ("b", 1, 0)]
    made.happen(1, ev.ResizeAsked(1, 3))
    assert made.holds(1) == [("a", 4, 4), ("b", 1, 1)]


def test_a_workload_on_named_nodes() -> None:
    """1 has both nodes until 2 comes at 10 s and is given b; at 30 s it is 1's again: 100 s of 8 on 8, 4, 8."""
    load = shapes.apply(workload(8, [J(0, 8, 100), J(10, 4, 20)]), {0: shapes.Line(least=1, most=8, resident=True)})
    ran = simulate(load, resolve("equipartition"), site=Site([Node("a", 4, 9), Node("b", 4, 9)]), validate=True)
    assert ran.end_us.tolist() == [110 * S, 30 * S]
    assert [(each.row, each.at_us // S, each.processes, each.procs) for each in ran.holdings or ()] == [
        (0, 0, 8, 8),
        (0, 10, 8, 4),
        (1, 10, 4, 4),
        (0, 30, 8, 8),
    ]


# several clusters


def test_equipartition_over_two_labs_keeps_each_malleable_job_in_one() -> None:
    """Eight processors in two labs, a job of components on all of them, four malleable and three rigid jobs behind it.

    When it ends, its processors go to the malleable jobs, and the rigid ones start as minima leave room.
    """
    made = Machine(2, 2, 2, 2, clusters="xxyy")
    made.submit(0, Job(1, 8, 12 * S, 0, shape=Components((4, 4))))
    made.submit(1, *(resident(number, 1, 4) for number in range(2, 6)), *(rigid(number, 1) for number in range(6, 9)))
    made.happen(12, ev.JobEnded(1))
    assert {job_id: record.state.value for job_id, record in made.state.records.items()} == dict.fromkeys(
        range(2, 9), "running"
    )
    for job_id in range(2, 6):
        held = made.holds(job_id)
        assert len({"xxyy"["abcd".index(node)] for node, _, _ in held}) == 1, held
        assert sum(processes for _, processes, _ in held) == 4, "all of its processes are there, in one lab"
    assert made.state.machine.capacity.free_procs == 0


def test_resident_job_takes_the_cluster_with_room_for_all_its_processes() -> None:
    """Four are free in the smaller lab, three in the larger one, which has eight processors."""
    made = Machine(4, 8, clusters="xy")
    made.submit(0, rigid(1, 5), resident(2, 1, 8))
    assert made.holds(2) == [("b", 8, 3)]


def test_job_whose_node_moves_to_another_cluster_still_grows() -> None:
    """What it holds it keeps, and grows there, though an operator has said meanwhile that one node is elsewhere."""
    made = Machine(2, 2, 2, clusters="xxy")
    made.submit(0, resident(1, 1, 4), rigid(2, 2), rigid(3, 2))
    assert made.holds(1) == [("a", 2, 2), ("b", 2, 0)]
    made.happen(1, ev.NodeJoined(Node("b", 2, 100, cluster="y")))
    made.happen(2, ev.JobEnded(2))
    assert made.holds(1) == [("a", 2, 2), ("b", 2, 2)]


def test_folded_start_has_each_component_in_a_lab_of_its_own() -> None:
    """Two components of two processes each on a processor of each lab; with one lab away there is no place."""
    made = Machine(2, 2, clusters="xy", policy="fjt4")
    made.submit(0, rigid(1, 1), rigid(2, 1), Job(3, 4, 100 * S, 0, shape=Components((2, 2)), long=True))
    assert made.holds(3) == [("a", 2, 1), ("b", 2, 1)]
    made.happen(1, ev.NodeDrained("b"))
    made.happen(2, ev.JobEnded(3))
    made.submit(3, Job(4, 2, 100 * S, 0, shape=Components((1, 1)), long=True))
    assert made.state.explain(4).why is Why.NODES_AWAY


def test_components_on_one_lab_are_refused_also_where_only_one_is_in_service() -> None:
    room = Room(["a"], [4], [100], None, PLACES["first-fit"])
    job = Job(1, 2, 100 * S, 0, shape=Components((1, 1)))
    assert room.misfit(job, Allocation(2, on_nodes([("a", 2, 2)]).nodes)) == "components of 1+1 as 2 on the clusters"


# what the machine refuses


LAY = on_nodes([("a", 4, 4), ("b", 4, 0)])


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (on_nodes([("a", 4, 2)]), "its 8 processes stay where they are, also those that sleep"),
        (on_nodes([("b", 4, 1), ("a", 4, 4)]), "its 8 processes stay where they are, also those that sleep"),
        (on_nodes([("a", 5, 4), ("b", 3, 2)]), "its 8 processes stay where they are, also those that sleep"),
        (on_nodes([("a", 4, 1), ("b", 4, 0)]), "1 of its 8 processes cannot be enabled"),
        (on_nodes([("a", 4, 4), ("b", 4, 4)]), "fewer processors are free than 4 more"),
    ],
)
def test_a_change_that_it_cannot_have(new: Allocation, words: str) -> None:
    policy = Told(Plan())
    made = Machine(4, 4, policy=policy)
    job, other = resident(1, 2, 8), rigid(2, 1)
    policy.answer = Plan([PlannedStart(job, FITS, LAY), PlannedStart(other, FITS, on_nodes([("b", 1, 1)]))])
    for event in (ev.JobSubmitted(job), ev.JobSubmitted(other), ev.Boundary(), ev.JobLaunched(1), ev.JobLaunched(2)):
        made.state.handle(event, S)
    policy.answer = Plan([PlannedResize(job, Reason(Why.SHRUNK), new)])
    with pytest.raises(BadPlan, match=words):
        made.submit(2, rigid(3, 1))


@pytest.mark.parametrize(
    ("lay", "words"),
    [
        (on_nodes([("a", 5, 4), ("b", 3, 0)]), "5 tasks on node a, which has 4 processors"),
        (on_nodes([("a", 4, 1), ("b", 4, 0)]), "1 of its 8 processes cannot be enabled"),
        (on_nodes([("a", 1, 1)]), "it cannot have 1 processors"),
    ],
)
def test_a_start_that_it_cannot_have(lay: Allocation, words: str) -> None:
    policy = Told(Plan())
    made = Machine(4, 4, policy=policy)
    job = resident(1, 2, 8)
    policy.answer = Plan([PlannedStart(job, FITS, lay)])
    with pytest.raises(BadPlan, match=words):
        made.submit(1, job)


def test_an_answer_that_it_cannot_have() -> None:
    """Three are there; its minimum of 2 cannot become 4."""
    policy = Told(Plan())
    made = Machine(4, policy=policy)
    shape = Range(2, 4, malleable=True, ask_more=4, resident=True)
    job = Job(1, 3, 100 * S, 0, shape=shape)
    policy.answer = Plan([PlannedStart(job, FITS, on_nodes([("a", 3, 3)]))])
    for event in (ev.JobSubmitted(job), ev.Boundary(), ev.JobLaunched(1), ev.ResizeAsked(1, 2)):
        made.state.handle(event, S)
    policy.answer = Plan([PlannedAnswer(job, Reason(Why.ASKED), 2)])
    with pytest.raises(BadPlan, match="it cannot be given 2 more: 3 processes are there"):
        made.happen(2, ev.ResizeAsked(1, 1))
    policy.answer = Plan([PlannedAnswer(job, Reason(Why.ASKED), 1)])
    made.state.handle(ev.Boundary(), 2 * S)
    assert made.state.records[1].given == 1


# shared nodes


def test_nobody_is_beside_those_that_sleep() -> None:
    """Where 1 has processes that sleep alone it costs 2 nothing, and its own pace is that of its other node."""
    there = Occupancy(Sharing(cost_permille={"cpu": {"cpu": 500}}))
    for name in "ab":
        there.nodes[name] = NodeCpu(2.0, 2)
    there.enter(resident(1, 1, 4), on_nodes([("a", 2, 2), ("b", 2, 0)]))
    there.enter(rigid(2, 2), on_nodes([("b", 2, 2)]))
    assert there.rates_ppm("ab") == {1: 500_000, 2: 1_000_000}
    assert there.on("b") == (2,)


@pytest.mark.parametrize("mode", Mode)
def test_a_node_of_suspended_jobs_alone_has_rates(mode: Mode) -> None:
    there = Occupancy(Sharing(mode))
    there.nodes["a"] = NodeCpu(2.0, 2)
    there.enter(rigid(1, 2), on_nodes([("a", 2, 0)]))
    assert there.rates_ppm("a") == {1: 0}


def test_processors_that_a_folded_job_is_given_back_keep_the_rule_of_its_company() -> None:
    room = Room(["a"], [3], [100], None, PLACES["uniform-hard"], cpus=[4])
    held = on_nodes([("a", 4, 1)])
    assert room.misfit_wider(rigid(1, 4), held, on_nodes([("a", 4, 2)])) is None


def test_policy_of_folding_enables_what_another_has_left_asleep() -> None:
    made = Machine(policy="equipartition", procs=8)
    made.submit(0, resident(1, 1, 8), rigid(2, 4))
    made.state = SchedulerState.restore(resolve("fjt1+bfm"), made.state.rules, made.state.snapshot())
    made.happen(1, ev.RulesChanged("fjt1+bfm"))
    assert made.state.records[1].allocation == Allocation(4, folded=8)
    made.happen(2, ev.JobEnded(2))
    assert (made.state.records[1].allocation, made.state.records[1].reason.why) == (Allocation(8), Why.WIDENED)


@pytest.mark.parametrize(("free", "wanted", "holds"), [(4, 6, 6), (4, 7, None), (0, 2, None)])
def test_counted_processors_are_free_for_all_that_is_enabled_or_for_none(
    free: int, wanted: int, holds: int | None
) -> None:
    procs = FreeProcs(SchedulerState(resolve("fcfs")).view(Changes()))
    procs.procs = free
    expected = None if holds is None else Allocation(holds, folded=8)
    assert widened(procs, resident(1, 1, 8), Allocation(2, folded=8), wanted) == expected


def test_what_is_shrunk_to() -> None:
    assert shrunk(Allocation(5, folded=8), 3) == Allocation(3, folded=8)
    assert shrunk(Allocation(8), 3) == Allocation(3, folded=8)
    assert shrunk(on_nodes([("a", 2, 1), ("b", 2, 2)]), 1) == on_nodes([("a", 2, 1), ("b", 2, 0)])

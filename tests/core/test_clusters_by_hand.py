"""Several clusters: hand-made schedules of jobs of components, and what becomes of those that have no place."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from cosched.model.components import Between, Dividing, Partition
from cosched.model.coscheduling import Mode
from cosched.model.job import Job
from cosched.model.node import Node
from cosched.model.width import Components, Flexible, Range
from cosched.workload.rules import Workload, workload_of
from space_scheduler.machine.events import Boundary, JobSubmitted, NodeDrained, NodeJoined
from space_scheduler.machine.instructions import Start
from space_scheduler.machine.record import Infeasible
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.state import SchedulerState
from space_scheduler.plugins import resolve
from space_scheduler.policy.interface import Policy
from space_scheduler.policy.presets import compose
from space_scheduler.progress import Sharing
from space_scheduler.reasons import Why
from space_scheduler.simulator.host import Outcome, Site, simulate

S = 1_000_000
Row = tuple[int, int, tuple[int, ...]]  # submitted, runs for, components
EASY = compose("fcfs", "backfill(1)", "worst-fit")
CONSERVATIVE = compose("fcfs", "conservative(arrival)", "worst-fit")
Shape = Components | Flexible | None


def site(*sizes: int, between: Between | None = None, sharing: Sharing | None = None) -> Site:
    nodes = [Node(str(i), procs, 1 << 40, procs, cluster=str(i)) for i, procs in enumerate(sizes, 1)]
    return Site(nodes, sharing=sharing, between=between)


def workload(rows: Sequence[Row], shapes: Sequence[Shape] | None = None) -> Workload:
    submit, run_us, procs = np.array([(at * S, for_s * S, sum(parts)) for at, for_s, parts in rows], np.int64).T
    divided = shapes or [Components(parts) if len(parts) > 1 else None for _, _, parts in rows]
    return workload_of("by hand", int(procs.sum()), submit, run_us, procs, divided=divided)


def run(policy: Policy, where: Site, *rows: Row, shapes: Sequence[Shape] | None = None) -> Outcome:
    return simulate(workload(rows, shapes), policy, site=where, validate=True)


def placed(outcome: Outcome) -> Sequence[tuple[tuple[str, int], ...]]:
    assert outcome.placed is not None
    return outcome.placed


def times(outcome: Outcome) -> list[tuple[float, float]]:
    both = zip(outcome.start_us.tolist(), outcome.end_us.tolist(), strict=True)
    return [(start / S, end / S) for start, end in both]


#: The issue's example: two clusters of 4.
FOUR: tuple[Row, ...] = ((0, 10, (3,)), (0, 10, (4, 4)), (0, 10, (1,)), (0, 11, (1,)))


def test_easy_keeps_a_reservation_over_all_clusters() -> None:
    outcome = run(EASY, site(4, 4), *FOUR)
    assert times(outcome) == [(0, 10), (10, 20), (0, 10), (20, 31)]
    assert placed(outcome)[1] == (("1", 4), ("2", 4))


def test_conservative_does_so_for_everybody() -> None:
    assert times(run(CONSERVATIVE, site(4, 4), *FOUR)) == [(0, 10), (10, 20), (0, 10), (20, 31)]


def test_fpfs_lets_the_long_one_past() -> None:
    outcome = run(resolve("coalloc-fpfs(10)"), site(4, 4), *FOUR)
    assert times(outcome) == [(0, 10), (11, 21), (0, 10), (0, 11)]
    assert placed(outcome)[3] == (("2", 1),)


def test_without_jumps_it_is_fcfs() -> None:
    fcfs, none = (run(resolve(name), site(4, 4), *FOUR) for name in ("coalloc-fcfs", "coalloc-fpfs(0)"))
    assert times(fcfs) == times(none) == [(0, 10), (10, 20), (20, 30), (20, 31)]
    assert fcfs.placed == none.placed


def test_components_lie_where_worst_fit_has_them() -> None:
    busy = ((0, 10, (3,)), (0, 10, (5,)), (0, 10, (4,)), (0, 5, (3, 3, 2)))
    outcome = run(resolve("coalloc-fcfs"), site(8, 8, 8), *busy)
    assert outcome.placed == [(("1", 3),), (("2", 5),), (("3", 4),), (("1", 3), ("3", 3), ("2", 2))]
    assert times(outcome)[3] == (0, 5)
    wide = run(resolve("coalloc-fcfs"), site(8, 8, 8), *busy[:3], (0, 5, (5, 4, 4)))
    assert times(wide)[3] == (10, 15)


def test_a_job_is_divided_at_its_start_where_the_scheduler_may() -> None:
    busy: tuple[Row, ...] = ((0, 10, (5,)), (0, 10, (5,)), (0, 10, (5,)), (0, 10, (5,)))
    rows = (*busy, (0, 5, (15,)))
    shapes = [None] * 4 + [Flexible(15, 4)]
    outcome = run(resolve("coalloc-fcfs"), site(8, 8, 8, 8, 7), *rows, shapes=shapes)
    assert placed(outcome)[4] == (("5", 6), ("1", 3), ("2", 3), ("3", 3))
    whole = run(resolve("coalloc-fcfs"), site(8, 8, 8, 8, 7), *rows, shapes=[None] * 4 + [Components((4, 4, 4, 3))])
    assert times(whole)[4] == (10, 15)


COST = Between({"": 250_000, "cpu": 0})


@pytest.mark.parametrize("policy", [EASY, CONSERVATIVE])
def test_the_link_makes_a_job_on_several_clusters_longer(policy: Policy) -> None:
    assert times(run(policy, site(4, 4, between=COST), *FOUR)) == [(0, 10), (10, 22.5), (0, 10), (22.5, 33.5)]


def test_a_job_may_say_what_the_link_costs_it() -> None:
    load = workload(FOUR)
    where = site(4, 4, between=COST)
    own = replace(load, crossing_ppm=[None, 500_000, None, None])
    assert times(simulate(own, EASY, site=where, validate=True))[1] == (10, 25)
    assert times(simulate(own, EASY, site=site(4, 4), validate=True))[1] == (10, 25)


def test_on_shared_nodes_too() -> None:
    where = site(4, 4, between=COST, sharing=Sharing(Mode.NONE))
    shared = run(resolve("3dbf-light"), where, (0, 10, (4, 4)), (0, 10, (4,)))
    assert times(shared)[0] == (0, 12.5)


def machine(*sizes: int, rules: MachineRules | None = None) -> SchedulerState:
    state = SchedulerState(resolve("coalloc-fcfs"), rules)
    for at, procs in enumerate(sizes, 1):
        for desk in range(procs):
            state.handle(NodeJoined(Node(f"c{at}n{desk}", 1, 1 << 30, cluster=f"c{at}")), 0)
    return state


def submit(state: SchedulerState, number: int, procs: int, shape: Components | Flexible | Range | None) -> None:
    state.handle(JobSubmitted(Job(number, procs, 10 * S, 0, shape=shape)), 0)
    state.handle(Boundary(), 0)
    state.validate()


def test_each_component_lies_on_desks_of_one_lab() -> None:
    state = machine(3, 4)
    submit(state, 1, 5, Components((2, 3)))
    allocation = state.records[1].allocation
    assert allocation is not None
    assert [share.node for share in allocation.nodes] == ["c2n0", "c2n1", "c2n2", "c1n0", "c1n1"]
    submit(state, 2, 2, None)
    assert state.explain(2).why is Why.NO_CLUSTERS
    assert state.explain(2).numbers == {
        "procs": 2, "components": 1, "widest_procs": 2, "freest_procs": 1, "clusters": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("procs", "shape", "why"),
    [
        (5, None, Why.WIDER_THAN_CLUSTER),
        (6, Components((5, 1)), Why.WIDER_THAN_CLUSTER),
        (3, Components((1, 1, 1)), Why.MORE_THAN_CLUSTERS),
        (8, Components((4, 4)), Why.WIDER_THAN_MACHINE),
        (7, Components((4, 3)), None),
        (7, Flexible(7, 2), None),
    ],
)
def test_what_has_no_place_on_empty_clusters_is_refused(procs: int, shape: Shape, why: Why | None) -> None:
    state = machine(3, 4)
    if why is None:
        submit(state, 1, procs, shape)
        return
    with pytest.raises(Infeasible) as refused:
        submit(state, 1, procs, shape)
    assert refused.value.reason.why is why


def test_components_need_clusters() -> None:
    state = SchedulerState(resolve("easy"))
    state.handle(NodeJoined(Node("a", 8, 1 << 30)), 0)
    with pytest.raises(Infeasible) as refused:
        submit(state, 1, 4, Components((2, 2)))
    assert refused.value.reason.why is Why.MORE_THAN_CLUSTERS


def test_a_lab_that_is_away_is_waited_for() -> None:
    state = machine(3, 4)
    for desk in range(3):
        state.handle(NodeDrained(f"c1n{desk}"), 0)
    submit(state, 1, 5, Components((3, 2)))
    assert state.explain(1).why is Why.NODES_AWAY
    submit(state, 2, 4, None)
    assert state.explain(2).why is Why.BEHIND_HEAD


def test_a_moldable_job_is_as_wide_as_has_a_place_on_its_clusters() -> None:
    state = SchedulerState(resolve("fjt1+bfm"))
    for name, cluster in (("a", "x"), ("b", "y")):
        state.handle(NodeJoined(Node(name, 4, 1 << 30, cluster=cluster)), 0)
    state.handle(JobSubmitted(Job(1, 4, 10 * S, 0, shape=Range(1, 8))), 0)
    state.handle(JobSubmitted(Job(2, 8, 10 * S, 0, shape=Range(1, 8, components=2))), 0)
    state.handle(Boundary(), 0)
    state.validate()
    first, second = (state.records[number].allocation for number in (1, 2))
    assert first is not None
    assert (first.procs, len(first.nodes)) == (4, 1)
    assert second is not None
    assert second.procs == 4


def test_a_reason_knows_that_the_link_makes_a_job_longer() -> None:
    """Job 2 needs all at 11. Job 3 would be done by then on one lab, and is not on two; job 2 has a place beside it."""
    told: list[tuple[int, Why]] = []
    where = site(6, 6, between=Between({"": 250_000}))
    rows = ((0, 11, (5,)), (0, 10, (5, 5)), (0, 10, (1, 1)))
    simulate(
        workload(rows), EASY, site=where, validate=True,
        observer=lambda _now, _event, found: told.extend(
            (each.job.id, each.reason.why) for each in found if isinstance(each, Start)
        ),
    )  # fmt: skip
    assert told == [(1, Why.FITS), (3, Why.BACKFILLED_BESIDE), (2, Why.FITS)]


def test_a_job_that_waits_is_told_that_it_would_be_in_the_way_over_the_link() -> None:
    state = SchedulerState(EASY, MachineRules(between=Between({"": 500_000})))
    for name in ("a", "b"):
        state.handle(NodeJoined(Node(name, 2, 1 << 30, cluster=name)), 0)
    for number, procs, for_s, shape in (
        (1, 1, 12, None), (2, 4, 10, Components((2, 2))), (3, 2, 10, Components((1, 1)))
    ):  # fmt: skip
        state.handle(JobSubmitted(Job(number, procs, for_s * S, 0, shape=shape)), 0)
    state.handle(Boundary(), 0)
    assert state.explain(3).why is Why.WOULD_DELAY_RESERVATION


def test_a_node_that_joins_another_lab_makes_its_jobs_slower() -> None:
    state = SchedulerState(resolve("3dbf-light"), MachineRules(sharing=Sharing(), between=COST))
    nodes = [Node(name, 1, 1 << 30, 1, cluster=lab) for name, lab in (("a", "x"), ("b", "x"), ("c", "y"))]
    for node in nodes:
        state.handle(NodeJoined(node), 0)
    submit(state, 1, 2, None)
    assert state.records[1].end_us == 10 * S
    state.handle(NodeJoined(structs.replace(nodes[1], cluster="y")), 2 * S)
    state.handle(Boundary(), 2 * S)
    state.validate()
    assert state.records[1].end_us == 12 * S
    again = SchedulerState.restore(state.policy, state.rules, state.snapshot())
    again.validate()
    assert again.records[1].end_us == 12 * S


def test_phased_bounds_are_told_by_the_workload() -> None:
    dividing = Dividing(threshold=2, partition=Partition.PHASED, bounds=(3,), most=3)
    assert dividing.shape(3, None) == Components((1, 2))  # type: ignore[arg-type]  # nothing is drawn
    assert dividing.shape(4, None) == Components((1, 1, 2))  # type: ignore[arg-type]

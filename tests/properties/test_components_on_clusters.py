"""Several clusters, whatever comes: components never split, all start at once, each where Worst Fit has it."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosched.model.components import Between, Dividing, Partition
from cosched.model.coscheduling import Mode
from cosched.model.node import Node
from cosched.workload.rules import Workload, workload_of
from space_scheduler.machine.events import Boundary, Event, JobEnded, JobSubmitted, NodeJoined
from space_scheduler.machine.instructions import Instruction, Start
from space_scheduler.machine.state import SchedulerState
from space_scheduler.plugins import resolve
from space_scheduler.policy.presets import compose
from space_scheduler.progress import Sharing
from space_scheduler.simulator.fitting import fitting
from space_scheduler.simulator.host import Site, simulate, site_rules

PARTITIONS = [each for each in Partition if each is not Partition.USER]
EASY = compose("fcfs", "backfill(1)", "worst-fit")


def site_of(sizes: Sequence[int], desks: int, cost_ppm: int) -> Site:
    """Clusters of so many processors, each of nodes with so many at most."""
    nodes = []
    for number, procs in enumerate(sizes, 1):
        for desk, first in enumerate(range(0, procs, desks), 1):
            here = min(desks, procs - first)
            nodes.append(Node(f"c{number}d{desk}", here, 1 << 40, here, cluster=f"c{number}"))
    return Site(nodes, sharing=None, between=Between({"": cost_ppm}) if cost_ppm else None)


def drawn_load(seed: int, sizes: Sequence[int], partition: Partition, jobs: int = 25) -> Workload:
    chance = Random(seed)
    most = min(chance.randint(1, 4), len(sizes))
    narrow = sorted(sizes)[-most:]  # whoever is divided evenly over these fits
    dividing = Dividing(threshold=max(1, min(sizes) // 2), partition=partition, most=most, bounds=(4, 6))
    procs = [chance.randint(1, max(1, most * (narrow[0] // 2))) for _ in range(jobs)]
    divided = [dividing.shape(each, chance) for each in procs]
    submit = np.cumsum([chance.choice((0, 0, 1, 3)) for _ in range(jobs)]).astype(np.int64) * 1_000_000
    run = np.array([chance.randint(1, 12) for _ in range(jobs)], np.int64) * 1_000_000
    width = np.array(procs, np.int64)
    return workload_of("drawn", sum(sizes), submit, run, width, divided=divided)


class Watch:
    """What is free on each cluster and who waits, from events and starts alone."""

    def __init__(self, site: Site) -> None:
        self.cluster_of = {node.name: node.cluster for node in site.nodes}
        self.free: Counter[str] = Counter()
        for node in site.nodes:
            self.free[node.cluster] += node.procs
        self.waiting: list[int] = []
        self.held: dict[int, Counter[str]] = {}
        self.jumps: Counter[int] = Counter()
        self.by_worst_fit = True

    def __call__(self, now_us: int, event: Event, instructions: list[Instruction]) -> None:
        if isinstance(event, JobSubmitted):
            self.waiting.append(event.job.id)
        elif isinstance(event, JobEnded):
            self.free.update(self.held.pop(event.job_id))
        for each in instructions:
            if isinstance(each, Start):
                self._started(each)

    def _started(self, start: Start) -> None:
        if self.waiting[0] != start.job.id:
            self.jumps[self.waiting[0]] += 1
        self.waiting.remove(start.job.id)
        widths: Counter[str] = Counter()
        for share in start.allocation.nodes:
            widths[self.cluster_of[share.node]] += share.tasks
        shape = start.job.shape
        parts = getattr(shape, "procs", start.job.procs)
        if isinstance(parts, tuple):
            assert sorted(widths.values()) == sorted(parts), "a component lies on one cluster, no two on the same"
        else:
            assert sum(widths.values()) == start.job.procs
            assert len(widths) <= getattr(shape, "most", 1)
        if self.by_worst_fit:
            for one, width in widths.items():
                assert all(self.free[one] >= self.free[other] for other in widths if widths[other] < width)
                assert all(self.free[one] >= free for other, free in self.free.items() if other not in widths)
        self.free.subtract(widths)
        assert min(self.free.values()) >= 0
        self.held[start.job.id] = widths


@pytest.mark.slow
@given(
    seed=st.integers(0, 1 << 20),
    sizes=st.lists(st.integers(2, 9), min_size=2, max_size=5),
    desks=st.sampled_from((1, 2, 20)),
    partition=st.sampled_from([each for each in PARTITIONS if each is not Partition.NEAR]),
    cost_ppm=st.sampled_from((0, 250_000, 333_333)),
    jumps=st.sampled_from((0, 1, 3)),
)
@settings(max_examples=50)
def test_worst_fit_and_the_bound_on_jumps(
    seed: int, sizes: list[int], desks: int, partition: Partition, cost_ppm: int, jumps: int
) -> None:
    site, policy = site_of(sizes, desks, cost_ppm), resolve(f"coalloc-fpfs({jumps})")
    load = fitting(drawn_load(seed, sizes, partition), [policy], site)
    watch = Watch(site)
    simulate(load, policy, site=site, observer=watch, validate=True)
    assert not watch.held
    assert all(count <= jumps for count in watch.jumps.values())


@pytest.mark.parametrize(
    ("select", "place"),
    [
        ("backfill(1)", "worst-fit"),
        ("conservative(arrival)", "worst-fit"),
        ("conservative(none)", "spread"),
        ("bestfit", "worst-fit"),
        ("backfill(3)", "normal"),
    ],
)
@given(
    seed=st.integers(0, 1 << 20),
    sizes=st.lists(st.integers(2, 9), min_size=2, max_size=4),
    desks=st.sampled_from((1, 2, 20)),
    partition=st.sampled_from(PARTITIONS),
    cost_ppm=st.sampled_from((0, 333_333)),
)
@settings(max_examples=15)
def test_in_every_selection(
    select: str, place: str, seed: int, sizes: list[int], desks: int, partition: Partition, cost_ppm: int
) -> None:
    policy = compose("fcfs", select, place)
    site = site_of(sizes, desks, cost_ppm)
    load = fitting(drawn_load(seed, sizes, partition), [policy], site)
    watch = Watch(site)
    watch.by_worst_fit = policy == EASY and partition is not Partition.NEAR
    outcome = simulate(load, policy, site=site, observer=watch, validate=True)
    assert not watch.held
    promised = (outcome.promised_us >= 0) & select.startswith("conservative")
    assert (outcome.start_us <= outcome.promised_us)[promised].all(), "a guarantee holds"
    longer = outcome.end_us - outcome.start_us
    for row, run_us in enumerate(load.run_us.tolist()):
        apart = len(outcome.components(row)) > 1
        assert longer[row] == (-(-run_us * (1_000_000 + cost_ppm) // 1_000_000) if apart else run_us)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sharing"), [("easy", None), ("3dbf-light", Sharing(Mode.NONE))])
@given(seed=st.integers(0, 1 << 20), partition=st.sampled_from(PARTITIONS))
@settings(max_examples=10)
def test_a_restored_machine_goes_on_alike(name: str, sharing: Sharing | None, seed: int, partition: Partition) -> None:
    """A core that is written down and restored between any two events decides as one that was not."""
    policy, site = resolve(name), site_of((5, 4, 4), 2, 250_000)._replace(sharing=sharing)
    load = fitting(drawn_load(seed, (5, 4, 4), partition), [policy], site)
    told: list[tuple[int, Event]] = []
    simulate(load, policy, site=site, observer=lambda now_us, event, _: told.append((now_us, event)))
    rules = site_rules(policy, site)
    states = [SchedulerState(policy, rules) for _ in range(2)]
    for now_us, event in told:
        plain = states[0].handle(event, now_us)
        states[1] = SchedulerState.restore(policy, rules, states[1].snapshot())
        assert states[1].handle(event, now_us) == plain
        states[1].validate()


def test_one_cluster_is_a_machine_as_any() -> None:
    load = drawn_load(3, (9,), Partition.RANDOM, 60)
    one = simulate(load, resolve("coalloc-fpfs(2)"), site=site_of((9,), 20, 0))
    counted = simulate(load, compose("fcfs", "fpfs(2)"))
    assert (one.start_us == counted.start_us).all()


def test_a_node_may_change_its_cluster() -> None:
    state = SchedulerState(EASY)
    for name, cluster in (("a", "x"), ("b", "y")):
        state.handle(NodeJoined(Node(name, 2, 1 << 30, cluster=cluster)), 0)
    assert state.machine.nodes is not None
    assert state.machine.nodes.room().clusters is not None
    state.handle(NodeJoined(Node("b", 2, 1 << 30, cluster="x")), 1)
    state.handle(Boundary(), 1)
    assert state.machine.nodes.room().clusters is None
    state.validate()

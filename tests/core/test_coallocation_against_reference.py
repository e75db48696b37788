"""Jobs of components on several clusters: the core starts each when and where its plain simulator does.

To the microsecond, on the same clusters in the same widths, and with the same promises. What the workloads brought
about is printed (``-s``), and has to have happened.
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import settings
from reference.coallocation import Clusters, Conservative, Easy, Placed, clusters_of, simulate
from reference.coallocation_loads import Load, Row, load
from reference.rules import Fpfs, JustTheHead
from reference.world import Rule

from cosched.model.components import Between
from cosched.model.node import Node
from cosched.model.width import Components, Flexible
from cosched.workload.rules import AtLimit, Workload
from space_scheduler.plugins import resolve
from space_scheduler.policy.interface import Policy
from space_scheduler.policy.presets import compose
from space_scheduler.simulator.host import Site, Ties
from space_scheduler.simulator.host import simulate as simulate_core

#: Workloads for each policy: with HYPOTHESIS_PROFILE=campaign thousands.
SEEDS = max(200, settings().max_examples)


class Pair(NamedTuple):
    core: Callable[[], Policy]
    reference: Callable[[], Rule]
    promises: bool = False


PAIRS = {
    "fcfs": Pair(lambda: resolve("coalloc-fcfs"), JustTheHead),
    "fpfs(0)": Pair(lambda: resolve("coalloc-fpfs(0)"), JustTheHead),
    "fpfs(1)": Pair(lambda: resolve("coalloc-fpfs(1)"), lambda: Fpfs(1)),
    "fpfs(3)": Pair(lambda: resolve("coalloc-fpfs(3)"), lambda: Fpfs(3)),
    "easy": Pair(lambda: compose("fcfs", "backfill(1)", "worst-fit"), Easy, True),
    "arrival": Pair(
        lambda: compose("fcfs", "conservative(arrival)", "worst-fit"), lambda: Conservative("arrival"), True
    ),
    "none": Pair(lambda: compose("fcfs", "conservative(none)", "worst-fit"), lambda: Conservative("none"), True),
}


def site(made: Load) -> Site:
    """A node for each cluster."""
    nodes = [Node(str(n), size, 1 << 40, size, cluster=str(n)) for n, size in enumerate(made.sizes, 1)]
    return Site(nodes, sharing=None, between=Between({"": made.cost_ppm}))


def divided(row: Row) -> Components | Flexible | None:
    if row.most is not None:
        return Flexible(row.size, row.most)
    return Components(row.components) if len(row.components) > 1 else None


def workload(made: Load) -> Workload:
    def column(values: list[int]) -> np.ndarray:
        return np.array(values, np.int64)

    estimate = column([row.estimate for row in made.rows])
    return Workload(
        name="made",
        procs_total=sum(made.sizes),
        job_id=column(list(range(len(made.rows)))),
        submit_us=column([row.submit for row in made.rows]),
        run_us=column([row.run for row in made.rows]),
        procs=column([row.size for row in made.rows]),
        estimate_us=estimate,
        request_us=estimate,
        user=column([-1] * len(made.rows)),
        timed_out=np.zeros(len(made.rows), np.bool_),
        divided=[divided(row) for row in made.rows],
    )


def by_cluster(placed: Placed) -> list[tuple[str, int]]:
    return sorted((str(cluster), width) for cluster, width in placed)


def happened(world: Clusters) -> Counter[str]:
    jobs = world.jobs
    return Counter(
        crossing=sum(len(clusters_of(job.placed)) > 1 for job in jobs),
        waited=sum(job.start > job.submit for job in jobs),
        passed=sum(job.start > min((one.start for one in jobs[job.number :]), default=0) for job in jobs),
        killed=sum(job.run > job.estimate for job in jobs),
    )


def agree(pair: Pair, made: Load, *, ties: Ties = Ties.BATCH, at_limit: AtLimit = AtLimit.KILL) -> Counter[str]:
    sequential, kill = ties is Ties.SEQUENTIAL, at_limit is AtLimit.KILL
    ours = simulate_core(workload(made), pair.core(), site=site(made), ties=ties, at_limit=at_limit, validate=True)
    world = made.clusters(sequential=sequential, kill=kill)
    theirs = simulate(world, pair.reference())
    assert ours.start_us.tolist() == [theirs[number][0] for number in range(len(theirs))]
    assert [sorted(each) for each in ours.placed] == [by_cluster(theirs[number][1]) for number in range(len(theirs))]
    assert ours.end_us.tolist() == [job.end for job in world.jobs]
    if pair.promises:
        assert ours.promised_us.tolist() == [-1 if job.promised is None else job.promised for job in world.jobs]
    return happened(world)


@pytest.mark.parametrize("name", PAIRS)
def test_starts_places_and_promises(name: str) -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        try:
            counts += agree(PAIRS[name], load(seed, beyond_limit=True))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {load(seed, beyond_limit=True)}: {error}") from error
    print(f"{name}: {SEEDS} workloads, {dict(counts)}")  # noqa: T201 (seen with -s)
    must = {"crossing", "waited", "killed"} | (set() if name in ("fcfs", "fpfs(0)") else {"passed"})
    assert all(counts[each] > SEEDS // 2 for each in must), counts

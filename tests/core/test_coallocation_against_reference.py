"""Jobs of components on several clusters: the core starts each when and where its plain simulator does.

To the microsecond, on the same clusters in the same widths, and with the same promises. What the workloads brought
about is printed (``-s``), and has to have happened.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import settings
from reference.coallocation import Backfill, Clusters, Conservative, Divided, Easy, Split, clusters_of, simulate
from reference.coallocation_loads import Load, Row, load
from reference.rules import Fpfs, JustTheHead
from reference.sharing_clusters import simulate as simulate_sharing
from reference.world import Rule

from cosched.model.components import Between
from cosched.model.node import Node
from cosched.model.width import Components, Flexible
from cosched.workload.rules import AtLimit, Workload, workload_of
from space_scheduler.plugins import resolve
from space_scheduler.policy.interface import Policy
from space_scheduler.policy.presets import compose
from space_scheduler.progress import Sharing
from space_scheduler.simulator.host import Outcome, Site
from space_scheduler.simulator.host import simulate as simulate_core

#: Workloads for each policy: with HYPOTHESIS_PROFILE=campaign thousands.
SEEDS = max(20, settings().max_examples // 5)
#: Those of the variants, for each policy.
FEWER = SEEDS // 2


class Pair(NamedTuple):
    """A policy of the core without its place, and the same in the reference."""

    select: str
    reference: Callable[[], Rule[Clusters]]

    @property
    def promises(self) -> bool:
        return self.select.startswith(("backfill", "conservative"))


PAIRS = {
    "fcfs": Pair("jfirst", JustTheHead),
    "fpfs(0)": Pair("fpfs(0)", JustTheHead),
    "fpfs(1)": Pair("fpfs(1)", lambda: Fpfs(1)),
    "fpfs(3)": Pair("fpfs(3)", lambda: Fpfs(3)),
    "easy": Pair("backfill(1)", Easy),
    "backfill(2)": Pair("backfill(2)", lambda: Backfill(2)),
    "backfill(3)": Pair("backfill(3)", lambda: Backfill(3)),
    "arrival": Pair("conservative(arrival)", lambda: Conservative("arrival")),
    "none": Pair("conservative(none)", lambda: Conservative("none")),
}
#: Without conservative backfilling. Once a job has overrun that places everything again whenever it looks, and how
#: often is its own affair.
UNKEPT = [name for name in PAIRS if name not in ("arrival", "none")]
#: And without several reservations: they are of nodes, which the reference's clusters do not have.
UNRESERVED = [name for name in UNKEPT if name not in ("backfill(2)", "backfill(3)")]


def site(made: Load, *, procs: int) -> Site:
    """Clusters of nodes that have at most so many processors each."""
    nodes = [
        Node(f"{cluster}.{i}", min(procs, size - i), 1 << 40, min(procs, size - i), cluster=str(cluster))
        for cluster, size in enumerate(made.sizes, 1)
        for i in range(0, size, procs)
    ]
    return Site(nodes, sharing=None, between=Between({"": made.cost_ppm}))


def divided(row: Row) -> Components | Flexible | None:
    if row.most is not None:
        return Flexible(row.size, row.most)
    return Components(row.components) if len(row.components) > 1 else None


def workload(made: Load) -> Workload:
    def column(values: list[int]) -> np.ndarray:
        return np.array(values, np.int64)

    columns = ([getattr(row, name) for row in made.rows] for name in ("submit", "run", "size", "estimate"))
    numbers, shapes = np.arange(len(made.rows)), [divided(row) for row in made.rows]
    return workload_of("made", sum(made.sizes), *map(column, columns), job_id=numbers, divided=shapes)


def on_clusters(placed: Iterable[tuple[str | int, int]]) -> Counter[str]:
    """How much a job has on each cluster; a node's name begins with that of its cluster."""
    found: Counter[str] = Counter()
    for where, width in placed:
        found[str(where).partition(".")[0]] += width
    return found


def happened(jobs: list[Divided], rule: Rule[Clusters]) -> Counter[str]:
    return Counter(
        crossing=sum(len(clusters_of(job.placed)) > 1 for job in jobs),
        waited=sum(job.start > job.submit for job in jobs),
        passed=sum(job.start > min((one.start for one in jobs[job.number :]), default=0) for job in jobs),
        overran=sum(job.run > job.estimate for job in jobs),
        went_back=rule.went_back if isinstance(rule, Easy) else 0,
    )


class Different(AssertionError):
    """The core does something else than the reference."""


def agree(
    pair: Pair, made: Load, *, at_limit: AtLimit = AtLimit.KILL, share: bool = False, procs: int = 99
) -> Counter[str]:
    """What happened. Raises :class:`Different`."""
    world, rule = made.clusters(share=share, kill=at_limit is AtLimit.KILL), pair.reference()
    simulate(world, rule)
    jobs = world.jobs
    assert len(jobs) == len(made.rows)
    here = happened(jobs, rule)
    policy = compose("fcfs", pair.select, "worst-fit(share-clusters)" if share else "worst-fit")
    ours = simulate_core(workload(made), policy, site=site(made, procs=procs), at_limit=at_limit, validate=True)
    same_outcome(ours, jobs, promises=pair.promises)
    return here


def same_outcome(ours: Outcome, jobs: list[Divided], *, promises: bool) -> None:
    """Raises :class:`Different`."""
    promised = [-1 if job.promised is None or not promises else job.promised for job in jobs]
    both = {
        "starts": (ours.start_us.tolist(), [job.start for job in jobs]),
        "ends": (ours.end_us.tolist(), [job.end for job in jobs]),
        "promises": (ours.promised_us.tolist(), promised),
        "clusters": ([on_clusters(each) for each in ours.placed or ()], [on_clusters(job.placed) for job in jobs]),
    }
    if differently := [f"{what}: {a}, not {b}" for what, (a, b) in both.items() if a != b]:
        raise Different("; ".join(differently))


def compare(name: str, seeds: int, **more: Any) -> None:
    """Each seed; what happened in all of them is printed."""
    counts: Counter[str] = Counter()
    for seed in range(seeds):
        made = load(seed, adaptives=seed % 2 == 0, beyond_limit=True)
        try:
            counts += agree(PAIRS[name], made, **more)
        except Different as error:
            raise Different(f"seed {seed}: {made}: {error}") from error
    print(f"{name}: {seeds} workloads, {dict(counts)}")  # noqa: T201 (seen with -s)
    must = {"crossing", "waited", "overran"} | (set() if name in ("fcfs", "fpfs(0)") else {"passed"})
    assert all(counts[each] > seeds // 2 for each in must), counts
    assert name != "easy" or counts["went_back"]


@pytest.mark.parametrize("name", PAIRS)
def test_starts_ends_clusters_and_promises(name: str) -> None:
    compare(name, SEEDS)


@pytest.mark.parametrize("name", PAIRS)
def test_components_that_may_share_clusters(name: str) -> None:
    compare(name, FEWER, share=True)


@pytest.mark.parametrize("name", UNRESERVED)
def test_clusters_of_many_nodes(name: str) -> None:
    compare(name, FEWER, procs=2)


@pytest.mark.parametrize("name", UNKEPT)
def test_jobs_that_run_past_their_estimate(name: str) -> None:
    compare(name, FEWER, at_limit=AtLimit.RUN)


def test_the_presets_are_two_of_these() -> None:
    assert resolve("coalloc-fcfs") == compose("fcfs", "jfirst", "worst-fit")
    assert resolve("coalloc-fpfs(3)") == compose("fcfs", "fpfs(3)", "worst-fit")


# 3DBackfilling, where jobs share the CPUs of a cluster


def half(places: int) -> int:
    return -(-places // 2)


def shared_site(made: Load) -> Site:
    """Each cluster a node with a CPU for two places."""
    nodes = [
        Node(str(cluster), places, 1 << 40, half(places), cluster=str(cluster))
        for cluster, places in enumerate(made.sizes, 1)
    ]
    return Site(nodes, sharing=Sharing(), between=Between({"": made.cost_ppm}))


def sharing_agrees(made: Load, policy: Policy) -> Counter[str]:
    jobs = [row.job(number) for number, row in enumerate(made.rows)]
    simulate_sharing(jobs, made.sizes, [*map(half, made.sizes)], Fraction(made.cost_ppm, 1_000_000))
    ours = simulate_core(workload(made), policy, site=shared_site(made), validate=True)
    same_outcome(ours, jobs, promises=True)
    slowed = sum(job.takes > min(job.run, job.estimate) for job in jobs)
    waited = sum(job.start > job.submit for job in jobs)
    passed = sum(job.start > min((one.start for one in jobs[job.number :]), default=0) for job in jobs)
    return Counter(
        crossing=sum(len(clusters_of(job.placed)) > 1 for job in jobs), slowed=slowed, waited=waited, passed=passed
    )


def test_3dbackfilling_over_components() -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        made = load(seed, adaptives=seed % 2 == 0, beyond_limit=True)
        try:
            counts += sharing_agrees(made, resolve("3dbf-light"))
        except Different as error:
            raise Different(f"seed {seed}: {made}: {error}") from error
    print(f"3dbf: {SEEDS} workloads, {dict(counts)}")  # noqa: T201 (seen with -s)
    assert all(counts[each] > SEEDS // 2 for each in ("crossing", "slowed", "waited", "passed")), counts


def test_first_fit_is_told_from_it() -> None:
    def all_of_them() -> None:
        for seed in range(SEEDS):
            sharing_agrees(load(seed), compose("fcfs", "backfill(0)", "normal"))

    with pytest.raises(Different):
        all_of_them()


# what the comparison has found


def row(components: Split, length: int, *, most: int | None = None) -> Row:
    return Row(0, components, most, length, length)


def test_easy_asks_again_whom_a_start_made_harmless() -> None:
    """The head needs cluster 1 at 10. Job 3 would stay there until 30, but beside job 4 it lies on cluster 2."""
    agree(PAIRS["easy"], Load((6, 5), 0, [row((1,), 10), row((6, 3), 10), row((1,), 30), row((1,), 10)]))


def test_an_adaptive_job_of_one_process_is_on_one_cluster() -> None:
    """Job 3 is done before job 2 gets cluster 1."""
    agree(PAIRS["arrival"], Load((4, 1), 250_000, [row((1,), 8), row((4, 1), 8), row((1,), 7, most=2)]))

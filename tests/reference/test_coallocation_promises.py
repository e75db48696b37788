"""On generated workloads the plain simulator of co-allocation gives what is possible and what the papers promise."""

from collections.abc import Callable

import pytest

from reference import rules
from reference.coallocation import Clusters, Conservative, Divided, Easy, clusters_of, simulate, worst_fit
from reference.coallocation_loads import Load, load
from reference.rules import Fpfs, JustTheHead
from reference.world import Job, Rule, World

SEEDS = range(50)
RULES: dict[str, Callable[[], Rule[Clusters]]] = {
    "fcfs": JustTheHead,
    "fpfs(1)": lambda: Fpfs(1),
    "fpfs(3)": lambda: Fpfs(3),
    "easy": Easy,
    "conservative": lambda: Conservative("arrival"),
    "conservative(none)": lambda: Conservative("none"),
}


def played(name: str, seed: int, *, share: bool = False) -> tuple[Load, Clusters]:
    made = load(seed, beyond_limit=True)
    world = made.clusters(share=share)
    simulate(world, RULES[name]())
    assert len(world.jobs) == len(made.rows)
    return made, world


def held_at(world: Clusters, moment: int, *, but: Divided | None = None) -> list[int]:
    """What is free on each cluster then."""
    return world.without([job.placed for job in world.jobs if job is not but and job.start <= moment < job.end])


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_no_processor_is_held_twice_and_no_component_is_split(name: str, share: bool) -> None:
    for seed in SEEDS:
        made, world = played(name, seed, share=share)
        for job, row in zip(world.jobs, made.rows, strict=True):
            assert min(held_at(world, job.start)) >= 0
            assert job.start >= row.submit
            widths = sorted(width for _, width in job.placed)
            assert sum(widths) == row.size
            assert widths == sorted(row.components) or (row.most is not None and len(widths) <= row.most)
            assert share or len(clusters_of(job.placed)) == len(widths)
            work = min(row.run, row.estimate)
            times = job.end - job.start
            crosses = made.cost_ppm and len(clusters_of(job.placed)) > 1
            assert times * 10**6 >= work * (10**6 + (made.cost_ppm if crosses else 0)) > (times - 1) * 10**6


def test_in_order_of_submission_where_nobody_passes() -> None:
    for seed in SEEDS:
        starts = [job.start for job in played("fcfs", seed)[1].jobs]
        assert starts == sorted(starts)


@pytest.mark.parametrize("bound", [1, 3])
def test_a_head_is_passed_at_most_so_often(bound: int) -> None:
    """Whoever starts while an earlier job waits passes the first one of those."""
    most = 0
    for seed in SEEDS:
        _, world = played(f"fpfs({bound})", seed)
        heads = []
        for job in world.jobs:
            ahead = [one for one in world.jobs[: job.number] if one.start > job.start]
            heads += [one.number for one in ahead[:1]]
        most = max([most, *(heads.count(head) for head in set(heads))])
    assert most == bound


@pytest.mark.parametrize("name", ["easy", "conservative", "conservative(none)"])
def test_nobody_starts_later_than_promised(name: str) -> None:
    promised = earlier = 0
    for seed in SEEDS:
        for job in played(name, seed)[1].jobs:
            if job.promised is not None:
                promised += 1
                earlier += job.start < job.promised
                assert job.start <= job.promised
    assert promised > 100
    assert earlier > 10 or name == "conservative(none)"


@pytest.mark.parametrize("name", ["fcfs", "fpfs(3)", "easy"])
def test_a_wider_component_never_lies_on_a_less_free_cluster(name: str) -> None:
    """Of what starts in one instant the order is not known, so one job alone is looked at."""
    seen = 0
    for seed in SEEDS:
        _, world = played(name, seed)
        for job in world.jobs:
            if [one.start for one in world.jobs].count(job.start) == 1:
                free = held_at(world, job.start, but=job)
                on = [free[cluster - 1] for cluster, _ in job.placed]
                assert on == sorted(free, reverse=True)[: len(on)]
                seen += len(on) > 1
    assert seen > 33


def test_worst_fit_over_more_free_processors_fits_too() -> None:
    """Why predicted ends and now are enough to look at, also where clusters are shared."""
    for free in [(a, b, c) for a in range(7) for b in range(7) for c in range(7)]:
        for split in [(1,), (3, 2), (2, 2, 2), (3, 2, 2), (4, 1, 1, 1), (3, 3, 2, 2)]:
            for share in (False, True):
                if worst_fit(split, free, share=share):
                    assert all(
                        worst_fit(split, [n + (i == at) for i, n in enumerate(free)], share=share) for at in range(3)
                    )


ON_ONE: dict[str, tuple[Callable[[], Rule[Clusters]], Callable[[], Rule[World[Job]]]]] = {
    "easy": (Easy, rules.Easy),
    "conservative": (lambda: Conservative("arrival"), lambda: rules.Conservative("arrival")),
    "conservative(none)": (lambda: Conservative("none"), lambda: rules.Conservative("none")),
}


@pytest.mark.parametrize("name", ON_ONE)
def test_one_cluster_is_a_machine_without_clusters(name: str) -> None:
    ours, theirs = ON_ONE[name]
    for seed in SEEDS:
        made = load(seed)
        rows = [row._replace(components=(row.size,), most=None) for row in made.rows]
        one = made._replace(sizes=(sum(made.sizes),), rows=rows)
        jobs = [Job(number, row.submit, row.size, row.estimate, row.run) for number, row in enumerate(rows)]
        World(sum(made.sizes), jobs, lambda job: job.number, sequential=False, kill=True).play(theirs())
        ran = simulate(one.clusters(), ours())
        assert [start for start, _ in ran.values()] == [job.start for job in jobs]


def test_a_seed_says_everything() -> None:
    assert load(7) == load(7)
    assert load(7) != load(8)

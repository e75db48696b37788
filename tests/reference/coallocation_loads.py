"""Small random workloads for several clusters, for the comparison of the core with its plain simulator.

A seed says everything. Clusters are few and small, jobs come in bursts, times are few, and some are a microsecond off
a second, so that ties, full clusters, queues, and ends that meet reservations are common. Every job is one that empty
clusters have a place for.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import pairwise
from random import Random
from typing import NamedTuple

from reference.coallocation import Clusters, Divided, Split, adaptive, balanced, by_floor, given, worst_fit

SECOND = 1_000_000
MILLION = 1_000_000
#: What a job on more than one cluster costs, in millionths; the last ones do not come out even.
COSTS_PPM = (0, 250_000, 250_000, 333_333, 1_000_000, 7)


class Row(NamedTuple):
    """A job, from 0 in order of submission; ``most``: it is adaptive. Times in microseconds."""

    submit: int
    components: Split
    most: int | None
    run: int
    estimate: int

    @property
    def size(self) -> int:
        return sum(self.components)

    def job(self, number: int) -> Divided:
        if self.most is None:
            return given(number, self.submit, self.components, self.run, self.estimate)
        return adaptive(number, self.submit, self.size, self.most, self.run, self.estimate)


class Load(NamedTuple):
    sizes: tuple[int, ...]
    cost_ppm: int
    rows: list[Row]

    def clusters(self, **more: bool) -> Clusters:
        """The clusters with fresh jobs, numbered from 0."""
        jobs = [row.job(number) for number, row in enumerate(self.rows)]
        return Clusters(self.sizes, jobs, cost=Fraction(self.cost_ppm, MILLION), **more)


def load(seed: int, *, adaptives: bool = True, beyond_limit: bool = False, longest: int = 16) -> Load:
    """``adaptives``: some jobs are divided when they start. ``beyond_limit``: some ask for less than they take."""
    chance = Random(f"coallocation {seed}")
    sizes = chance.choice(
        [(4, 4), (5, 3, 4), (6, 5), (3, 3, 3), (7, 3, 3, 3, 3), (2, 5, 1, 4), (4,) * 5, (20, 20, 20), (8,)]
    )
    rows, now = [], 0
    tick = chance.choice([1, SECOND, SECOND])
    for _ in range(chance.randint(4, longest)):
        now += chance.choice([0, 0, 0, 0, 1, 1, 2, 6]) * tick + jitter(chance, tick)
        components, most = division(chance, sizes, adaptives=adaptives)
        run, estimate = lengths(chance, tick, beyond_limit=beyond_limit)
        rows.append(Row(now, components, most, run, estimate))
    return Load(sizes, chance.choice(COSTS_PPM), rows)


def jitter(chance: Random, tick: int) -> int:
    return chance.choice([0, 0, 0, 0, 1]) if tick > 1 else 0


def lengths(chance: Random, tick: int, *, beyond_limit: bool) -> tuple[int, int]:
    """Run and estimate: exact, early, or late."""
    estimate = chance.choice([3, 4, 8, chance.randint(1, 4), chance.randint(1, 12)]) * tick + jitter(chance, tick)
    kind = chance.choice(["exact", "exact", "early", "late"])
    if kind == "late" and beyond_limit:
        return estimate + chance.randint(1, 12) * tick, estimate
    if kind == "early":
        return chance.randint(1, estimate // tick) * tick, estimate
    return estimate, estimate


def division(chance: Random, sizes: Split, *, adaptives: bool) -> tuple[Split, int | None]:
    """Components that fit on empty clusters, and into how many an adaptive job may be divided."""
    while True:
        size = chance.choice(
            [chance.randint(1, max(sizes)), chance.randint(1, max(sizes)), chance.randint(1, sum(sizes))]
        )
        n = chance.randint(1, min(4, len(sizes), size))
        ways: list[Callable[[int, int], Split]] = [by_floor, balanced, partial(ragged, chance)]
        divide = chance.choice(ways)
        components = divide(size, n)
        if worst_fit(components, sizes):
            adaptive = adaptives and size > 1 and chance.random() < 0.4
            return components, (chance.choice([n, 4]) if adaptive else None)


def ragged(chance: Random, size: int, n: int) -> Split:
    """Any widths, in any order."""
    cuts = [0, *sorted(chance.sample(range(1, size), n - 1)), size]
    return tuple(after - before for before, after in pairwise(cuts))

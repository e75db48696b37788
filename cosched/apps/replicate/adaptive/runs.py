"""All simulations of the replication, each once, and what they say of one cell against another, paired by seed."""

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from cosched.apps.replicate import paired
from cosched.apps.replicate.adaptive.setup import Cell, Measured, measured, traditional
from cosched.apps.replicate.pool import Begin, Call, carry_out
from cosched.apps.replicate.steady import trend
from cosched.metrics.intervals import Floats, Interval, of_replications

#: What is asked for: cells, and how many seeds of each.
Wanted = Mapping[Cell, int]
RESPONSE: Final = "response_s"


class Runs:
    """What was measured in each cell, seed by seed."""

    def __init__(self, found: Mapping[Cell, list[Measured]]) -> None:
        self._found = found

    def values(self, cell: Cell, what: str) -> Floats:
        """One measure of all seeds, shape (seeds,)."""
        return np.array([getattr(each, what) for each in self._found[cell]], np.float64)

    def mean(self, cell: Cell, what: str) -> Interval:
        """Its mean."""
        return of_replications(self.values(cell, what))

    def relative(self, cell: Cell, base: Cell, what: str = RESPONSE) -> Interval:
        """One cell's mean against another's, as a relative difference."""
        return paired.relative_difference(*self._pair(cell, base, what))

    def difference(self, cell: Cell, base: Cell, what: str) -> Interval:
        """One cell's mean less another's."""
        return paired.difference(*self._pair(cell, base, what))

    def against_traditional(self, cell: Cell) -> Interval:
        """Its mean response time against that of the same jobs as traditional ones."""
        return self.relative(cell, traditional(cell))

    def steady(self, *cells: Cell) -> bool:
        """Whether all of them have a steady state."""
        return not any(trend([each.backlog for each in self._found[cell]]).unstable for cell in cells)

    def stuck(self, cell: Cell) -> int:
        """In how many of its runs jobs wait for each other for ever."""
        return sum(math.isnan(each.response_s) for each in self._found[cell])

    def _pair(self, cell: Cell, base: Cell, what: str) -> tuple[Floats, Floats]:
        """Both cells' values of the seeds that both have."""
        ours, others = self.values(cell, what), self.values(base, what)
        seeds = min(len(ours), len(others))
        return ours[:seeds], others[:seeds]


def carried_out(wanted: list[Wanted], workers: int, begin: Begin, what: str) -> Runs:
    """Simulate each cell that any of these want, for as many seeds as any of them wants."""
    seeds: dict[Cell, int] = {}
    for each in wanted:
        for cell, count in each.items():
            seeds[cell] = max(count, seeds.get(cell, 0))
    calls = [
        Call(measured, (cell, seed), cell.jobs * (3 if cell.adaptive else 1) * (1 + cell.load**4))
        for cell, count in seeds.items()
        for seed in range(1, count + 1)
    ]
    rest = iter(carry_out(calls, workers, begin, what))
    return Runs({cell: [next(rest) for _ in range(count)] for cell, count in seeds.items()})

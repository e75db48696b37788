"""All simulations of the replication, each once."""

import math
from collections.abc import Mapping
from typing import Final

from cosched.apps.replicate.adaptive.setup import Cell, measured, traditional
from cosched.apps.replicate.cells import Cells, each_once, seeded
from cosched.apps.replicate.papers import Request
from cosched.apps.replicate.pool import Begin
from cosched.metrics.intervals import Interval

#: What is asked for: cells, and how many seeds of each.
Wanted = Mapping[Cell, int]
RESPONSE: Final = "response_s"


class Runs(Cells[Cell]):
    """What was measured in each cell."""

    def against_traditional(self, cell: Cell) -> Interval:
        """Its mean response time against that of the same jobs as traditional ones."""
        return self.relative(cell, traditional(cell), RESPONSE)

    def held(self, cell: Cell, base: Cell, what: str) -> Interval:
        """A measure against the base's: response times as a relative difference, utilisations as a difference."""
        return (self.relative if what == RESPONSE else self.difference)(cell, base, what)

    def stuck(self, cell: Cell) -> int:
        """In how many of its runs jobs wait for each other for ever."""
        return sum(math.isnan(each.response_s) for each in self[cell])


def carried_out(wanted: list[Wanted], request: Request, begin: Begin) -> Runs:
    """Simulate each cell that any of these want, for as many seeds as any of them wants."""
    seeds: dict[Cell, int] = {}
    for each in wanted:
        for cell, count in each.items():
            seeds[cell] = max(count, seeds.get(cell, 0))
    calls = seeded(measured, seeds, lambda cell: cell.jobs * (3 if cell.adaptive else 1) * (1 + cell.load**4))
    return Runs.of(seeds, each_once(calls, request, begin))

"""All simulations of the replication, each once, and the means of groups, paired where runs met the same jobs."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np

from cosched.apps.replicate.cells import each_once
from cosched.apps.replicate.coallocation.setup import Cell, Measured, Scale, lengths_of, measured
from cosched.apps.replicate.coallocation.shares import GROUPS, Kind
from cosched.apps.replicate.papers import Request
from cosched.apps.replicate.pool import Begin, Call
from cosched.metrics.intervals import Floats, Interval, of_replications
from cosched.metrics.sequential import BATCHES, Estimate

Chosen = Callable[[Kind], bool]
ALL: Final = "all"
RESPONSE: Final = "mean response time (s)"
_NOTHING: Final = Estimate(np.nan, np.zeros(BATCHES), BATCHES - 1)


def chosen(group: str) -> Chosen:
    """Which kinds of jobs a group has."""
    return (lambda _kind: True) if group == ALL else GROUPS[group]


class Together:
    """The same jobs under some cells: those that all of them have in steady state."""

    def __init__(self, found: Mapping[Cell, Measured]) -> None:
        self._found = found
        self._begin = max(each.blocks.begin for each in found.values())
        self._end = min(each.blocks.end for each in found.values())

    def mean(self, cell: Cell, group: str | Chosen = ALL, batches: int = BATCHES) -> Estimate:
        """The mean response time of a group in a cell, in seconds; undefined where there are too few jobs."""
        wanted = chosen(group) if isinstance(group, str) else group
        run = self._found[cell]
        columns = np.array([wanted(kind) for kind in run.kinds])
        return run.blocks.mean_within(columns, self._begin, self._end, batches) or _NOTHING

    def explained(self, cell: Cell, value: Callable[[Kind], int]) -> Floats:
        """The part of the variance of response times that lies between jobs of different values, in each batch.

        Corrected for the number of values (epsilon squared), since more of them explain more by chance. Undefined where
        there are too few jobs.
        """
        run = self._found[cell]
        size = (self._end - self._begin) // BATCHES
        if size < 1:
            return np.array([np.nan])
        first = self._end - size * BATCHES
        of_value = np.array([value(kind) for kind in run.kinds])
        masks = [of_value == each for each in np.unique(of_value)]
        parts = []
        for begin in range(first, self._end, size):
            span = slice(begin, begin + size)
            sums, counts = run.blocks.sums[span].sum(axis=0), run.blocks.counts[span].sum(axis=0)
            pairs = [(float(sums[mask].sum()), int(counts[mask].sum())) for mask in masks]
            parts.append(_epsilon_squared([each for each in pairs if each[1]], float(run.blocks.squares[span].sum())))
        return np.array(parts)


def _epsilon_squared(values: list[tuple[float, int]], squares: float) -> float:
    total, count = sum(each for each, _ in values), sum(number for _, number in values)
    whole = squares - total**2 / count
    between = sum(each**2 / number for each, number in values) - total**2 / count
    groups = len(values) - 1
    return (between - groups * (whole - between) / (count - groups - 1)) / whole


class Runs:
    """What was measured in each cell."""

    def __init__(self, found: Mapping[Cell, Measured]) -> None:
        self._found = found

    def __getitem__(self, cell: Cell) -> Measured:
        return self._found[cell]

    def together(self, *cells: Cell) -> Together:
        """What the same jobs have in these cells."""
        return Together({cell: self._found[cell] for cell in cells})

    def mean(self, cell: Cell, group: str | Chosen = ALL) -> Interval:
        """The mean response time of a group in a cell's own run, in seconds."""
        return self.together(cell).mean(cell, group).interval()

    def relative(self, cell: Cell, base: Cell, group: str | Chosen = ALL) -> Interval:
        """The mean response time of a group against that in another cell, as a relative difference, paired."""
        both = self.together(cell, base)
        return both.mean(cell, group).against(both.mean(base, group)).interval()

    def between(self, cell: Cell, group: str, base: str) -> Interval:
        """The mean response time of a group against that of another one in the same run."""
        one = self.together(cell)
        return one.mean(cell, group).against(one.mean(cell, base)).interval()

    def explained(self, cell: Cell, value: Callable[[Kind], int], less: Callable[[Kind], int]) -> Interval:
        """How much more of the variance of response times one value of a job explains than another."""
        one = self.together(cell)
        return of_replications(one.explained(cell, value) - one.explained(cell, less))


def carried_out(cells: Iterable[Cell], scale: Scale, request: Request, begin: Begin) -> Runs:
    """Simulate each of these cells once."""
    calls = {cell: Call(measured, (cell, lengths_of(cell, scale)), _guess(cell)) for cell in cells}
    return Runs(each_once(calls, request, begin))


def _guess(cell: Cell) -> float:
    """Those that are near to saturation take longest."""
    return 1.0 + 5 * ("fcfs" in cell.policy or "(0)" in cell.policy) + cell.cost_ppm / 1e5 + cell.threshold / 20

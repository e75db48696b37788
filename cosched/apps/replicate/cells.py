"""Simulated cells: each simulated once, with its seeds, and compared with one another, paired by seed.

A *cell* is a value that says what is simulated, but for the seed: two that are equal are one simulation.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, Self, TypeVar

import numpy as np

from cosched.apps.replicate import paired
from cosched.apps.replicate.kept import KeptAnswers
from cosched.apps.replicate.papers import Request
from cosched.apps.replicate.pool import Begin, Call, carry_out
from cosched.apps.replicate.steady import trend
from cosched.metrics.intervals import Floats, Interval, of_replications

Key = TypeVar("Key", bound=Hashable)
Cell = TypeVar("Cell", bound=Hashable)


def each_once(calls: Mapping[Key, Call], request: Request, begin: Begin) -> dict[Key, Any]:
    """The answer to each call of a replication, by its key; those that are kept (``request.kept``) are not made."""
    what = f"replicating {request.paper}, simulations"
    kept = KeptAnswers(request.kept) if request.kept is not None else None
    known = {key: found[0] for key, call in calls.items() if kept is not None and (found := kept.get(call))}
    wanted = [key for key in calls if key not in known]
    made = carry_out([calls[key] for key in wanted], request.workers, begin, what, kept.put if kept else None)
    answers = known | dict(zip(wanted, made, strict=True))
    return {key: answers[key] for key in calls}


def seeded(
    measure: Callable[..., Any], seeds: Mapping[Cell, int], weight: Callable[[Cell], float], *more: Any
) -> dict[tuple[Cell, int], Call]:
    """A call ``measure(cell, seed, *more)`` for each cell and each of its seeds, which count from 1."""
    return {
        (cell, seed): Call(measure, (cell, seed, *more), weight(cell))
        for cell, count in seeds.items()
        for seed in range(1, count + 1)
    }


class Cells(Generic[Cell]):
    """What was measured in each cell, seed by seed. A measure is an attribute of that."""

    def __init__(self, found: Mapping[Cell, list[Any]]) -> None:
        self._found = found

    @classmethod
    def of(cls, seeds: Mapping[Cell, int], answers: Mapping[Any, Any]) -> Self:
        """From the answers to calls of :func:`seeded`."""
        return cls({cell: [answers[cell, seed] for seed in range(1, count + 1)] for cell, count in seeds.items()})

    def __getitem__(self, cell: Cell) -> list[Any]:
        return self._found[cell]

    def values(self, cell: Cell, what: str) -> Floats:
        """One measure of all seeds, shape (seeds,)."""
        return np.array([getattr(each, what) for each in self._found[cell]], np.float64)

    def mean(self, cell: Cell, what: str) -> Interval:
        """Its mean."""
        return of_replications(self.values(cell, what))

    def relative(self, cell: Cell, base: Cell, what: str) -> Interval:
        """One cell's mean against another's, as a relative difference."""
        return paired.relative_difference(*self._pair(cell, base, what))

    def difference(self, cell: Cell, base: Cell, what: str) -> Interval:
        """One cell's mean less another's."""
        return paired.difference(*self._pair(cell, base, what))

    def steady(self, *cells: Cell) -> bool:
        """Whether all of them have a steady state, by the ``backlog`` that was measured."""
        return not any(trend([each.backlog for each in self._found[cell]]).unstable for cell in cells)

    def _pair(self, cell: Cell, base: Cell, what: str) -> tuple[Floats, Floats]:
        """Both cells' values of the seeds that both have."""
        ours, others = self.values(cell, what), self.values(base, what)
        seeds = min(len(ours), len(others))
        return ours[:seeds], others[:seeds]

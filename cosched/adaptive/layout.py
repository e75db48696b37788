"""Which rows of an array are whose, and which a new layout moves: rows of a rank are always a ``range``."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Literal

Distribution = Literal["block", "cyclic"]
_NO_ROWS = range(0)


@dataclass(frozen=True)
class Layout:
    """Rows 0 … ``rows`` - 1 of an array over ranks (world numbers), in their order.

    ``block``: one piece after the other, in proportion to the weights; each rank has a row if there are enough.
    ``cyclic``: row i is that of rank i mod p; weights do not count.
    """

    rows: int
    distribution: Distribution
    ranks: tuple[int, ...]
    weights: tuple[float, ...]
    _parts: dict[int, range] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        count = len(self.ranks)
        if self.distribution == "cyclic":
            parts = [range(index, self.rows, count) for index in range(count)]
        else:
            parts = [range(first, last) for first, last in pairwise(block_bounds(self.rows, self.weights))]
        object.__setattr__(self, "_parts", dict(zip(self.ranks, parts, strict=True)))

    def part(self, rank: int) -> range:
        """The rows of a rank; none for one that has no part in it."""
        return self._parts.get(rank, _NO_ROWS)


def block_bounds(rows: int, weights: Sequence[float]) -> list[int]:
    """Where blocks in proportion to the weights begin, and where the last ends. The sizes differ from proportion by
    less than a row, but for the one row that each has at least while there are enough.
    """
    least = 1 if rows >= len(weights) else 0
    free = rows - least * len(weights)
    total = sum(weights)
    cuts = [0, *(round(free * part / total) for part in accumulate(weights))]
    cuts[-1] = free
    return [cut + least * index for index, cut in enumerate(cuts)]


def common(a: range, b: range) -> range:
    """The rows that are in both; rising, as both are."""
    step = math.lcm(a.step, b.step)
    low, high = max(a.start, b.start), min(a.stop, b.stop)
    low += (a.start - low) % a.step
    first = next((row for row in range(low, min(high, low + step), a.step) if row in b), high)
    return range(first, high, step)


def place(rows: range, within: range) -> slice:
    """Where rows, all of them in ``within``, lie among its rows."""
    if not rows:
        return slice(0, 0)
    step = rows.step // within.step
    first = (rows.start - within.start) // within.step
    return slice(first, first + step * (len(rows) - 1) + 1, step)

"""CG: conjugate gradients on a large sparse matrix; communicates much.

The matrix is symmetric, positive definite and the same for any number of ranks: row i has entries at i ± d (modulo its
order) for a set of random distances d, with random weights in (−1, 0), and a diagonal that dominates. Rows are divided
among the ranks. Each step multiplies the matrix with a vector that every rank needs whole (an allgather), and has two
sums over all ranks. An iteration solves one system in a fixed number of steps.

Verified by the known solution: the right-hand side is made for it, by distance and without communicating, so neither
the product nor the exchange of the solver has a part in it.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from cosched.programs.comm import Comm, Floats, Indices
from cosched.programs.kernel import Kernel, Sizes, Unsuitable, Verdict, parts, uniform

#: Steps of one solution: the residual shrinks by a third and more with each.
_STEPS = 25
_ALLOWED = 1e-8


class ConjugateGradient(Kernel):
    """``order`` rows with ``distances`` pairs of entries beside the diagonal."""

    name = "cg"
    sizes: ClassVar[Sizes] = {
        "S": {"order": 40_000, "distances": 10, "iterations": 60},
        "W": {"order": 120_000, "distances": 12, "iterations": 50},
        "A": {"order": 300_000, "distances": 12, "iterations": 100},
        "B": {"order": 600_000, "distances": 12, "iterations": 200},
    }

    def __init__(self, comm: Comm, size: Mapping[str, int], seed: int) -> None:
        super().__init__(comm, size, seed)
        order = self.order = size["order"]
        if comm.size > order // 2:
            raise Unsuitable(f"{comm.size} ranks for {order} rows; at most {order // 2} ranks")
        self.counts = parts(order, comm.size)
        self.begin = sum(self.counts[: comm.rank])
        self.rows = np.arange(self.begin, self.begin + self.counts[comm.rank])
        rng = np.random.default_rng(seed)
        self.distances = rng.choice(np.arange(1, (order - 1) // 2), size["distances"], replace=False)
        self.columns = np.empty((2 * len(self.distances), len(self.rows)), np.int32)
        self.weights = np.empty(self.columns.shape)
        for j, distance in enumerate(self.distances):
            for k, (column, lower) in enumerate(self._pair(int(distance))):
                self.columns[2 * j + k] = column
                self.weights[2 * j + k] = self._weight(j, lower)
        # sums of rows are well above zero: a condition number of some five
        total = self.weights.sum(axis=0)
        self.diagonal = (1.0 + 0.5 * uniform(self.rows, seed + 2)) * len(self.distances) / 2 - total
        self.target = uniform(np.arange(order), seed + 3)
        self.whole = np.empty(order)
        self.solution = np.zeros(len(self.rows))
        self.number = 0

    def _pair(self, distance: int) -> list[tuple[Indices, Indices]]:
        """The columns at a distance from this rank's rows, each with the lower index of the entry, which names it."""
        after, before = (self.rows + distance) % self.order, (self.rows - distance) % self.order
        return [(after, self.rows), (before, before)]

    def _weight(self, j: int, lower: Indices) -> Floats:
        return -uniform(lower + self.order * (j + 1), self.seed + 1)

    def product(self, part: Floats) -> Floats:
        """The matrix times a vector, of which every rank has its rows."""
        self.comm.join(part, self.whole, self.counts)
        result: Floats = self.diagonal * part
        buffer = np.empty_like(part)
        for columns, weights in zip(self.columns, self.weights, strict=True):
            np.take(self.whole, columns, out=buffer)
            buffer *= weights
            result += buffer
        return result

    def wanted(self, number: int) -> Floats:
        """The whole solution of that problem: the target, turned."""
        return np.roll(self.target, 7919 * number)

    def right_side(self, number: int) -> Floats:
        """For that solution: the same matrix, entry by entry, without what the solver uses of it."""
        wanted = self.wanted(number)
        end = self.begin + len(self.rows)
        doubled = np.concatenate([wanted, wanted, wanted])[self.order - self.order // 2 :]
        at = self.order // 2 + self.begin  # where this rank's first row is in there
        result: Floats = self.diagonal * wanted[self.begin : end]
        for j, distance in enumerate(self.distances):
            result += self.weights[2 * j] * doubled[at + distance : at + distance + len(self.rows)]
            result += self.weights[2 * j + 1] * doubled[at - distance : at - distance + len(self.rows)]
        return result

    def iterate(self, number: int) -> None:
        """One solution by conjugate gradients, from zero."""
        self.number = number
        solution = np.zeros(len(self.rows))
        residual = self.right_side(number)
        direction = residual.copy()
        square = self.comm.total(float(residual @ residual))
        for _ in range(_STEPS):
            image = self.product(direction)
            step = square / self.comm.total(float(direction @ image))
            solution += step * direction
            residual -= step * image
            before, square = square, self.comm.total(float(residual @ residual))
            direction *= square / before
            direction += residual
        self.solution = solution

    def verify(self) -> Verdict:
        """The largest difference to the known solution, whose numbers are in [0, 1)."""
        wanted = self.wanted(self.number)[self.begin : self.begin + len(self.rows)]
        return Verdict(self.comm.largest(float(np.abs(self.solution - wanted).max())), _ALLOWED)

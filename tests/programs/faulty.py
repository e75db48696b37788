"""The kernels with a mistake each: ``python faulty.py FAULT PROGRAM …`` runs the command with that mistake in it."""

import sys
from typing import Any

import numpy as np

from cosched.programs.bt import BlockTridiagonal
from cosched.programs.cg import ConjugateGradient
from cosched.programs.comm import Floats, Indices
from cosched.programs.command import main
from cosched.programs.integer_sort import IntegerSort
from cosched.programs.kernel import Kernel, Verdict
from cosched.programs.mg import Level, Multigrid


class EntryForgotten(ConjugateGradient):
    def product(self, part: Floats) -> Floats:
        product: Floats = super().product(part) - self.weights[3] * self.whole[self.columns[3]]
        return product


class NotSymmetric(ConjugateGradient):
    def product(self, part: Floats) -> Floats:
        return super().product(part) + 0.01 * np.roll(part, 1)


class NothingExchanged(ConjugateGradient):
    def product(self, part: Floats) -> Floats:
        whole = super().product(part)
        self.comm.join(part * 0, self.whole, self.counts)
        self.whole[self.begin : self.begin + len(part)] = part
        alone = self.diagonal * part
        for columns, weights in zip(self.columns, self.weights, strict=True):
            alone += weights * self.whole[columns]
        return alone if self.comm.size > 1 else whole * 1.001


class NoNumber(ConjugateGradient):
    def iterate(self, number: int) -> None:
        super().iterate(number)
        if self.comm.rank == self.comm.size - 1:
            self.solution[0] = np.nan


class Unsorted(IntegerSort):
    def iterate(self, number: int) -> None:
        super().iterate(number)
        self.sorted[[3, -3]] = self.sorted[[-3, 3]]


class KeyLost(IntegerSort):
    def iterate(self, number: int) -> None:
        super().iterate(number)
        self.sorted = self.sorted[1:]


class KeyReplaced(IntegerSort):
    """The sum and the number are right."""

    def iterate(self, number: int) -> None:
        super().iterate(number)
        middle = len(self.sorted) // 2
        self.sorted[middle - 1] -= 1
        self.sorted[middle] += 1
        self.sorted.sort()


class RanksTheOtherWayRound(IntegerSort):
    def shares(self, counts: Indices) -> Indices:
        # with one rank there is no order of ranks to get wrong
        owners = super().shares(counts)
        return self.comm.size - 1 - owners

    def verify(self) -> Verdict:
        if self.comm.size == 1:
            self.sorted = self.sorted[::-1]
        return super().verify()


class NoHalo(Multigrid):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)

        class Closed(Level):
            def halo(self, grid: Floats) -> None:
                super().halo(grid)
                grid[0] = grid[-1] = 0.0

        self.finest.__class__ = Closed


class WrongStencil(Multigrid):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.finest.square *= 1.02

    def waves(self, number: int) -> tuple[Floats, Floats]:
        right, solution = super().waves(number)
        return right * 1.02, solution


class GathersInTheWrongOrder(Multigrid):
    def iterate(self, number: int) -> None:
        super().iterate(number)
        solution = self.finest.solution
        solution[1:-1] = solution[1:-1][::-1].copy()


class NoReaction(BlockTridiagonal):
    def solved(self, right: Floats, strength: Floats, axis: int) -> Floats:
        return super().solved(right, strength * (axis != 1), axis)


class NotTurnedBack(BlockTridiagonal):
    def iterate(self, number: int) -> None:
        super().iterate(number)
        if self.comm.size > 1:
            self.fields = np.ascontiguousarray(self.fields[::-1])
        else:
            self.fields = self.fields.transpose(1, 0, 2, 3)


class OneRankRaises(ConjugateGradient):
    def iterate(self, number: int) -> None:
        if self.comm.rank == self.comm.size - 1:
            raise RuntimeError("a mistake in one rank")
        super().iterate(number)


_KINDS = [kind for kind in globals().values() if isinstance(kind, type) and kind.__module__ == __name__]
FAULTS: dict[str, type[Kernel]] = {kind.__name__: kind for kind in _KINDS}

if __name__ == "__main__":
    fault = FAULTS[sys.argv[1]]
    sys.exit(main([fault.name, *sys.argv[2:]], {fault.name: fault}))

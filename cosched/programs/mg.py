"""MG: multigrid V-cycles for Poisson's equation on a periodic cube; computes much, with bursts of small messages.

The grid is divided in slabs along z; every smoothing step exchanges a plane with both neighbours (halo). Two sweeps of
damped Jacobi before and after each coarse correction, full weighting down, trilinear interpolation up. A level too
coarse to be divided further is gathered, and every rank solves it for itself. An iteration is one solution from zero.

Verified by the known solution: the right-hand side is a sum of waves, each an eigenvector of the seven-point operator,
so the discrete solution is the same waves, divided by their eigenvalues.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from cosched.programs.comm import Comm, Floats
from cosched.programs.kernel import Kernel, Sizes, Unsuitable, Verdict

_CYCLES = 10
_SWEEPS = 2
#: Best for the seven-point operator (Trottenberg, Oosterlee, Schüller 2001: Multigrid, section 2.9).
_DAMPING = 6 / 7
_COARSEST_SWEEPS = 30
#: Relative; a cycle leaves a fifth to a quarter of the error.
_ALLOWED = 1e-5
_WAVES = 6


class Level:
    """A grid of ``points`` in each direction, ``planes`` of them here; ``comm`` is None where every rank has it whole.

    Arrays have one layer of ghosts on all sides: (planes + 2, points + 2, points + 2).
    """

    def __init__(self, points: int, comm: Comm | None) -> None:
        self.points, self.comm = points, comm
        self.planes = points // comm.size if comm else points
        self.square = (1.0 / points) ** 2
        self.solution = self.zeros()
        self.right = self.zeros()
        self.rest = self.zeros()
        self._sum = np.empty((self.planes, points, points))
        coarser = points // 2
        self.coarser: Level | None = None
        if points % 2 == 0 and coarser >= 4:
            divided = comm is not None and self.planes % 2 == 0 and self.planes >= 4
            self.coarser = Level(coarser, comm if divided else None)

    def zeros(self) -> Floats:
        """An array of this level."""
        return np.zeros((self.planes + 2, self.points + 2, self.points + 2))

    def halo(self, grid: Floats) -> None:
        """Fill the ghosts: what is beyond an edge is at the other one."""
        inner = grid[1:-1]
        inner[:, 0], inner[:, -1] = inner[:, -2], inner[:, 1]
        inner[:, :, 0], inner[:, :, -1] = inner[:, :, -2], inner[:, :, 1]
        if self.comm is None or self.comm.size == 1:
            grid[0], grid[-1] = grid[-2], grid[1]
            return
        above, below = (self.comm.rank + 1) % self.comm.size, (self.comm.rank - 1) % self.comm.size
        self.comm.swap(above, grid[-2], below, grid[0])
        self.comm.swap(below, grid[1], above, grid[-1])

    def residual(self) -> Floats:
        """The right side less the operator's image of the solution, whose ghosts must be filled; inside ``rest``."""
        grid, total = self.solution, self._sum
        np.add(grid[:-2, 1:-1, 1:-1], grid[2:, 1:-1, 1:-1], out=total)
        total += grid[1:-1, :-2, 1:-1]
        total += grid[1:-1, 2:, 1:-1]
        total += grid[1:-1, 1:-1, :-2]
        total += grid[1:-1, 1:-1, 2:]
        inside = self.rest[1:-1, 1:-1, 1:-1]
        np.multiply(grid[1:-1, 1:-1, 1:-1], -6.0, out=inside)
        inside += total
        inside /= self.square
        inside += self.right[1:-1, 1:-1, 1:-1]
        return inside

    def smooth(self, sweeps: int) -> None:
        """Damped Jacobi; leaves the ghosts filled."""
        for _ in range(sweeps):
            change = self.residual()
            change *= _DAMPING * self.square / 6
            self.solution[1:-1, 1:-1, 1:-1] += change
            self.halo(self.solution)

    def cycle(self) -> None:
        """One V-cycle from this level down."""
        if self.coarser is None:
            self.smooth(_COARSEST_SWEEPS)
            return
        self.smooth(_SWEEPS)
        self.residual()
        self.halo(self.rest)
        self.coarser.receive(restricted(self.rest), self.comm)
        self.coarser.solution[:] = 0.0
        self.coarser.cycle()
        mine = self.coarser.share(self.comm, self.planes // 2)
        self.solution[1:-1, 1:-1, 1:-1] += interpolated(mine)
        self.halo(self.solution)
        self.smooth(_SWEEPS)

    def receive(self, right: Floats, finer: Comm | None) -> None:
        """The right side from the finer level; gathered where this level is not divided any more."""
        if finer is not None and self.comm is None and finer.size > 1:
            whole = np.empty((self.points, self.points, self.points))
            finer.join(np.ascontiguousarray(right), whole, [right.size] * finer.size)
            right = whole
        self.right[1:-1, 1:-1, 1:-1] = right

    def share(self, finer: Comm | None, planes: int) -> Floats:
        """The part of the solution, with ghosts, that belongs to a rank's planes of the finer level."""
        if finer is not None and self.comm is None and finer.size > 1:
            return self.solution[finer.rank * planes : (finer.rank + 1) * planes + 2]
        return self.solution


def restricted(fine: Floats) -> Floats:
    """Full weighting: in each direction half of the fine point at the coarse one's place, a quarter of those beside."""
    for axis in range(3):
        last = fine.shape[axis]
        before, here, after = (_along(fine, axis, slice(start, last - 2 + start, 2)) for start in (0, 1, 2))
        fine = 0.25 * before + 0.5 * here + 0.25 * after
    return fine


def interpolated(coarse: Floats) -> Floats:
    """Trilinear: every second fine point is a coarse one, those between are means."""
    for axis in range(3):
        here, after = _along(coarse, axis, slice(1, -1)), _along(coarse, axis, slice(2, None))
        shape = list(here.shape)
        shape[axis] *= 2
        fine = np.empty(shape)
        _along(fine, axis, slice(0, None, 2))[:] = here
        _along(fine, axis, slice(1, None, 2))[:] = 0.5 * (here + after)
        coarse = fine
    return coarse


def _along(grid: Floats, axis: int, part: slice) -> Floats:
    return grid[(slice(None),) * axis + (part,)]


class Multigrid(Kernel):
    """``points`` in each direction."""

    name = "mg"
    sizes: ClassVar[Sizes] = {
        "S": {"points": 32, "iterations": 80},
        "W": {"points": 64, "iterations": 90},
        "A": {"points": 128, "iterations": 40},
        "B": {"points": 192, "iterations": 40},
    }

    def __init__(self, comm: Comm, size: Mapping[str, int], seed: int) -> None:
        super().__init__(comm, size, seed)
        points = size["points"]
        usable = [ranks for ranks in range(1, points // 2 + 1) if points % (2 * ranks) == 0]
        if comm.size not in usable:
            raise Unsuitable(f"{comm.size} ranks for {points} planes in pairs; usable: {', '.join(map(str, usable))}")
        self.finest = Level(points, comm)
        self.first = comm.rank * self.finest.planes
        self.number = 0

    def waves(self, number: int) -> tuple[Floats, Floats]:
        """That problem's right side and solution, on this rank's planes."""
        points, planes = self.finest.points, self.finest.planes
        rng = np.random.default_rng((self.seed, number))
        right, solution = np.zeros((2, planes, points, points))
        z, y, x = np.arange(self.first, self.first + planes), np.arange(points), np.arange(points)
        for _ in range(_WAVES):
            # the first wave in each direction would be the same at every number of points
            counts = rng.integers(1, max(2, points // 4), 3)
            amplitude = rng.uniform(0.5, 1.0)
            phase = [
                np.sin(2 * np.pi * count * at / points + turn)
                for count, at, turn in zip(counts, (z, y, x), rng.uniform(0, 2 * np.pi, 3), strict=True)
            ]
            wave = amplitude * phase[0][:, None, None] * phase[1][:, None] * phase[2]
            eigenvalue = float((2 - 2 * np.cos(2 * np.pi * counts / points)).sum()) / self.finest.square
            # all waves of the solution are of about the same height
            right += eigenvalue * wave
            solution += wave
        return right, solution

    def iterate(self, number: int) -> None:
        """Solve for that problem's waves, from zero."""
        self.number = number
        self.finest.right[1:-1, 1:-1, 1:-1] = self.waves(number)[0]
        self.finest.solution[:] = 0.0
        for _ in range(_CYCLES):
            self.finest.cycle()

    def verify(self) -> Verdict:
        """The largest difference to the known solution, relative to its largest value."""
        wanted = self.waves(self.number)[1]
        found = self.finest.solution[1:-1, 1:-1, 1:-1]
        wrong = self.comm.largest(float(np.abs(found - wanted).max()))
        return Verdict(wrong / self.comm.largest(float(np.abs(wanted).max())), _ALLOWED)

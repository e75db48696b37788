"""BT: alternating-direction implicit steps with block-tridiagonal systems; computes most, with few large messages.

Five coupled fields on a cube with zero boundaries. Each step solves (Lx Ly Lz) u' = u + s, where L of a direction is
implicit diffusion with a 5 × 5 coupling K and a reaction S that varies from place to place: block-tridiagonal systems
along all lines, by block elimination (Thomas). The cube is divided in slabs along z: lines in x and y are whole; for z
the slabs are turned (an all-to-all) and turned back. An iteration is one step.

Verified by the known solution: the source s is made for it, from its formula, without communicating or solving.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from cosched.programs.comm import Comm, Floats, Indices
from cosched.programs.kernel import Kernel, Sizes, Unsuitable, Verdict

_FIELDS = 5
_DIFFUSION = 0.4
_REACTION = 0.3
_ALLOWED = 1e-9


class BlockTridiagonal(Kernel):
    """``points`` in each direction."""

    name = "bt"
    sizes: ClassVar[Sizes] = {
        "S": {"points": 16, "iterations": 150},
        "W": {"points": 24, "iterations": 300},
        "A": {"points": 32, "iterations": 400},
        "B": {"points": 48, "iterations": 400},
    }

    def __init__(self, comm: Comm, size: Mapping[str, int], seed: int) -> None:
        super().__init__(comm, size, seed)
        points = self.points = size["points"]
        usable = [ranks for ranks in range(1, points + 1) if points % ranks == 0]
        if comm.size not in usable:
            raise Unsuitable(f"{comm.size} ranks for {points} planes; usable: {', '.join(map(str, usable))}")
        rng = np.random.default_rng(seed)
        mixing = rng.uniform(-1, 1, (_FIELDS, _FIELDS))
        self.coupling = _DIFFUSION * (np.eye(_FIELDS) + 0.05 * (mixing + mixing.T))
        self.reactions = _REACTION * rng.uniform(-1, 1, (3, _FIELDS, _FIELDS)) / _FIELDS
        self.phases = rng.uniform(0, 2 * np.pi, (3, _FIELDS))
        planes = self.planes = points // comm.size
        self.first = comm.rank * planes
        mine, all_ = np.arange(self.first, self.first + planes), np.arange(points)
        self.strengths = [self._strength(axis, mine, all_, all_) for axis in range(3)]
        # the same for the lines in z, as the turned slabs have them: (y, x, z)
        self.turned_strength = np.ascontiguousarray(self._strength(0, all_, mine, all_).transpose(1, 2, 0))
        self.fields = self.wanted(0, mine)
        self.number = 0

    def _strength(self, axis: int, *at: Indices) -> Floats:
        """How strong the reaction of a direction (z, y, x) is at places (z, y, x)."""
        z, y, x = np.meshgrid(*at, indexing="ij")
        strength: Floats = np.cos(0.3 * (axis + 1) * z + 0.2 * y - 0.1 * (axis + 2) * x + self.seed)
        return strength

    def wanted(self, number: int, planes: Indices) -> Floats:
        """The known solution after so many steps, on planes that may be one beyond the cube, where it is zero."""
        angle = np.pi / (self.points + 1)
        inside = np.sin(angle * np.arange(1, self.points + 1))
        twice = np.sin(2 * angle * np.arange(1, self.points + 1))
        z = planes + 1
        slow = np.sin(angle * z)[:, None, None, None] * inside[:, None, None] * inside[:, None]
        fast = np.sin(3 * angle * z)[:, None, None, None] * twice[:, None, None] * inside[:, None]
        fields: Floats = slow * np.cos(0.1 * number + self.phases[0])
        fields += 0.5 * fast * np.cos(0.3 * number + self.phases[1])
        return fields

    def image(self, number: int) -> Floats:
        """Lx Ly Lz of the known solution, on this rank's planes."""
        beyond = self.wanted(number, np.arange(self.first - 1, self.first + self.planes + 1))
        grid = self._applied(beyond, 0)
        for axis in (1, 2):
            edges = [(0, 0)] * 4
            edges[axis] = (1, 1)
            grid = self._applied(np.pad(grid, edges), axis)
        return grid

    def _applied(self, grid: Floats, axis: int) -> Floats:
        """One direction's operator; the grid has one layer more on both sides of that axis."""
        before, here, after = (
            grid[(slice(None),) * axis + (slice(start, grid.shape[axis] - 2 + start),)] for start in (0, 1, 2)
        )
        spread = (2 * here - before - after) @ self.coupling.T
        image: Floats = here + spread + self.strengths[axis][..., None] * (here @ self.reactions[axis].T)
        return image

    def iterate(self, number: int) -> None:
        """One step: source, then lines in x, in y, and in z."""
        self.number = number + 1
        if number == 0:
            self.fields = self.wanted(0, np.arange(self.first, self.first + self.planes))
        points, planes, count = self.points, self.planes, self.comm.size
        right = self.fields + self.image(number + 1) - self.wanted(number, np.arange(self.first, self.first + planes))
        right = self.solved(right, self.strengths[2], 2)
        right = self.solved(right.transpose(0, 2, 1, 3), self.strengths[1].transpose(0, 2, 1), 1).transpose(0, 2, 1, 3)
        # slabs of z become slabs of y
        blocks = right.reshape(planes, count, planes, points, _FIELDS).transpose(1, 0, 2, 3, 4)
        turned = self.comm.spread(np.ascontiguousarray(blocks)).reshape(points, planes, points, _FIELDS)
        turned = self.solved(turned.transpose(1, 2, 0, 3), self.turned_strength, 0).transpose(2, 0, 1, 3)
        back = self.comm.spread(np.ascontiguousarray(turned).reshape(count, planes, planes, points, _FIELDS))
        self.fields = back.transpose(1, 0, 2, 3, 4).reshape(planes, points, points, _FIELDS)

    def solved(self, right: Floats, strength: Floats, axis: int) -> Floats:
        """The systems along the last axis but one of ``right``, each place with its reaction's strength."""
        shape, length = right.shape, right.shape[-2]
        lines = np.ascontiguousarray(right).reshape(-1, length, _FIELDS)
        strengths = np.ascontiguousarray(strength).reshape(-1, length)
        diagonal = np.eye(_FIELDS) + 2 * self.coupling
        both = np.empty((len(lines), _FIELDS, _FIELDS + 1))
        eliminated = np.empty((length, len(lines), _FIELDS, _FIELDS + 1))
        for i in range(length):
            block = diagonal + strengths[:, i, None, None] * self.reactions[axis]
            both[:, :, :_FIELDS] = self.coupling
            both[:, :, _FIELDS] = lines[:, i]
            if i:
                carried = self.coupling @ eliminated[i - 1]
                block -= carried[:, :, :_FIELDS]
                both[:, :, _FIELDS] += carried[:, :, _FIELDS]
            eliminated[i] = np.linalg.solve(block, both)
        found = np.empty_like(lines)
        found[:, -1] = eliminated[-1, :, :, _FIELDS]
        for i in range(length - 2, -1, -1):
            found[:, i] = eliminated[i, :, :, _FIELDS]
            found[:, i] += (eliminated[i, :, :, :_FIELDS] @ found[:, i + 1, :, None])[:, :, 0]
        return found.reshape(shape)

    def verify(self) -> Verdict:
        """The largest difference to the known solution, whose numbers are of order 1."""
        wanted = self.wanted(self.number, np.arange(self.first, self.first + self.planes))
        return Verdict(self.comm.largest(float(np.abs(self.fields - wanted).max())), _ALLOWED)

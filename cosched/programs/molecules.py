"""Molecular dynamics of a Lennard-Jones fluid, malleable: each rank moves its particles, and sees all of them.

Velocity Verlet in a periodic box, in reduced units, forces by all pairs within a cut-off: the naive parallel program of
Kalé et al. 2002, §4.1. A particle's force is a sum over all particles in their order, whoever makes it, so the answer
has the same bits on any number of processes. Right is what keeps its energy.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from cosched.adaptive import Job
from cosched.programs.comm import Floats
from cosched.programs.kernel import Verdict

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

_DENSITY, _TEMPERATURE, _STEP, _CUT_OFF = 0.8, 0.7, 0.002, 2.5
#: The truncated potential is shifted to be 0 at the cut-off.
_SHIFT = 4 * (_CUT_OFF**-12 - _CUT_OFF**-6)
#: Particles whose pairs are looked at together.
_CHUNK = 32
#: Relative drift of the energy; forces are not smooth at the cut-off.
_ALLOWED = 2e-3


def molecules(job: Job, size: int, steps: int) -> tuple[Floats | None, Verdict]:
    """So many steps with so many particles: where they are, on the leader, and whether their energy was kept."""
    box = (size / _DENSITY) ** (1 / 3)
    x, v, f = (job.array((size, 3)) for _ in range(3))
    x.local[:] = _lattice(size, box)[x.rows.start : x.rows.stop]
    v.local[:] = _velocities(size)[v.rows.start : v.rows.stop]
    f.local[:], potential = forces(together(job.comm, x.local), x.rows, box)
    job.state["energy"] = energy(job.comm, v.local, potential)
    for _ in job.range(steps, x, v, f):
        v.local[:] += _STEP / 2 * f.local
        x.local[:] += _STEP * v.local
        everybody = together(job.comm, x.local)
        with job.work():
            f.local[:], potential = forces(everybody, x.rows, box)
        v.local[:] += _STEP / 2 * f.local
    _, potential = forces(together(job.comm, x.local), x.rows, box)
    drift = energy(job.comm, v.local, potential) / job.state["energy"] - 1
    return x.gather(), Verdict(abs(drift), _ALLOWED)


def together(comm: "Intracomm", mine: Floats) -> Floats:
    """Everybody's rows, in the order of ranks, on all of them."""
    counts = [mine.shape[1] * rows for rows in comm.allgather(len(mine))]
    whole = np.empty((sum(counts) // mine.shape[1], mine.shape[1]))
    comm.Allgatherv(mine, [whole, counts])
    return whole


def forces(x: Floats, rows: range, box: float) -> tuple[Floats, Floats]:
    """Force on each particle of ``rows``, and its half of the energy of its pairs."""
    force, potential = np.empty((len(rows), 3)), np.empty(len(rows))
    for first in range(0, len(rows), _CHUNK):
        chunk = rows[first : first + _CHUNK]
        here = slice(first, first + len(chunk))
        apart = [nearest(x[chunk.start : chunk.stop, axis, None] - x[None, :, axis], box) for axis in range(3)]
        squares = apart[0] ** 2 + apart[1] ** 2 + apart[2] ** 2
        squares[np.arange(len(chunk)), chunk] = np.inf
        squares[squares > _CUT_OFF**2] = np.inf
        sixth = squares**-3
        strength = 24 * (2 * sixth**2 - sixth) / squares
        for axis in range(3):
            force[here, axis] = (strength * apart[axis]).sum(axis=1)
        potential[here] = np.where(np.isinf(squares), 0, 4 * (sixth**2 - sixth) - _SHIFT).sum(axis=1) / 2
    return force, potential


def nearest(apart: Floats, box: float) -> Floats:
    """Distances to the nearest image of each particle, where everything repeats after ``box``."""
    return apart - box * np.round(apart / box)


def energy(comm: "Intracomm", v: Floats, potential: Floats) -> float:
    """Of all particles, the same on all ranks and on any number of them."""
    parts = comm.allgather((0.5 * (v**2).sum(axis=1) + potential).tolist())
    return math.fsum(each for part in parts for each in part)


def _lattice(size: int, box: float) -> Floats:
    side = math.ceil(round(size ** (1 / 3), 9))
    places = np.stack(np.meshgrid(*3 * [np.arange(side)], indexing="ij"), axis=-1).reshape(-1, 3)
    lattice: Floats = (places[:size] + 0.5) * (box / side)
    return lattice


def _velocities(size: int) -> Floats:
    drawn = np.random.default_rng(1).normal(0, math.sqrt(_TEMPERATURE), (size, 3))
    centred: Floats = drawn - drawn.mean(axis=0)
    return centred

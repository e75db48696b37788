"""Heat in a square plate by Jacobi's method, malleable: a new row needs the rows beside it, and nothing is summed.

So the answer has the same bits on any number of processes. The plate starts as one sine wave, an eigenvector of the
method's step, whose answer is known after any number of steps.
"""

from typing import TYPE_CHECKING

import numpy as np

from cosched.adaptive import Job
from cosched.programs.comm import Floats
from cosched.programs.kernel import Verdict

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

_ALLOWED = 1e-12


def heat(job: Job, size: int, steps: int) -> tuple[Floats | None, Verdict]:
    """So many steps on a plate of size² points: the plate, on the leader, and whether it is right there."""
    u, fresh = job.array((size, size)), job.array((size, size), scratch=True)
    u.local[:] = _wave(u.rows, size)
    for _ in job.range(steps, u):
        above, below = neighbours(job.comm, u.local)
        with job.work():
            relax(u.local, above, below, fresh.local)
        u.swap(fresh)
    plate = u.gather()
    if plate is None:
        return None, Verdict(0.0, _ALLOWED)
    exact = np.cos(np.pi / (size + 1)) ** steps * _wave(range(size), size)
    return plate, Verdict(float(np.abs(plate - exact).max()), _ALLOWED)


def neighbours(comm: "Intracomm", rows: Floats) -> tuple[Floats, Floats]:
    """The last row of the rank before and the first row of the one after; zeros at the plate's edges."""
    from mpi4py import MPI  # noqa: PLC0415 (starts MPI when it is imported)

    rank, size = comm.Get_rank(), comm.Get_size()
    before = rank - 1 if rank else MPI.PROC_NULL
    after = rank + 1 if rank + 1 < size else MPI.PROC_NULL
    above, below = np.zeros((2, rows.shape[1]))
    comm.Sendrecv(rows[-1], after, 0, above, before, 0)
    comm.Sendrecv(rows[0], before, 0, below, after, 0)
    return above, below


def relax(rows: Floats, above: Floats, below: Floats, fresh: Floats) -> None:
    """Each point becomes the mean of the four beside it."""
    fresh[0] = above
    fresh[1:] = rows[:-1]
    fresh[:-1] += rows[1:]
    fresh[-1] += below
    fresh[:, 1:] += rows[:, :-1]
    fresh[:, :-1] += rows[:, 1:]
    fresh *= 0.25


def _wave(rows: range, size: int) -> Floats:
    places = np.pi * np.arange(1, size + 1) / (size + 1)
    return np.outer(np.sin(places[rows.start : rows.stop]), np.sin(places))

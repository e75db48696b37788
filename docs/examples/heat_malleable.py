"""Heat in a rod of N points, which are shared out among the ranks: ``heat_rigid.py``, malleable."""

import sys

import numpy as np
from mpi4py import MPI

from cosched import adaptive

N, STEPS = 200_000, int(sys.argv[1])

with adaptive.job() as job:
    u = job.array(N)
    u.local[:] = np.sin(np.pi * np.arange(u.rows.start, u.rows.stop) / (N - 1))

    for _ in job.range(STEPS, u):
        comm = job.comm
        rank, size = comm.Get_rank(), comm.Get_size()
        before, after = np.zeros(1), np.zeros(1)
        left = rank - 1 if rank else MPI.PROC_NULL
        right = rank + 1 if rank + 1 < size else MPI.PROC_NULL
        comm.Sendrecv(u.local[-1:], right, 0, before, left, 0)
        comm.Sendrecv(u.local[:1], left, 0, after, right, 0)
        wide = np.concatenate([before, u.local, after])
        u.local[:] = wide[1:-1] + 0.25 * (wide[2:] - 2 * wide[1:-1] + wide[:-2])

    whole = u.gather()
    if whole is not None:
        sys.stdout.write(f"{STEPS} steps: {float(whole.sum())!r}\n")

"""Heat in a rod of N points, which are shared out among the ranks: an ordinary mpi4py program."""

import sys

import numpy as np
from mpi4py import MPI

N, STEPS = 200_000, int(sys.argv[1])

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
first, last = N * rank // size, N * (rank + 1) // size
u = np.sin(np.pi * np.arange(first, last) / (N - 1))

for _ in range(STEPS):
    before, after = np.zeros(1), np.zeros(1)
    left = rank - 1 if rank else MPI.PROC_NULL
    right = rank + 1 if rank + 1 < size else MPI.PROC_NULL
    comm.Sendrecv(u[-1:], right, 0, before, left, 0)
    comm.Sendrecv(u[:1], left, 0, after, right, 0)
    wide = np.concatenate([before, u, after])
    u[:] = wide[1:-1] + 0.25 * (wide[2:] - 2 * wide[1:-1] + wide[:-2])

parts = comm.gather(u)
if rank == 0:
    whole = np.concatenate(parts)
    sys.stdout.write(f"{STEPS} steps: {float(whole.sum())!r}\n")

"""Divides by zero on the second of two enabled ranks, while the others of four sleep and the first one waits for it."""

import mpi4py

from cosched import adaptive

mpi4py.rc.threads = False

with adaptive.job() as job:
    for step in job.range(10**9):
        if step == 20 and job.rank == 1:
            1 // 0  # noqa: B018
        job.comm.Barrier()

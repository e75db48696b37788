"""What moves, and what that costs: ``balance`` has a rank ten times as slow; ``memory`` has 64 MB on four ranks.

Each enabled rank says its rows in the end, and by how many MB its memory's peak grew at points.
"""

import resource
import sys
import time

import mpi4py
import numpy as np

from cosched import adaptive

mpi4py.rc.threads = False
ROWS, STEPS, MB = 60, 20, 64


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def balance(job: adaptive.Job) -> None:
    u = job.array(ROWS)
    for _ in job.range(STEPS, u):
        with job.work():
            time.sleep(len(u.rows) * (0.01 if job.rank == 1 else 0.001))  # long beside a turn of another process
            u.local[:] += np.arange(ROWS)[u.rows.start : u.rows.stop]
    whole = u.gather()
    assert whole is None or np.array_equal(whole, STEPS * np.arange(ROWS))
    say(job, len(u.rows))


def memory(job: adaptive.Job) -> None:
    u = job.array((MB, 1 << 17))
    u.local[:] = np.array(u.rows)[:, None]
    before = peak_mb()
    for _ in job.range(10**9, u):
        if job.number == 3:
            break
        time.sleep(0.002)
    assert (u.local == np.array(u.rows)[:, None]).all()
    say(job, peak_mb() - before)


def say(job: adaptive.Job, what: float) -> None:
    sys.stdout.write(f"{job.rank} {what}\n")


if __name__ == "__main__":
    adaptive._AGENT_PATIENCE_S = 0.2  # "balance" has no agent
    with adaptive.job(every=10) as job:
        {"balance": balance, "memory": memory}[sys.argv[1]](job)

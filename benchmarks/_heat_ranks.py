"""A rank of the heat program, kept to one of two cores: malleable or not, without end, each of its steps said.

    python -m benchmarks._heat_ranks --as adaptive|rigid 0|1|both

On ``both`` cores are the first and the second half of the ranks. And what can be seen of such ranks from outside.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.reshape import say

RANKS: Final = "benchmarks._heat_ranks"
SIZE: Final = 1024
_FOR_EVER: Final = 10**9


def cores() -> list[int]:
    """The two that are used."""
    return sorted(os.sched_getaffinity(0))[:2]


def adaptive_heat() -> None:
    """On a rank: the heat program, malleable; the leader says each step."""
    from cosched import adaptive  # noqa: PLC0415 (with numpy, in ranks alone)
    from cosched.programs.heat import neighbours, relax  # noqa: PLC0415

    with adaptive.job(balance=False) as job:
        u, fresh = job.array((SIZE, SIZE)), job.array((SIZE, SIZE), scratch=True)
        for step in job.range(_FOR_EVER, u):
            if job.leads:
                say({"step": step})
            above, below = neighbours(job.comm, u.local)
            relax(u.local, above, below, fresh.local)
            u.swap(fresh)


def rigid_heat() -> None:
    """On a rank: the same steps in a plain MPI program; rank 0 says each."""
    import numpy as np  # noqa: PLC0415 (in ranks alone)
    from mpi4py import MPI  # noqa: PLC0415

    from cosched.programs.heat import neighbours, relax  # noqa: PLC0415

    comm = MPI.COMM_WORLD
    shape = SIZE // comm.Get_size(), SIZE
    u, fresh = np.zeros(shape), np.zeros(shape)
    for step in range(_FOR_EVER):
        if comm.Get_rank() == 0:
            say({"step": step})
        above, below = neighbours(comm, u)
        relax(u, above, below, fresh)
        u, fresh = fresh, u


def rank_of(pid: int) -> int:
    """Its number in its MPI world."""
    words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(int(word.partition(b"=")[2]) for word in words if word.startswith(b"OMPI_COMM_WORLD_RANK="))


def cpu_s(pid: int) -> float:
    """CPU seconds so far of a process; 0 where it is gone."""
    try:
        return sum(int(each.read_text().split()[0]) for each in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
    except OSError:
        return 0.0


def is_kept_to(pid: int, core: int) -> bool:
    """Whether a process runs on that core alone."""
    try:
        return os.sched_getaffinity(pid) == {core}
    except OSError:
        return False


def main(words: Sequence[str]) -> None:
    """Be a rank, on its core."""
    rank, ranks = (int(os.environ[f"OMPI_COMM_WORLD_{what}"]) for what in ("RANK", "SIZE"))
    core = 2 * rank // ranks if words[1] == "both" else int(words[1])
    os.sched_setaffinity(0, {cores()[core]})
    import mpi4py  # noqa: PLC0415 (in ranks alone)

    mpi4py.rc.threads = False
    if words[0] == "rigid":
        rigid_heat()
    else:
        adaptive_heat()


if __name__ == "__main__":
    main(sys.argv[2:])

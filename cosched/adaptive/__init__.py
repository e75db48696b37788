"""Malleable MPI programs: what a program does so that the scheduler can change its number of processes while it runs.

    from cosched import adaptive

    with adaptive.job() as job:
        u = job.array((n, n))
        for step in job.range(1000, u):
            ...  # compute u.local, whose rows are u.rows, with the ranks of job.comm

It needs mpi4py and numpy, and nothing else of cosched. How to use it is in docs/guide/adaptive.md, why it is so in
docs/design/adaptive.md; ``cosched_adaptive.h`` in this folder (:func:`get_include`) is the same for programs in C.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cosched.adaptive.arrays import Array
from cosched.adaptive.channel import Channel, introduced
from cosched.adaptive.job import Job
from cosched.adaptive.pieces import Pieces

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

__all__ = ["SOCKET", "Array", "Job", "Pieces", "get_include", "job"]

#: The variable with the path of the agent's socket.
SOCKET = "COSCHED_JOB_SOCKET"
_AGENT_PATIENCE_S = 5.0


def job(comm: "Intracomm | None" = None, *, balance: bool = True, every: int = 0) -> Job:
    """Begin a malleable job on all ranks of a communicator, which is the world's unless given; a context manager.

    Without an agent's socket in the environment of each rank all of them are enabled for good. ``balance`` gives rows
    in proportion to measured speed when the map changes, and ``every`` so many points as well; 0 is never.
    """
    from mpi4py import MPI  # noqa: PLC0415 (starts MPI when it is imported)

    world = (comm or MPI.COMM_WORLD).Dup()
    path = os.environ.get(SOCKET)
    channel = Channel(path, world.Get_rank(), world.Get_size()) if path else None
    node = channel and (introduced(channel, _AGENT_PATIENCE_S) or os.environ.get("COSCHED_NODE"))
    nodes = world.allgather(node or None)
    if None in nodes and channel is not None:
        if world.Get_rank() == next(rank for rank, each in enumerate(nodes) if each is None):
            sys.stderr.write("cosched.adaptive: no agent says which node this is: the job keeps its processes\n")
        channel.close()
        channel = None
    return Job(world, channel, [each or "" for each in nodes], balance=balance, every=every)


def get_include() -> str:
    """The folder of ``cosched_adaptive.h``, for a C compiler's ``-I``."""
    return str(Path(__file__).parent)

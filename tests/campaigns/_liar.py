"""A malleable program that lies: ``_liar.py PROGRAM …``, as ``python -m cosched.programs.malleable PROGRAM …``.

It answers each map at once as adopted, adapts nothing, goes on computing on all of its ranks, and tries again and again
to run on all CPUs of the machine.
"""

import contextlib
import os
import sys
import threading

from cosched.adaptive.channel import Channel
from cosched.programs import malleable

SOCKET = "COSCHED_JOB_SOCKET"
_EVERY_S = 0.5


def lie(path: str, rank: int, ranks: int) -> None:
    """Say what is not so, and take what can be had."""
    channel, told = Channel(path, rank, ranks), 0
    while True:
        channel.poll()
        if channel.newest is not None and channel.newest.number > told:
            told = channel.newest.number
            channel.adapt(told if rank == 0 else None)
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(int(thread), range(os.cpu_count() or 1))
        channel.wait(_EVERY_S)


if __name__ == "__main__":
    whole = [int(os.environ[f"OMPI_COMM_WORLD_{what}"]) for what in ("RANK", "SIZE")]
    threading.Thread(target=lie, args=(os.environ.pop(SOCKET), *whole), daemon=True).start()
    sys.exit(malleable.main(sys.argv[1:]))

"""What the user's processes ask of the kernel: to sleep to the nanosecond, their CPU, who is below whom.

Standard library alone: the probe, which measures latencies, is a small process of its own; and psutil has CPU time in
ticks only, and looks at all processes of the machine to find those below one.
"""

import contextlib
import ctypes
import errno
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_ABSOLUTE: Final = 1
libc: Final = ctypes.CDLL(None, use_errno=True)


class Timespec(ctypes.Structure):
    """``struct timespec``."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def sleep_until_ns(moment_ns: int) -> None:
    """Sleep until CLOCK_MONOTONIC shows that: an absolute deadline, which no interruption moves."""
    moment = Timespec(*divmod(moment_ns, 1_000_000_000))
    while libc.clock_nanosleep(time.CLOCK_MONOTONIC, _ABSOLUTE, ctypes.byref(moment), None) == errno.EINTR:
        pass


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when ``parent``, which started it, dies."""
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it had died before
        os._exit(1)


def cpu_clock(pid: int) -> int:
    """The clock of the CPU time of a process, for ``time.clock_gettime`` (nanoseconds, unlike ``/proc``'s ticks)."""
    return (~pid << 3) | 2


def cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds of these processes; those that have ended count nothing."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += time.clock_gettime(cpu_clock(pid))
    return total


def family(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for each in found:
        for task in _listed(f"/proc/{each}/task"):
            with contextlib.suppress(OSError):
                found += map(int, Path(f"/proc/{each}/task/{task}/children").read_text(encoding="ascii").split())
    return found


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []

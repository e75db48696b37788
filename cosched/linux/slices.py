"""How long a process of ours may keep a CPU from somebody who wakes up: not at all.

Guard and agent run beside the owner's processes, outside the idle class, since a contract must be armed at once. So a
wake-up of the owner's that finds one of them at work would wait for the end of its slice. A process that asks for the
longest slice has the latest deadline, and whoever wakes up with a shorter one goes first (EEVDF; Linux 6.12 and later,
whose ``sched_setattr`` takes the slice as ``sched_runtime``; older kernels don't look at it). See sched_setattr(2).
"""

import ctypes
import errno
import os
import struct
from typing import Final

from cosched.linux.cgroups import YES
from cosched.linux.process import checked

_SET_CALLS: Final = {"x86_64": 314, "aarch64": 274, "riscv64": 274, "ppc64le": 355, "s390x": 345}
_ATTR: Final = struct.Struct("=IIQiIQQQ")  # size, policy, flags, nice, priority, runtime, deadline, period
_RESET_ON_FORK: Final = 1  # jobs, decoys and helpers have the kernel's slice
#: The kernel allows no longer one.
LONGEST_NS: Final = 100_000_000
_libc = ctypes.CDLL(None, use_errno=True)


def give_way() -> str:
    """Have whoever wakes up go before the calling thread; what it starts is as it would be. "yes", or why not."""
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attr = _ATTR.pack(_ATTR.size, os.SCHED_OTHER, _RESET_ON_FORK, nice, 0, LONGEST_NS, 0, 0)
    told = ctypes.create_string_buffer(attr, len(attr))
    try:
        checked(_libc.syscall(_set_call(), 0, told, 0), "sched_setattr")
        got_ns = slice_ns()
    except OSError as error:
        return f"no: {error.filename}: {error.strerror}"
    if got_ns < LONGEST_NS:
        return "no: this kernel has one slice for all (Linux 6.12 and later have each process's own)"
    return YES


def slice_ns(pid: int = 0) -> int:
    """A process's slice, or the calling thread's; 0 where the kernel doesn't tell. Raises OSError."""
    told = ctypes.create_string_buffer(_ATTR.size)
    checked(_libc.syscall(_set_call() + 1, pid, told, _ATTR.size, 0), "sched_getattr")
    return int(_ATTR.unpack(told.raw)[5])


def _set_call() -> int:
    """The number of sched_setattr(2); sched_getattr(2) has the next."""
    number = _SET_CALLS.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, f"no known number on {os.uname().machine}", "sched_setattr")
    return number

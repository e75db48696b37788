"""Processes and clocks as the kernel has them: what Python 3.11's library lacks, and what /proc tells."""

import contextlib
import ctypes
import errno
import os
import select
import signal
import struct
import time
from typing import Final, NamedTuple

from cosched.linux import files

US_PER_S: Final = 1_000_000
CPU_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")

_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 15, 36, 38
_TFD_NONBLOCK_CLOEXEC: Final = 0o2004000
_TFD_TIMER_ABSTIME: Final = 1
_IOPRIO_SET: Final = {"x86_64": 251, "aarch64": 30, "riscv64": 30, "ppc64le": 273, "s390x": 282}
_IOPRIO_WHO_PROCESS: Final = 1
_IOPRIO_IDLE: Final = 3 << 13
_PF_FORKNOEXEC: Final = 0x40
_libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> int:
    """The result of a call of libc, or its errno as an OSError that names ``what``."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def disks_idle_class() -> None:
    """Have the calling process, and whom it starts, read and write where nobody else does (ioprio_set(2))."""
    number = _IOPRIO_SET.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, f"ioprio_set(2) has no known number on {os.uname().machine}")
    checked(_libc.syscall(number, _IOPRIO_WHO_PROCESS, 0, _IOPRIO_IDLE), "ioprio_set")


def boottime_us() -> int:
    """Microseconds since boot, those in suspension included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def boot_id() -> str:
    """Which boot of this machine it is."""
    return files.read("/proc/sys/kernel/random/boot_id").strip()


class BootTimer:
    """A descriptor that is readable from a moment of CLOCK_BOOTTIME on, at once after a suspension that passed it."""

    def __init__(self) -> None:
        self._fd = checked(_libc.timerfd_create(time.CLOCK_BOOTTIME, _TFD_NONBLOCK_CLOEXEC), "timerfd_create")

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._fd

    def set(self, at_us: int | None) -> None:
        """Fire at that moment, or never."""
        at_us = 0 if at_us is None else max(1, at_us)  # all zero would disarm it
        setting = struct.pack("=qqqq", 0, 0, at_us // US_PER_S, at_us % US_PER_S * 1000)
        checked(_libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, setting, None), "timerfd_settime")

    def clear(self) -> None:
        """Take back that it has fired."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 8)


def set_name(name: str) -> None:
    """What ``ps -o comm`` shows of this process, at most 15 characters."""
    _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def become_subreaper() -> None:
    """From now on, orphans among this process's descendants become its children."""
    checked(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "PR_SET_CHILD_SUBREAPER")


def die_with_parent(parent: int) -> None:
    """SIGKILL for this process when ``parent`` ends, whose only thread forked it.

    The parent's number is the one it had before the fork (0 for the first process of a PID namespace): a child that
    looks it up itself may come too late. The kernel forgets all this when the user changes.
    """
    checked(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "PR_SET_PDEATHSIG")
    if os.getppid() != parent:  # it ended before that
        os._exit(1)


def no_new_privileges() -> None:
    """From now on, no set-user-id program gives this process or its descendants any rights."""
    checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")


class Stat(NamedTuple):
    """Of ``/proc/PID/stat``: times are in microseconds of CPU, the start in ticks since boot.

    ``executed``: whether it has executed a program since it was forked (on kernels that tell no flags: always).
    """

    state: str
    parent: int
    group: int
    cpu_us: int
    start_ticks: int
    executed: bool
    command: str


def stat_of(pid: int) -> Stat | None:
    """What the kernel says of a process, or None when there is none with that number."""
    try:
        before, _, after = files.read(f"/proc/{pid}/stat").rpartition(")")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields, command = after.split(), before.partition("(")[2]
    cpu_us = (int(fields[11]) + int(fields[12])) * US_PER_S // CPU_TICKS_PER_S
    executed = not int(fields[6]) & _PF_FORKNOEXEC
    return Stat(fields[0], int(fields[1]), int(fields[2]), cpu_us, int(fields[19]), executed, command)


def all_pids() -> list[int]:
    """Every process that can be seen from here."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def open_if_same(pid: int, start_ticks: int) -> int | None:
    """A descriptor of that process (readable when it ends), or None where it has ended; a reused number is not it."""
    try:
        fd = os.pidfd_open(pid)
    except (ProcessLookupError, OverflowError):
        return None
    found = stat_of(pid)  # after opening: what the descriptor means cannot change any more
    if found is None or found.start_ticks != start_ticks or found.state in "ZX":
        os.close(fd)
        return None
    return fd


def has_ended(pidfd: int) -> bool:
    """Whether the process of a descriptor has ended."""
    return await_end(pidfd, 0)


def await_end(pidfd: int, at_most_us: int) -> bool:
    """Wait until the process of a descriptor has ended, for so long at most; whether it has."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(at_most_us / 1000))


def send_by_fd(pidfd: int, number: int) -> bool:
    """Send a signal to the process of a descriptor; False when it has ended or is not ours to signal."""
    try:
        signal.pidfd_send_signal(pidfd, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False


def reset_signals() -> None:
    """Every signal's default action, none blocked: how a command expects to be born."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError):  # libc keeps a few for itself
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])

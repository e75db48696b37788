"""What the user's processes are told by the kernel: their CPU, their memory, and how much memory there is for them.

Standard library alone: the user and the probe are small processes of their own.
"""

import contextlib
import ctypes
import errno
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

_PR_SET_PDEATHSIG: Final = 1
_ABSOLUTE: Final = 1
_UNLIMITED: Final = 1 << 60
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


def resident_bytes(pids: Iterable[int]) -> int:
    """Memory that these processes hold, shared pages divided among those who share them (PSS)."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        except OSError:
            continue  # ended, or not ours to ask
        total += next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)
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


class _Group(NamedTuple):
    """A control group with a limit of memory: that, and what is in use (without page cache that can go)."""

    limit_bytes: int
    used_bytes: int


def node_memory_bytes() -> int:
    """The memory of this machine, or of the control group that stands for one."""
    return min([_meminfo()["MemTotal"], *(group.limit_bytes for group in _groups())])


def free_memory_bytes() -> int:
    """What could be taken now without swapping and without reaching a control group's limit."""
    return min([_meminfo()["MemAvailable"], *(max(0, group.limit_bytes - group.used_bytes) for group in _groups())])


def _meminfo() -> dict[str, int]:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return {name: int(value.split()[0]) << 10 for name, _, value in (line.partition(":") for line in lines)}


def _groups() -> Iterator[_Group]:
    """Every control group above this process that limits memory, in either version."""
    try:
        memberships = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in memberships:
        _, controllers, group = line.split(":", 2)
        first = "memory" in controllers.split(",")
        if controllers and not first:
            continue
        for mount in mounts:
            _, place, kind, options, *_ = mount.split(" ")
            if kind == ("cgroup" if first else "cgroup2") and (not first or "memory" in options.split(",")):
                yield from _limits(Path(place), group, _first if first else _second)
                break


def _limits(mount: Path, group: str, read: Callable[[Path], _Group | None]) -> Iterator[_Group]:
    parts = Path(group).parts[1:]
    for depth in range(len(parts), 0, -1):
        try:
            found = read(mount.joinpath(*parts[:depth]))
        except (OSError, ValueError, KeyError):
            continue  # seen from another namespace, or gone
        if found and found.limit_bytes < _UNLIMITED:
            yield found


def _first(group: Path) -> _Group:
    used = int((group / "memory.usage_in_bytes").read_text())
    return _Group(
        int((group / "memory.limit_in_bytes").read_text()),
        used - _numbers(group / "memory.stat")["total_inactive_file"],
    )


def _second(group: Path) -> _Group | None:
    limits = [(group / name).read_text().strip() for name in ("memory.max", "memory.high")]
    numbers = [int(limit) for limit in limits if limit != "max"]
    if not numbers:
        return None
    used = int((group / "memory.current").read_text())
    return _Group(min(numbers), used - _numbers(group / "memory.stat")["inactive_file"])


def _numbers(path: Path) -> dict[str, int]:
    return {name: int(value) for name, _, value in (line.partition(" ") for line in path.read_text().splitlines())}

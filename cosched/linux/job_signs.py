"""What a job's processes show of how they receive: their sockets, their threads' switches, whether memory is shared."""

import os
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from cosched.linux import files
from cosched.linux.cgroups import read_fields, read_number, read_pids_below
from cosched.linux.sock_diag import Inet
from cosched.linux.stalls import uninterruptible

_SOCKET: Final = re.compile(r"socket:\[(\d+)\]")
_SWITCHES: Final = re.compile(r"^(non)?voluntary_ctxt_switches:\s+(\d+)", re.MULTILINE)
#: A job with more processes or threads than this is not looked at any further.
MOST_PROCESSES: Final = 64
MOST_THREADS: Final = 64
#: Sockets that are asked at every poll; a rank has one or two for each peer it talks to.
MOST_SOCKETS: Final = 32
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_TREES: Final = ("", "cpuacct", "cpu", "freezer", "memory")


class Thread(NamedTuple):
    """One thread, with what the kernel has counted of it; ``pid`` is its process, ``queued_us`` how long it had to wait
    for a CPU.
    """

    pid: int
    tid: int
    cpu_us: int
    voluntary: int
    involuntary: int
    queued_us: int = 0


class Sockets(NamedTuple):
    """A process's sockets by inode; ``readable`` is False for a process whose descriptors may not be looked at."""

    inodes: frozenset[int]
    readable: bool = True


class Seen(NamedTuple):
    """A job's connections that can be watched, by their process."""

    inet: dict[int, tuple[Inet, ...]]
    unix: dict[int, tuple[int, ...]]
    readable: bool


def sockets(pid: int) -> Sockets:
    """The inodes of a process's sockets. One that has ended has none."""
    found = set()
    directory = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(directory):
            try:
                matched = _SOCKET.fullmatch(os.readlink(f"{directory}/{name}"))
            except OSError:
                continue
            if matched:
                found.add(int(matched[1]))
    except PermissionError:
        return Sockets(frozenset(), False)
    except OSError:
        pass
    return Sockets(frozenset(found))


def seen(pids: Iterable[int], inet: dict[int, Inet]) -> Seen:
    """Which of the sockets in a dump (by inode) are these processes'; their others may be Unix sockets."""
    by_inet: dict[int, tuple[Inet, ...]] = {}
    by_unix: dict[int, tuple[int, ...]] = {}
    readable = True
    for pid in list(pids)[:MOST_PROCESSES]:
        found = sockets(pid)
        readable &= found.readable
        if known := tuple(inet[inode] for inode in found.inodes if inode in inet):
            by_inet[pid] = known
        if others := tuple(inode for inode in sorted(found.inodes) if inode not in inet):
            by_unix[pid] = others
    return Seen(by_inet, by_unix, readable)


def threads(pids: Iterable[int]) -> list[Thread]:
    """The threads of these processes. What ends meanwhile is left out."""
    found = []
    for pid in list(pids)[:MOST_PROCESSES]:
        try:
            names = os.listdir(f"/proc/{pid}/task")[:MOST_THREADS]
        except OSError:
            continue
        for name in names:
            try:
                ran_ns, queued_ns = map(int, files.read(f"/proc/{pid}/task/{name}/schedstat").split()[:2])
                switches = dict(_SWITCHES.findall(files.read(f"/proc/{pid}/task/{name}/status")))
            except (OSError, ValueError, IndexError):
                continue
            counts = int(switches.get("", 0)), int(switches.get("non", 0))
            found.append(Thread(pid, int(name), ran_ns // 1000, *counts, queued_ns // 1000))
    return found


def kernel_us(thread: Thread) -> int:
    """How much of its CPU time a thread has spent in the kernel. Raises OSError where it has ended."""
    text = files.read(f"/proc/{thread.pid}/task/{thread.tid}/stat")
    try:
        return int(text.rpartition(")")[2].split()[12]) * (1_000_000 // _TICKS_PER_S)
    except (IndexError, ValueError):
        raise ProcessLookupError(thread.tid) from None


def named(pids: Iterable[int], names: Collection[str]) -> set[str]:
    """Those of ``names`` that are a process's command as the kernel has it (15 characters at most)."""
    found: set[str] = set()
    for pid in list(pids)[:MOST_PROCESSES] if names else ():
        with suppress(OSError):
            found.add(files.read(f"/proc/{pid}/comm").rstrip("\n"))
    return found.intersection(names)


def shares_memory(pid: int) -> bool:
    """Whether a process has a segment that ranks on one node could talk over: invisible to whoever looks at sockets.

    One that waits uninterruptibly is not asked: it may hold the lock of its own memory.
    """
    if uninterruptible(pid) is not None:
        return False
    try:
        return "/dev/shm/" in files.read(f"/proc/{pid}/maps")
    except OSError:
        return False


class JobGroups:
    """The jobs' groups of processes, read: in cgroup v2's tree, or in those of v1 that have what is asked for."""

    def __init__(self, mount: str, cosched: str) -> None:
        self._tops = [os.path.join(mount, tree, cosched.strip("/")) for tree in _TREES]
        self._counted = self._tops  # where version 1 may count CPU time; narrowed down as soon as it is found

    def pids(self, name: str) -> list[int]:
        """The processes of a job; none where it has no group."""
        for top in self._tops:
            if os.path.isdir(group := os.path.join(top, name)):
                return read_pids_below(group)
        return []

    def cpu_us(self, name: str) -> int:
        """The CPU time that a job has used so far; 0 where that is not counted."""
        for top in self._counted:
            if (used_ns := read_number(os.path.join(top, name, "cpuacct.usage"))) >= 0:
                self._counted = [top]
                return used_ns // 1000
        used_us = read_fields(os.path.join(self._tops[0], name, "cpu.stat")).get("usage_usec", -1)
        if used_us >= 0:
            self._counted = []
        return max(0, used_us)

"""Without cgroups, and without rights: groups known by descent and by a mark, limits on every process by itself.

A supervisor is a subreaper, so all descendants of its command stay below it however they fork; should it be killed,
the mark in their environment still tells them. Killing is looking for them until there are none.
"""

import contextlib
import os
import resource
import signal
from collections.abc import Collection, Iterable
from typing import Final

from cosched.linux import process
from cosched.linux.cgroups import MARK, Cgroups, GroupUsage
from cosched.linux.cpusets import keep_to
from cosched.linux.weights import NONE, Weights, disks

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_NICEST: Final = 19
_ENVIRONMENT_BYTES: Final = 4 << 20
_MARK: Final = f"{MARK}=".encode()


class _Watched:
    """How the processes of one group are told from others."""

    def __init__(self) -> None:
        self.mark = b""
        self.supervisors: dict[int, int] = {}  # pid -> start, for numbers are used again
        self.cpus: set[int] | None = None  # of its own, of those that all may use
        self.forked_on: dict[int, set[int]] = {}  # pid of one whose command has not begun -> processors allowed then
        self.memory_bytes: int | None = None


class CgroupsNone(Cgroups):
    """Groups of the guard's own user's processes. ``why`` says why there are no cgroups."""

    kind = "none"
    kernel_groups = False

    def __init__(self, why: str, weights: Weights = NONE) -> None:
        self._why = why
        self._weights = weights
        self._groups: dict[str, _Watched] = {}
        self._cpus = sorted(os.sched_getaffinity(0))
        self._allowed = set(self._cpus)
        self._idle = True

    def set_limits(self, cpus: float | None, idle: bool, memory_bytes: int) -> list[str]:
        """A ceiling in whole CPUs, by affinity; the idle class for what starts from now on; no limit on memory."""
        self._idle = idle
        count = len(self._cpus) if cpus is None else max(1, int(cpus))
        allowed = set(self._cpus[-count:])  # the last ones: interrupts and habits are on the first
        if allowed != self._allowed:
            self._allowed = allowed
            scan = _Scan()
            for name in self._groups:
                self._place(name, self._members(scan, name))
        problems = [f"memory limit {memory_bytes}: not without cgroups ({self._why})"]
        if cpus is not None and count > cpus:
            problems.append(f"CPU ceiling {cpus}: {count} whole CPU, by affinity")
        if self._weights.network_priority:
            problems.append(f"network priority {self._weights.network_priority}: not without cgroups ({self._why})")
        return problems

    def can(self) -> dict[str, str]:
        """What can be done to one's own processes."""
        several = len(self._cpus) > 1
        can = {"io weight": f"no weight, but the disks' idle class; {disks()}"} if self._weights.share else {}
        if self._weights.network_priority:
            can["network priority"] = f"no: packets have none of a group without cgroups ({self._why})"
        return can | {
            "cpu ceiling": f"{'only in whole CPUs, by affinity' if several else 'no: one CPU'} ({self._why})",
            "idle class": "only among one user's own processes, by SCHED_IDLE: no group beside the desk's",
            "memory limit": "no: only a limit on the data of each process by itself (RLIMIT_DATA)",
            "job kill": "by looking for descendants and marks: misses one that sheds both after its supervisor died",
            "cpu sets": "by affinity: no cgroups" if several else "no: one CPU",
            "held turns": "no: jobs cannot be held without cgroups",
            "job weights": "no: jobs have no weights against each other without cgroups; no coscheduling",
            "processes limit": "no: RLIMIT_NPROC would count all of the user's processes",
        }

    def create(self, name: str, memory_bytes: int | None, processes: int) -> list[str]:
        """As the interface says."""
        group = self._groups.setdefault(name, _Watched())
        group.memory_bytes = memory_bytes
        return ["no limit on the job's memory as a whole, nor on its processes: no cgroups here"]

    def enter(self, name: str) -> None:
        """Limit the calling process: idle class, lowest priority, affinity, data size."""
        if self._idle:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            os.setpriority(os.PRIO_PROCESS, 0, _NICEST)
        if self._weights.share or (self._idle and self._weights.io):
            with contextlib.suppress(OSError):  # a wish: nothing is a reason not to run the job
                process.disks_idle_class()
        os.sched_setaffinity(0, self._allowed_for(name))
        limit = self._groups[name].memory_bytes
        if limit is not None:
            hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
            limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    def began(self, name: str, pid: int) -> None:
        """As the interface says. Where nothing has changed since the fork, a command keeps what it chose itself."""
        found, group = process.stat_of(pid), self._groups.get(name)
        if found is None or group is None:
            return  # it has ended
        allowed = self._allowed_for(name)
        if group.forked_on.pop(found.parent, allowed) != allowed:
            self._place(name, {pid, *self.procs(name)})

    def watch_over(self, name: str, mark: str, supervisor: int | None, memory_bytes: int | None) -> None:
        """As the interface says."""
        group = self._groups.setdefault(name, _Watched())
        group.mark = f"{MARK}={mark}".encode()
        group.memory_bytes = memory_bytes
        if supervisor is not None:
            found = process.stat_of(supervisor)
            if found is not None:
                group.supervisors[supervisor] = found.start_ticks
                group.forked_on[supervisor] = self._allowed_for(name)

    def names(self) -> list[str]:
        """As the interface says."""
        return sorted(self._groups)

    def procs(self, name: str) -> list[int]:
        """As the interface says, by a walk over /proc."""
        return self._members(_Scan(), name)

    def _members(self, scan: "_Scan", name: str) -> list[int]:
        group = self._groups.get(name)
        if group is None:
            return []
        group.supervisors = {pid: start for pid, start in group.supervisors.items() if scan.started.get(pid) == start}
        group.forked_on = {pid: on for pid, on in group.forked_on.items() if pid in group.supervisors}
        members: set[int] = set()
        waiting = [child for pid in group.supervisors for child in scan.below.get(pid, [])]
        while waiting:
            pid = waiting.pop()
            if pid not in members:
                members.add(pid)
                waiting += scan.below.get(pid, [])
        marked = {pid for pid in scan.marked(group.mark) if pid not in group.supervisors}
        return sorted((members | marked) & scan.living)

    def usage(self, name: str) -> GroupUsage:
        """Of what lives now: what has ended is in the supervisors' records."""
        cpu_us = memory_bytes = 0
        for pid in self.procs(name):
            found = process.stat_of(pid)
            if found is not None:
                cpu_us += found.cpu_us
                memory_bytes += _resident_bytes(pid)
        return GroupUsage(cpu_us, memory_bytes)

    def kill(self, name: str) -> None:
        """Stop all, look again for what was forked meanwhile, then SIGKILL to all."""
        self._stop_all(name)
        self.signal(name, signal.SIGKILL)

    def freeze(self, name: str, *, frozen: bool, anew: bool = False) -> bool:
        """By SIGSTOP, again for what was forked meanwhile, and SIGCONT."""
        del anew
        if frozen:
            self._stop_all(name)
            return self.all_stopped(name)
        self.signal(name, signal.SIGCONT)
        return True

    def remove(self, name: str) -> None:
        """Forget how to tell the group's processes."""
        self._groups.pop(name, None)

    def _stop_all(self, name: str) -> None:
        stopped = -1
        for _ in range(10):
            count = self.signal(name, signal.SIGSTOP)
            if count == stopped:
                break
            stopped = count

    def confine(self, name: str, cpus: Collection[int] | None) -> bool:
        """By affinity, which a command may change until this is asked for again; the ceiling's CPUs come first."""
        group = self._groups.setdefault(name, _Watched())
        wanted = None if cpus is None else set(cpus)
        changed, group.cpus = group.cpus != wanted, wanted
        self._place(name, self.procs(name), strays_only=not changed)
        return True

    def _allowed_for(self, name: str) -> set[int]:
        """The CPUs of a job: its own of those that are allowed, if there are any."""
        own = self._groups[name].cpus
        return (self._allowed & own if own is not None else set()) or self._allowed

    def _place(self, name: str, pids: Iterable[int], *, strays_only: bool = False) -> None:
        for pid in pids:
            with contextlib.suppress(OSError):  # it has ended
                keep_to([pid], self._allowed_for(name), strays_only=strays_only)


class _Scan:
    """The processes of this machine at one moment: their start, their children, who lives, and whose mark they have."""

    def __init__(self) -> None:
        self.below: dict[int, list[int]] = {}
        self.started: dict[int, int] = {}
        self.living: set[int] = set()
        self._marked: dict[bytes, list[int]] | None = None
        for pid in process.all_pids():
            found = process.stat_of(pid)
            if found is not None:
                self.started[pid] = found.start_ticks
                self.below.setdefault(found.parent, []).append(pid)
                if found.state not in "ZX":
                    self.living.add(pid)

    def marked(self, mark: bytes) -> list[int]:
        """The processes that have a mark in their environment."""
        if self._marked is None:
            self._marked = {}
            for pid in self.living:
                self._marked.setdefault(_mark_of(pid), []).append(pid)
        return self._marked.get(mark, []) if mark else []


def _mark_of(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            variables = file.read(_ENVIRONMENT_BYTES).split(b"\0")
    except OSError:
        return b""  # another user's, or it has ended
    return next((variable for variable in variables if variable.startswith(_MARK)), b"")


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0

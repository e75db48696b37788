"""cgroup v2: one tree with all controllers, no process in a group that has groups with controllers below it."""

import contextlib
import errno
import math
import os
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from cosched.linux import files, packet_priority, weights
from cosched.linux.cgroup_visit import visiting
from cosched.linux.cgroups import (
    DECOYS,
    HELD_US,
    HERALD,
    VISITORS,
    YES,
    Cgroups,
    GroupUsage,
    NoCgroups,
    can_hold,
    job_of,
    make_directories,
    quota,
    read_fields,
    read_number,
    read_pids,
    read_pids_below,
    remove_directories,
    trial_of,
)
from cosched.linux.cpusets import listed

_NEEDED: Final = ("cpu", "memory")
_USED: Final = (*_NEEDED, "pids")
_IO: Final = "io"
#: Of iocost, and of bfq.
_IO_WEIGHTS: Final = ("io.weight", "io.bfq.weight")
_LOWEST_WEIGHT: Final = 1
_NORMAL_WEIGHT: Final = 100
_MOST_WEIGHT: Final = 10_000
_OWN_LEAF: Final = "guard"
_SETS: Final = "cpuset"
_SET: Final = "cpuset.cpus"


class CgroupsV2(Cgroups):
    """The parallel side in the tree mounted at ``mount``, which must have the controllers cpu and memory."""

    kind = "v2"

    def __init__(self, mount: str, cosched: str, wanted: weights.Weights = weights.NONE) -> None:
        """Make the parallel side's group where it is missing, with controllers. Raises :class:`NoCgroups`.

        When this very process is in it (systemd started it there), it moves to a group of its own inside.
        """
        self._made: list[str] = []
        self._mount = mount
        self._weights = wanted
        self._idle = True
        self._used = (*_USED, _IO) if wanted.share else _USED
        self._plain = False
        try:
            there = files.read(os.path.join(mount, "cgroup.controllers")).split()
        except OSError:
            raise NoCgroups(f"no cgroup v2 at {mount}") from None
        if missing := [name for name in _NEEDED if name not in there]:
            raise NoCgroups(f"{mount} has no controller {' and no '.join(missing)}")
        self._side = os.path.join(mount, cosched.strip("/"))
        try:
            self._made = make_directories(self._side, mount)
            way = mount
            for part in os.path.relpath(self._side, mount).split("/"):
                self._enable(way)
                way = os.path.join(way, part)
            self._enable(self._side)
            os.rmdir(_made(os.path.join(self._side, f"try-{os.getpid()}")))
        except OSError as error:
            self.close()
            raise NoCgroups(f"{error.filename or self._side}: {error.strerror}") from None

    def cpus_above(self) -> float:
        """As the interface says."""
        tightest = math.inf
        here = os.path.dirname(self._side)
        while os.path.exists(ceiling := os.path.join(here, "cpu.max")):
            quota_us, period_us = files.read(ceiling).split()
            if quota_us != "max":
                tightest = min(tightest, int(quota_us) / int(period_us))
            here = os.path.dirname(here)
        return tightest

    def set_limits(self, cpus: float | None, idle: bool, memory_bytes: int) -> list[str]:
        """As the interface says; a limit below the memory in use would kill at once, so the old one is kept."""
        self._idle = idle
        problems = []
        try:
            self._set_ceiling("max" if cpus is None else "{} {}".format(*quota(cpus)))
        except OSError as error:
            problems.append(f"CPU ceiling {cpus}: {error.strerror}")
        try:
            self._set_idle(idle)
        except OSError as error:
            problems.append(f"idle class {idle}: {error.strerror}")
        used = read_number(self._path("memory.current"))
        try:
            if used > memory_bytes:
                old = files.read(self._path("memory.max")).strip()
                problems.append(f"memory limit {memory_bytes}: more is in use by running jobs; {old} is kept")
            else:
                files.write(self._path("memory.max"), str(memory_bytes))
        except OSError as error:
            problems.append(f"memory limit {memory_bytes}: {error.strerror}")
        return problems + weights.tried(*self._weighing())

    def periods(self) -> int:
        """As the interface says."""
        return read_fields(self._path("cpu.stat")).get("nr_periods", -1)

    def set_period(self, cpus: float, period_us: int) -> None:
        """As the interface says."""
        files.write(self._path("cpu.max"), f"{quota(cpus)[0]} {period_us}")

    def can(self) -> dict[str, str]:
        """What the tree offers."""
        has_idle = os.path.exists(self._path("cpu.idle"))
        has_quota = os.path.exists(self._path("cpu.max"))
        given = files.read(self._path("cgroup.subtree_control")).split()
        has_pids = "pids" in given
        return self._can_weigh() | {
            "cpu ceiling": YES if has_quota else "no: no cpu.max",
            "idle class": YES if has_idle else "no: no cpu.idle in this kernel; lowest weight instead",
            "memory limit": YES,
            "job kill": YES,
            "processes limit": YES if has_pids else "no: no controller pids",
            "cpu sets": YES if _SETS in given else "by affinity: no controller cpuset here",
            "held turns": can_hold() if has_quota else "no: no cpu.max",
            "job weights": YES if has_idle else "yes, but no cpu.idle in this kernel: the lowest weight instead",
        }

    def _can_weigh(self) -> dict[str, str]:
        """Of the weights that are wanted, which there are."""
        can = {}
        if self._weights.share:
            can["io weight"] = weights.disks() if self._io_weights() else "no: no weights in a controller io"
        if self._weights.network_priority:
            can["network priority"] = packet_priority.can(self._side, self._weights.network_priority)
        return can

    def idle_above(self) -> bool:
        """As the interface says."""
        top = os.path.relpath(self._side, self._mount).split("/")[0]
        try:
            return read_number(os.path.join(self._mount, top, "cpu.idle")) == 1
        except OSError:
            return False

    def create(self, name: str, memory_bytes: int | None, processes: int) -> list[str]:
        """As the interface says."""
        _made(self._path(name))
        problems = []
        if memory_bytes is not None:
            try:
                files.write(self._path(name, "memory.max"), str(memory_bytes))
                if os.path.exists(swap := self._path(name, "memory.swap.max")):
                    files.write(swap, "0")
            except OSError as error:
                problems.append(f"memory limit {memory_bytes}: {error.strerror}")
        if os.path.exists(limit := self._path(name, "pids.max")):
            files.write(limit, str(processes))
        else:
            problems.append("no limit on processes: no controller pids")
        return problems

    def enter(self, name: str) -> None:
        """As the interface says."""
        files.write(self._path(name, "cgroup.procs"), "0")
        if self._idle:
            self._weights.enter()

    def names(self) -> list[str]:
        """As the interface says."""
        return sorted(name for name in os.listdir(self._side) if job_of(name) or trial_of(name))

    def procs(self, name: str) -> list[int]:
        """As the interface says, groups that the job may have been given below its own included."""
        return read_pids_below(self._path(name))

    def empty(self, name: str) -> bool:
        """As the interface says, by the kernel's own count."""
        return read_fields(self._path(name, "cgroup.events")).get("populated", 0) == 0

    def watch(self, name: str) -> int | None:
        """The group's cgroup.events."""
        return os.open(self._path(name, "cgroup.events"), os.O_RDONLY | os.O_CLOEXEC)

    def usage(self, name: str) -> GroupUsage:
        """As the interface says; memory now is without file pages that could be dropped."""
        now = read_number(self._path(name, "memory.current"))
        if now > 0:
            now = max(0, now - read_fields(self._path(name, "memory.stat")).get("inactive_file", 0))
        return GroupUsage(
            read_fields(self._path(name, "cpu.stat")).get("usage_usec", -1),
            now,
            read_number(self._path(name, "memory.peak")),  # since Linux 5.19
            read_fields(self._path(name, "memory.events")).get("oom_kill", 0),
        )

    def confine(self, name: str, cpus: Collection[int] | None) -> bool:
        """As the interface says, where the side has the controller. The kernel takes no set from a group with processes
        (ENOSPC): one that had a set is given all CPUs of the side.
        """
        if not os.path.exists(there := self._path(name, _SET)):
            return False
        if cpus or files.read(there).strip():
            files.write(there, listed(cpus) if cpus else files.read(self._path(f"{_SET}.effective")))
        return True

    def weigh(self, name: str, percent: int, idle: bool) -> None:
        """As the interface says. The kernel refuses weights while the flag is set, and forgets them when it goes."""
        flag = self._path(name, "cpu.idle")
        if idle and read_number(flag) >= 0:
            files.write(flag, "1")
            return
        if read_number(flag) > 0:
            files.write(flag, "0")
        weight = _LOWEST_WEIGHT if idle else max(_LOWEST_WEIGHT, percent * _NORMAL_WEIGHT // 100)
        files.write(self._path(name, "cpu.weight"), str(weight))

    def hold(self, name: str, *, held: bool) -> None:
        """As the interface says: by a quota that is used up at once."""
        if not held and not os.path.exists(self._path(name, "cpu.max")) and os.path.exists(self._path(name)):
            return  # a kernel without quotas
        files.write(self._path(name, "cpu.max"), "{} {}".format(*HELD_US) if held else "max")

    def visit(self) -> AbstractContextManager[None]:
        """As the interface says, among the jobs."""
        try:
            lines = [line.split(":", 2) for line in files.read("/proc/self/cgroup").splitlines()]
            away = _made(self._path(VISITORS))
        except OSError:
            return contextlib.nullcontext()
        home = next((path for _, controllers, path in lines if not controllers), "/")
        return visiting(f"{self._mount}/{home.strip('/')}/cgroup.procs", f"{away}/cgroup.procs")

    def place_herald(self, pid: int) -> None:
        """As the interface says."""
        group = _made(self._path(HERALD))
        files.write(os.path.join(group, "cpu.weight"), str(_MOST_WEIGHT))
        files.write(os.path.join(group, "cgroup.procs"), str(pid))

    def place_at_desk(self, pid: int, desk: str, leaf: str) -> None:
        """As the interface says: into the leaf. With a process of its own the owner's group could give the groups
        below it no controllers any more, and systemd may want that at any time.
        """
        group = _made(os.path.join(self._mount, desk.strip("/"), leaf))
        files.write(os.path.join(group, "cgroup.procs"), str(pid))

    def forget_leaf(self, desk: str, leaf: str) -> None:
        """As the interface says."""
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(self._mount, desk.strip("/"), leaf))

    def forget_decoys(self, desk: str) -> None:
        """As the interface says."""
        with contextlib.suppress(OSError):
            os.rmdir(self._path(HERALD))
        self.forget_leaf(desk, DECOYS)

    def kill(self, name: str) -> None:
        """By cgroup.kill, which also gets what is being forked; before Linux 5.14 by freezing first."""
        try:
            files.write(self._path(name, "cgroup.kill"), "1")
            return
        except FileNotFoundError:
            if not os.path.exists(self._path(name)):
                return
        files.write(self._path(name, "cgroup.freeze"), "1")
        try:
            self.signal(name, signal.SIGKILL)
        finally:
            files.write(self._path(name, "cgroup.freeze"), "0")

    def freeze(self, name: str, *, frozen: bool, anew: bool = False) -> bool:
        """As the interface says; nothing is ever to be done anew."""
        del anew
        try:
            files.write(self._path(name, "cgroup.freeze"), str(int(frozen)))
            return not frozen or "frozen 1" in files.read(self._path(name, "cgroup.events")).splitlines()
        except FileNotFoundError:
            return True

    def remove(self, name: str) -> None:
        """As the interface says."""
        for directory, _, _ in os.walk(self._path(name), topdown=False):
            os.rmdir(directory)

    def close(self) -> None:
        """As the interface says."""
        for leaf in (VISITORS, *([_OWN_LEAF] if self._made else [])):
            with contextlib.suppress(OSError):
                os.rmdir(self._path(leaf))
        remove_directories(self._made)
        self._made = []

    def _path(self, *parts: str) -> str:
        return os.path.join(self._side, *parts)

    def _set_ceiling(self, wanted: str) -> None:
        """Written where it is not so already: who writes it gives the whole quota again."""
        there = files.read(self._path("cpu.max")).split()
        if there != wanted.split() and there[:1] != [wanted]:
            files.write(self._path("cpu.max"), wanted)

    def _set_idle(self, idle: bool) -> None:
        if os.path.exists(flag := self._path("cpu.idle")):
            if read_number(flag) != int(idle):
                files.write(flag, str(int(idle)))
        else:
            files.write(self._path("cpu.weight"), str(_LOWEST_WEIGHT if idle else _NORMAL_WEIGHT))

    def _weighing(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """What to do for the weights that are wanted; each may be refused."""
        io, priority = self._weights.io, self._weights.network_priority
        for path in self._io_weights():
            yield f"{os.path.basename(path)} {io}", partial(files.write, path, str(io))
        if priority:
            yield f"network priority {priority}", partial(packet_priority.set_priority, self._side, priority)
        elif not self._plain:  # an earlier guard may have been asked for one
            self._plain = True
            with contextlib.suppress(OSError):
                packet_priority.forget_priority(self._side)

    def _io_weights(self) -> list[str]:
        """The files for the parallel side's weight, in the group that is the owner's sibling (systemd: a slice)."""
        if not self._weights.io:
            return []
        top = os.path.join(self._mount, os.path.relpath(self._side, self._mount).split("/")[0])
        group = top if self.idle_above() else self._side
        return [path for name in _IO_WEIGHTS if os.path.exists(path := os.path.join(group, name))]

    def _enable(self, group: str) -> None:
        """Give the groups below ``group`` the controllers that it has and we use. Raises OSError.

        Sets of CPUs are no condition: without the controller they are kept by affinity.
        """
        control = os.path.join(group, "cgroup.subtree_control")
        there = files.read(os.path.join(group, "cgroup.controllers")).split()
        if missing := [name for name in _NEEDED if name not in there]:
            raise OSError(errno.ENOTSUP, f"no controller {' and no '.join(missing)}", group)
        given = files.read(control).split()
        if wanted := [name for name in self._used if name in there and name not in given]:
            order = " ".join(f"+{name}" for name in wanted)
            try:
                files.write(control, order)
            except OSError as error:
                if (
                    error.errno != errno.EBUSY
                    or group != self._side
                    or read_pids(self._path("cgroup.procs")) != [os.getpid()]
                ):
                    raise
                files.write(os.path.join(_made(self._path(_OWN_LEAF)), "cgroup.procs"), "0")
                files.write(control, order)
        if _SETS in there:
            with contextlib.suppress(OSError):
                files.write(control, f"+{_SETS}")


def _made(path: str) -> str:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o755)
    return path

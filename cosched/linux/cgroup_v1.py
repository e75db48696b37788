"""cgroup v1: one tree a controller, the same group in each; killing means freezing first, for v1 cannot kill."""

import contextlib
import errno
import math
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from cosched.linux import files, packet_priority, process, weights
from cosched.linux.cgroup_visit import visiting
from cosched.linux.cgroups import (
    ENDINGS,
    ENDINGS_CPUS,
    HELD_US,
    HERALD,
    PERIOD_US,
    VISITORS,
    YES,
    Cgroups,
    GroupUsage,
    NoCgroups,
    can_hold,
    job_of,
    make_directories,
    move_all,
    quota,
    read_fields,
    read_number,
    read_pids,
    remove_directories,
    trial_of,
)
from cosched.linux.cpusets import CpusetTree

_NEEDED: Final = ("cpu", "memory")
_USED: Final = ("freezer", "pids", "cpu", "cpuacct", "memory")
_WEIGHS_IO: Final = "blkio"
#: The tree of version 2, without controllers, that systemd mounts beside those of version 1: packets are its.
#: (The controller net_prio of version 1 was tried: on Linux 6.18 packets stay as they are.)
_WEIGHS_PACKETS: Final = "unified"
_IO_WEIGHTS: Final = ("blkio.bfq.weight", "blkio.weight")
_LOWEST_SHARES: Final = 2
_NORMAL_SHARES: Final = 1024
_MOST_SHARES: Final = 1 << 18
#: As much as the owner's group has: the quota is what protects the owner.
_ENDINGS_SHARES: Final = _NORMAL_SHARES
_FREEZING_S: Final = 0.02
#: In which all processes of a job are taken into a group; each takes in what was forked in the one before.
_ROUNDS: Final = 8


class CgroupsV1(Cgroups):
    """The parallel side in each of v1's trees below ``mount`` that is there; cpu and memory must be."""

    kind = "v1"

    def __init__(self, mount: str, cosched: str, wanted: weights.Weights = weights.NONE) -> None:
        """Make the parallel side's groups where they are missing. Raises :class:`NoCgroups`."""
        self._made: list[str] = []
        self._mount = mount
        self._sides: dict[str, str] = {}
        self._weights = wanted
        self._idle = True
        self._cpusets = CpusetTree(mount, cosched)
        more = ((_WEIGHS_IO, wanted.share), (_WEIGHS_PACKETS, wanted.network_priority))
        for controller in (*_USED, *(name for name, weight in more if weight)):
            top = os.path.join(mount, controller)
            side = os.path.join(top, cosched.strip("/"))
            if not os.path.exists(os.path.join(top, "cgroup.procs")):
                if controller in _NEEDED:
                    raise NoCgroups(f"no controller {controller} at {top}")
                continue
            try:
                self._made += make_directories(side, top)
                if controller == "memory":
                    self._account_below(side)
                os.rmdir(_made(os.path.join(side, f"try-{os.getpid()}")))
            except OSError as error:
                if controller not in _USED:
                    continue  # ``can`` says so
                self.close()
                raise NoCgroups(f"{side}: {error.strerror}") from None
            self._sides[controller] = side
        by_tree = {os.stat(side).st_dev: side for side in reversed(self._sides.values())}
        self._trees = list(by_tree.values())  # cpu and cpuacct are often one tree
        self._endings = f"{self._sides['cpu']}-{ENDINGS}"
        self._told = next(iter(self._sides.values()))  # whose lists of processes are read: the freezer's if there

    def cpus_above(self) -> float:
        """As the interface says."""
        tightest = math.inf
        here = os.path.dirname(self._sides["cpu"])
        while os.path.exists(os.path.join(here, "cpu.shares")):
            quota_us = read_number(os.path.join(here, "cpu.cfs_quota_us"))
            if quota_us > 0:
                period_us = read_number(os.path.join(here, "cpu.cfs_period_us"), PERIOD_US)
                tightest = min(tightest, quota_us / period_us)
            here = os.path.dirname(here)
        return tightest

    def set_limits(self, cpus: float | None, idle: bool, memory_bytes: int) -> list[str]:
        """As the interface says; a limit below the memory in use is refused by the kernel (EBUSY), and the old kept."""
        self._idle = idle
        problems = []
        try:
            self._set_ceiling(cpus)
        except OSError as error:
            problems.append(f"CPU ceiling {cpus}: {error.strerror}")
        try:
            self._set_idle(idle)
        except OSError as error:
            problems.append(f"idle class {idle}: {error.strerror}")
        limit = os.path.join(self._sides["memory"], "memory.limit_in_bytes")
        try:
            files.write(limit, str(memory_bytes))
        except OSError as error:
            why = "more is in use by running jobs" if error.errno == errno.EBUSY else error.strerror
            problems.append(f"memory limit {memory_bytes}: {why}; {read_number(limit)} is kept")
        return problems + weights.tried(*self._weighing())

    def periods(self) -> int:
        """As the interface says."""
        return read_fields(os.path.join(self._sides["cpu"], "cpu.stat")).get("nr_periods", -1)

    def set_period(self, cpus: float, period_us: int) -> None:
        """As the interface says; the quota stays as it is."""
        del cpus
        files.write(os.path.join(self._sides["cpu"], "cpu.cfs_period_us"), str(period_us))

    def can(self) -> dict[str, str]:
        """What the trees offer."""
        cpu = self._sides["cpu"]
        has_idle = os.path.exists(os.path.join(cpu, "cpu.idle"))
        has_quota = os.path.exists(os.path.join(cpu, "cpu.cfs_quota_us"))
        return self._can_weigh() | {
            "cpu ceiling": YES if has_quota else "no: no CFS bandwidth",
            "idle class": YES if has_idle else "no: no cpu.idle in this kernel; lowest shares instead",
            "memory limit": YES,
            "job kill": YES if "freezer" in self._sides else "yes, but without a freezer a fork bomb takes longer",
            "processes limit": YES if "pids" in self._sides else "no: no controller pids",
            "cpu sets": YES if self._cpusets.there else "by affinity: no controller cpuset",
            "held turns": can_hold() if has_quota else "no: no CFS bandwidth",
            "job weights": YES if has_idle else "yes, but no cpu.idle in this kernel: the lowest weight instead",
        }

    def _can_weigh(self) -> dict[str, str]:
        """Of the weights that are wanted, which there are."""
        can = {}
        if self._weights.share:
            can["io weight"] = weights.disks() if self._io_weight() else "no: no weights in a controller blkio"
        if self._weights.network_priority:
            can["network priority"] = self._can_prioritize()
        return can

    def create(self, name: str, memory_bytes: int | None, processes: int) -> list[str]:
        """As the interface says."""
        for side in self._trees:
            _made(os.path.join(side, name))
        problems = []
        if memory_bytes is not None:
            group = os.path.join(self._sides["memory"], name)
            try:
                limits = [os.path.join(group, f"memory.{kind}limit_in_bytes") for kind in ("", "memsw.")]
                grows = read_number(limits[0]) < memory_bytes  # that of memory alone is never above the other one
                for limit in filter(os.path.exists, reversed(limits) if grows else limits):
                    files.write(limit, str(memory_bytes))
            except OSError as error:
                problems.append(f"memory limit {memory_bytes}: {error.strerror}")
        if "pids" in self._sides:
            files.write(os.path.join(self._sides["pids"], name, "pids.max"), str(processes))
        else:
            problems.append("no limit on processes: no controller pids")
        return problems

    def enter(self, name: str) -> None:
        """As the interface says: in every tree."""
        for side in self._trees:
            files.write(os.path.join(side, name, "cgroup.procs"), "0")
        self._cpusets.enter(name)
        if self._idle:
            self._weights.enter()

    def names(self) -> list[str]:
        """As the interface says."""
        found = {name for side in self._trees for name in os.listdir(side)}
        return sorted(name for name in found if job_of(name) or trial_of(name))

    def procs(self, name: str) -> list[int]:
        """As the interface says."""
        return read_pids(os.path.join(self._told, name, "cgroup.procs"))

    def usage(self, name: str) -> GroupUsage:
        """As the interface says; memory now is without file pages that could be dropped."""
        memory = os.path.join(self._sides["memory"], name)
        now = read_number(os.path.join(memory, "memory.usage_in_bytes"))
        if now > 0:
            now = max(0, now - read_fields(os.path.join(memory, "memory.stat")).get("total_inactive_file", 0))
        used_ns = -1
        if "cpuacct" in self._sides:
            used_ns = read_number(os.path.join(self._sides["cpuacct"], name, "cpuacct.usage"))
            used_ns += max(0, read_number(os.path.join(self._endings, name, "cpuacct.usage")))  # where that is one tree
        return GroupUsage(
            used_ns if used_ns < 0 else used_ns // 1000,
            now,
            read_number(os.path.join(memory, "memory.max_usage_in_bytes")),
            read_fields(os.path.join(memory, "memory.oom_control")).get("oom_kill", 0),
        )

    def confine(self, name: str, cpus: Collection[int] | None) -> bool:
        """As the interface says. Who is forked by one that is not there yet is taken there in the next round."""
        if not self._cpusets.there:
            return False
        try:
            for _ in range(_ROUNDS):
                missing = set(self.procs(name)) - set(self._cpusets.has(name))
                self._cpusets.confine(name, cpus, missing)
                if not missing:
                    break
        except OSError:  # it is not ours to write to
            return False
        return True

    def weigh(self, name: str, percent: int, idle: bool) -> None:
        """As the interface says. The kernel refuses weights while the flag is set, and forgets them when it goes."""
        group = os.path.join(self._sides["cpu"], name)
        flag, shares = os.path.join(group, "cpu.idle"), str(max(_LOWEST_SHARES, percent * _NORMAL_SHARES // 100))
        if idle and read_number(flag) >= 0:
            files.write(flag, "1")
            return
        if read_number(flag) > 0:
            files.write(flag, "0")
        files.write(os.path.join(group, "cpu.shares"), str(_LOWEST_SHARES) if idle else shares)

    def hold(self, name: str, *, held: bool) -> None:
        """As the interface says: by a quota that is used up at once."""
        group = os.path.join(self._sides["cpu"], name)
        quota_us, period_us = HELD_US
        if not held and not os.path.exists(os.path.join(group, "cpu.cfs_quota_us")) and os.path.exists(group):
            return  # a kernel without quotas
        if held and read_number(period := os.path.join(group, "cpu.cfs_period_us")) != period_us:
            files.write(period, str(period_us))
        files.write(os.path.join(group, "cpu.cfs_quota_us"), str(quota_us) if held else "-1")

    def ease(self, name: str) -> None:
        """As the interface says; in the tree of the CPU alone."""
        self._limit_endings()
        move_all(os.path.join(self._sides["cpu"], name), _made(os.path.join(self._endings, name)))

    def restrain(self, name: str) -> None:
        """As the interface says."""
        move_all(os.path.join(self._endings, name), os.path.join(self._sides["cpu"], name))

    def visit(self) -> AbstractContextManager[None]:
        """As the interface says; in the tree of the CPU alone."""
        top = os.path.join(self._mount, "cpu")
        try:
            lines = [line.split(":", 2) for line in files.read("/proc/self/cgroup").splitlines()]
            away = self._visitors()
        except OSError:
            return contextlib.nullcontext()
        home = next((path for _, controllers, path in lines if "cpu" in controllers.split(",")), "/")
        return visiting(f"{top}/{home.strip('/')}/cgroup.procs", f"{away}/cgroup.procs")

    def place_herald(self, pid: int) -> None:
        """As the interface says; in the tree of the CPU alone."""
        group = _made(os.path.join(self._sides["cpu"], HERALD))
        files.write(os.path.join(group, "cpu.shares"), str(_MOST_SHARES))
        files.write(os.path.join(group, "cgroup.procs"), str(pid))

    def place_at_desk(self, pid: int, desk: str, leaf: str) -> None:
        """As the interface says; in the tree of the CPU alone, whose groups may have processes and groups."""
        del leaf
        files.write(os.path.join(self._mount, "cpu", desk.strip("/"), "cgroup.procs"), str(pid))

    def forget_decoys(self, desk: str) -> None:
        """As the interface says."""
        del desk
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(self._sides["cpu"], HERALD))

    def kill(self, name: str) -> None:
        """Freeze, SIGKILL to all, thaw: what is frozen cannot fork, and dies when it thaws."""
        state = ""
        if "freezer" in self._sides and self.procs(name):
            with contextlib.suppress(OSError):  # then they are killed as they run
                path = os.path.join(self._sides["freezer"], name, "freezer.state")
                files.write(path, "FROZEN")
                state = path
        try:
            deadline_s = time.monotonic() + _FREEZING_S
            while state and files.read(state).strip() != "FROZEN" and time.monotonic() < deadline_s:
                time.sleep(0.001)  # a process in the midst of a system call freezes when it leaves it
            killed: set[int] = set()
            while fresh := set(self.procs(name)) - killed:
                for pid in fresh:
                    _kill(pid)
                killed |= fresh
        finally:
            if state:
                files.write(state, "THAWED")

    def freeze(self, name: str, *, frozen: bool, anew: bool = False) -> bool:
        """As the interface says; without a freezer, by SIGSTOP and SIGCONT.

        A group in which processes are being forked may stay in the state FREEZING for good, until it is frozen once
        more (docs/design/guard.md).
        """
        if "freezer" not in self._sides:
            self.signal(name, signal.SIGSTOP if frozen else signal.SIGCONT)
            return not frozen or self.all_stopped(name)
        state = os.path.join(self._sides["freezer"], name, "freezer.state")
        try:
            if not frozen:
                files.write(state, "THAWED")
                return True
            if anew:
                files.write(state, "THAWED")
            files.write(state, "FROZEN")
            return files.read(state).strip() == "FROZEN"
        except FileNotFoundError:
            return True

    def remove(self, name: str) -> None:
        """As the interface says."""
        self._cpusets.remove(name)
        for side in (*self._trees, self._endings):
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(os.path.join(side, name))

    def close(self) -> None:
        """As the interface says."""
        if "cpu" in self._sides:
            endings = f"{self._sides['cpu']}-{ENDINGS}"
            for group in (os.path.join(self._sides["cpu"], VISITORS), os.path.join(endings, VISITORS), endings):
                with contextlib.suppress(OSError):
                    os.rmdir(group)
        self._cpusets.close()
        remove_directories(self._made)
        self._made = []

    def _limit_endings(self) -> None:
        """Make the group of what ends now, limited before anybody enters it. Raises OSError, also without quotas."""
        quota_us, period_us = quota(ENDINGS_CPUS)
        limit = os.path.join(_made(self._endings), "cpu.cfs_quota_us")
        if read_number(limit) != quota_us:
            files.write(os.path.join(self._endings, "cpu.cfs_period_us"), str(period_us))
            files.write(limit, str(quota_us))
            files.write(os.path.join(self._endings, "cpu.shares"), str(_ENDINGS_SHARES))

    def _visitors(self) -> str:
        """The group that :meth:`visit` leads to. Raises OSError."""
        try:
            self._limit_endings()
        except OSError:  # no quotas in this kernel, or a group above has a tighter one
            return _made(os.path.join(self._sides["cpu"], VISITORS))
        return _made(os.path.join(self._endings, VISITORS))

    def _set_ceiling(self, cpus: float | None) -> None:
        quota_path = os.path.join(self._sides["cpu"], "cpu.cfs_quota_us")
        period_path = os.path.join(self._sides["cpu"], "cpu.cfs_period_us")
        if cpus is None:
            if read_number(quota_path) != -1:
                files.write(quota_path, "-1")
            return
        quota_us, period_us = quota(cpus)
        if (read_number(quota_path), read_number(period_path)) == (quota_us, period_us):
            return  # who writes it gives the whole quota again
        if read_number(period_path) != period_us:
            files.write(quota_path, "-1")  # else the old quota over the new period may be more than is allowed above
            files.write(period_path, str(period_us))
        try:
            files.write(quota_path, str(quota_us))
        except OSError as error:
            if error.errno != errno.EINVAL or self.cpus_above() > cpus:
                raise
            files.write(quota_path, "-1")  # a group above has a tighter one, and the kernel refuses one that is wider

    def _set_idle(self, idle: bool) -> None:
        flag = os.path.join(self._sides["cpu"], "cpu.idle")
        if os.path.exists(flag):
            if read_number(flag) != int(idle):
                files.write(flag, str(int(idle)))
        else:
            shares = _LOWEST_SHARES if idle else _NORMAL_SHARES
            files.write(os.path.join(self._sides["cpu"], "cpu.shares"), str(shares))

    def _weighing(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """What to do for the weights that are wanted; each may be refused."""
        io, priority = self._weights.io, self._weights.network_priority
        if path := self._io_weight():
            yield f"I/O weight {io}", partial(files.write, path, str(io))
        if side := self._sides.get(_WEIGHS_PACKETS):
            yield f"network priority {priority}", partial(packet_priority.set_priority, side, priority)

    def _can_prioritize(self) -> str:
        if _WEIGHS_PACKETS not in self._sides:
            return "no: no cgroup v2 mounted at unified"
        return packet_priority.can(self._sides[_WEIGHS_PACKETS], self._weights.network_priority)

    def _io_weight(self) -> str:
        """The file for the parallel side's weight; empty where there is none, or none is wanted."""
        group = self._sides.get(_WEIGHS_IO, "")
        return next((path for name in _IO_WEIGHTS if os.path.exists(path := os.path.join(group, name))), "")

    @staticmethod
    def _account_below(side: str) -> None:
        """Jobs count in the parallel side's limit, on kernels where this is a choice."""
        path = os.path.join(side, "memory.use_hierarchy")
        if read_number(path) == 0:
            files.write(path, "1")


def _made(path: str) -> str:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o755)
    return path


def _kill(pid: int) -> None:
    """Kill one of a group's processes, through a descriptor, so that it is this one even where it was not frozen."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    process.send_by_fd(fd, signal.SIGKILL)
    os.close(fd)

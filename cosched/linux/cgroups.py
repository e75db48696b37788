"""Groups of processes behind one interface: cgroup v2, cgroup v1, or neither; what there is, is found by trying.

``cosched`` is the parallel side of the machine; every attempt at a job has a group in it, ``job-ID.ATTEMPT``.
Limits on the whole side are the contract; those on a job are its own. Which of them hold is told by ``can``.
"""

import contextlib
import errno
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from cosched.linux import files, process

#: Quotas are counted over this time: 10 ms keeps an owner's wait short (100 ms: up to 127 ms until throttling is seen).
PERIOD_US: Final = 10_000
_MIN_QUOTA_US: Final = 1000
_MOVES: Final = 8
_MAX_PERIOD_US: Final = 1_000_000
#: A group that is held may run so long in each longest period, the least that the kernel takes; no hold is to last
#: longer.
HELD_US: Final = (_MIN_QUOTA_US, _MAX_PERIOD_US)
#: From this version on a thread whose group has used its quota up stops on its way out of the kernel; before, wherever
#: it was in it, with whatever locks.
_STOPS_OUTSIDE: Final = (6, 18)
_GROUP_NAME: Final = re.compile(r"job-(\d{1,18})\.(\d{1,9})\Z")
_TRIAL_NAME: Final = re.compile(r"check-(\d{1,9})\Z")
MARK: Final = "COSCHED_MARK"
HERALD: Final = "herald"
VISITORS: Final = "visitors"
#: Leaves of the owner's group, where its processes are in groups of their own: for decoys, and for the wake-up probe.
DECOYS: Final = "cosched-decoys"
PROBE: Final = "cosched-probe"
#: Beside the parallel side, at an ordinary weight: what is left of jobs whose ranks have ended, and who reaps jobs'
#: processes, all of it together.
ENDINGS: Final = "endings"
ENDINGS_CPUS: Final = 0.1

YES: Final = "yes"


class GroupUsage(NamedTuple):
    """What a job has used: CPU so far, memory now and at most, processes ended for lack of memory; -1: not known."""

    cpu_us: int = -1
    memory_bytes: int = -1
    memory_peak_bytes: int = -1
    oom_kills: int = 0


class NoCgroups(Exception):
    """This kind of cgroups cannot be had here, and why."""


class Cgroups(ABC):
    """The parallel side of one machine. Methods raise OSError unless they say what else they do."""

    kind: str
    #: Whether the kernel knows the groups; else supervisors stay until the last of their descendants has ended.
    kernel_groups = True

    def cpus_above(self) -> float:
        """How many CPUs the groups above the parallel side may use together with all that is in them; inf: no limit."""
        return math.inf

    @abstractmethod
    def set_limits(self, cpus: float | None, idle: bool, memory_bytes: int) -> list[str]:
        """Limit the whole parallel side; ``cpus`` None: no ceiling. Returns what could not be set, and why.

        Its weights on disks and network, with which this was made, are set too.
        """

    @abstractmethod
    def can(self) -> dict[str, str]:
        """What holds here: capability -> "yes", or why not."""

    def periods(self) -> int:
        """How many periods of the side's ceiling have begun while somebody wanted to run. Raises OSError."""
        raise OSError(errno.ENOTSUP, "no ceiling has periods without cgroups")

    def set_period(self, cpus: float, period_us: int) -> None:
        """Another period for the ceiling that is in force, with as much in it as one of the usual length.

        The kernel begins with it when the present one is over. Raises OSError.
        """
        del cpus, period_us
        raise OSError(errno.ENOTSUP, "no ceiling has periods without cgroups")

    def idle_above(self) -> bool:
        """Whether the group at the root in which the parallel side lies is in the idle class, by another's hand."""
        return False

    @abstractmethod
    def create(self, name: str, memory_bytes: int | None, processes: int) -> list[str]:
        """Make a job's group with its limits, or find it there. Returns what could not be limited, and why."""

    @abstractmethod
    def enter(self, name: str) -> None:
        """Put the calling process into a job's group, before it does anything else."""

    def began(self, name: str, pid: int) -> None:
        """A command of this group runs, and entered it under the limits of when it was forked: those of now hold."""
        del name, pid  # what is in a kernel's group has the limits of the group

    @abstractmethod
    def names(self) -> list[str]:
        """The groups of jobs and trials that exist, those of a guard that has died included."""

    @abstractmethod
    def procs(self, name: str) -> list[int]:
        """The processes of a job's group. A group that isn't there has none."""

    @abstractmethod
    def usage(self, name: str) -> GroupUsage:
        """What a job has used. A group that isn't there: not known."""

    @abstractmethod
    def kill(self, name: str) -> None:
        """SIGKILL to all of a group, so that none escapes by forking. Repeat until :meth:`empty`."""

    @abstractmethod
    def freeze(self, name: str, *, frozen: bool, anew: bool = False) -> bool:
        """Have a group's processes run no more, or again. Killing works on frozen ones too.

        Whether it is so by now: a process stops when it leaves its system call; where not, ask again, and after long
        in vain ``anew``: they are let go first. Raises OSError.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove an empty group; one that isn't there is removed already."""

    def cpus(self) -> list[int]:
        """The CPUs that jobs' processes may run on at all, by their numbers."""
        return sorted(os.sched_getaffinity(0))

    def confine(self, name: str, cpus: Collection[int] | None) -> bool:
        """Have the kernel keep a job's processes, those there are and those to come, to these CPUs; None: to none.

        Whether it does: where not, it is left to affinities (:mod:`cosched.linux.cpusets`). Raises OSError.
        """
        del name, cpus
        return False

    def weigh(self, name: str, percent: int, idle: bool) -> None:
        """A job's weight against other jobs (100: as all are made), or the idle class: it runs where no other would.

        Raises OSError, also where there is no such lever; FileNotFoundError for a group that isn't there.
        """
        del percent, idle
        raise OSError(errno.ENOTSUP, "jobs have no weights against each other without cgroups", name)

    def hold(self, name: str, *, held: bool) -> None:
        """Have a job's processes run no more, or again: at once, and as often as turns change.

        Raises OSError, also where there is no such lever; FileNotFoundError for a group that isn't there.
        """
        if held:
            raise OSError(errno.ENOTSUP, "jobs cannot be held without cgroups", name)

    def ease(self, name: str) -> None:
        """Take a job's processes out of the idle class: beside the owner, with :data:`ENDINGS_CPUS` for all such jobs.

        Whom they start is there too. They stay the job's in all else. Raises OSError, also without such a place.
        """
        raise OSError(errno.ENOTSUP, "there is no place beside the jobs without cgroups", name)

    def restrain(self, name: str) -> None:
        """Back among the jobs; nothing to do for who is there. Raises OSError."""
        del name

    def visit(self) -> AbstractContextManager[None]:
        """The calling process is in a group of its own meanwhile, in which the CPU that it uses is limited.

        It shares :data:`ENDINGS_CPUS` with what :meth:`ease` takes out of the idle class. Where that is not built, or
        the kernel refuses the limit, it is among the jobs; where it cannot be taken there, it stays where it is.
        """
        return contextlib.nullcontext()

    def place_herald(self, pid: int) -> None:
        """Put a process of the guard's into the parallel side, before all jobs there. Raises OSError."""
        raise OSError(errno.ENOTSUP, "there is no parallel side without cgroups", f"process {pid}")

    def place_at_desk(self, pid: int, desk: str, leaf: str) -> None:
        """Put a process of the guard's into the owner's group, in a ``leaf`` where groups are that way (version 2).

        Raises OSError.
        """
        raise OSError(errno.ENOTSUP, "there is no owner's group without cgroups", f"process {pid} for {desk}/{leaf}")

    def forget_leaf(self, desk: str, leaf: str) -> None:
        """Remove the leaf, where one was made; one with a process that does not end is left."""
        del desk, leaf

    def forget_decoys(self, desk: str) -> None:
        """Remove what was made for heralds and decoys; what one is in that does not end is left."""
        del desk

    def empty(self, name: str) -> bool:
        """Whether no process is left in a group."""
        return not self.procs(name)

    def watch(self, name: str) -> int | None:
        """A descriptor with an exceptional condition (EPOLLPRI) when a group becomes empty; None: ask now and then.

        After the condition it must be read from the start; the caller closes it.
        """
        del name
        return None

    def watch_over(self, name: str, mark: str, supervisor: int | None, memory_bytes: int | None) -> None:
        """Where there are no cgroups: by which mark, and as whose descendants, a group's processes can be told."""
        del name, mark, supervisor, memory_bytes

    def close(self) -> None:
        """Remove what making this object has made, unless jobs' groups are in it."""
        return

    def all_stopped(self, name: str) -> bool:
        """Whether none of a group's processes runs: all that live are stopped by a signal, or by who traces them."""
        states = (found.state for pid in self.procs(name) if (found := process.stat_of(pid)) is not None)
        return all(state in "TtZX" for state in states)

    def signal(self, name: str, number: int, group: int | None = None) -> int:
        """Send a signal to all of a job's group, or to those of a process group. Returns to how many.

        A number that is used again for somebody else's process is not signalled: descriptors are opened first, and
        only what is still in the group then gets the signal.
        """
        opened = []
        for pid in self.procs(name):
            try:
                opened.append((pid, os.pidfd_open(pid)))
            except OSError:
                continue
        sent = 0
        members = set(self.procs(name))
        for pid, fd in opened:
            if pid in members and (group is None or _process_group(pid) == group):
                sent += process.send_by_fd(fd, number)
            os.close(fd)
        return sent


def group_name(job: int, attempt: int) -> str:
    """The name of an attempt's group."""
    return f"job-{job}.{attempt}"


def job_of(name: str) -> tuple[int, int] | None:
    """(job, attempt) of a group's name, or None for anything else."""
    found = _GROUP_NAME.match(name)
    return (int(found[1]), int(found[2])) if found else None


def trial_name(pid: int) -> str:
    """The name of the group in which a process tries what control groups can do (:mod:`cosched.linux.check`)."""
    return f"check-{pid}"


def trial_of(name: str) -> int | None:
    """The pid in the name of a trial's group, or None for anything else."""
    found = _TRIAL_NAME.match(name)
    return int(found[1]) if found else None


def quota(cpus: float) -> tuple[int, int]:
    """(quota, period) in microseconds that come to so many CPUs; the kernel takes no quota below 1 ms."""
    period_us = PERIOD_US
    if cpus * period_us < _MIN_QUOTA_US:
        period_us = min(_MAX_PERIOD_US, round(_MIN_QUOTA_US / cpus))
    return max(_MIN_QUOTA_US, round(cpus * period_us)), period_us


def can_hold() -> str:
    """Whether jobs can be held on this kernel: "yes", or why not."""
    release = os.uname().release
    version = re.match(r"(\d+)\.(\d+)", release)
    if version and (int(version[1]), int(version[2])) >= _STOPS_OUTSIDE:
        return YES
    least = ".".join(map(str, _STOPS_OUTSIDE))
    return f"no: Linux {release} could stop a thread while it has the kernel's locks ({least} and later do not)"


def _process_group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return -1


def read_number(path: str, default: int = -1) -> int:
    """The number in a kernel's file; ``default`` where there is no file, no number, or ``max``."""
    try:
        return int(files.read(path))
    except (OSError, ValueError):
        return default


def read_fields(path: str) -> dict[str, int]:
    """A kernel's file of lines "name number"; empty where there is none."""
    try:
        lines = [line.split() for line in files.read(path).splitlines()]
    except OSError:
        return {}
    return {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].lstrip("-").isdigit()}


def read_pids(path: str) -> list[int]:
    """The processes in ``cgroup.procs``; none where the group has gone. 0 stands for one that cannot be seen."""
    try:
        return [int(line) for line in files.read(path).split() if line != "0"]
    except OSError:
        return []


def move_all(source: str, target: str) -> None:
    """Move all processes of a group to another, also those that are forked meanwhile; both have a cgroup.procs."""
    for _ in range(_MOVES):
        pids = read_pids(os.path.join(source, "cgroup.procs"))
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                files.write(os.path.join(target, "cgroup.procs"), str(pid))
        if not pids:
            return


def read_pids_below(group: str) -> list[int]:
    """The processes of a group and of all groups below it; groups may go while this looks."""
    found = []
    for directory, _, names in os.walk(group):  # passes over what has gone, which pathlib's glob does not
        if "cgroup.procs" in names:
            found += read_pids(os.path.join(directory, "cgroup.procs"))
    return found


def make_directories(path: str, top: str) -> list[str]:
    """Make a group and those between it and ``top``, which must be there. Returns those made, the outermost first."""
    made = []
    way = top
    for part in os.path.relpath(path, top).split("/"):
        way = os.path.join(way, part)
        try:
            os.mkdir(way, 0o755)
            made.append(way)
        except FileExistsError:
            pass
    return made


def remove_directories(made: list[str]) -> None:
    """Take back what :func:`make_directories` made, as far as nothing is in it."""
    for path in reversed(made):
        try:
            os.rmdir(path)
        except OSError:
            return


def beside_desk(cosched: str, desk: str, *, idle: bool) -> str:
    """Whether the idle class protects the desk: "yes", or why not (an idle group protects its siblings alone).

    ``idle``: the group at the root in which the parallel side lies is itself in the idle class.
    """
    side, owners = (os.path.normpath(group).strip("/") for group in (cosched, desk))
    parent = os.path.dirname(side)
    if parent in {"", os.path.dirname(owners)} or (idle and side.split("/")[0] != owners.split("/")[0]):
        return YES
    return (
        f"no: cgroup {cosched} lies inside {parent}, not beside {desk}: it competes with the whole weight of {parent}, "
        "and the idle class does nothing for the desk; set cgroup.cosched to a group at the root, or in a slice that "
        "is idle itself"
    )

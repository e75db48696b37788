"""The lab's control groups: ``cosched-lab/NAME/NODE/{desk,cosched,system}`` in every hierarchy that has a controller.

``desk`` is the owner's side, ``cosched`` the parallel side (its guard sets the limits there), ``system`` has guard and
agent; those of capped nodes are all in ``agents/system``. The node's group has the CPU weight and the memory of a
workstation. Version 1 (a tree for each controller, or for a few) and version 2 (one tree) are told apart by what is
mounted.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cosched.linux import files
from cosched.linux.cgroups import job_of, quota

PARENT: Final = "cosched-lab"
SIDES: Final = ("desk", "cosched", "system")
_NEEDED: Final = {"cpu", "memory"}
_WANTED: Final = ("cpu", "memory", "pids", "cpuset", "io")
#: Controllers of version 1 by their names in /proc/self/mounts; a hierarchy of systemd's own has none of them.
_CONTROLLERS: Final = {"cpu", "cpuacct", "cpuset", "memory", "freezer", "pids", "blkio", "devices"}
_REMOVAL_S: Final = 10.0
_MOUNTS = Path("/proc/self/mounts")


class Hierarchy(NamedTuple):
    """A mounted tree of control groups. ``version`` is 1 or 2."""

    mount: Path
    version: int
    controllers: frozenset[str]


class Share(NamedTuple):
    """What a node gets of the machine; ``memory_bytes`` 0 is no limit, ``cap_cpus`` a ceiling (None: shares alone).

    ``own_cpus``: on which CPUs it runs, as a kernel's list; empty for all.
    """

    cpus: int
    memory_bytes: int
    cap_cpus: float | None = None
    own_cpus: str = ""


def hierarchies() -> list[Hierarchy]:
    """The trees to use: version 2 where it has CPU and memory, else version 1; none where either is missing."""
    first, second = [], []
    for line in _MOUNTS.read_text(encoding="utf-8").splitlines():
        _, place, kind, options, *_ = line.split(" ")
        mount = Path(place.encode().decode("unicode_escape"))
        if kind == "cgroup2":
            with contextlib.suppress(OSError):
                second.append(Hierarchy(mount, 2, frozenset((mount / "cgroup.controllers").read_text().split())))
        elif kind == "cgroup" and (controllers := _CONTROLLERS.intersection(options.split(","))):
            first.append(Hierarchy(mount, 1, frozenset(controllers)))
    for hierarchy in second:
        if hierarchy.controllers >= _NEEDED:
            return [hierarchy]
    return first if frozenset().union(*(each.controllers for each in first)) >= _NEEDED else []


def make(name: str, shares: dict[str, Share]) -> None:
    """Make the groups of a lab. Raises OSError, with a message that says which file refused.

    The groups around the nodes weigh what the nodes weigh together: a node's CPU stands against the machine's other
    work as a process does, not as a fraction of one.
    """
    whole = Share(sum(share.cpus for share in shares.values()), 0)
    for hierarchy in hierarchies():
        for group in (_directory(hierarchy, PARENT), _directory(hierarchy, PARENT, name)):
            for setting, value in _settings(hierarchy, whole):
                _set(group / setting, value)
        for node, share in shares.items():
            group = _directory(hierarchy, PARENT, name, node)
            for setting, value in _settings(hierarchy, share):
                _set(group / setting, value)
            for side in SIDES:
                _directory(hierarchy, PARENT, name, node, side)


def doors(name: str, node: str, side: str) -> list[str]:
    """The files to which a process writes 0 to enter a side of a node."""
    return [str(each.mount / PARENT / name / node / side / "cgroup.procs") for each in hierarchies()]


def add_side(name: str, node: str, side: str) -> list[str]:
    """A further group of a node, like the desk's; its :func:`doors`. It goes with the lab."""
    for hierarchy in hierarchies():
        _directory(hierarchy, PARENT, name, node, side)
    return doors(name, node, side)


def path(name: str, *below: str) -> str:
    """The group of a lab, of a node of it, or of a side of that node, below the hierarchies' mounts."""
    return "/".join([PARENT, name, *below])


def used_s(path: str) -> float:
    """Seconds of CPU that a group has used. Raises OSError where there is no such group, or no accounting."""
    for hierarchy in hierarchies():
        group = hierarchy.mount / path
        if hierarchy.version == 2:
            return int((group / "cpu.stat").read_text().split()[1]) / 1e6
        if "cpuacct" in hierarchy.controllers:
            return int((group / "cpuacct.usage").read_text()) / 1e9
    raise FileNotFoundError(2, "no accounting of CPU", str(PARENT))


def all_used_s() -> float:
    """Seconds of CPU that all processes of this machine have used. Raises OSError.

    Exactly, where the kernel counts that: what it samples at its ticks is wrong by some per cent beside ceilings, whose
    periods go with the ticks. Version 2 counts so below its root alone: what is in the root itself is sampled.
    """
    for hierarchy in hierarchies():
        if hierarchy.version == 2 and not _has_programs(hierarchy.mount):
            return sum(used_s(str(stat.parent)) for stat in hierarchy.mount.glob("*/cpu.stat"))
        if "cpuacct" in hierarchy.controllers:
            return int((hierarchy.mount / "cpuacct.usage").read_text()) / 1e9
    import psutil  # noqa: PLC0415 (of measurements alone: a lab's holder is small)

    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)


def _has_programs(root: Path) -> bool:
    """Whether a tree's root has processes that are no threads of the kernel's."""
    return any(os.path.exists(f"/proc/{pid}/exe") for pid in _pids(root))


def ceiling_cpus(path: str) -> float | None:
    """How many CPUs a group may use; None: no ceiling. Raises OSError where there is no such group."""
    for hierarchy in hierarchies():
        group = hierarchy.mount / path
        if hierarchy.version == 2:
            quota, period = (group / "cpu.max").read_text().split()
            return None if quota == "max" else int(quota) / int(period)
        if "cpu" in hierarchy.controllers:
            quota = (group / "cpu.cfs_quota_us").read_text()
            period = (group / "cpu.cfs_period_us").read_text()
            return None if int(quota) < 0 else int(quota) / int(period)
    raise FileNotFoundError(2, "no CPU controller", str(PARENT))


def refaults(path: str) -> int:
    """How many pages of files a group has lost and read again. Raises OSError where nobody counts them."""
    for hierarchy in hierarchies():
        if hierarchy.version == 2 or "memory" in hierarchy.controllers:
            stat = (hierarchy.mount / path / "memory.stat").read_text(encoding="ascii")
            counts = dict(line.split() for line in stat.splitlines())
            for key in ("total_workingset_refault_file", "workingset_refault_file"):  # of version 1, and of both
                if key in counts:
                    return int(counts[key])
    raise FileNotFoundError(2, "this kernel does not count refaults by group", str(PARENT))


def enter(ways: Sequence[str]) -> None:
    """Move the calling process by its :func:`doors`."""
    for door in ways:
        files.write(door, "0")


def remove(name: str) -> bool:
    """Kill what is in a lab's groups and remove them. False when something is left after ten seconds."""
    end = time.monotonic() + _REMOVAL_S
    while [each for each in hierarchies() if not _removed(each, name)]:
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    for hierarchy in hierarchies():
        with contextlib.suppress(OSError):  # another lab's
            (hierarchy.mount / PARENT).rmdir()
    return True


def labs() -> set[str]:
    """The names of all labs that have groups."""
    return {group.name for each in hierarchies() for group in (each.mount / PARENT).glob("*/")}


def occupied(name: str) -> bool:
    """Whether processes are in the groups of a lab of that name."""
    return any(_pids(group) for each in hierarchies() for group in _tree(each.mount / PARENT / name))


def _settings(hierarchy: Hierarchy, share: Share) -> Iterator[tuple[str, str]]:
    ceiling = None if share.cap_cpus is None else quota(share.cap_cpus)
    if "cpuset" in hierarchy.controllers and share.own_cpus:
        yield "cpuset.cpus", share.own_cpus
    if hierarchy.version == 2:
        yield "cpu.weight", str(min(10_000, 100 * share.cpus))
        if share.memory_bytes:
            yield "memory.max", str(share.memory_bytes)
        if ceiling:
            yield "cpu.max", "{} {}".format(*ceiling)
        return
    if "cpu" in hierarchy.controllers:
        yield "cpu.shares", str(min(262_144, 1024 * share.cpus))
        if ceiling:
            yield "cpu.cfs_period_us", str(ceiling[1])
            yield "cpu.cfs_quota_us", str(ceiling[0])
    if "memory" in hierarchy.controllers and share.memory_bytes:
        yield "memory.limit_in_bytes", str(share.memory_bytes)


def _directory(hierarchy: Hierarchy, *names: str) -> Path:
    """A group and those above it, made so that processes can be put in and limits be set."""
    group = hierarchy.mount
    for name in names:
        if hierarchy.version == 2:
            _enable(group)
        parent, group = group, group / name
        with contextlib.suppress(FileExistsError):
            group.mkdir()
        if hierarchy.version == 1 and "cpuset" in hierarchy.controllers:
            for file in ("cpuset.cpus", "cpuset.mems"):  # empty in a new group, and then nothing can enter
                if not (group / file).read_text().strip():
                    _set(group / file, (parent / file).read_text().strip())
    return group


def _enable(group: Path) -> None:
    available = set((group / "cgroup.controllers").read_text().split())
    enabled = set((group / "cgroup.subtree_control").read_text().split())
    for controller in _WANTED:
        if controller in available - enabled:
            try:
                _set(group / "cgroup.subtree_control", f"+{controller}")
            except OSError:
                if controller in _NEEDED:
                    raise


def _set(file: Path, value: str) -> None:
    try:
        files.write(str(file), value)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from None


def _tree(group: Path) -> list[Path]:
    """A group and all below it, the deepest first."""
    return [Path(place) for place, _, _ in os.walk(group, topdown=False)]


def _pids(group: Path) -> list[int]:
    try:
        return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _let_go(job: Path) -> None:
    """A job that is held until its turn comes would die as slowly as it is let run."""
    for file, whole in (("cpu.cfs_quota_us", "-1"), ("cpu.max", "max")):
        with contextlib.suppress(OSError):  # of the other version, or gone
            files.write(str(job / file), whole)


def _removed(hierarchy: Hierarchy, name: str) -> bool:
    for group in _tree(hierarchy.mount / PARENT / name):
        with contextlib.suppress(OSError):  # not a freezer, or gone
            files.write(str(group / "freezer.state"), "THAWED")  # a frozen process does not die
        if job_of(group.name):
            _let_go(group)
        for pid in _pids(group):
            if pid:  # 0 is one of another pid namespace, which dies with it
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            group.rmdir()
    return not (hierarchy.mount / PARENT / name).exists()

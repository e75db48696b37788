"""How much memory there is for the user, and how much his processes hold.

Of the machine and of processes as psutil tells, of control groups from their own files: psutil knows none.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import psutil

_UNLIMITED: Final = 1 << 60


def resident_bytes(pids: Iterable[int]) -> int:
    """Memory that these processes hold, shared pages divided among those who share them (PSS)."""
    total = 0
    for pid in pids:
        try:
            total += psutil.Process(pid).memory_full_info().pss
        except psutil.Error:
            continue  # ended, or not ours to ask
    return total


class _Group(NamedTuple):
    """A control group with a limit of memory: that, and what is in use (without page cache that can go)."""

    limit_bytes: int
    used_bytes: int


def node_bytes() -> int:
    """The memory of this machine, or of the control group that stands for one."""
    return min([psutil.virtual_memory().total, *(group.limit_bytes for group in _groups())])


def free_bytes() -> int:
    """What could be taken now without swapping and without reaching a control group's limit."""
    return min(
        [psutil.virtual_memory().available, *(max(0, group.limit_bytes - group.used_bytes) for group in _groups())]
    )


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

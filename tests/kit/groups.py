"""Control groups of this machine: found by pattern while other tests make and remove theirs; made and removed."""

import contextlib
import errno
import glob
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from cosched.linux import cgroup_find
from cosched.linux.cgroups import Cgroups
from cosched.linux.weights import NONE, Weights
from kit.waiting import wait_for

MOUNT = Path("/sys/fs/cgroup")


def groups(pattern: str, below: Path = MOUNT) -> list[Path]:
    """What matches ``pattern``; a group that goes meanwhile is passed over (``Path.glob`` would raise)."""
    return [below / found for found in glob.iglob(pattern, root_dir=below, recursive=True)]


def pids(listings: str, below: Path = MOUNT) -> set[int]:
    """The processes in all files ``cgroup.procs`` that match; those of a group that goes meanwhile are left out."""
    found = set()
    for listing in groups(listings, below):
        try:
            found |= set(map(int, listing.read_text().split()))
        except OSError:
            continue
    return found


def ceiling(group: str) -> float | None:
    """A group's ceiling in CPUs, as the kernel has it; None: none. Raises OSError where there is no such group."""
    if (v1 := MOUNT / "cpu" / group / "cpu.cfs_quota_us").exists():
        quota_us, period_us = v1.read_text(), v1.with_name("cpu.cfs_period_us").read_text()
    else:
        quota_us, period_us = (MOUNT / group / "cpu.max").read_text().split()
    return None if quota_us in ("-1\n", "max") else int(quota_us) / int(period_us)


@contextlib.contextmanager
def parallel_side(side: str, wanted: Weights = NONE) -> Iterator[Cgroups]:
    """The machine's groups for jobs below ``side``; none of a job's is there afterwards. Skips where there are none."""
    found = cgroup_find.find("auto", str(MOUNT), side, wanted)
    if found.kind == "none":
        pytest.skip(f"needs cgroups with controllers ({found.can()['cpu ceiling']})")
    try:
        yield found
    finally:
        for name in found.names():
            wait_for(partial(ended, found, name), f"the end of {name}")
            wait_for(partial(removed, found, name), f"the removal of {name}")
        found.close()


def ended(found: Cgroups, name: str) -> bool:
    """Kill what is in a group; whether it has gone."""
    found.kill(name)
    return found.empty(name)


def removed(found: Cgroups, name: str) -> bool:
    """Whether a group could be removed: for a moment after its last process's end it can't."""
    try:
        found.remove(name)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True

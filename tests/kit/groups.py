"""Control groups of this machine, found by pattern while other tests make and remove theirs."""

import glob
from pathlib import Path

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

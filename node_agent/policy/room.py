"""Whether a file system has room for a launch: bytes, inodes, and whether it can be written at all.

One that was full has room again once a quarter more than the least is free, so that a node does not come and go with
the files of each job.
"""

from typing import NamedTuple


class Space(NamedTuple):
    """A file system at one look. ``files``: its inodes in all, 0 where it does not count them (btrfs)."""

    free_bytes: int
    files: int
    free_files: int
    read_only: bool


class Least(NamedTuple):
    """What new work needs there: bytes and inodes."""

    free_bytes: int
    free_files: int


def shortage(path: str, found: Space, least: Least, *, was_short: bool) -> str:
    """Why no new work can be taken, in words with the remedy; empty where it can. ``was_short``: at the last look."""
    if found.read_only:
        return f"the disk of {path} is read-only: mount it writable again"
    needed_bytes, needed_files = (each + each // 4 if was_short else each for each in least)
    if found.free_bytes < needed_bytes:
        free, needs = f"{found.free_bytes >> 20} MiB", needed_bytes >> 20
    elif found.files and found.free_files < needed_files:
        free, needs = f"{found.free_files} inodes", needed_files
    else:
        return ""
    return f"the disk of {path} is full: {free} are free, new work needs {needs}: make room there"

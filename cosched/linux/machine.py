"""What this machine is, in a few words: its size, and what runs it."""

import os
from pathlib import Path
from typing import Final

_SYSTEMD: Final = Path("/run/systemd/system")
_MOUNT: Final = Path("/sys/fs/cgroup")


def cpus() -> int:
    """How many CPUs this process may use."""
    return len(os.sched_getaffinity(0))


def memory_bytes() -> int:
    """How much memory there is."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def has_systemd() -> bool:
    """Whether systemd runs this machine."""
    return _SYSTEMD.is_dir()


def gives_slices() -> bool:
    """Whether systemd has the one hierarchy of control groups (version 2), and with it slices for all controllers."""
    return has_systemd() and (_MOUNT / "cgroup.controllers").exists()

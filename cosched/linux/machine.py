"""What this machine is, in a few words: its size, and what runs it."""

import os
import subprocess
from pathlib import Path
from typing import Final

_SYSTEMD: Final = Path("/run/systemd/system")
_ANSWER_S: Final = 10.0
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


def shuts_down() -> bool:
    """Whether systemd is taking this machine down, to power it off or to start it anew."""
    if not has_systemd():
        return False
    asked = ["systemctl", "is-system-running"]
    try:
        state = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return state.stdout.strip() == b"stopping"


def gives_slices() -> bool:
    """Whether systemd has the one hierarchy of control groups (version 2), and with it slices for all controllers."""
    return has_systemd() and (_MOUNT / "cgroup.controllers").exists()

"""Where things of this machine's labs are: a directory for each, below one of the user's own.

``DIR/labs/NAME/`` has ``state.json`` (what the lab is made of) and ``scheduler.sock`` (its service's API). A lab lives
for as long as the process that holds it together, which ``state.json`` names by number and start time.
"""

import json
import os
import stat
from pathlib import Path
from typing import Any

#: Names another directory for everything below; tests use it.
OVERRIDE = "COSCHED_RUNTIME_DIR"


def runtime_dir() -> Path:
    """The user's directory for what lives as long as the machine runs; it need not exist.

    Root has ``/run/cosched``; others have ``$XDG_RUNTIME_DIR/cosched``, or ``/tmp/cosched-UID`` where that is not theirs.
    """
    if named := os.environ.get(OVERRIDE):
        return Path(named)
    uid = os.geteuid()
    if uid == 0:
        return Path("/run/cosched") if os.access("/run", os.W_OK) else Path("/tmp/cosched-0")
    session = Path(os.environ.get("XDG_RUNTIME_DIR") or "/run/user/unknown")
    return session / "cosched" if is_private(session) else Path(f"/tmp/cosched-{uid}")


def is_private(directory: Path) -> bool:
    """Whether this is a directory of the caller's own that nobody else can write to."""
    try:
        found = os.lstat(directory)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def lab_dir(name: str) -> Path:
    """Where the lab of that name is, or would be."""
    return runtime_dir() / "labs" / name


def lab_state(directory: Path) -> dict[str, Any]:
    """What ``state.json`` says; empty where there is none, or none that can be read."""
    try:
        state = json.loads((directory / "state.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def start_time(pid: int) -> int | None:
    """When that process started, in clock ticks since boot; None when there is none. With the number, it is unique."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def is_held(state: dict[str, Any]) -> bool:
    """Whether the process that holds the lab together lives."""
    holder = state.get("holder")
    if not isinstance(holder, dict) or not isinstance(holder.get("pid"), int):
        return False
    started = start_time(holder["pid"])
    return started is not None and started == holder.get("start")


def labs_up() -> dict[str, Path]:
    """The caller's labs that are up: name and the socket of its service, in the names' order."""
    base = runtime_dir()
    if not is_private(base):
        return {}
    found = {}
    for directory in sorted((base / "labs").glob("*")):
        state = lab_state(directory)
        if state.get("state") == "up" and is_held(state):
            found[directory.name] = directory / "scheduler.sock"
    return found

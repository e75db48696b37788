"""A lab's directory: its lock, ``state.json``, whether the lab lives, and how what is left of a dead one is removed.

``state.json`` is written before anything is made that could be left behind, so that every later command can clean up:
it names the holder (number and start time), the cookie of the lab's processes and the tier.
"""

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cosched.apps.lab import cgroups, sweep
from cosched.client.places import made_runtime_dir, runtime_dir
from cosched.errors import Failed
from cosched.linux.process import open_if_same, send_by_fd, stat_of

MAKING: Final = "making"
UP: Final = "up"
_LOCK_S: Final = 60.0
_END_S: Final = 15.0


@contextlib.contextmanager
def locked(directory: Path, *, make: bool = False) -> Iterator[bool]:
    """Have the lab's directory for oneself; whether there is one. With ``make``, it is made where it is missing.

    Raises :class:`Failed` where another command keeps it for a minute.
    """
    end = time.monotonic() + _LOCK_S
    while True:
        try:
            if make:
                made_runtime_dir()
                directory.parent.mkdir(mode=0o755 if os.geteuid() == 0 else 0o700, exist_ok=True)
                with contextlib.suppress(FileExistsError):
                    # users other than root's may get through to the service and their agents, not look around
                    directory.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700)
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            if make and time.monotonic() < end:
                continue  # somebody removed the last lab, and the directory above with it
            yield False
            return
        try:
            while not _lock(descriptor):
                if time.monotonic() > end:
                    raise Failed(f"another command has been at work on {directory} for a minute")
                time.sleep(0.02)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), directory.stat()):
                    yield True
                    return
        finally:
            os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def in_work(directory: Path) -> bool:
    """Whether another command is at work on the lab."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _lock(descriptor)
    finally:
        os.close(descriptor)


def read(directory: Path) -> dict[str, Any]:
    """What ``state.json`` says; empty where there is none, or none that can be read."""
    try:
        state = json.loads((directory / "state.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def write(directory: Path, state: dict[str, Any]) -> None:
    """Write ``state.json``, whole or not at all."""
    draft = directory / ".state.json"
    draft.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
    draft.rename(directory / "state.json")


def start_time(pid: int) -> int | None:
    """When that process started, in clock ticks since boot; None when it has ended. Number and start are unique."""
    found = stat_of(pid)
    return None if found is None or found.state in "ZX" else found.start_ticks


def is_held(state: dict[str, Any]) -> bool:
    """Whether the process that holds the lab together lives."""
    holder = state.get("holder")
    return isinstance(holder, dict) and start_time(holder["pid"]) == holder["start"]


def scrap(directory: Path, state: dict[str, Any]) -> None:
    """End what there is of a lab and remove what it left. The caller has the lock. Raises :class:`Failed`."""
    holder = state.get("holder") or {"pid": 0, "start": 0}
    alive = open_if_same(holder["pid"], holder["start"]) if holder["pid"] else None
    try:
        if alive is not None:
            send_by_fd(alive, signal.SIGTERM)
        grouped = state.get("tier") == 1
        # first of all thawed and emptied: a guard may have died while it had something frozen, which then cannot die
        if grouped and not cgroups.remove(directory.name):
            raise Failed(f"processes in the control groups of the lab {directory.name} cannot be killed")
        if alive is not None and not _ended(alive):
            raise Failed(f"process {holder['pid']}, which holds the lab {directory.name}, cannot be killed")
    finally:
        if alive is not None:
            os.close(alive)
    if "cookie" in state and not sweep.kill_marked(state["cookie"]):
        raise Failed(f"processes of the lab {directory.name} cannot be killed")
    if grouped and not cgroups.remove(directory.name):  # whoever was late
        raise Failed(f"the control groups of the lab {directory.name} cannot be removed")
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        raise Failed(f"{directory} cannot be removed whole")
    for above in (directory.parent, runtime_dir()):
        with contextlib.suppress(OSError):  # other labs, or something else's socket
            above.rmdir()


def _ended(holder: int) -> bool:
    """Whether the process of that descriptor, and with it all that it held, is gone: by itself, or when killed."""
    if select.select([holder], [], [], _END_S)[0]:
        return True
    send_by_fd(holder, signal.SIGKILL)
    return bool(select.select([holder], [], [], _END_S)[0])

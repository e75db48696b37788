"""Kill what is left of a lab that had no pid namespace: all below a process, and all that carry a lab's cookie.

Processes are stopped before they are killed, until no new one is found: a child that is born meanwhile is seen.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Final

from cosched.linux.process import all_pids, stat_of

_DEADLINE_S: Final = 10.0
Find = Callable[[dict[int, int]], set[int]]


def kill_descendants() -> None:
    """Kill everything below the caller, who has adopted all orphans, and reap it."""
    end = time.monotonic() + _DEADLINE_S
    while time.monotonic() < end:
        _kill(lambda parents: _below(parents, {os.getpid()}))
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def kill_marked(cookie: str) -> bool:
    """Kill what has the cookie in its environment, and all below. False when something is left after ten seconds."""
    mark = f"COSCHED_LAB_COOKIE={cookie}".encode()
    end = time.monotonic() + _DEADLINE_S

    def found(parents: dict[int, int]) -> set[int]:
        marked = {pid for pid in parents if pid != os.getpid() and mark in _environment(pid).split(b"\0")}
        return marked | _below(parents, marked)

    while _kill(found):
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def _kill(find: Find) -> set[int]:
    """Stop, look again until nothing new is found, kill. What was found."""
    stopped: set[int] = set()
    while new := find(_parents()) - stopped:
        _signal(new, signal.SIGSTOP)
        stopped |= new
    _signal(stopped, signal.SIGKILL)
    return stopped


def _signal(pids: set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _parents() -> dict[int, int]:
    """Each living process and its parent."""
    found = {}
    for pid in all_pids():
        stat = stat_of(pid)
        if stat is not None and stat.state not in "ZX":
            found[pid] = stat.parent
    return found


def _below(parents: dict[int, int], roots: set[int]) -> set[int]:
    found: set[int] = set()
    layer = roots
    while layer:
        layer = {pid for pid, parent in parents.items() if parent in layer} - found
        found |= layer
    return found


def _environment(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""

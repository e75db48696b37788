"""Idle inhibitors by logind's list: a film or a presentation on this machine's own screen is somebody who is there.

Anybody may have logind note an inhibitor, also from afar, also a job. One counts only where it is a process of a user
whose session is on the screen, and lies in that session's group of systemd's, or in that user's own services (where
desktops start their programs). A job lies in neither, whoever it runs as.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cosched.linux.sessions import Session

_SCOPE: Final = re.compile(r"/session-([A-Za-z0-9]+)\.scope(?:/|\Z)")
_SERVICES: Final = re.compile(r"/user@(\d+)\.service(?:/|\Z)")


class Inhibitor(NamedTuple):
    """As logind lists it: ``what`` it keeps from happening (words with colons between), its ``mode``, and whose."""

    what: str
    mode: str
    uid: int
    pid: int


def listed(answer: str) -> list[Inhibitor]:
    """What ``busctl --json=short call … ListInhibitors`` has printed. Raises ValueError for anything else."""
    try:
        (rows,) = json.loads(answer)["data"]
        return [Inhibitor(str(what), str(mode), int(uid), int(pid)) for what, _, _, mode, uid, pid in rows]
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no list of inhibitors: {error}") from None


def on_screen(found: Iterable[Inhibitor], sessions: Sequence[Session], proc: Path = Path("/proc")) -> bool:
    """Whether one of them is of a process in one of these sessions, which are those on the screen."""
    return any(
        "idle" in each.what.split(":") and each.mode == "block" and _inside(each, sessions, proc) for each in found
    )


def _inside(inhibitor: Inhibitor, sessions: Sequence[Session], proc: Path) -> bool:
    own = [session for session in sessions if session.uid == inhibitor.uid]
    if not own:
        return False
    place = proc / str(inhibitor.pid)
    try:
        if place.stat().st_uid != inhibitor.uid:
            return False  # its number is another's now
        groups = (place / "cgroup").read_text(errors="replace").splitlines()
    except OSError:
        return False
    for line in groups:
        path = line.split(":", 2)[-1]
        if (scope := _SCOPE.search(path)) is not None:
            return any(session.id == scope[1] for session in own)
        if (services := _SERVICES.search(path)) is not None:
            return int(services[1]) == inhibitor.uid
    return False

"""``cosched desk session``: beside the owner's desktop, in its session, until that ends.

It tells the owner by the desktop's own notifications when jobs have begun beside somebody who is there, and the guard
when a program keeps the desktop from being idle by GNOME's session manager, which logind does not know of. Both are
asked over the session's bus by systemd's own client, ``busctl``, so that a desk needs no library for it.
"""

import html
import json
import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from cosched.apps.cli.shared.words import this_user
from cosched.client.desk_socket import ask
from cosched.errors import Failed, NoAnswer

_PERIOD_S: Final = 10.0
_PATIENCE_S: Final = 5
#: For how long the guard believes that a film runs: three looks.
_BELIEVED_S: Final = 30.0
#: Of these flags of GNOME's session manager one: the session must not be marked as idle.
_IDLE: Final = 8
_NAMED: Final = 3


class Session:
    """What was seen of jobs and told to the owner so far."""

    def __init__(self, path: Path, *, notify: bool) -> None:
        """``path`` is the guard's socket."""
        self._path = path
        self._notify = notify
        self._known: set[tuple[int, int]] | None = None  # jobs that were here at the last look

    def look(self) -> None:
        """Once: tell the owner what has begun, and the guard what runs on the screen."""
        try:
            status = ask(self._path, {"do": "status"})
        except (NoAnswer, Failed):
            return  # the guard is being started anew
        jobs = {(job["job"], job["attempt"]): job for job in status["jobs"]}
        begun = [job for key, job in jobs.items() if self._known is not None and key not in self._known]
        self._known = set(jobs)
        if self._notify and begun and status["armed"] and not status["paused"]:
            _tell(begun, status["limits"]["cpus"])
        own_jobs = any(job["user"] == this_user() for job in jobs.values())
        if not own_jobs and _inhibited():  # GNOME does not say whose inhibitor it is, and a job's is none
            with suppress(NoAnswer, Failed):  # another has the screen now
                ask(self._path, {"do": "inhibited", "seconds": _BELIEVED_S})


def follow(path: Path, *, notify: bool, period_s: float = _PERIOD_S) -> None:
    """Look again and again, until the session's bus has gone. Raises :class:`Failed` where there is none."""
    if not _bus_is_there():
        raise Failed("there is no desktop session here: DBUS_SESSION_BUS_ADDRESS names no bus that is there")
    session = Session(path, notify=notify)
    while _bus_is_there():
        session.look()
        time.sleep(period_s)


def _tell(jobs: Sequence[dict[str, Any]], cpus: float | None) -> None:
    """One notification for all that have begun since the last look."""
    named = ", ".join(f"job {job['job']} of {html.escape(str(job['user']))}" for job in jobs[:_NAMED])
    more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
    most = "" if cpus is None else f" They have at most {cpus:g} CPU{'s' * (cpus != 1)} while you are here."
    body = f"{named}{more}.{most} What you can do: cosched desk --help"
    _call(
        "org.freedesktop.Notifications", "/org/freedesktop/Notifications", "org.freedesktop.Notifications",
        "Notify", "susssasa{sv}i", "cosched", "0", "", "Parallel work runs on this computer", body, "0", "0", "10000",
    )  # fmt: skip


def _inhibited() -> bool:
    """Whether a program keeps the desktop from being idle, says GNOME's session manager where there is one."""
    found = _call(
        "org.gnome.SessionManager", "/org/gnome/SessionManager", "org.gnome.SessionManager",
        "IsInhibited", "u", str(_IDLE),
    )  # fmt: skip
    try:
        return bool(json.loads(found)["data"] == [True])
    except (ValueError, KeyError, TypeError):
        return False


def _call(*arguments: str) -> str:
    """What a method of the session's bus answers, as JSON; empty where nobody does."""
    command = ["busctl", "--user", "--json=short", "--auto-start=no", f"--timeout={_PATIENCE_S}", "call", *arguments]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=2 * _PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout if ended.returncode == 0 else ""


def _bus_is_there() -> bool:
    """Whether the session goes on: its bus is a socket with a name, by its address or where systemd puts it."""
    address = os.environ.get("DBUS_SESSION_BUS_ADDRESS") or f"unix:path={os.environ.get('XDG_RUNTIME_DIR', '')}/bus"
    path = address.removeprefix("unix:path=").partition(",")[0]
    return not address.startswith("unix:path=") or Path(path).is_socket()

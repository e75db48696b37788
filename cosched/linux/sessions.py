"""Graphical login sessions on this machine's own screen, by systemd's files and by utmp.

(Those on terminals are seen by their terminals.) That a session is the active one says that somebody has logged in and
not who sits there now; how long its keyboard has been idle, only its display server knows, and logind where that tells
it. What they say is given as ``idle`` to :func:`reading`; nothing known of a session means that somebody is there.
"""

import contextlib
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from cosched.linux.presence_reading import Reading
from cosched.linux.users import NOBODY

_GRAPHICAL = frozenset({"x11", "wayland", "mir"})
_USER_PROCESS: Final = 7  # utmp(5)
_UTMP_LINE: Final = slice(8, 40)
_UTMP_HOST: Final = slice(76, 332)


class Session(NamedTuple):
    """A session that is shown on this machine's screen. ``id`` is logind's name for it, empty where utmp alone has it.

    ``display`` is X's, such as ``:0``; empty where there is none (Wayland). ``leader`` is its first process.
    """

    id: str
    uid: int
    display: str
    leader: int
    graphical: bool


def active(run: Path = Path("/run")) -> list[Session] | None:
    """The graphical sessions on the screen now; None where nothing keeps a list of sessions. Raises OSError."""
    listed, records = _listed(run), _records(run)
    if listed is None and not records:
        return None
    shown = [session for session in listed or () if session.graphical]
    if not shown:  # where logind knows of none, a display manager may still have told utmp
        shown = [session for session in _of_utmp(records) if session.graphical]
    return shown


def local_users(run: Path = Path("/run"), dev: Path = Path("/dev")) -> set[int]:
    """Who is logged in at this very machine: active sessions, and who has its consoles. Nobody from afar."""
    told: set[int] = set()
    seen: set[int] = set()  # owners of files and processes, where NOBODY stands for all without a number here
    with contextlib.suppress(OSError):
        told |= {session.uid for session in _listed(run) or ()}
    with contextlib.suppress(OSError):
        seen |= {session.uid for session in _of_utmp(_records(run))}
    with contextlib.suppress(OSError), os.scandir(dev) as entries:
        for entry in entries:
            if entry.name.startswith("tty") and entry.name[3:].isdigit():
                with contextlib.suppress(OSError):
                    seen.add(entry.stat().st_uid)
    return (told | seen - {NOBODY}) - {-1}


def _listed(run: Path) -> list[Session] | None:
    """People's active sessions at this machine, as systemd has them; None where it has no list. Raises OSError."""
    try:
        paths = sorted(path for path in (run / "systemd/sessions").iterdir() if path.is_file())
    except FileNotFoundError:
        return None
    return [session for path in paths if (session := _session(path))] if paths else None


def _records(run: Path) -> bytes:
    try:
        return (run / "utmp").read_bytes()
    except FileNotFoundError:
        return b""


def reading(found: list[Session] | None, idle: Callable[[Session], float | None]) -> Reading:
    """For how long all sessions together have been idle; ``idle`` is asked for one's seconds, None: not known."""
    if found is None:
        return Reading("sessions", None)
    idle_s = float("inf")
    for session in found:
        known_s = idle(session)
        idle_s = min(idle_s, 0.0 if known_s is None else known_s)
    return Reading("sessions", idle_s)


def _session(path: Path) -> Session | None:
    """A session's file; None for one that is not shown, not a person's, or remote."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return None  # logged out since
    fields = dict(line.split("=", 1) for line in lines if "=" in line)
    if (
        fields.get("ACTIVE") != "1"
        or fields.get("REMOTE", "0") != "0"
        or not fields.get("CLASS", "user").startswith("user")
    ):
        return None
    return Session(
        path.name,
        _number(fields, "UID"),
        fields.get("DISPLAY", ""),
        _number(fields, "LEADER"),
        fields.get("TYPE") in _GRAPHICAL,
    )


def _number(fields: dict[str, str], key: str) -> int:
    text = fields.get(key, "")
    return int(text) if text.isdecimal() else -1


def _of_utmp(records: bytes) -> list[Session]:
    """Those of utmp that came from nowhere else: on a display or a console of this machine."""
    size = 384 if os.uname().machine in {"x86_64", "i386", "i686"} else 400  # utmp(5): widths of the last fields differ
    found = []
    for at in range(0, len(records) - size + 1, size):
        record = records[at : at + size]
        kind, pid = struct.unpack_from("=hxxi", record)
        line, host = (record[part].partition(b"\0")[0] for part in (_UTMP_LINE, _UTMP_HOST))
        if kind == _USER_PROCESS and (not host or host.startswith(b":")):
            try:
                uid = os.stat(f"/proc/{pid}").st_uid
            except FileNotFoundError:
                continue
            display = os.fsdecode(line) if line.startswith(b":") else ""
            found.append(Session("", uid, display, pid, bool(display)))
    return found

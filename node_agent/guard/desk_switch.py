"""The owner's own switch: parallel work on this desk is paused, and goes on, without anybody else being asked.

One JSON object there and one back (``guard.desk_doors`` has the sockets). ``status`` is answered to all, ``pause`` and
``resume`` to root, to the guard's own user, to those that ``security.desk_users`` names and to whoever is logged in at
this very machine (``linux.sessions.local_users``).

Paused means that every job's processes on this node are frozen, that nothing new starts here, and that time limits of
jobs do not run. A pause outlives the guard, and a restart of the machine too, by the wall clock then.
"""

import contextlib
import json
import os
import pwd
from collections.abc import Callable
from typing import Any, Final

from cosched.linux import process
from cosched.linux.sessions import local_users
from node_agent.guard.desk_doors import DeskDoors
from node_agent.guard.loop import Loop
from node_agent.guard.pause import LONGEST_PAUSE_S, Pause
from node_agent.guard.requests import Refusal

#: How often it is looked who is logged in, and so has a door of his own.
_LOOK_US: Final = 10 * process.US_PER_S


class Desk:
    """What is said at the desk, and what a pause does.

    ``hold(paused, since_us)`` stops and frees all jobs, for a pause that began then; ``changed()`` is called after.
    """

    def __init__(
        self,
        loop: Loop,
        run: str,
        pause: Pause,
        users: tuple[str, ...],
        hold: Callable[[bool, int], None],
        status: Callable[[], dict[str, Any]],
        changed: Callable[[], None],
    ) -> None:
        """Raises OSError where the sockets cannot be made. A pause that is on record is in force at once."""
        self.pause = pause
        self._users = users
        self._hold = hold
        self._status = status
        self._changed = changed
        self._doors = DeskDoors(loop, run, self._heard)
        self._look_us = 0
        self._uids = _uids(users)  # once: where names are on a network, each look may take its time
        if pause.why:
            hold(True, self.pause.since_us or process.boottime_us())

    def due_us(self) -> int:
        """When :meth:`tick` is wanted."""
        moments = (self.pause.until_us, self._doors.due_us(), self._look_us)
        return min(each for each in moments if each is not None)

    def tick(self, now_us: int) -> None:
        """End a pause whose time is over; put out guests who say nothing; doors for those who decide here."""
        if self.pause.until_us is not None and now_us >= self.pause.until_us:
            self._resume()
        self._doors.tick(now_us)
        if now_us >= self._look_us:
            self._look_us = now_us + _LOOK_US
            self._doors.open_for({0, os.geteuid()} | local_users() | self._uids)

    def close(self) -> None:
        """Listen no more."""
        self._doors.close()

    def status_fields(self) -> dict[str, Any]:
        """For ``status``, the agent's too: why nothing runs here, and until when."""
        return {"paused": self.pause.why, "paused_until_us": self.pause.until_us, "pauses": self.pause.count}

    def _heard(self, packet: bytes, uid: int) -> bytes:
        return json.dumps(self._answered(packet, uid)).encode()

    def _answered(self, packet: bytes, uid: int) -> dict[str, Any]:
        try:
            return {"ok": True, **self._obeyed(packet, uid)}
        except Refusal as refusal:
            return {"error": refusal.code, "message": str(refusal)}
        except OSError as error:
            return {"error": "failed", "message": f"{error.filename or 'the system'}: {error.strerror or error}"}

    def _obeyed(self, packet: bytes, uid: int) -> dict[str, Any]:
        try:
            asked = json.loads(packet)
        except (ValueError, RecursionError):
            raise Refusal("unknown", "not JSON") from None
        do = asked.get("do") if isinstance(asked, dict) else None
        if not isinstance(do, str) or do not in {"status", "pause", "resume"}:
            raise Refusal("unknown", "do: expected status, pause or resume")
        seconds = _seconds(asked.get("seconds"))
        if do != "status":
            self._may(uid)
        if do == "pause":
            self._begin(_user(uid), seconds)
        elif do == "resume" and self.pause.why:
            self._resume()
        return {**self._status(), **self.status_fields()}

    def _begin(self, user: str, seconds: float | None) -> None:
        self.pause.begin(user, seconds)
        self._hold(True, self.pause.since_us or process.boottime_us())
        self._changed()

    def _resume(self) -> None:
        since_us = self.pause.since_us or process.boottime_us()
        self.pause.end()
        self._hold(False, since_us)
        self._changed()

    def _may(self, uid: int) -> None:
        """Raises :class:`Refusal` for those who have no say about this desk."""
        if uid in {0, os.geteuid()} or _user(uid) in self._users or uid in local_users():
            return
        raise Refusal(
            "user",
            f"{_user(uid)} is not logged in at this machine itself: only who is, root, and those that "
            "security.desk_users names decide about this desk",
        )


def _seconds(value: object) -> float | None:
    """For how long, in seconds; None: until resumed. Raises :class:`Refusal`."""
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= LONGEST_PAUSE_S:
        return value
    found = repr(value)[:80] if isinstance(value, (int, float, str)) else f"a {type(value).__name__}"
    raise Refusal("unknown", f"seconds: found {found}; expected a number above 0, up to {LONGEST_PAUSE_S}")


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _uids(names: tuple[str, ...]) -> set[int]:
    found = set()
    for name in names:
        with contextlib.suppress(KeyError):
            found.add(pwd.getpwnam(name).pw_uid)
    return found

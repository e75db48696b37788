"""The owner's own switch: parallel work on this desk is paused, and goes on, without anybody else being asked.

A socket of its own, ``run/desk.sock``, that everybody on this machine may connect to: one JSON object there and one
back. ``status`` is answered to all, ``pause`` and ``resume`` to root, to the guard's own user, to those that
``security.desk_users`` names and to whoever is logged in at this very machine (``linux.sessions.local_users``).

Paused means that every job's processes on this node are frozen, that nothing new starts here, and that time limits of
jobs do not run. A pause outlives the guard, and a restart of the machine too, by the wall clock then.
"""

import contextlib
import json
import os
import pwd
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, Final

from node_agent.guard.loop import Loop
from node_agent.guard.records import Records
from node_agent.guard.requests import Refusal
from node_agent.linux import process
from node_agent.linux.sessions import local_users

SOCKET_NAME: Final = "desk.sock"
LONGEST_PAUSE_S: Final = 366 * 24 * 3600
OPTED_OUT: Final = "its owner takes part in no parallel work (parallel = false in node.toml)"
_MAX_BYTES: Final = 4096
_MAX_GUESTS: Final = 16
_PATIENCE_US: Final = 5 * process.US_PER_S
_PEER: Final = struct.Struct("iII")


class Pause:
    """Whether parallel work is paused on this desk, by whom, and until when (us since boot; None: until resumed)."""

    def __init__(self, records: Records, boot_id: str, *, opted_out: bool) -> None:
        """Take up what a predecessor has left on record."""
        self._records = records
        self._boot_id = boot_id
        self._opted_out = opted_out
        self.since_us: int | None = None
        self.until_us: int | None = None
        self.user = ""
        found = records.pause()
        if opted_out:
            self.since_us = process.boottime_us()
        elif found is not None:
            self._take_up(found)

    @property
    def why(self) -> str:
        """Why nothing runs here; empty where parallel work is welcome."""
        if self._opted_out:
            return OPTED_OUT
        return f"{self.user} has paused parallel work at this desk" if self.since_us is not None else ""

    def begin(self, user: str, seconds: float | None) -> None:
        """From now on, for so long (None: until resumed). A second pause replaces the end of the first."""
        if self._opted_out:
            raise Refusal("busy", OPTED_OUT)
        now_us = process.boottime_us()
        self.since_us = now_us if self.since_us is None else self.since_us
        self.until_us = None if seconds is None else now_us + round(seconds * process.US_PER_S)
        self.user = user
        until_s = None if seconds is None else time.time() + seconds
        self._records.write_pause(
            {"user": user, "since_us": self.since_us, "until_us": self.until_us, "until_s": until_s}, self._boot_id
        )

    def end(self) -> None:
        """Parallel work goes on."""
        if self._opted_out:
            raise Refusal("busy", OPTED_OUT)
        self.since_us = self.until_us = None
        self._records.drop_pause()

    def _take_up(self, found: dict[str, Any]) -> None:
        now_us = process.boottime_us()
        until_us, until_s = found.get("until_us"), found.get("until_s")
        if found.get("boot_id") != self._boot_id and until_s is not None:
            until_us = now_us + round((float(until_s) - time.time()) * process.US_PER_S)
        if until_us is not None and until_us <= now_us:
            self._records.drop_pause()
            return
        same_boot = found.get("boot_id") == self._boot_id
        self.since_us = int(found["since_us"]) if same_boot else now_us
        self.until_us, self.user = until_us, str(found.get("user", ""))


class Desk:
    """The socket, and what a pause does. ``hold(bool)`` stops and frees all jobs; ``changed()`` is called after."""

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
        """Raises OSError where the socket cannot be made. A pause that is on record is in force at once."""
        self._loop = loop
        self.pause = pause
        self._users = users
        self._hold = hold
        self._status = status
        self._changed = changed
        self._guests: dict[int, socket.socket] = {}
        self._path = os.path.join(run, SOCKET_NAME)
        self._socket = _listening(self._path)
        loop.watch(self._socket.fileno(), self._knocked)
        if pause.why:
            hold(True, 0)

    def due_us(self) -> int | None:
        """When :meth:`tick` is wanted; None: no end is set."""
        return self.pause.until_us

    def tick(self, now_us: int) -> None:
        """End a pause whose time is over."""
        if self.pause.until_us is not None and now_us >= self.pause.until_us:
            self._resume()

    def close(self) -> None:
        """Listen no more."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        self._socket.close()

    def shown(self) -> dict[str, Any]:
        """For ``status``, the agent's too: why nothing runs here, and until when."""
        return {"paused": self.pause.why, "paused_until_us": self.pause.until_us}

    def _knocked(self) -> None:
        try:
            fresh, _ = self._socket.accept()
        except OSError:
            return
        if len(self._guests) >= _MAX_GUESTS:
            fresh.close()
            return
        fresh.setblocking(False)
        fd = fresh.fileno()
        self._guests[fd] = fresh
        self._loop.watch(fd, lambda: self._hear(fresh), on_failed=lambda: self._leave(fd, fresh))
        self._loop.later(_PATIENCE_US, lambda: self._leave(fd, fresh))

    def _leave(self, fd: int, guest: socket.socket) -> None:
        if self._guests.get(fd) is guest:
            del self._guests[fd]
            self._loop.unwatch(fd)
            guest.close()

    def _hear(self, guest: socket.socket) -> None:
        fd = guest.fileno()
        try:
            packet = guest.recv(_MAX_BYTES)
            _, uid, _ = _PEER.unpack(guest.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
            answer = self._answered(packet, uid) if packet else None
            if answer is not None:
                guest.send(json.dumps(answer).encode())
        except OSError:
            pass  # who asked has gone
        self._leave(fd, guest)

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
        return {**self._status(), **self.shown()}

    def _begin(self, user: str, seconds: float | None) -> None:
        self.pause.begin(user, seconds)
        self._hold(True, 0)
        self._changed()

    def _resume(self) -> None:
        since_us = self.pause.since_us
        self.pause.end()
        self._hold(False, 0 if since_us is None else process.boottime_us() - since_us)
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


def _listening(path: str) -> socket.socket:
    """A socket that everybody may connect to, in place of a predecessor's. Raises OSError."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    mask = os.umask(0o111)
    try:
        listening.bind(path)
    finally:
        os.umask(mask)
    listening.listen(_MAX_GUESTS)
    return listening

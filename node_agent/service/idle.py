"""How long the sessions on this machine's screen have been idle, from those who know: X displays and logind.

Nobody else sees what the owner of a graphical session does. An X display is watched by a process of its own
(:mod:`cosched.linux.display`), which tells at once when it was touched; logind passes on what the desktop tells it,
which some never do: its hint counts only when it says idle. Where both speak, the more recent sign wins. Both are asked
only while a session is there; logind, who costs a process each time, seldom, unless nobody else would notice.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable
from typing import Final

from cosched.linux.sessions import Session
from node_agent.service import logind

_ENDS_WITHIN_S: Final = 1.0
_STALE_S: Final = 5.0  # what a display has not said for so long, it has not said
_RETRY_S: Final = 30.0
_ASK_LOGIND_S: Final = 5.0
#: A display that was touched no longer ago than this has somebody now.
_TOUCHED_S: Final = 1.0


class IdleTimes:
    """What is known of the idle times of graphical sessions. ``on_touched`` is called when a display was."""

    def __init__(self, on_touched: Callable[[], None] = lambda: None) -> None:
        self._on_touched = on_touched
        self._displays: dict[str, _Watched] = {}
        self._hints: dict[str, tuple[float | None, float]] = {}  # session -> idle since (s since boot; None: is not)
        self._asked_s = float("-inf")
        self.problem = ""

    def of(self, session: Session) -> float | None:
        """Seconds for which nobody has used a session; None where nobody can say."""
        now_s = time.monotonic()
        shown_s = self._shown_idle_s(session, now_s)
        since_s, asked_s = self._hints.get(session.id, (None, float("-inf")))
        if now_s - asked_s >= _STALE_S + _ASK_LOGIND_S:
            return shown_s
        if since_s is None:  # in use, says logind
            return 0.0 if shown_s is None else shown_s
        return min(each for each in (shown_s, max(0.0, now_s - since_s)) if each is not None)

    def _shown_idle_s(self, session: Session, now_s: float) -> float | None:
        """What its display says; None where it has none, or that says nothing."""
        display = self._displays.get(session.display)
        return None if display is None else display.idle_s(now_s)

    async def follow(self, sessions: Iterable[Session], *, alone: bool = False) -> None:
        """Watch these sessions, and no others any more. ``alone``: no input device tells of their owners."""
        there = list(sessions)
        wanted = {session.display: session for session in there if session.display}
        for name in self._displays.keys() - wanted.keys():
            await self._displays.pop(name).close()
        for name, session in wanted.items():
            await self._displays.setdefault(name, _Watched(name, self._on_touched)).keep(session)
        self.problem = next((each.problem for each in self._displays.values() if each.problem), "")
        now_s = time.monotonic()
        unseen = alone and any(self._shown_idle_s(each, now_s) is None for each in there)
        if unseen or now_s - self._asked_s >= _ASK_LOGIND_S:
            self._asked_s = time.monotonic()
            self._hints = {each.id: hint for each in there if each.id and (hint := await _hint(each.id)) is not None}

    async def close(self) -> None:
        """Watch nothing any more."""
        for display in self._displays.values():
            await display.close()
        self._displays.clear()


class _Watched:
    """One X display and the process that asks it."""

    def __init__(self, name: str, on_touched: Callable[[], None]) -> None:
        self._name = name
        self._on_touched = on_touched
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._again_s = float("-inf")
        self._said: tuple[float, float] | None = None  # idle seconds, and when that was said
        self.problem = ""

    def idle_s(self, now_s: float) -> float | None:
        if self._said is None or now_s - self._said[1] > _STALE_S:
            return None
        return self._said[0] + now_s - self._said[1]

    async def keep(self, session: Session) -> None:
        """Start the process, if there is none and it is time to try."""
        if self._process is not None or time.monotonic() < self._again_s:
            return
        self._again_s = time.monotonic() + _RETRY_S
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-m", "cosched.linux.display", self._name, str(session.leader), str(session.uid),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self._reader = asyncio.create_task(self._read(self._process))

    async def close(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        if self._reader is not None:  # one that waits for a file system does not end now
            await asyncio.wait([self._reader], timeout=_ENDS_WITHIN_S)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        async for line in process.stdout:
            with contextlib.suppress(ValueError):
                self._said, self.problem = (int(line) / 1000, time.monotonic()), ""
                if self._said[0] < _TOUCHED_S:
                    self._on_touched()
        story = (await process.stderr.read(1000)).decode(errors="replace").strip().rpartition("\n")[2]
        await process.wait()
        self._process, self._said = None, None
        self.problem = f"display {self._name}: {story or 'no answer'}"


async def _hint(session: str) -> tuple[float | None, float] | None:
    """What logind says of a session: since when it is idle (None: it isn't), and when that was; None: no answer."""
    path = f"{logind.PATH}/session/" + "".join(_labelled(letter, at) for at, letter in enumerate(session))
    try:
        out = await logind.asked(
            "get-property", logind.NAME, path, f"{logind.NAME}.Session", "IdleHint", "IdleSinceHintMonotonic"
        )
        idle, since_us = (json.loads(line)["data"] for line in out.splitlines())
    except (OSError, ValueError, KeyError):
        return None
    return (int(since_us) / 1e6 if idle else None), time.monotonic()


def _labelled(letter: str, at: int) -> str:
    """A letter of a name as it is in the path of a D-Bus object."""
    kept = letter.isascii() and (letter.isalpha() or (at > 0 and letter.isdecimal()))
    return letter if kept else f"_{ord(letter):02x}"

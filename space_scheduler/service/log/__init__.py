"""The service's log: one line for each thing worth knowing, with its numbers.

JSON lines on anything but a terminal, readable ones on a terminal. What a peer can cause at will (bad messages, refused
connections) is logged at most once a minute for each peer and kind, with how often it has happened since, and at most
60 times a minute in all: there may be any number of peers. So are faults of the service itself, for each place in it.
What happens to a job or a node, which its user or its agent may cause again and again, is logged twenty times a minute
for each of them and each kind of event.
"""

import sys
import time
import traceback
from collections.abc import Callable
from datetime import datetime
from typing import Final, TextIO

import msgspec

_QUIET_S: Final = 60.0
#: Of how many peers and kinds it is remembered when they were last logged.
_REMEMBERED: Final = 1000
#: Lines of what peers cause in so many seconds, all together.
_MOST: Final = 60
#: Lines of one kind of event of one job, or one node, in so many seconds; and of how many it is remembered.
_MOST_OF_ONE: Final = 20
_SUBJECTS: Final = 10_000
_LONGEST_TRACE: Final = 8000  # characters
_LEVELS: Final = {"info": "info", "warn": "warning"}


class _Rate:
    """So many lines in a minute of each key, at most, for as many keys as are remembered: the oldest are forgotten."""

    def __init__(self, most: int, remembered: int) -> None:
        self._most, self._remembered = most, remembered
        self.minutes: dict[tuple[str, str], tuple[float, int]] = {}  # by key: when it began, and how many lines came

    def begins(self, key: tuple[str, str], now_s: float) -> bool:
        """Whether a line of that key would be the first of a minute."""
        return key not in self.minutes or now_s - self.minutes[key][0] >= _QUIET_S

    def left_out(self, key: tuple[str, str], now_s: float) -> int | None:
        """Count a line: how many were left out in the minute before, if it begins one; None where it is left out."""
        if self.begins(key, now_s):
            _, count = self.minutes.pop(key, (0.0, 0))
            if len(self.minutes) >= self._remembered:
                del self.minutes[next(iter(self.minutes))]
            self.minutes[key] = now_s, 1
            return max(0, count - self._most)
        began_s, count = self.minutes[key]
        self.minutes[key] = began_s, count + 1
        return 0 if count < self._most else None


class Log:
    """Writes lines to a stream. ``now_s`` is a clock that never goes back, for the bounded rate."""

    def __init__(
        self, stream: TextIO | None = None, *, now_s: Callable[[], float] = time.monotonic, people: bool | None = None
    ) -> None:
        """``people``: readable lines instead of JSON; None: where the stream is a terminal."""
        self._stream = stream or sys.stderr
        self._people = self._stream.isatty() if people is None else people
        self._now_s = now_s
        self._peers = _Rate(1, _REMEMBERED)
        self._all_peers = _Rate(_MOST, 1)
        self._subjects = _Rate(_MOST_OF_ONE, _SUBJECTS)

    def info(self, event: str, **fields: object) -> None:
        """What happened."""
        self._write("info", event, fields)

    def warn(self, event: str, **fields: object) -> None:
        """What somebody should look at."""
        self._write("warning", event, fields)

    def of(self, subject: str, level: str, event: str, **fields: object) -> None:
        """What happened to a job or a node: so many lines a minute, the next one with how many were left out."""
        left_out = self._subjects.left_out((event, subject), self._now_s())
        if left_out is not None:
            self._write(_LEVELS[level], event, fields | _before(left_out))

    def fault(self, event: str, error: BaseException, **fields: object) -> None:
        """What the service itself did wrong, with where: once a minute for each place: peers may cause it."""
        at = traceback.extract_tb(error.__traceback__)[-1:]
        place = f"{type(error).__name__} at {at[0].filename}:{at[0].lineno}" if at else type(error).__name__
        if (more := self._again(place, event)) is not None:
            trace = "".join(traceback.format_exception(error))[-_LONGEST_TRACE:]
            said = {"error": f"{type(error).__name__}: {error}"[:_LONGEST_TRACE], "trace": trace}
            self._write("error", event, fields | said | more)

    def peer(self, peer: str, kind: str, **fields: object) -> None:
        """What a peer did wrong: once a minute for each peer and kind, with how often since the last line."""
        if (more := self._again(peer, kind)) is not None:
            self._write("warning", kind, {"peer": peer, **fields, **more})

    def _again(self, peer: str, kind: str) -> dict[str, object] | None:
        """What to add to the line, or None where there is to be none now."""
        key, now_s = (peer, kind), self._now_s()
        if self._peers.begins(key, now_s) and not self._room(now_s):
            return None
        left_out = self._peers.left_out(key, now_s)
        return None if left_out is None else _before(left_out)

    def _room(self, now_s: float) -> bool:
        """Whether another line may be written in this minute; of the last one it is said how many were not."""
        left_out = self._all_peers.left_out(("", ""), now_s)
        if left_out:
            self._write("warning", "more of this", {"lines_left_out": left_out})
        return left_out is not None

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        time_now = datetime.now().astimezone()
        if self._people:
            words = " ".join(f"{key}={_plain(value)}" for key, value in fields.items() if key != "trace")
            mark = "" if level == "info" else f"{level}: "
            line = f"{time_now:%H:%M:%S} {mark}{event}{' ' if words else ''}{words}"
            line = f"{line}\n{fields['trace']}" if "trace" in fields else line
        else:
            document = {"time": time_now.isoformat(timespec="milliseconds"), "level": level, "event": event, **fields}
            line = msgspec.json.encode(document, enc_hook=str).decode()
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # nobody reads it any more: the jobs matter more than the log
            pass


def _before(left_out: int) -> dict[str, object]:
    return {"times_before": left_out} if left_out else {}


def _plain(value: object) -> str:
    text = str(value)
    text = text if text.isprintable() else repr(text)
    return f'"{text}"' if " " in text or not text else text

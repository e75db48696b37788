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


class Log:
    """Writes lines to a stream. ``now_s`` is a clock that never goes back, for the bounded rate."""

    def __init__(
        self, stream: TextIO | None = None, *, now_s: Callable[[], float] = time.monotonic, people: bool | None = None
    ) -> None:
        """``people``: readable lines instead of JSON; None: where the stream is a terminal."""
        self._stream = stream or sys.stderr
        self._people = self._stream.isatty() if people is None else people
        self._now_s = now_s
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}
        self._began_s, self._said, self._left_out = now_s(), 0, 0
        self._lines: dict[tuple[str, str], tuple[float, int]] = {}

    def info(self, event: str, **fields: object) -> None:
        """What happened."""
        self._write("info", event, fields)

    def warn(self, event: str, **fields: object) -> None:
        """What somebody should look at."""
        self._write("warning", event, fields)

    def of(self, subject: str, level: str, event: str, **fields: object) -> None:
        """What happened to a job or a node: so many lines a minute, the next one with how many were left out."""
        now_s = self._now_s()
        began_s, count = self._lines.get((event, subject), (now_s, 0))
        fresh = not count or now_s - began_s >= _QUIET_S
        if fresh:
            self._lines.pop((event, subject), None)
            if len(self._lines) >= _SUBJECTS:
                del self._lines[next(iter(self._lines))]
        self._lines[event, subject] = (now_s, 1) if fresh else (began_s, count + 1)
        if fresh and count > _MOST_OF_ONE:
            fields["times_before"] = count - _MOST_OF_ONE
        if fresh or count < _MOST_OF_ONE:
            self._write(_LEVELS[level], event, fields)

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
        now_s = self._now_s()
        since_s, times = self._seen.get((peer, kind), (None, 0))
        if since_s is not None and now_s - since_s < _QUIET_S:
            self._seen[peer, kind] = (since_s, times + 1)
            return None
        if not self._room(now_s):
            return None
        if len(self._seen) >= _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._seen.pop((peer, kind), None)
        self._seen[peer, kind] = (now_s, 0)
        return {"times_before": times} if times else {}

    def _room(self, now_s: float) -> bool:
        """Whether another line may be written in this minute; of the last one it is said how many were not."""
        if now_s - self._began_s >= _QUIET_S:
            left_out = self._left_out
            self._began_s, self._said, self._left_out = now_s, 0, 0
            if left_out:
                self._write("warning", "more of this", {"lines_left_out": left_out})
        if self._said >= _MOST:
            self._left_out += 1
            return False
        self._said += 1
        return True

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


def _plain(value: object) -> str:
    text = str(value)
    text = text if text.isprintable() else repr(text)
    return f'"{text}"' if " " in text or not text else text

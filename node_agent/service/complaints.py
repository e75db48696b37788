"""What is refused is counted, and logged once a minute for each peer and kind: nobody fills a disk from outside.

What is done for a job is logged twenty times a minute for each: a job may cause it again and again.
"""

import logging
import time
from collections import Counter
from typing import Final

_EVERY_S: Final = 60.0
#: Of how many peers and kinds it is remembered when they were last logged.
_REMEMBERED: Final = 1000
#: Lines a minute, of all: peers may be many, a log is one.
_MOST_LINES: Final = 100
#: Of one job.
_MOST_OF_ONE: Final = 20
_log = logging.getLogger("cosched.agent")


class Complaints:
    """Refusals: ``counts`` by kind, of all peers together."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._told: dict[tuple[str, str], tuple[float, int]] = {}
        self._lines, self._since_s = 0, 0.0
        self._notes: dict[str, tuple[float, int]] = {}

    def note(self, level: int, text: str) -> None:
        """Log a line of what was done, such as "job 5.1: …": so many a minute of what it begins with."""
        subject = text.partition(":")[0]
        now_s = time.monotonic()
        began_s, count = self._notes.get(subject, (now_s, 0))
        fresh = not count or now_s - began_s >= _EVERY_S
        if fresh:
            self._notes.pop(subject, None)
            if len(self._notes) >= _REMEMBERED:
                del self._notes[next(iter(self._notes))]
        self._notes[subject] = (now_s, 1) if fresh else (began_s, count + 1)
        if fresh or count < _MOST_OF_ONE:
            more = f" ({count - _MOST_OF_ONE} lines of it were left out)" if fresh and count > _MOST_OF_ONE else ""
            _log.log(level, "%s%s", text, more)

    def __call__(self, kind: str, message: str, peer: str = "the scheduler") -> None:
        """Count one, and log it unless one of that peer and kind was logged within the last minute."""
        self.counts[kind] += 1
        now_s = time.monotonic()
        told_s, since = self._told.get((peer, kind), (None, 0))
        if told_s is not None and now_s - told_s < _EVERY_S:
            self._told[peer, kind] = told_s, since + 1
            return
        if now_s - self._since_s >= _EVERY_S:
            self._lines, self._since_s = 0, now_s
        if self._lines >= _MOST_LINES:
            return
        self._lines += 1
        if len(self._told) >= _REMEMBERED:
            del self._told[next(iter(self._told))]
        self._told.pop((peer, kind), None)
        self._told[peer, kind] = now_s, 0
        more = f" ({since} more since it was last said)" if since else ""
        _log.warning("refused, %s, from %s: %s%s", kind, peer, message, more)

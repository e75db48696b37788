"""What is refused is counted, and logged once a minute for each peer and kind: nobody fills a disk from outside."""

import logging
import time
from collections import Counter
from typing import Final

_EVERY_S: Final = 60.0
#: Of how many peers and kinds it is remembered when they were last logged.
_REMEMBERED: Final = 1000
#: Lines a minute, of all: peers may be many, a log is one.
_MOST_LINES: Final = 100
_log = logging.getLogger("cosched.agent")


class Complaints:
    """Refusals: ``counts`` by kind, of all peers together."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._told: dict[tuple[str, str], tuple[float, int]] = {}
        self._lines, self._since_s = 0, 0.0

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

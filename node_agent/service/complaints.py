"""What is refused is counted, and logged once a minute for each kind: nobody fills a disk from outside."""

import logging
import time
from collections import Counter

_EVERY_S = 60.0
_log = logging.getLogger("cosched.agent")


class Complaints:
    """Refusals by kind."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._told_s: dict[str, float] = {}

    def __call__(self, kind: str, message: str) -> None:
        """Count one, and log it unless its kind was logged within the last minute."""
        self.counts[kind] += 1
        now_s = time.monotonic()
        if now_s - self._told_s.get(kind, -_EVERY_S) >= _EVERY_S:
            self._told_s[kind] = now_s
            _log.warning("refused, %s: %s (%d so far)", kind, message, self.counts[kind])

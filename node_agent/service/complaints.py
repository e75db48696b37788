"""What is refused is counted, and logged once a minute for each peer and kind: nobody fills a disk from outside.

What is done for a job is logged twenty times a minute for each: a job may cause it again and again.
"""

import logging
import time
from collections import Counter
from collections.abc import Hashable
from typing import Any, Final

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
        self._lines: dict[str, tuple[float, int]] = {}
        self._notes: dict[str, tuple[float, int]] = {}

    def note(self, level: int, text: str) -> None:
        """Log a line of what was done, such as "job 5.1: …": so many a minute of what it begins with."""
        if (left_out := _passed(self._notes, text.partition(":")[0], _MOST_OF_ONE)) is not None:
            _log.log(level, "%s%s", text, f" ({left_out} lines of it were left out)" if left_out else "")

    def __call__(self, kind: str, message: str, peer: str = "the scheduler") -> None:
        """Count one, and log it unless one of that peer and kind was logged within the last minute."""
        self.counts[kind] += 1
        if (left_out := _passed(self._told, (peer, kind), 1)) is None:
            return
        if _passed(self._lines, "of all peers", _MOST_LINES) is None:
            del self._told[peer, kind]  # it was not logged
            return
        more = f" ({left_out} more since it was last said)" if left_out else ""
        _log.warning("refused, %s, from %s: %s%s", kind, peer, message, more)


def log_change(before: str, problem: str, message: str, *values: object, level: int = logging.WARNING) -> str:
    """Log a problem when it is another one than before, not at every try. Returns the problem.

    ``message`` has places for ``values`` and for the problem, which is the last.
    """
    if problem != before:
        _log.log(level, message, *values, problem)
    return problem


def _passed(counts: dict[Any, tuple[float, int]], key: Hashable, most: int) -> int | None:
    """How many were left out before this one, which is among the first ``most`` of its minute; None where it is not."""
    now_s = time.monotonic()
    began_s, count = counts.get(key, (now_s, 0))
    if count and now_s - began_s < _EVERY_S:
        counts[key] = began_s, count + 1
        return 0 if count < most else None
    counts.pop(key, None)
    if len(counts) >= _REMEMBERED:
        del counts[next(iter(counts))]
    counts[key] = now_s, 1
    return max(0, count - most)

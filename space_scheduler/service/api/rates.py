"""How fast one user may ask: as often as in a minute at once, and again as time passes (a token bucket)."""

import time
from collections.abc import Callable
from itertools import islice
from typing import Final

from space_scheduler.service.access.problems import Refusal

_MINUTE_S: Final = 60.0


class Rates:
    """One bucket for each user that has asked lately."""

    def __init__(self, per_minute: int, now_s: Callable[[], float] = time.monotonic) -> None:
        """``per_minute`` 0: as fast as they like."""
        self._per_minute = per_minute
        self._now_s = now_s
        self._left: dict[str, tuple[float, float]] = {}  # tokens, and at what time; who is not here has all

    def wait_s(self, user: str) -> float:
        """Take one; 0, or the seconds until there is one again."""
        if not self._per_minute:
            return 0.0
        now_s, pace = self._now_s(), self._per_minute / _MINUTE_S
        tokens, at_s = self._left.pop(user, (float(self._per_minute), now_s))
        tokens = min(float(self._per_minute), tokens + (now_s - at_s) * pace)
        taken = tokens >= 1
        self._left[user] = (tokens - taken, now_s)
        for other, (_, used_s) in list(islice(self._left.items(), 2)):  # by the order in which they came last
            if now_s - used_s > _MINUTE_S:  # its bucket is full again
                del self._left[other]
        return 0.0 if taken else (1 - tokens) / pace

    def take(self, user: str, does: str) -> None:
        """Take one for what that user does. Raises :class:`Refusal`, with the time to wait."""
        if wait_s := self.wait_s(user):
            raise Refusal(429, f"{user} {does} too often; again in {wait_s:.3g} s", retry_after_s=wait_s)

    def give_back(self, user: str) -> None:
        """What was taken came to nothing."""
        if user in self._left:
            tokens, at_s = self._left[user]
            self._left[user] = (tokens + 1, at_s)

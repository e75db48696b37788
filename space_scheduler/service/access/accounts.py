"""The numbers by which policies tell users apart, and what is remembered of them.

A directory service may be slow, or away: who must not wait asks :class:`Remembered`, whose look-ups have a thread of
their own. An account that is not found may be there all the same (a service that is away says the same), so it is
looked up again later, and what was found once is not forgotten for that.
"""

import asyncio
import pwd
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, TypeVar

Asked = TypeVar("Asked")
Found = TypeVar("Found")

#: So many answers are kept; who is asked for more forgets the oldest.
_MOST: Final = 10_000
#: How long an answer is not asked for again: one that was found, and none.
_FRESH_S: Final = 600.0
_AGAIN_S: Final = 60.0


def user_number(name: str) -> int:
    """That of a user of this host; -1 for one that this host does not know."""
    found = number_of(name)
    return -1 if found is None else found


def number_of(name: str) -> int | None:
    """The number of a user; None: not known, or not to be found out now."""
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError, OSError):
        return None


def name_of(number: int) -> str | None:
    """The name of a user's number; None: not known, or not to be found out now."""
    try:
        return pwd.getpwuid(number).pw_name
    except (KeyError, OverflowError, OSError):
        return None


class Remembered(Generic[Asked, Found]):
    """Answers of a slow service. All methods are called on one event loop."""

    def __init__(self, look_up: Callable[[Asked], Found | None], now_s: Callable[[], float] = time.monotonic) -> None:
        self._look_up = look_up
        self._now_s = now_s
        self._answers: dict[Asked, Found | None] = {}
        self._again_s: dict[Asked, float] = {}
        self._thread = ThreadPoolExecutor(1, "accounts")

    def get(self, asked: Asked) -> Found | None:
        """What was found last; None: nothing yet."""
        return self._answers.get(asked)

    def due(self, asked: Iterable[Asked]) -> tuple[Asked, ...]:
        """Those that are to be looked up (again)."""
        now_s = self._now_s()
        return tuple(each for each in asked if self._again_s.get(each, now_s) <= now_s)

    def look_up(self, asked: tuple[Asked, ...]) -> asyncio.Future[dict[Asked, Found | None]]:
        """Look them up, beside everything else; done when what was found can be had."""
        now_s = self._now_s()
        for each in asked:
            self._again_s.pop(each, None)
            self._again_s[each] = now_s + _AGAIN_S  # also where no answer comes
        while len(self._again_s) > _MOST:
            oldest = next(iter(self._again_s))
            del self._again_s[oldest]
            self._answers.pop(oldest, None)
        look_up = self._look_up
        future = asyncio.get_running_loop().run_in_executor(
            self._thread, lambda: {each: look_up(each) for each in asked}
        )
        future.add_done_callback(self._take_in)
        return future

    def _take_in(self, future: asyncio.Future[dict[Asked, Found | None]]) -> None:
        if future.cancelled() or future.exception() is not None:
            return
        for asked, found in future.result().items():
            if asked in self._again_s and found is not None:
                self._answers[asked] = found
                self._again_s[asked] = self._now_s() + _FRESH_S

    def close(self) -> None:
        """Look up nothing more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

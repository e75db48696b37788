"""What the host's name services (NSS) say, which may be a directory of the whole site: slow, or silent for a while.

They are asked in threads of their own, and the event loop reads what is known. An answer counts for a while, so a
change is seen within that time, and no flood of requests reaches the directory: of each key there is one question at a
time, for whose answer several may wait. A question that fails leaves the answer before: a service that is away, and one
that knows a key no more, say the same.
"""

import asyncio
import math
import time
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, TypeVar

from space_scheduler.service.access import newest

#: Within which a change is seen.
LASTS_S: Final = 30.0
_THREADS: Final = 4

Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")


class Lookups(Generic[Key, Found]):
    """Answers by key, the one that was asked for first at the beginning. All methods are called on one event loop."""

    def __init__(
        self,
        ask: Callable[[Key], Found],
        now_s: Callable[[], float] = time.monotonic,
        lasts_s: float = LASTS_S,
        failure_lasts_s: float = 0.0,
    ) -> None:
        """``ask`` raises what :meth:`learn` is to raise; an answer counts for ``lasts_s``, a failure for less."""
        self._ask = ask
        self._now_s = now_s
        self._lasts_s = lasts_s
        self._failure_lasts_s = failure_lasts_s
        self._known: dict[Key, tuple[float, Found]] = {}
        self._failed: dict[Key, tuple[float, BaseException]] = {}
        self._asked_s: dict[Key, float] = {}
        self._asking: dict[Key, asyncio.Future[Found]] = {}
        self._threads = ThreadPoolExecutor(_THREADS, "names")

    async def learn(self, key: Key) -> Found:
        """Have an answer that is not too old; that answer."""
        known = self._known.get(key)
        if known is not None and self._now_s() - known[0] < self._lasts_s:
            return known[1]
        failed = self._failed.get(key)
        if failed is not None and self._now_s() - failed[0] < self._failure_lasts_s:
            raise failed[1].with_traceback(None)
        asking = self._asking.get(key)
        if asking is None:
            asking = asyncio.get_running_loop().run_in_executor(self._threads, self._ask, key)
            self._asking[key] = asking
            newest.put(self._asked_s, key, self._now_s())
            asking.add_done_callback(lambda answered: self._answered(key, answered))
        try:
            return await asyncio.shield(asking)  # others wait for it, too
        finally:
            if asking.done():  # whoever finds the answer first writes it down: its callbacks may be still to come
                self._answered(key, asking)

    async def learn_or_last(self, key: Key, at_most_s: float) -> Found | None:
        """As :meth:`learn`; where the key is not known, or not now, the last answer, if it is not older than that."""
        try:
            return await self.learn(key)
        except KeyError:
            return self.get(key, at_most_s)

    def due(self, keys: Iterable[Key]) -> list[Key]:
        """Those that nobody has asked for, in vain or not, for as long as an answer counts."""
        now_s = self._now_s()
        return [key for key in keys if now_s - self._asked_s.get(key, now_s - self._lasts_s) >= self._lasts_s]

    def get(self, key: Key, at_most_s: float = math.inf) -> Found | None:
        """The last answer, if it is not older than that; None where nobody has asked."""
        known = self._known.get(key)
        return None if known is None or self._now_s() - known[0] > at_most_s else known[1]

    def _answered(self, key: Key, answered: "asyncio.Future[Found]") -> None:
        if self._asking.get(key) is answered:
            del self._asking[key]
            if answered.cancelled():
                return
            if (why := answered.exception()) is None:
                newest.put(self._known, key, (self._now_s(), answered.result()))
            else:
                newest.put(self._failed, key, (self._now_s(), why))

    def close(self) -> None:
        """Ask nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

"""What the host's name services (NSS) say, which may be a directory of the whole site: slow, or silent for a while.

They are asked in threads of their own, and the event loop reads what is known. An answer counts for :data:`LASTS_S`, so
a change is seen within that time, and no flood of requests reaches the directory: of each key there is one question at
a time, for whom several may wait.
"""

import asyncio
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, TypeVar

#: Within which a change is seen.
LASTS_S: Final = 30.0
_MOST: Final = 10_000
_THREADS: Final = 4

Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")


class Lookups(Generic[Key, Found]):
    """Answers by key, the one that was asked for first at the beginning."""

    def __init__(self, ask: Callable[[Key], Found], now_s: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._now_s = now_s
        self._known: dict[Key, tuple[float, Found]] = {}
        self._asking: dict[Key, asyncio.Future[Found]] = {}
        self._threads = ThreadPoolExecutor(_THREADS, "names")

    async def learn(self, key: Key) -> Found:
        """Have an answer that is not too old; that answer."""
        known = self._known.get(key)
        if known is not None and self._now_s() - known[0] < LASTS_S:
            return known[1]
        asking = self._asking.get(key)
        if asking is None:
            asking = asyncio.get_running_loop().run_in_executor(self._threads, self._ask, key)
            self._asking[key] = asking
            asking.add_done_callback(lambda answered: self._answered(key, answered))
        return await asyncio.shield(asking)  # others wait for it, too

    def get(self, key: Key) -> Found | None:
        """The last answer, however old; None where nobody has asked."""
        known = self._known.get(key)
        return None if known is None else known[1]

    def _answered(self, key: Key, answered: "asyncio.Future[Found]") -> None:
        del self._asking[key]
        if answered.cancelled() or answered.exception() is not None:
            return
        self._known.pop(key, None)
        self._known[key] = self._now_s(), answered.result()
        if len(self._known) > _MOST:
            del self._known[next(iter(self._known))]

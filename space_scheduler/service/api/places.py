"""Places for what is costly while it lasts: so many for each user, so many in all, and so many users' wishes waiting.

Whoever asks beyond his own places waits for himself alone; whoever is within them waits for all the others.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from space_scheduler.service.access.problems import Refusal

_AGAIN_S = 1.0


class Places:
    """Places of one kind."""

    def __init__(self, of_one_user: int, in_all: int, waiting: int) -> None:
        """``waiting``: how many of one user may wait for his own places; more are refused."""
        self._of_one_user = of_one_user
        self._most = of_one_user + waiting
        self._all = asyncio.Semaphore(in_all)
        self._own: dict[str, asyncio.Semaphore] = {}
        self._here: Counter[str] = Counter()  # of each user: those with a place, and those that wait

    @asynccontextmanager
    async def place_of(self, user: str, what: str) -> AsyncIterator[None]:
        """A place, kept inside. Raises :class:`Refusal` (429) where too many of this user's wait already."""
        if self._here[user] >= self._most:
            raise Refusal(
                429,
                f"{self._here[user]} {what} of {user} are here already; again in {_AGAIN_S:g} s",
                retry_after_s=_AGAIN_S,
            )
        self._here[user] += 1
        try:
            async with self._own.setdefault(user, asyncio.Semaphore(self._of_one_user)), self._all:
                yield
        finally:
            self._here[user] -= 1
            if not self._here[user]:
                del self._here[user], self._own[user]

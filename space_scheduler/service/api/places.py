"""Places for what is costly while it lasts: so many for each user, so many in all, and so many users' wishes waiting.

Whoever asks beyond his own places waits for himself alone; whoever is within them waits for all the others.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from space_scheduler.service.access.problems import Refusal

_AGAIN_S = 1.0


class _User:
    def __init__(self, places: int) -> None:
        self.places = asyncio.Semaphore(places)
        self.here = 0


class Places:
    """Places of one kind."""

    def __init__(self, of_one_user: int, in_all: int, waiting: int) -> None:
        """``waiting``: how many of one user may wait for his own places; more are refused."""
        self._of_one_user = of_one_user
        self._most = of_one_user + waiting
        self._all = asyncio.Semaphore(in_all)
        self._users: dict[str, _User] = {}

    @asynccontextmanager
    async def place_of(self, user: str, what: str) -> AsyncIterator[None]:
        """A place, kept inside. Raises :class:`Refusal` (429) where too many of this user's wait already."""
        mine = self._users.setdefault(user, _User(self._of_one_user))
        if mine.here >= self._most:
            message = f"{mine.here} {what} of {user} are here already; again in {_AGAIN_S:g} s"
            raise Refusal(429, message, retry_after_s=_AGAIN_S)
        mine.here += 1
        try:
            async with mine.places, self._all:
                yield
        finally:
            mine.here -= 1
            if not mine.here:
                self._users.pop(user, None)

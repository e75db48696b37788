"""Whose jobs an owner does not take, by the numbers of this host: others cannot submit here.

A word has names. They are looked up beside the link, and again later where one is not found: whether this host has no
such user, or its directory service is away, nobody can tell. Until all are found, who was banned by the journal stays
banned, but for users whose name is known and is not in the word any more.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

from cosched.wire import messages as wire
from space_scheduler.service.access.accounts import user_name, user_number
from space_scheduler.service.access.lookups import Lookups
from space_scheduler.service.launch.nodes import NodeBook
from space_scheduler.service.launch.values import AnyInput, OwnerSaid
from space_scheduler.service.link.session import Session

#: How long a session's next message waits for names.
_WAIT_S: Final = 2.0
#: Names of one session are looked up so often at most.
_APART_S: Final = 1.0
#: How long an answer counts, and how long after a question in vain there is another.
_LASTS_S: Final = 60.0


class Bans:
    """What agents say of their owners' words, handed on with the users of this host that they ban."""

    def __init__(self, book: NodeBook, feed: Callable[[AnyInput], None], sessions: Mapping[str, Session]) -> None:
        """``sessions`` are the link's, by node."""
        self._book = book
        self._feed = feed
        self._sessions = sessions
        self._closed = False
        self._numbers: Lookups[str, int] = Lookups(user_number, lasts_s=_LASTS_S)
        self._names: Lookups[int, str] = Lookups(user_name, lasts_s=_LASTS_S)

    async def said(self, session: Session, word: wire.OwnersWord) -> None:
        """Hand on a word; within a moment, with what is known by then."""
        session.word = word
        if asked := self._ask(session, word):
            await asyncio.wait([asked], timeout=_WAIT_S)
        if session.word is word and self._sessions.get(session.name) is session and not self._closed:
            self._tell(session, word)

    def look_again(self) -> None:
        """Look up what is not known yet, and hand on a word again where more is known now."""
        for session in () if self._closed else list(self._sessions.values()):
            if (word := session.word) is not None:
                self._ask(session, word)
                if self._banned(session, word) != session.banned:
                    self._tell(session, word)

    def close(self) -> None:
        """Look up nothing more."""
        self._closed = True
        self._numbers.close()
        self._names.close()

    def _ask(self, session: Session, word: wire.OwnersWord) -> "asyncio.Future[list[object]] | None":
        """Have looked up what is due, if it is time."""
        now_s = time.monotonic()
        names = self._numbers.due(word.bans)
        numbers = self._names.due(self._recorded(session)) if self._unknown(word) else []
        if not (names or numbers) or now_s - session.looked_up_s < _APART_S:
            return None
        session.looked_up_s = now_s
        return asyncio.gather(
            *map(self._numbers.learn, names), *map(self._names.learn, numbers), return_exceptions=True
        )

    def _tell(self, session: Session, word: wire.OwnersWord) -> None:
        session.banned = self._banned(session, word)
        self._feed(OwnerSaid(session.name, word, session.banned))

    def _banned(self, session: Session, word: wire.OwnersWord) -> tuple[int, ...]:
        found = {number for name in word.bans if (number := self._numbers.get(name)) is not None}
        if self._unknown(word):
            names = {number: self._names.get(number) for number in self._recorded(session)}
            found.update(number for number, name in names.items() if name is None or name in word.bans)
        return tuple(sorted(found))

    def _unknown(self, word: wire.OwnersWord) -> bool:
        return any(self._numbers.get(name) is None for name in word.bans)

    def _recorded(self, session: Session) -> tuple[int, ...]:
        return self._book.entry(session.name).recorded_bans

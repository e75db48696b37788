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
from space_scheduler.service.access.accounts import Remembered, name_of, number_of
from space_scheduler.service.launch.inputs import AnyInput, OwnerSaid
from space_scheduler.service.launch.nodes import NodeBook
from space_scheduler.service.link.session import Session

#: How long a session's next message waits for names.
_WAIT_S: Final = 2.0
#: Names of one session are looked up so often at most.
_APART_S: Final = 1.0


class Bans:
    """What agents say of their owners' words, handed on with the users of this host that they ban."""

    def __init__(self, book: NodeBook, feed: Callable[[AnyInput], None], sessions: Mapping[str, Session]) -> None:
        """``sessions`` are the link's, by node."""
        self._book = book
        self._feed = feed
        self._sessions = sessions
        self._closed = False
        self.numbers = Remembered(number_of)
        self.names = Remembered(name_of)

    async def said(self, session: Session, word: wire.OwnersWord) -> None:
        """Hand on a word; within a moment, with what is known by then."""
        session.word = word
        if asked := self._ask(session, word):
            await asyncio.wait(asked, timeout=_WAIT_S)
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
        self.numbers.close()
        self.names.close()

    def _ask(self, session: Session, word: wire.OwnersWord) -> list[asyncio.Future[object]]:
        """Have looked up what is due, if it is time."""
        now_s = time.monotonic()
        names = self.numbers.due(word.bans)
        numbers = self.names.due(self._recorded(session)) if self._unknown(word) else ()
        if not (names or numbers) or now_s - session.looked_up_s < _APART_S:
            return []
        session.looked_up_s = now_s
        asked: list[asyncio.Future[object]] = []
        if names:
            asked.append(asyncio.ensure_future(self.numbers.look_up(names)))
        if numbers:
            asked.append(asyncio.ensure_future(self.names.look_up(numbers)))
        return asked

    def _tell(self, session: Session, word: wire.OwnersWord) -> None:
        session.banned = self._banned(session, word)
        self._feed(OwnerSaid(session.name, word, session.banned))

    def _banned(self, session: Session, word: wire.OwnersWord) -> tuple[int, ...]:
        found = {number for name in word.bans if (number := self.numbers.get(name)) is not None}
        if self._unknown(word):
            found.update(each for each in self._recorded(session) if self._may_be_meant(each, word))
        return tuple(sorted(found))

    def _unknown(self, word: wire.OwnersWord) -> bool:
        return any(self.numbers.get(name) is None for name in word.bans)

    def _may_be_meant(self, number: int, word: wire.OwnersWord) -> bool:
        name = self.names.get(number)
        return name is None or name in word.bans

    def _recorded(self, session: Session) -> tuple[int, ...]:
        return self._book.entry(session.name).recorded_bans

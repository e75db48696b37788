"""Who may look at the page: one-time links, and the visits that they open. Kept in memory: a restart ends them all.

A link is good once and for a short time. Its secret opens a visit: an id that is part of the page's address, and a
secret of its own that is the browser's cookie. Both are one user's. The memory has hashes of secrets only.
"""

import hmac
import secrets
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from space_scheduler.service.access.problems import Refusal
from space_scheduler.service.access.tokens import digest_of

LINK_S: Final = 120.0
VISIT_S: Final = 12 * 3600.0
#: Of one user, of each kind; the oldest makes room for one more.
MOST: Final = 16
_SECRET_BYTES: Final = 32
_ID_BYTES: Final = 12


class Visit(NamedTuple):
    """A browser that was let in: ``id`` is in its addresses, ``digest`` the SHA-256 of its cookie.

    Or a link that was not used yet: ``id`` is the SHA-256 of its secret, and there is no cookie.
    """

    id: str
    user: str
    ends_s: float
    digest: str = ""


class NoVisit(Refusal):
    """Nobody is let in with that; the message says why, and nothing of a secret."""


class _Kept:
    """What is good until it ends, by its id: at most :data:`MOST` of each user, the newest."""

    def __init__(self) -> None:
        self._all: dict[str, Visit] = {}

    def put(self, item: Visit, now_s: float) -> None:
        self._all = {each: kept for each, kept in self._all.items() if kept.ends_s > now_s}
        mine = [each for each, kept in self._all.items() if kept.user == item.user]
        for oldest in mine[: max(0, len(mine) - MOST + 1)]:
            del self._all[oldest]
        self._all[item.id] = item

    def get(self, number: str, now_s: float) -> Visit | None:
        found = self._all.get(number)
        return found if found is not None and found.ends_s > now_s else None

    def take(self, number: str, now_s: float) -> Visit | None:
        found = self.get(number, now_s)
        self._all.pop(number, None)
        return found


class Visits:
    """All links and visits of this service."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._links = _Kept()
        self._visits = _Kept()

    def link(self, user: str) -> str:
        """The secret of a new link for that user, good for :data:`LINK_S` seconds."""
        secret, now_s = secrets.token_urlsafe(_SECRET_BYTES), self._now_s()
        self._links.put(Visit(digest_of(secret), user, now_s + LINK_S), now_s)
        return secret

    def enter(self, secret: str, user: str) -> tuple[Visit, str]:
        """The visit that a link opens, and its cookie. Raises :class:`NoVisit`.

        A link that somebody else tries has become known: it is worth nothing after that.
        """
        now_s = self._now_s()
        link = self._links.take(digest_of(secret), now_s)
        if link is None or link.user != user:
            raise NoVisit(403, "this link was used already, is too old, or is not yours: 'cosched page' makes another")
        cookie = secrets.token_urlsafe(_SECRET_BYTES)
        visit = Visit(secrets.token_hex(_ID_BYTES), user, now_s + VISIT_S, digest_of(cookie))
        self._visits.put(visit, now_s)
        return visit, cookie

    def of(self, number: str, cookie: str, user: str) -> Visit:
        """The visit of that id, for whoever has its cookie and is its user. Raises :class:`NoVisit`."""
        found = self._visits.get(number, self._now_s())
        expected = found.digest if found else "0" * 64
        if not hmac.compare_digest(digest_of(cookie), expected) or found is None or found.user != user:
            raise NoVisit(403, "this visit has ended, or is not yours: 'cosched page' opens another")
        return found

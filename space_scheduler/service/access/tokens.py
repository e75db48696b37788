"""Tokens of remote users: what somebody shows over TLS who has no certificate (docs/design/identity.md).

A token is ``cosched_ID_SECRET``, the secret 32 random bytes. The file has the secret's SHA-256 and never the secret: a
hash made slow on purpose guards guessable words, and nobody guesses 256 random bits. A token is one user's, ends at a
stated time, and never gives an operator's rights nor another token. One that *reads only* is nobody's in particular: it
opens what monitoring asks for, and nothing of its maker's.
"""

import hmac
import secrets
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

from cosched.errors import Failed
from space_scheduler.service.access import kept

_MARK: Final = "cosched"
_ID_BYTES: Final = 5
_SECRET_BYTES: Final = 32
#: Of one user at a time.
MOST: Final = 50


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One token as it is kept; times in seconds since 1970, ``digest`` the secret's SHA-256 in hexadecimal.

    ``user`` is who it stands for; with ``read_only``, who answers for it.
    """

    id: str
    user: str
    label: str
    created_s: float
    expires_s: float
    digest: str
    read_only: bool = False


class NoToken(Exception):
    """It is no token, or no longer one; the message says why, and nothing of the secret."""


class Tokens:
    """All tokens of this cluster, in ``state/tokens.json``. It is written in threads, and read while it is."""

    def __init__(self, path: Path, now_s: Callable[[], float] = time.time) -> None:
        """Raises :class:`Failed` where the file is there and cannot be understood: nobody is let in by guessing."""
        self._path = path
        self._now_s = now_s
        self._writing = Lock()
        found = kept.read(path, list[Token], "the list of tokens", "remove it to end all tokens") or []
        self._known = {each.id: each for each in found}

    def create(self, user: str, label: str, life_s: float, *, read_only: bool = False) -> tuple[Token, str]:
        """A new token and its words, which are told this once. Raises :class:`Failed`."""
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        now_s = self._now_s()
        made = Token(secrets.token_hex(_ID_BYTES), user, label, now_s, now_s + life_s, digest_of(secret), read_only)
        with self._writing:
            alive = {key: each for key, each in self._known.items() if each.expires_s > now_s}
            if sum(each.user == user for each in alive.values()) >= MOST:
                raise Failed(f"{user} has {MOST} tokens, as many as one may: revoke some (cosched token revoke)")
            self._write({**alive, made.id: made})
        return made, f"{_MARK}_{made.id}_{secret}"

    def token_of(self, words: str) -> Token:
        """The token of these words. Raises :class:`NoToken`."""
        mark, _, rest = words.partition("_")
        number, _, secret = rest.partition("_")
        found = self._known.get(number)
        expected = found.digest if found else "0" * 64
        if not hmac.compare_digest(digest_of(secret), expected) or mark != _MARK or found is None:
            raise NoToken("the token is not known here: revoked, or of another cluster")
        if found.expires_s <= self._now_s():
            raise NoToken(f"the token {found.id} of {found.user} has expired: 'cosched token create' makes another")
        return found

    def get(self, number: str) -> Token | None:
        """The token of that id."""
        return self._known.get(number)

    def all(self, user: str | None = None) -> list[Token]:
        """Those of one user, or of all; the newest first."""
        return sorted(
            (each for each in self._known.values() if user in (None, each.user)), key=lambda each: -each.created_s
        )

    def revoke(self, number: str) -> None:
        """Let it be worth nothing from now on. Raises :class:`Failed`."""
        with self._writing:
            self._write({key: each for key, each in self._known.items() if key != number})

    def forget(self, user: str) -> int:
        """Remove those of a user, which are worth nothing from now on; how many there were. Raises :class:`Failed`."""
        with self._writing:
            theirs = self.all(user)
            if theirs:
                self._write({key: each for key, each in self._known.items() if each.user != user})
        return len(theirs)

    def _write(self, tokens: dict[str, Token]) -> None:
        kept.write(self._path, list(tokens.values()))
        self._known = tokens


def digest_of(secret: str) -> str:
    """The SHA-256 of a secret, in hexadecimal."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()

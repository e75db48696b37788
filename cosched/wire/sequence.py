"""Numbers on what travels over the agents' link: nothing counts twice, late, or on another connection than its own.

TLS keeps strangers from repeating and reordering. This holds where TLS does not reach: a broken or hostile end, a proxy
that ends TLS, a defect of ours. Each side names the other a random *session* in its first message (``Hello``,
``Welcome``); every later frame begins with the session that its receiver has named and with a number, 1, 2, 3, ….

What is refused is not obeyed and not a sign of life. After a gap the link is of no use, since a message is missing: it
is ended, and everything that matters is told again on the next.
"""

import secrets
import struct
from typing import Final, Literal

from cosched.errors import BadInput

SESSION_BYTES: Final = 8
_HEADER: Final = struct.Struct(f">{SESSION_BYTES}sQ")
HEADER_BYTES: Final = _HEADER.size


class OutOfTurn(BadInput):
    """A frame that does not come next; ``kind`` says how."""

    def __init__(self, kind: Literal["foreign", "replayed", "out of order"], found: str, expected: str) -> None:
        super().__init__("message", found, expected)
        self.kind: Final = kind


def new_session() -> bytes:
    """What one side names the other: nobody can have recorded a frame of it."""
    return secrets.token_bytes(SESSION_BYTES)


def checked_session(session: bytes, where: str) -> bytes:
    """The session, if it is one. Raises :class:`BadInput`."""
    if len(session) != SESSION_BYTES:
        raise BadInput(f"{where}: session", f"{len(session)} bytes", f"{SESSION_BYTES}")
    return session


class _Direction:
    """One direction of one connection: its session, and the number of the last frame."""

    def __init__(self, session: bytes) -> None:
        self._session = session
        self._last = 0


class Numbering(_Direction):
    """One direction of one connection, for its sender."""

    def frame(self, payload: bytes) -> bytes:
        """The payload behind session and number."""
        self._last += 1
        return _HEADER.pack(self._session, self._last) + payload


class Turn(_Direction):
    """One direction of one connection, for its receiver."""

    def payload(self, frame: bytes) -> bytes:
        """What is in the frame that comes next. Raises :class:`OutOfTurn`, and :class:`BadInput` for no frame."""
        if len(frame) < HEADER_BYTES:
            raise BadInput("message", f"{len(frame)} bytes", f"a header of {HEADER_BYTES} bytes and a message")
        session, number = _HEADER.unpack_from(frame)
        if session != self._session:
            raise OutOfTurn("foreign", "a message of another connection", "one of this connection")
        if number <= self._last:
            raise OutOfTurn("replayed", f"message {number} again, or late", f"message {self._last + 1}")
        if number > self._last + 1:
            raise OutOfTurn("out of order", f"message {number}", f"message {self._last + 1}")
        self._last = number
        return frame[HEADER_BYTES:]

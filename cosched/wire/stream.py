"""Frames of a remote command's streams: ``cosched-rsh``, both agents and the command's supervisor speak them.

Standard library alone: ``cosched-rsh`` starts in a few milliseconds. A frame is a kind (one byte), a length (four
bytes, big endian) and that many bytes; numbers in frames have eight bytes, big endian.

The two ends are ``cosched-rsh`` and the supervisor; agents only pass frames on, so any of them may be started anew. The
caller sends a REQUEST (JSON: ``{"host", "command", "id", "stdout", "stderr", "again"}``; ``id`` is 32 hexadecimal
digits of its own choice, one for each command; ``stdout`` and ``stderr`` are the bytes that it has already). The
command is started if there is none of that id. Then it gets ATTACHED (how many of its frames have arrived), sends from
there on STDIN pieces, EOF and SIGNAL frames, and keeps each until TAKEN (so many are done with; the first one comes
right after ATTACHED) covers it. It gets STDOUT and STDERR pieces from where it stood, which the supervisor keeps until
ACK (two numbers: bytes of each that have been passed on), and in the end EXIT (JSON: ``{"status": …}`` or
``{"signal": …}``). FAIL (a message for people, exit status 255 as ssh's) is final; after AWAY (why it is not possible
now), or a connection that ends without a word, the caller asks again, with ``again`` true. An agent whose caller has
gone says HANGUP in its place: then the command ends. Between agents the one that is called begins, with a CHALLENGE
(random bytes) that the call has to repeat: a call that was recorded is worth nothing.
"""

import struct
from enum import IntEnum
from typing import Final

MAX_PIECE: Final = 64 << 10
_HEADER: Final = struct.Struct(">BI")


class Kind(IntEnum):
    """What a frame is."""

    REQUEST = 1
    STDIN = 2
    EOF = 3
    SIGNAL = 4
    STDOUT = 5
    STDERR = 6
    EXIT = 7
    FAIL = 8
    CHALLENGE = 9
    ATTACHED = 10
    TAKEN = 11
    ACK = 12
    HANGUP = 13
    AWAY = 14


def frame(kind: Kind, data: bytes = b"") -> bytes:
    """One frame; ``data`` has at most ``MAX_PIECE`` bytes, or ValueError."""
    if len(data) > MAX_PIECE:
        raise ValueError(f"a piece of {len(data)} bytes; at most {MAX_PIECE} travel in one frame")
    return _HEADER.pack(kind, len(data)) + data


class Frames:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[Kind, bytes]]:
        """The frames that are complete now. Raises ValueError for what is not a frame."""
        buffer = self._buffer
        buffer += data
        frames = []
        while len(buffer) >= _HEADER.size:
            number, length = _HEADER.unpack_from(buffer)
            kind = Kind(number)
            if length > MAX_PIECE:
                raise ValueError(f"a frame of {length} bytes; at most {MAX_PIECE} travel in one")
            end = _HEADER.size + length
            if len(buffer) < end:
                break
            frames.append((kind, bytes(buffer[_HEADER.size : end])))
            del buffer[:end]
        return frames

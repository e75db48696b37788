"""Frames of a remote command's streams: ``cosched-rsh``, its agent and the target's agent speak them.

Standard library alone: ``cosched-rsh`` starts in a few milliseconds. A frame is a kind (one byte), a length (four
bytes, big endian) and that many bytes. The caller sends one REQUEST (JSON: ``{"host": …, "command": …}``), then STDIN
pieces and EOF, and SIGNAL frames; it gets STDOUT and STDERR pieces and in the end one EXIT (JSON: ``{"status": …}`` or
``{"signal": …}``) or FAIL (a message for people, exit status 255 as ssh's).
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

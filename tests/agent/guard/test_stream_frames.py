"""What a caller may say to a command's supervisor: a frame that it does not understand ends the call, and no more."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.waiting import BOUND_S

from cosched.wire.stream import MAX_PIECE, Kind, frame
from node_agent.guard.launcher.streams import Streams

NAME = "0123456789abcdef" * 2
STANDS = bytes(16)


class Call:
    """A supervisor's streams in a thread of their own, and a connection to them."""

    def __init__(self, directory: Path) -> None:
        self.killed: list[int] = []
        self.problems: list[BaseException] = []
        directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        self.woken, self._wake = os.pipe()
        self.streams = Streams(NAME, directory_fd, os.geteuid())
        self._thread = threading.Thread(target=self._carry)
        self._thread.start()
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.settimeout(BOUND_S)
        self.connection.connect(str(directory / NAME))

    def _carry(self) -> None:
        try:
            self.streams.carry(self.woken, lambda: 0, self.killed.append)
        except BaseException as error:
            self.problems.append(error)

    def answered(self, *frames: bytes) -> bytes:
        """All that is said until the supervisor hangs up, or has nothing more to say."""
        for each in frames:
            self.connection.sendall(each)
        said = b""
        while piece := self.connection.recv(MAX_PIECE):
            said += piece
        return said

    def close(self) -> None:
        os.write(self._wake, bytes([signal.SIGTERM]))
        self.connection.close()
        self._thread.join(BOUND_S)


@pytest.fixture
def call(tmp_path: Path) -> Iterator[Call]:
    made = Call(tmp_path)
    yield made
    made.close()
    assert not made.problems


@pytest.mark.parametrize("number", [b"9" * 5000, b"0" * 5000 + b"15", b"64", b"0", b"-15", "١٥".encode(), b""])
def test_signal_that_is_none_ends_the_call_and_not_the_supervisor(call: Call, number: bytes) -> None:
    said = call.answered(frame(Kind.ACK, STANDS), frame(Kind.SIGNAL, number))
    assert frame(Kind.FAIL, b"a signal that is not passed on") in said
    assert not [each for each in call.killed if each != signal.SIGTERM]


@pytest.mark.parametrize("stands", [b"\xff" * 16, b"\0" * 8 + b"\x80" + b"\0" * 7])
def test_position_beyond_the_output_ends_the_call_and_not_the_supervisor(call: Call, stands: bytes) -> None:
    assert b"bytes, and 0 to 0 are here" in call.answered(frame(Kind.ACK, stands))

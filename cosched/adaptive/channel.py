"""A rank's end of the channel to its node's agent: lines of ASCII over a Unix stream socket.

It is optional at every moment: without an agent at the other end the rank goes on with what it knows and knocks again
later. What the lines are is in docs/design/adaptive.md.
"""

import contextlib
import select
import socket
import time

from cosched.adaptive.maps import MAX_LINE_BYTES, Map, parse_map

_RECONNECT_S = 1.0
_READ_BYTES = 64 << 10


class Channel:
    """Never blocks, but in :meth:`wait`.

    ``node`` is this rank's node, ``newest`` the newest map heard of, ``answer`` the last one to a request for
    processes; each None until it is known.
    """

    def __init__(self, path: str, rank: int, ranks: int) -> None:
        self._path = path
        self._first = f"adaptive 1 {rank} {ranks}\n".encode()
        self._socket: socket.socket | None = None
        self._unread, self._unsent = b"", b""
        self._again_s = 0.0
        self.node: str | None = None
        self.newest: Map | None = None
        self.answer: tuple[int, bool] | None = None
        self._adopted: int | None = None

    def poll(self) -> None:
        """Connect if there is no connection, send what waits, read what is there."""
        if self._socket is None and not self._connected():
            return
        try:
            self._send()
            self._receive()
        except BlockingIOError:
            pass
        except (OSError, ValueError):  # no agent any more, or one that says what it must not
            self.close()

    def say(self, line: str) -> None:
        """Send a line, now or once there is a connection; without one for long, the last lines are dropped."""
        if len(self._unsent) < MAX_LINE_BYTES:
            self._unsent += line.encode() + b"\n"
        self.poll()

    def adapt(self, number: int | None) -> None:
        """The map with this number is in force, and this rank says so, to each agent that comes; None: another does."""
        self._adopted = number
        if self._socket is not None and number is not None:
            self.say(f"adapted {number}")

    def wait(self, seconds: float) -> None:
        """Sleep until the agent says something, at most so long."""
        if self._socket is None:
            time.sleep(seconds)
            return
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        waiting.poll(seconds * 1000)

    def close(self) -> None:
        """Hang up; :meth:`poll` connects again, not at once."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._unread, self._unsent = None, b"", b""
        self._again_s = time.monotonic() + _RECONNECT_S

    def _connected(self) -> bool:
        now_s = time.monotonic()
        if now_s < self._again_s:
            return False
        self._again_s = now_s + _RECONNECT_S
        fresh = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            fresh.connect(self._path)
        except OSError:
            fresh.close()
            return False
        again = b"" if self._adopted is None else f"adapted {self._adopted}\n".encode()
        self._socket, self._unsent = fresh, self._first + again + self._unsent
        return True

    def _send(self) -> None:
        assert self._socket is not None
        while self._unsent:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]

    def _receive(self) -> None:
        """Read until nothing is left. Raises BlockingIOError then, OSError, ValueError."""
        assert self._socket is not None
        while True:
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                self._take(line.decode("ascii").split())
            if len(self._unread) >= MAX_LINE_BYTES:
                raise ValueError("a line without end")

    def _take(self, words: list[str]) -> None:
        match words:
            case ["node", name]:
                self.node = name
            case ["map", _, _, *_]:
                found = parse_map(words[1:])
                if self.newest is None or found.number > self.newest.number:
                    self.newest = found
            case ["answer", given, waits]:
                self.answer = int(given), waits == "1"
            case _:
                pass  # a later version's


def introduced(channel: Channel, seconds: float) -> str | None:
    """Wait until the agent has said which node this is, at most so long: the node's name, or None."""
    until_s = time.monotonic() + seconds
    while channel.node is None and time.monotonic() < until_s:
        channel.poll()
        if channel.node is None:
            with contextlib.suppress(InterruptedError):
                channel.wait(0.05)
    return channel.node

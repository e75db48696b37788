"""Messages over a network: the peer that answers them, and the user's end, which counts what goes over the wire.

A request says how long it is and how long the answer is to be. What went over the wire is what the kernel says of the
connection (TCP_INFO): payload both ways, and for every segment the headers of TCP, IP and Ethernet.
"""

import contextlib
import selectors
import socket
import struct
import time
from typing import Final

from cosched.config.units import is_whole
from cosched.errors import BadInput

_HEADER: Final = struct.Struct("!II")  # bytes of the request after this header, bytes of the answer
_LONGEST: Final = 1 << 20
_CONNECTIONS: Final = 256
_PATIENCE_S: Final = 5.0
_AGAIN_S: Final = 2.0
_ETHERNET, _IPV4, _IPV6, _TCP, _TIMESTAMPS = 14, 20, 40, 20, 12
_BYTES_RECEIVED, _SEGMENTS, _BYTES_SENT = 128, 136, 200  # linux/tcp.h, struct tcp_info
#: What an exchange costs beside its payload, about: two messages, an acknowledgement, and our header.
OVERHEAD_BYTES: Final = 3 * (_ETHERNET + _IPV4 + _TCP + _TIMESTAMPS) + _HEADER.size


def address(text: str, option: str) -> tuple[str, int]:
    """``HOST:PORT``; host a name or an address. Raises :class:`BadInput`."""
    host, _, port = text.rpartition(":")
    if not host or not is_whole(port) or int(port) > 65_535:
        raise BadInput(option, repr(text), "HOST:PORT, such as 127.0.0.1:7424")
    return host.strip("[]"), int(port)


class Peer:
    """Answers users' messages; lives in the loop of whoever has the selector."""

    def __init__(self, selector: selectors.BaseSelector, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen. Raises OSError."""
        self._selector = selector
        self._open: dict[socket.socket, tuple[bytearray, bytearray]] = {}
        self._silent: dict[socket.socket, None] = {}  # in order of arrival: those that have sent nothing
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=64)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        selector.register(self._listener, selectors.EVENT_READ, self._greet)

    def close(self) -> None:
        """Hang up."""
        self._selector.unregister(self._listener)
        self._listener.close()
        for connection in list(self._open):
            self._forget(connection)

    def _greet(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            if len(self._open) >= _CONNECTIONS:
                if not self._silent:
                    connection.close()
                    return
                self._forget(next(iter(self._silent)))
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open[connection] = bytearray(), bytearray()
            self._silent[connection] = None
            self._selector.register(connection, selectors.EVENT_READ, lambda: self._serve(connection))

    def _serve(self, connection: socket.socket) -> None:
        if connection not in self._open:  # evicted after the selector had found it ready
            return
        asked, answer = self._open[connection]
        try:
            with contextlib.suppress(BlockingIOError):
                data = connection.recv(1 << 16)
                if not data:
                    raise ConnectionError("hung up")
                asked += data
                self._silent.pop(connection, None)
            while len(asked) >= _HEADER.size:
                request, wanted = _HEADER.unpack_from(asked)
                if max(request, wanted) > _LONGEST or len(answer) > _LONGEST:
                    raise ConnectionError("too long, or answers that nobody reads")
                if len(asked) < _HEADER.size + request:
                    break
                del asked[: _HEADER.size + request]
                answer += bytes(wanted)
            if answer:
                with contextlib.suppress(BlockingIOError):
                    del answer[: connection.send(answer)]
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if answer else 0)
            self._selector.modify(connection, events, lambda: self._serve(connection))
        except OSError:
            self._forget(connection)

    def _forget(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        self._open.pop(connection, None)
        self._silent.pop(connection, None)
        connection.close()


class Line:
    """The user's end of a connection to a peer; made again when it was lost."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._socket: socket.socket | None = None
        self._before = 0
        self._next_s = 0.0
        self.lost = 0
        self.problem = ""

    def exchange(self, out_bytes: int, in_bytes: int) -> None:
        """Send a message of so many bytes, and wait for an answer of so many."""
        connection = self._connected()
        if connection is None:
            return
        out_bytes, in_bytes = min(out_bytes, _LONGEST), min(in_bytes, _LONGEST)
        try:
            connection.sendall(_HEADER.pack(out_bytes, in_bytes) + bytes(out_bytes))
            while in_bytes:
                piece = connection.recv(min(in_bytes, 1 << 16))
                if not piece:
                    raise ConnectionError("the peer hung up")
                in_bytes -= len(piece)
        except OSError as error:
            self.problem = f"{self._address[0]}:{self._address[1]}: {error.strerror or error}"
            self.lost += 1
            self.close()

    def wire_bytes(self) -> int:
        """Bytes that went over the wire so far, both ways, headers included."""
        return self._before + (_wire_bytes(self._socket) if self._socket else 0)

    def close(self) -> None:
        """Hang up."""
        if self._socket:
            self._before += _wire_bytes(self._socket)
            self._socket.close()
            self._socket = None

    def _connected(self) -> socket.socket | None:
        if self._socket is None and time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _AGAIN_S
            try:
                self._socket = socket.create_connection(self._address, timeout=_PATIENCE_S)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:
                self.problem = f"{self._address[0]}:{self._address[1]}: {error.strerror or error}"
                self.lost += 1
        return self._socket


def _wire_bytes(connection: socket.socket) -> int:
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except OSError:
        return 0
    return wire_bytes_of(info, connection.family == socket.AF_INET6)


def wire_bytes_of(info: bytes, six: bool) -> int:
    """What a connection moved over the wire by its TCP_INFO (Linux 4.19 and newer)."""
    if len(info) < _BYTES_SENT + 8:
        return 0
    (received,) = struct.unpack_from("=Q", info, _BYTES_RECEIVED)
    out, in_ = struct.unpack_from("=II", info, _SEGMENTS)
    (sent,) = struct.unpack_from("=Q", info, _BYTES_SENT)
    each = _ETHERNET + (_IPV6 if six else _IPV4) + _TCP + (_TIMESTAMPS if info[5] & 1 else 0)
    return int(sent + received + (out + in_) * each)

"""A port that answers ``GET /metrics`` over HTTP: one thread, and a bound on connections and on what each may send.

A connection is closed after its answer. Where there are too many, the oldest is closed of the address that has most
(:mod:`cosched.admission`), so that silent clients and slow readers keep no scrape out.
"""

import contextlib
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST

from cosched.admission import Bounds, Places

MOST_CONNECTIONS: Final = 32
_LONGEST_REQUEST: Final = 8 << 10
_CHUNK: Final = 64 << 10
_AGAIN_S: Final = 0.05


class Scrapes:
    """Serves ``made()``, the exposition's text in bytes, until it is closed. ``port`` is the one that was taken."""

    def __init__(self, made: Callable[[], bytes], host: str, port: int) -> None:
        """Listen. Raises OSError."""
        self._made = made
        self._asking: dict[socket.socket, bytearray] = {}  # what each has sent
        self._reading: dict[socket.socket, bytearray] = {}  # what each is still to get
        bounds = Bounds(MOST_CONNECTIONS, MOST_CONNECTIONS)
        self._places: Places[str, socket.socket] = Places(bounds, replaces=True)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=MOST_CONNECTIONS)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._woken, self._wake = os.pipe()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        os.write(self._wake, b"x")
        self._thread.join()
        for connection in self._places:
            self._forget(connection)
        self._listener.close()
        self._selector.close()
        os.close(self._woken)
        os.close(self._wake)

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fd == self._woken:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif (
                    isinstance(key.fileobj, socket.socket) and key.fileobj in self._places
                ):  # not evicted since the select
                    self._attend(key.fileobj)

    def _accept(self) -> None:
        try:
            connection, address = self._listener.accept()
        except OSError:  # gone again, or no descriptor is left for it
            time.sleep(_AGAIN_S)
            return
        if (evicted := self._places.enter(connection, address[0])) is not None:
            self._forget(evicted)
        connection.setblocking(False)
        self._asking[connection] = bytearray()
        self._selector.register(connection, selectors.EVENT_READ)

    def _attend(self, connection: socket.socket) -> None:
        try:
            goes_on = self._hear(connection) if connection in self._asking else self._send(connection)
        except BlockingIOError:
            return
        except OSError:
            goes_on = False
        if not goes_on:
            self._forget(connection)

    def _hear(self, connection: socket.socket) -> bool:
        asked = self._asking[connection]
        data = connection.recv(_LONGEST_REQUEST)
        asked += data
        if b"\r\n\r\n" not in asked:
            return bool(data) and len(asked) < _LONGEST_REQUEST
        del self._asking[connection]
        found = asked.startswith(b"GET /metrics ")
        body = self._made() if found else b"only GET /metrics is answered\n"
        status, kind = ("200 OK", CONTENT_TYPE_LATEST) if found else ("404 Not Found", "text/plain")
        head = f"HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._reading[connection] = bytearray(head.encode() + body)
        self._selector.modify(connection, selectors.EVENT_WRITE)
        return self._send(connection)

    def _send(self, connection: socket.socket) -> bool:
        rest = self._reading[connection]
        del rest[: connection.send(rest[:_CHUNK])]
        if not rest:
            connection.shutdown(socket.SHUT_WR)
        return bool(rest)

    def _forget(self, connection: socket.socket) -> None:
        for known in (self._asking, self._reading):
            known.pop(connection, None)
        self._places.leave(connection)
        self._selector.unregister(connection)
        with contextlib.suppress(OSError):
            connection.close()

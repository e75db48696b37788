"""A server that says what a test tells it to, over a real socket: what no healthy service would say."""

import contextlib
import socket
import threading
from pathlib import Path
from types import TracebackType

from kit.waiting import BOUND_S


def answer(status: int, body: bytes, headers: str = "") -> bytes:
    """An HTTP answer."""
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


class Scripted:
    """Answers requests in turn, each on a connection of its own; None closes without a word. ``asked`` has them."""

    def __init__(self, path: Path) -> None:
        self.asked: list[bytes] = []
        self._path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> "Scripted":
        return self

    def __call__(self, *answers: bytes | None) -> Path:
        """Start, once; the socket's path."""
        self._listener.bind(str(self._path))
        self._listener.listen()
        thread = threading.Thread(target=self._run, args=(answers,), daemon=True)
        thread.start()
        self._threads.append(thread)
        return self._path

    def _run(self, answers: tuple[bytes | None, ...]) -> None:
        for each in answers:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(BOUND_S)
                self.asked.append(_request(connection))
                if each is not None:
                    connection.sendall(each)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(BOUND_S)


def _request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data and (more := connection.recv(65536)):
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lines = [line.lower() for line in head.split(b"\r\n")]
    length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
    while len(body) < length and (more := connection.recv(65536)):
        body += more
    return head + b"\r\n\r\n" + body

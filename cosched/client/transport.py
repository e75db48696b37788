"""HTTP to the service, over its Unix socket or TLS with the user's certificate or token: the standard library alone."""

import http.client
import logging
import os
import select
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from cosched.errors import BadInput, NoAnswer
from cosched.identity.names import SCHEDULER, TOKEN, certificate, private

_CONNECT_S: Final = 10.0
#: The longest that an answer may take, beyond what a request itself asks to wait.
ANSWER_S: Final = 60.0
#: After so much of it a line says that there is none yet.
_SLOW_S: Final = 10.0

_log = logging.getLogger("cosched.client")


class _Unix(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_CONNECT_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # by the kernel's time-out: a socket of Python's with one does not wait where many others connect (EAGAIN)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", int(_CONNECT_S), 0))
        self.sock.connect(str(self._path))
        self.sock.settimeout(self.timeout)


class _Tls(HTTPConnection):
    """HTTP over TLS: the scheduler shows its certificate, the user his own or, in every request, his token."""

    default_port = 7420

    def __init__(self, host: str, port: int, identity: Path) -> None:
        from cosched.identity.tls import client_context  # noqa: PLC0415 (not for a Unix socket)

        super().__init__(host, port, timeout=_CONNECT_S)
        self._context = client_context(identity)
        self.token = ""
        if not certificate("user", identity)[0].exists() and (identity / TOKEN).exists():
            self.token = _token(identity / TOKEN)

    def connect(self) -> None:
        """Connect and shake hands."""
        super().connect()
        self.sock = self._context.wrap_socket(self.sock, server_hostname=SCHEDULER)


def _token(path: Path) -> str:
    """The token in a file that nobody else may read. Raises :class:`BadInput`."""
    try:
        words = private(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(str(path), f"cannot be read: {error}", "a token, made by 'cosched token create'") from None
    if not words or any(character.isspace() or not character.isprintable() for character in words):
        raise BadInput(str(path), "not one word", "a token, made by 'cosched token create'")
    return words


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Transport:
    """One service, by the path of its Unix socket or ``https://HOST[:PORT]``."""

    def __init__(self, server: str) -> None:
        """Raises :class:`BadInput` for what is neither path nor URL, and for an identity that cannot be used."""
        self.server = server
        self._connection = _connection(server)

    def request(self, method: str, path: str, body: bytes | None = None, *, timeout_s: float = ANSWER_S) -> Answer:
        """Ask, and read the whole answer. Raises :class:`NoAnswer`.

        A GET whose connection turns out to be closed is asked once more, since nothing can happen twice by it.
        """
        may_repeat = method == "GET"
        while True:
            try:
                return self._once(method, path, body, timeout_s)
            except (http.client.HTTPException, OSError) as error:
                self._connection.close()
                was_closed = isinstance(error, http.client.RemoteDisconnected | ConnectionResetError | BrokenPipeError)
                if not may_repeat or not was_closed:
                    raise NoAnswer(f"no scheduler answers at {self.server}: {_said(error)}{_advice(error)}") from None
                may_repeat = False

    def _once(self, method: str, path: str, body: bytes | None, timeout_s: float) -> Answer:
        if self._connection.sock is not None and _ended(self._connection.sock):
            self._connection.close()
        if self._connection.sock is None:
            self._connection.connect()
        self._connection.sock.settimeout(timeout_s)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        self._connection.request(method, path, body, headers | _authorization(self._connection))
        response = self._begun(timeout_s)
        return Answer(response.status, response.headers, response.read())

    def _begun(self, timeout_s: float) -> HTTPResponse:
        """The answer's head; a line of the log says when it is late (with TLS, something to read is no answer yet)."""
        slow_s = timeout_s - ANSWER_S + _SLOW_S
        if slow_s <= 0:
            return self._connection.getresponse()
        self._connection.sock.settimeout(slow_s)
        try:
            response = self._connection.getresponse()
        except TimeoutError:
            _log.warning("no answer yet from %s, asked %g s ago; 'cosched doctor' says more", self.server, slow_s)
            self._connection.sock.settimeout(timeout_s - slow_s)
            return self._connection.getresponse()
        if self._connection.sock is not None:  # None: it ends with this answer
            self._connection.sock.settimeout(timeout_s)
        return response

    @contextmanager
    def opened(self, path: str, headers: Mapping[str, str], *, timeout_s: float = ANSWER_S) -> Iterator[HTTPResponse]:
        """GET by a connection of its own, whose answer is read as it comes: it takes ``timeout_s`` between two pieces.

        From any thread. Raises :class:`NoAnswer`, before the block.
        """
        connection = _connection(self.server)
        try:
            try:
                connection.connect()
                assert connection.sock is not None
                connection.sock.settimeout(timeout_s)
                connection.request(
                    "GET", path, headers={**headers, **_authorization(connection), "Connection": "close"}
                )
                answer = connection.getresponse()
            except (http.client.HTTPException, OSError) as error:
                raise NoAnswer(f"no scheduler answers at {self.server}: {_said(error)}{_advice(error)}") from None
            with answer:
                yield answer
        finally:
            connection.close()

    def close(self) -> None:
        """Close the connection, if there is one."""
        self._connection.close()


def _authorization(connection: HTTPConnection) -> dict[str, str]:
    if isinstance(connection, _Tls) and connection.token:
        return {"Authorization": f"Bearer {connection.token}"}
    return {}


def _ended(connection: socket.socket) -> bool:
    """Whether the service has closed a connection on which nothing was asked for a while."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def _connection(server: str) -> HTTPConnection:
    expected = "the path of a Unix socket, or https://HOST:PORT"
    if server.startswith("https://"):
        try:
            parts = urlsplit(server)
            port = parts.port
        except ValueError as error:
            raise BadInput("--server", f"{server!r} ({error})", expected) from None
        if not parts.hostname or parts.path not in ("", "/") or parts.query or parts.username:
            raise BadInput("--server", f"{server!r}", expected)
        return _Tls(parts.hostname, port or _Tls.default_port, identity_dir())
    path = server.removeprefix("unix:")
    if "://" in server or "/" not in path:
        raise BadInput("--server", f"{server!r}", expected)
    return _Unix(Path(path))


def identity_dir() -> Path:
    """Where the user's certificate or token is: COSCHED_IDENTITY, else ~/.config/cosched."""
    if given := os.environ.get("COSCHED_IDENTITY"):
        return Path(given)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "cosched"


def _said(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it takes too long"
    if isinstance(error, http.client.RemoteDisconnected):
        return "it closed the connection"
    verify = getattr(error, "verify_message", "")
    if verify:
        return f"its certificate is refused: {verify}"
    if isinstance(error, OSError) and getattr(error, "reason", None):  # of TLS
        return str(getattr(error, "reason", "")).replace("_", " ").lower()
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower() if not error.strerror.isupper() else error.strerror
    return str(error) or type(error).__name__


def _advice(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return "; this user may not connect to it"
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        return "; is 'cosched scheduler' running? ('cosched lab up' makes a lab on this machine)"
    return ""

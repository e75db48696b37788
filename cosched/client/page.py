"""The page for this machine's browser: a reverse proxy on the loopback interface, to a service that was found.

A browser has no certificate of its user, and no Unix socket that tells who it is; this process has. It passes on GETs
of the page and nothing else, under its user's name; what they may see wants the cookie of a one-time link (the service
says so). Every user of this machine can connect to a port of the loopback interface: the kernel tells whose socket a
connection comes from, and those of other users than this process's and root are refused before anything is read.
"""

import http.client
import re
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from os import environ, geteuid
from pathlib import Path
from socket import MSG_DONTWAIT, SHUT_RDWR, SHUT_WR, socket
from socketserver import BaseServer
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit

from cosched.admission import Bounds, NoPlace, Places
from cosched.client.client import Client
from cosched.client.transport import Transport
from cosched.errors import Failed, NoAnswer
from cosched.linux.peers import TcpPeers
from cosched.model.time import humanised, us
from cosched.wire.api import PAGE_COOKIE

#: Addresses of the page: nothing in them is encoded, and none leads elsewhere by dots.
_PATH: Final = re.compile(r"/page(?:/[A-Za-z0-9_-]+(?:\.[a-z]+)?)+/?")
#: Of a request, what the page needs. ``Host`` is for comparing with ``Origin``.
_PASSED_ON: Final = ("Host", "Last-Event-ID", "Origin", "Sec-Fetch-Site")
_OF_THE_CONNECTION: Final = frozenset({"connection", "keep-alive", "transfer-encoding"})
#: Names under which a browser reaches this machine's loopback interface; any other is somebody's DNS.
_LOCAL: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_MOST_CONNECTIONS: Final = 64
_BACKLOG: Final = 128
_HEAD_BYTES: Final = 64 << 10
_LONGEST_PATH: Final = 1024
_PIECE_BYTES: Final = 64 << 10
#: For a request's head, and for a piece to be taken by the browser.
_PATIENCE_S: Final = 30.0


class PageProxy:
    """Listens until it is closed; ``port`` is where."""

    def __init__(
        self, transport: Transport, port: int = 0, *, say: Callable[[str], object] = lambda words: None
    ) -> None:
        """``port`` 0: any that is free; ``say`` is told what goes wrong. Raises :class:`Failed`: it cannot listen."""
        try:
            self._server = _Server(transport, port, say)
        except OSError as error:
            raise Failed(f"cannot listen on 127.0.0.1 port {port}: {error.strerror}") from None
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="cosched-page", daemon=True)
        self._thread.start()

    def url(self, path: str) -> str:
        """An address of the service's page as this machine's browsers have it."""
        return f"http://127.0.0.1:{self.port}{path}"

    def close(self) -> None:
        """Listen no more; what is open ends with this process."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> "PageProxy":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def in_browser(url: str) -> Iterator[bool]:
    """Whether this desktop has a browser that opens an address: by a file of this user's alone, removed after.

    A link as an argument could be read by every user of this machine, and be used before the browser does.
    """
    if not (environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")):
        yield False
        return
    with TemporaryDirectory(prefix="page-") as made:
        file = Path(made) / "open.html"
        file.write_text(f'<!doctype html><title>cosched</title><meta http-equiv="refresh" content="0; url={url}">')
        yield webbrowser.open(file.as_uri())


@contextmanager
def page_of(client: Client, say: Callable[[str], object], port: int = 0, *, browser: bool = True) -> Iterator[None]:
    """The page of a service for as long as the block lasts: its link is said, and opened where there is a desktop.

    Raises :class:`Failed` where the port is taken, and what ``Client.page_link`` raises.
    """
    with PageProxy(client.transport, port, say=say) as proxy, ExitStack() as opened:
        link = client.page_link()
        url = proxy.url(link.path)
        say(f"The page, opened once and within {humanised(us(link.life_s))}: {url}")
        if browser and opened.enter_context(in_browser(url)):
            say("A browser was asked to open it.")
        yield


class _Server(ThreadingHTTPServer):
    """A thread for each connection that has a place: up to a limit, then one without a request is closed for it."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = _BACKLOG

    def __init__(self, transport: Transport, port: int, say: Callable[[str], object]) -> None:
        self.transport = transport
        self._say = say
        self._complained = ""
        self._peers = TcpPeers()
        self._users = _users()
        self._has_told_of_others = False
        self._lock = threading.Lock()
        bounds = Bounds(_MOST_CONNECTIONS, _MOST_CONNECTIONS)
        self._places: Places[int, socket] = Places(bounds, replaces=True)
        super().__init__(("127.0.0.1", port), _Handler)

    def server_close(self) -> None:
        super().server_close()
        self._peers.close()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether the connection is from one of the users and gets a place; others are answered with a refusal."""
        try:
            uid = self._peers.uid(request)
        except OSError:
            uid = None
        if uid in self._users:
            return self._enter(request, uid)
        if uid is not None and not self._has_told_of_others:
            self._has_told_of_others = True
            self._say(f"uid {uid} has tried to open this page: other users of this machine are refused.")
        yours = "cannot be told" if uid is None else f"is {uid}"
        _dismiss(request, 403, f"this page is of uid {geteuid()}, and yours {yours}: run 'cosched page' yourself")
        return False

    def _enter(self, request: socket, uid: int) -> bool:
        try:
            with self._lock:
                if (evicted := self._places.enter(request, uid)) is not None:
                    with suppress(OSError):  # its thread closes it
                        evicted.shutdown(SHUT_RDWR)
        except NoPlace:
            _dismiss(request, 503, f"all {_MOST_CONNECTIONS} connections of this page are in use")
            return False
        return True

    def request_read(self, request: socket) -> None:
        """A connection's request has been read: it is evicted no more."""
        with self._lock:
            self._places.settle(request)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection; its place is free."""
        with self._lock:  # an eviction shuts down none that is closed
            self._places.leave(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that has gone is nobody's error; everything else is this process's own."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            self.complain(f"{type(error).__name__}: {error}")

    def complain(self, words: str) -> None:
        """Say on the terminal what is wrong here, once for as long as it is the same."""
        if words != self._complained:
            self._complained = words
            self._say(f"The page cannot be passed on: {words}")


class _Handler(BaseHTTPRequestHandler):
    """One request: looked at, passed on, and its answer passed back as it comes."""

    timeout = _PATIENCE_S

    def __init__(self, request: socket, client_address: Any, server: BaseServer) -> None:
        assert isinstance(server, _Server)
        self._server = server
        self._transport = server.transport
        super().__init__(request, client_address, server)

    def do_GET(self) -> None:
        """The only method."""
        self._server.request_read(self.connection)
        if not _is_local(self.headers.get("Host", "")):
            return self._refuse(403, "this is for browsers of this machine")
        if len(self.path) > _LONGEST_PATH or not _PATH.fullmatch(self.path):
            return self._refuse(404, "there is nothing at this address")
        headers = {name: value for name in _PASSED_ON if (value := self.headers.get(name)) is not None}
        headers |= _cookie(self.headers.get("Cookie", ""))
        try:
            with self._transport.opened(self.path, headers) as answer:
                self._pass_back(answer)
        except NoAnswer as error:
            return self._refuse(502, str(error))
        except ValueError as error:  # an identity that cannot be used, or what no header can say
            self._server.complain(str(error))
            return self._refuse(502, f"this page cannot be asked for: {error}")
        return None

    def _pass_back(self, answer: http.client.HTTPResponse) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _OF_THE_CONNECTION:
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        with suppress(http.client.HTTPException, OSError):  # either side has gone: the browser sees its end
            while piece := answer.read1(_PIECE_BYTES):
                self.wfile.write(piece)

    def _refuse(self, status: int, words: str) -> None:
        self.wfile.write(_refusal(status, words))

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a link's secret is in its address."""


def _users() -> frozenset[int]:
    """The uids that reach the page: this process's, root, which may act as any user, and the user of sudo."""
    uids = {geteuid(), 0}
    if geteuid() == 0 and (given := environ.get("SUDO_UID", "")).isdecimal():
        uids.add(int(given))
    return frozenset(uids)


def _refusal(status: int, words: str) -> bytes:
    body = f"{words}\n".encode()
    head = (
        f"HTTP/1.0 {status} {HTTPStatus(status).phrase}",
        "Content-Type: text/plain; charset=utf-8",
        "X-Content-Type-Options: nosniff",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    return "\r\n".join((*head, "", "")).encode() + body


def _dismiss(request: socket, status: int, words: str) -> None:
    """Answer a connection without waiting for its request, and close it."""
    with suppress(OSError):
        request.send(_refusal(status, words), MSG_DONTWAIT)
        request.shutdown(SHUT_WR)
        request.recv(_HEAD_BYTES, MSG_DONTWAIT)  # unread bytes would reset the connection, and the answer be lost
    request.close()


def _cookie(given: str) -> dict[str, str]:
    """The page's cookie alone, of all that a browser has for this machine's loopback interface.

    Of several the first: browsers send the one with the longest path first, and the visit's address is in that path.
    """
    each = (cookie.strip() for cookie in given.split(";"))
    found = next((cookie for cookie in each if cookie.startswith(f"{PAGE_COOKIE}=")), None)
    return {} if found is None else {"Cookie": found}


def _is_local(host: str) -> bool:
    """Whether a request's ``Host`` names the loopback interface: else its name is resolved by somebody else."""
    try:
        return urlsplit(f"//{host}").hostname in _LOCAL
    except ValueError:
        return False

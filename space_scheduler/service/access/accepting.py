"""The service's listening sockets: accepts, counts who is there before anything is spent on it, then lets HTTP begin.

The library's own listening does TLS for whoever connects, any number of them, for as long as they like. Here
:mod:`~.admission` says who finds a place; strangers have a time-out for the handshake and one to prove themselves.
Who is accepted already is not asked again: a flood ends no connection of an agent's, and none of a user's.
"""

import asyncio
import contextlib
import errno
import gc
import socket
import ssl
from collections.abc import Callable, Container
from typing import Final

from aiohttp import web

from cosched.errors import BadInput
from cosched.identity.tls import Peer, expiry_of, peer_of, serial_of
from cosched.linux.peers import peer_credentials
from space_scheduler.service.access.admission import OF_ONE_NODE, Counts, Known, Limits, Room, Turns
from space_scheduler.service.log import Log

#: How much a user's connection reads at once: asyncio's own 256 KiB are held for as long as a body waits for its turn.
_PIECE_BYTES: Final = 16 << 10
#: Accepted in one go: then others have a turn, and the loop comes back.
_AT_ONCE: Final = 128
HANDSHAKE_S: Final = 10.0
_GOODBYE_S: Final = 2.0
#: A handshake of this age makes room for others that wait.
_SLOW_S: Final = 1.0
#: From the connection on, until a certificate or a token has said who it is.
PROOF_S: Final = 10.0
_LOOK_S: Final = 0.5
#: An ended connection is garbage in cycles, some kilobytes: after so many that is looked for, which is else done seldom
#: (:mod:`~.garbage`).
_LITTER: Final = 4000
_NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_WORDS: Final = b'{"message":"too many connections of yours, or of all users; again in 1 s"}'
_FULL: Final = (
    b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: " + str(len(_WORDS)).encode() + b"\r\n\r\n" + _WORDS
)


class _Stranger:
    """Somebody who has connected over TLS, on its way through the rooms."""

    __slots__ = ("address", "connection", "since_s", "task", "transport")

    def __init__(self, connection: socket.socket, address: str, since_s: float) -> None:
        self.connection, self.address, self.since_s = connection, address, since_s
        self.task: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None

    def done(self, _: asyncio.Task[None]) -> None:
        """The handshake is over, or was never begun."""
        if self.transport is None:
            self.connection.close()


class Acceptor:
    """Listens, and knows how many connections of whom there are. ``refused`` counts, by kind, who found no place."""

    def __init__(
        self,
        server: web.Server,
        limits: Limits,
        log: Log,
        is_member: Callable[[Peer, str], bool],
        was_shown: Callable[[Peer, str, float], None] = lambda peer, serial, until_s: None,
    ) -> None:
        """``is_member``: whether a certificate, by whose it is and its serial number, is one of this cluster's now.

        ``was_shown`` is told of each such certificate, with its end in seconds since 1970.
        """
        self._server = server
        self._log = log
        self._is_member, self._was_shown = is_member, was_shown
        self._loop = asyncio.get_running_loop()
        self._arrived: Room[_Stranger] = Room(limits.arrived)
        self._ready: Turns[_Stranger] = Turns()
        self._shaking: Room[_Stranger] = Room(limits.handshakes)
        self._unproven: Room[_Stranger] = Room(limits.unproven)
        self._known = Known()
        self._users: Counts[str | int] = Counts(limits.of_one_user, limits.users)
        self._nodes: Counts[str] = Counts(OF_ONE_NODE, limits.agents)
        self._places: dict[asyncio.Transport, tuple[Counts[str | int] | Counts[str], str | int]] = {}
        self._serials: dict[asyncio.Transport, str] = {}  # of the certificates that were shown on them
        self._starting: set[asyncio.Task[None]] = set()
        self._sockets: list[socket.socket] = []
        self._secured: ssl.SSLContext | None = None
        self.refused = 0
        self._ended = 0  # connections, since garbage was looked for

    # listening

    def listen_unix(self, listening: socket.socket) -> None:
        """Users of this host."""
        self._listen(listening, self._local)

    def listen_tls(self, listening: socket.socket, secured: ssl.SSLContext) -> None:
        """Agents and remote users."""
        self._secured = secured
        self._listen(listening, self._remote)

    def renewed(self, secured: ssl.SSLContext) -> None:
        """The scheduler has another certificate, or trusts another authority: from the next connection on."""
        self._secured = secured

    def _listen(self, listening: socket.socket, take: Callable[[socket.socket, object], None]) -> None:
        listening.setblocking(False)
        self._sockets.append(listening)
        self._loop.add_reader(listening, self._accept, listening, take)

    def close(self) -> None:
        """Accept nobody any more; strangers are sent away, all other connections are the server's to end."""
        for each in self._sockets:
            self._loop.remove_reader(each)
        self._sockets.clear()
        for room in (self._arrived, self._shaking, self._unproven):
            for _, stranger in room:
                self._send_away(stranger)
        for task in self._starting:
            task.cancel()

    def _accept(self, listening: socket.socket, take: Callable[[socket.socket, object], None]) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_DESCRIPTORS:
                    raise
                self._log.peer("this host", "no connection can be accepted", why=error.strerror)
                self._loop.remove_reader(listening)
                self._loop.call_later(_LOOK_S, self._again, listening, take)
                return
            connection.setblocking(False)
            take(connection, address)

    def _again(self, listening: socket.socket, take: Callable[[socket.socket, object], None]) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening, take)

    # users of this host

    def _local(self, connection: socket.socket, _: object) -> None:
        uid = peer_credentials(connection).uid
        if self._full(self._users, uid, first=uid == 0):
            self._refuse(f"uid {uid}", "too many connections")
            with contextlib.suppress(OSError):
                connection.send(_FULL)
            connection.close()
            return
        self._users.add(uid)
        self._start(self._begin(connection, uid))

    async def _begin(self, connection: socket.socket, uid: int) -> None:
        try:
            transport, _ = await self._loop.connect_accepted_socket(self._server, connection)
            transport.max_size = _PIECE_BYTES  # type: ignore[attr-defined]
        except OSError:
            self._users.remove(uid)
            connection.close()
        except BaseException:
            self._users.remove(uid)
            raise
        else:
            self._places[transport] = (self._users, uid)

    # strangers

    def _remote(self, connection: socket.socket, address: object) -> None:
        host = str(address[0]) if isinstance(address, tuple) else ""
        stranger = _Stranger(connection, host, self._loop.time())
        self._make_room(self._arrived.enter(host, stranger, self._known.addresses))
        self._loop.add_reader(connection, self._speaks, stranger)

    def _speaks(self, stranger: _Stranger) -> None:
        """Its first byte has come, or its end."""
        self._loop.remove_reader(stranger.connection)
        self._ready.add(stranger.address, stranger)
        self._serve()

    def _serve(self) -> None:
        """Begin handshakes, as many as there is room for."""
        while self._shaking.count < self._shaking.most:
            found = self._ready.next(self._known.addresses, self._may)
            if found is None:
                return
            address, stranger = found
            self._arrived.leave(address, stranger)
            self._shaking.enter(address, stranger)
            stranger.task = self._start(self._shake(stranger))
            stranger.task.add_done_callback(stranger.done)

    def _may(self, address: str) -> bool:
        return self._shaking.of(address) < self._shaking.of_one

    async def _shake(self, stranger: _Stranger) -> None:
        assert self._secured is not None
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                self._server,
                stranger.connection,
                ssl=self._secured,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=_GOODBYE_S,
            )
        except (OSError, asyncio.CancelledError) as error:
            # no TLS, a certificate that is not ours, too slow: its own affair. By its trace it would keep a quarter of
            # a megabyte until garbage is looked for
            error.__traceback__ = None
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            self._identify(stranger, transport)
        finally:
            self._ended += 1
            self._shaking.leave(stranger.address, stranger)
            self._loop.call_soon(self._serve)

    def _identify(self, stranger: _Stranger, transport: asyncio.Transport) -> None:
        """By its certificate, if it has shown one; else it is asked for a token."""
        stranger.transport = transport
        secured: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if secured is None:  # gone already
            return
        try:
            peer = peer_of(secured) if secured.getpeercert() else None
        except BadInput:
            peer = None
        if peer is None or not self._is_member(peer, serial_of(secured)):
            self._make_room(self._unproven.enter(stranger.address, stranger, self._known.addresses))
            return
        serial = self._serials[transport] = serial_of(secured)
        self._was_shown(peer, serial, expiry_of(secured) or 0.0)
        if peer.kind == "user":
            self._settle(transport, self._users, peer.name)
        else:
            self._known.add(stranger.address)
            self._settle(transport, self._nodes, peer.name)

    def proven(self, transport: asyncio.BaseTransport | None, user: str) -> bool:
        """An unproven one has shown a token; False where that user has no place left."""
        found = next((each for _, each in self._unproven if each.transport is transport), None)
        if found is None or found.transport is None:
            return True  # it was here before
        if self._full(self._users, user):
            return False
        self._unproven.leave(found.address, found)
        self._users.add(user)
        self._places[found.transport] = (self._users, user)
        return True

    def _settle(self, transport: asyncio.Transport, counts: "Counts[str | int] | Counts[str]", name: str) -> None:
        if self._full(counts, name):
            self._refuse(name, "too many connections")
            self._serials.pop(transport, None)
            transport.write(_FULL)
            transport.close()
            return
        counts.add(name)
        self._places[transport] = (counts, name)

    # those who go

    def cut(self, serials: Container[str]) -> int:
        """End the connections on which certificates of those numbers were shown; how many there were."""
        self._count_gone()
        found = [transport for transport, serial in self._serials.items() if serial in serials]
        for transport in found:
            _abort(transport)
        return len(found)

    def _full(self, counts: "Counts[str | int] | Counts[str]", key: str | int, *, first: bool = False) -> bool:
        if not counts.full(key, first=first):  # type: ignore[arg-type]
            return False
        self._count_gone()
        return counts.full(key, first=first)  # type: ignore[arg-type]

    def _count_gone(self) -> None:
        for transport in [each for each in self._places if each.is_closing()]:
            self._ended += 1
            counts, key = self._places.pop(transport)
            self._serials.pop(transport, None)
            counts.remove(key)  # type: ignore[arg-type]

    def _make_room(self, stranger: _Stranger | None) -> None:
        if stranger is not None:
            self._refuse("strangers", "too many connections", address=stranger.address)
            self._send_away(stranger)

    def _send_away(self, stranger: _Stranger) -> None:
        if stranger.transport is not None:
            _abort(stranger.transport)
        elif stranger.task is not None:
            stranger.task.cancel()
        else:
            self._loop.remove_reader(stranger.connection)
            self._ready.drop(stranger.address, stranger)
            stranger.connection.close()

    def _refuse(self, who: str, kind: str, **fields: object) -> None:
        self.refused += 1
        self._log.peer(who, kind, **fields)

    async def watch(self) -> None:
        """Count who has gone, and end who took too long, for ever."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self._count_gone()
            if self._ended >= _LITTER:
                self._ended = 0
                gc.collect()
            now_s = self._loop.time()
            for room in (self._arrived, self._unproven):
                for address, each in room:
                    gone = each.transport is not None and each.transport.is_closing()
                    if gone or now_s - each.since_s > PROOF_S:
                        room.leave(address, each)
                        self._send_away(each)
            if len(self._ready):
                for _, each in self._shaking:
                    if now_s - each.since_s > _SLOW_S:
                        self._send_away(each)

    def _start(self, doing: "asyncio._CoroutineLike[None]") -> asyncio.Task[None]:
        task = self._loop.create_task(doing)
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)
        return task


def _abort(transport: asyncio.Transport) -> None:
    with contextlib.suppress(AttributeError):  # Python 3.11.2: its TLS has let go of one that has ended
        transport.abort()

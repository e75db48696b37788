"""The service's listening sockets: a connection has a place before anything is spent on it; then HTTP begins.

The library's own listening does TLS for any number of connections, without a timeout. Here :mod:`cosched.admission`
gives the places. A connection over TLS is a stranger's until a certificate or a token says whose it is; strangers pass
three rooms, each small, with a timeout for the handshake and one for the proof:

* they have *arrived* and sent nothing yet: a descriptor each, no TLS;
* they *shake hands*, so many at a time: TLS holds a quarter of a megabyte from its first byte on;
* they are *unproven*: TLS is there, no certificate was shown, and no token yet.

Addresses at which an agent has proved itself are preferred there. Agents and users have places of their own: a flood of
strangers ends no connection of theirs.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Final, TypeAlias

from aiohttp import web

from cosched.admission import Bounds, NoPlace, Places
from cosched.errors import BadInput
from cosched.identity.tls import Peer, expiry_of, peer_of, serial_of
from cosched.linux.peers import peer_credentials
from cosched.listening import Listener
from space_scheduler.service.access import newest
from space_scheduler.service.access.listen import Limits
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
#: Connections of one node at a time: an old one that is not known to be dead yet, and new ones.
_OF_ONE_NODE: Final = 4
_WORDS: Final = b'{"message":"too many connections of yours, or of all users; again in 1 s"}'
_FULL: Final = (
    b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Length: " + str(len(_WORDS)).encode() + b"\r\n\r\n" + _WORDS
)


@dataclass(slots=True, eq=False)
class _Connection:
    """One connection: a socket, then a transport. ``serial`` is its certificate's, where it has shown one."""

    accepted: socket.socket
    since_s: float
    address: str = ""
    serial: str | None = None
    task: asyncio.Task[None] | None = None
    transport: asyncio.Transport | None = None

    @property
    def is_gone(self) -> bool:
        """Whether it has ended, once there is a transport."""
        return self.transport is not None and self.transport.is_closing()

    def done(self, _: asyncio.Task[None]) -> None:
        """The handshake is over, or was never begun."""
        if self.transport is None:
            self.accepted.close()


_Room: TypeAlias = Places[str, _Connection]
_Settled: TypeAlias = Places[str | int, _Connection]


class Acceptor:
    """Listens, and gives connections their places. ``refused`` counts those that were refused or evicted."""

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
        self._proved: dict[str, None] = {}  # addresses of agents, the last one last
        self._arrived, self._shaking, self._unproven = map(
            self._room, (limits.arrived, limits.handshakes, limits.unproven)
        )
        self._ready: dict[_Connection, str] = {}  # of those that have arrived: what has sent its first byte
        self._users: _Settled = Places(Bounds(limits.users, limits.of_one_user), preferred={0})
        self._nodes: _Settled = Places(Bounds(limits.agents, _OF_ONE_NODE))
        self._starting: set[asyncio.Task[None]] = set()
        #: Where users of this host come, and agents and remote users; for the latter ``secured`` is needed.
        self.local = Listener(self._come_local, _AT_ONCE, short=self._none_left)
        self.remote = Listener(self._come_remote, _AT_ONCE, short=self._none_left)
        self.secured: ssl.SSLContext | None = None
        self.refused = 0

    def _room(self, most: int) -> _Room:
        """Strangers by their address, of which each has half of the places at most."""
        return Places(Bounds(most, max(1, most // 2)), replaces=True, preferred=self._proved)

    # listening

    def close(self) -> None:
        """Accept nobody any more; strangers are sent away, all other connections are the server's to end."""
        self.local.close()
        self.remote.close()
        for room in (self._arrived, self._shaking, self._unproven):
            for stranger in room:
                self._send_away(stranger)
        for task in self._starting:
            task.cancel()

    def _none_left(self, error: OSError) -> None:
        self._log.peer("this host", "no connection can be accepted", why=error.strerror)

    # users of this host

    def _come_local(self, accepted: socket.socket, _: object) -> None:
        uid = peer_credentials(accepted).uid
        connection = _Connection(accepted, self._loop.time())
        if not self._settle(connection, self._users, uid):
            self._refuse(f"uid {uid}", "too many connections")
            with contextlib.suppress(OSError):
                accepted.send(_FULL)
            accepted.close()
            return
        task = self._loop.create_task(self._begin(connection))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _begin(self, connection: _Connection) -> None:
        try:
            connection.transport, _ = await self._loop.connect_accepted_socket(self._server, connection.accepted)
            connection.transport.max_size = _PIECE_BYTES  # type: ignore[attr-defined]
        except BaseException as error:
            self._users.leave(connection)
            if not isinstance(error, OSError):
                raise
            connection.accepted.close()

    # strangers

    def _come_remote(self, accepted: socket.socket, address: object) -> None:
        host = str(address[0]) if isinstance(address, tuple) else ""
        stranger = _Connection(accepted, self._loop.time(), host)
        self._enter(self._arrived, stranger)
        self._loop.add_reader(accepted, self._speaks, stranger)

    def _speaks(self, stranger: _Connection) -> None:
        """Its first byte has come, or its end."""
        self._loop.remove_reader(stranger.accepted)
        self._ready[stranger] = stranger.address
        self._serve()

    def _serve(self) -> None:
        """Begin handshakes, as many as there is room for."""
        while (stranger := self._shaking.next_of(self._ready)) is not None:
            del self._ready[stranger]
            self._arrived.leave(stranger)
            self._enter(self._shaking, stranger)
            stranger.task = self._loop.create_task(self._shake(stranger))
            self._starting.add(stranger.task)
            stranger.task.add_done_callback(self._starting.discard)
            stranger.task.add_done_callback(stranger.done)

    async def _shake(self, stranger: _Connection) -> None:
        assert self.secured is not None
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                self._server,
                stranger.accepted,
                ssl=self.secured,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=_GOODBYE_S,
            )
        except (OSError, asyncio.CancelledError) as error:
            # no TLS, a certificate that is not ours, too slow: its own affair. By its trace it would keep a quarter of
            # a megabyte until the cyclic collector runs
            error.__traceback__ = None
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            self._identify(stranger, transport)
        finally:
            self._shaking.leave(stranger)
            self._loop.call_soon(self._serve)

    def _identify(self, stranger: _Connection, transport: asyncio.Transport) -> None:
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
            self._enter(self._unproven, stranger)
            return
        stranger.serial = serial_of(secured)
        self._was_shown(peer, stranger.serial, expiry_of(secured) or 0.0)
        if peer.kind != "user":
            newest.put(self._proved, stranger.address, None)
        if not self._settle(stranger, self._users if peer.kind == "user" else self._nodes, peer.name):
            self._refuse(peer.name, "too many connections")
            transport.write(_FULL)
            transport.close()

    def proven(self, transport: asyncio.BaseTransport | None, user: str) -> bool:
        """An unproven one has shown a token; False where that user has no place left."""
        found = next((each for each in self._unproven if each.transport is transport), None)
        if found is None:
            return True  # it was here before
        if not self._settle(found, self._users, user):
            return False
        self._unproven.leave(found)
        return True

    def _settle(self, connection: _Connection, places: _Settled, owner: str | int) -> bool:
        """Whether a user's or a node's connection gets a place; those that have ended give theirs back first."""
        try:
            places.enter(connection, owner)
        except NoPlace:
            self._count_gone()
            try:
                places.enter(connection, owner)
            except NoPlace:
                return False
        places.settle(connection)
        return True

    # those who go

    def cut(self, serials: Container[str]) -> int:
        """End the connections on which certificates of those numbers were shown; how many there were."""
        self._count_gone()
        found = [
            each.transport
            for places in (self._users, self._nodes)
            for each in places
            if each.transport is not None and each.serial in serials
        ]
        for transport in found:
            _abort(transport)
        return len(found)

    def _count_gone(self) -> None:
        for places in (self._users, self._nodes):
            for each in places:
                if each.is_gone:
                    places.leave(each)

    def _enter(self, room: _Room, stranger: _Connection) -> None:
        """Into a room where something is evicted for it if there is no place left."""
        if (evicted := room.enter(stranger, stranger.address)) is not None:
            self._refuse("strangers", "too many connections", address=evicted.address)
            self._send_away(evicted)

    def _send_away(self, stranger: _Connection) -> None:
        if stranger.transport is not None:
            _abort(stranger.transport)
        elif stranger.task is not None:
            stranger.task.cancel()
        else:
            self._loop.remove_reader(stranger.accepted)
            self._ready.pop(stranger, None)
            stranger.accepted.close()

    def _refuse(self, who: str, kind: str, **fields: object) -> None:
        self.refused += 1
        self._log.peer(who, kind, **fields)

    async def watch(self) -> None:
        """Count who has gone, and end who took too long, for ever."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self._count_gone()
            now_s = self._loop.time()
            for room in (self._arrived, self._unproven):
                for each in room:
                    if each.is_gone or now_s - each.since_s > PROOF_S:
                        room.leave(each)
                        self._send_away(each)
            if self._ready:
                for each in self._shaking:
                    if now_s - each.since_s > _SLOW_S:
                        self._send_away(each)


def _abort(transport: asyncio.Transport) -> None:
    with contextlib.suppress(AttributeError):  # Python 3.11.2: its TLS has let go of one that has ended
        transport.abort()

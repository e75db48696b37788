"""The agents' side of the service: one WebSocket for each agent, over TLS with the node's certificate.

The link decides nothing about jobs. It says who is there (a hello that is welcome), who is not any more (silent for a
whole lease), hands on what nodes report, and carries orders. An order for a node that is not connected is dropped: when
the agent comes back it says what it has, and whoever gave the order asks again (see :mod:`~.gang`).
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final, TypeVar

from aiohttp import WSMsgType, web

from cosched.config.cluster import ClusterConfig
from cosched.errors import BadInput, Failed, nearest
from cosched.identity.tls import GRACE_S, expiry_of, serial_of, since_of
from cosched.model.time import US_PER_S, humanised
from cosched.wire import messages as wire
from cosched.wire.sequence import OutOfTurn
from space_scheduler.service.access.callers import certificate_of, secured_by
from space_scheduler.service.access.members import Members
from space_scheduler.service.access.problems import Refusal
from space_scheduler.service.launch.nodes import NodeBook, NodeEntry
from space_scheduler.service.launch.values import (
    AnyInput,
    CertificateExpired,
    Connected,
    Disconnected,
    Heard,
    Removed,
    RevocationsChanged,
    Ticked,
)
from space_scheduler.service.link.bans import Bans
from space_scheduler.service.link.joining import checked_hello
from space_scheduler.service.link.session import Session
from space_scheduler.service.log import Log

#: So many messages that cannot be read end a connection: the other side does not speak this language.
_MOST_BAD: Final = 100
_HELLO_S: Final = 10.0
#: A connection that was silent for so many heartbeats is dead, should another agent of that name call.
_DEAD_BEATS: Final = 3
_SURVEY_S: Final = 5.0


Kind = TypeVar("Kind", wire.OutputChunk, wire.Surveyed)


class _Removed(Exception):
    """A node that has belonged to the cluster and does so no more; the message goes to its agent."""


class Link:
    """The endpoint /v1/agent, and the leases."""

    def __init__(
        self,
        config: ClusterConfig,
        book: NodeBook,
        fence: wire.Fence,
        log: Log,
        feed: Callable[[AnyInput], None],
        members: Members,
        last_job_id: int | None = None,
    ) -> None:
        """``feed`` takes in what happens; ``last_job_id``: :func:`checked_hello`."""
        self.config = config
        self.book = book
        self.fence = fence
        self.log = log
        self.feed = feed
        self.members = members
        self._last_job_id = last_job_id
        self.sessions: dict[str, Session] = {}
        self.refused: Counter[str] = Counter()
        self.closing = False
        self.beat_s = config.time_us("heartbeat") / US_PER_S
        self.bans = Bans(book, feed, self.sessions)
        self._requests = count(1)
        self._asked: dict[int, tuple[str, asyncio.Future[Any]]] = {}

    # sending

    def send(self, name: str, message: wire.ToAgent) -> bool:
        """Send to a node; False where it is not connected."""
        if (session := self.sessions.get(name)) is not None:
            session.send(message)
        return session is not None

    def cut(self, name: str, after_s: float) -> None:
        """End a node's connection; one that ends soon is sent nothing more and not listened to."""
        session = self.sessions.pop(name, None)
        if session is not None and after_s:
            asyncio.get_running_loop().call_later(after_s, session.cut)
        elif session is not None:
            session.cut()

    async def read_output(
        self, name: str, job_id: int, attempt: int, stream: str, offset: int, max_bytes: int, timeout_s: float = 15.0
    ) -> wire.OutputChunk | None:
        """A piece of a job's spooled output; None where the node is not connected or does not answer in time."""
        max_bytes = min(max_bytes, wire.MAX_CHUNK_BYTES)
        return await self._answered(
            name,
            timeout_s,
            lambda number: wire.ReadOutput(number, job_id, attempt, stream, offset, max_bytes),
            wire.OutputChunk,
        )

    async def survey(self, name: str, uids: Mapping[str, int]) -> wire.Surveyed | None:
        """What users are on a node, and its clock; None where it is not connected or does not answer in time.

        ``uids`` are those of the users on this host, as an order has them.
        """
        told = dict(uids) if self.book.entry(name).version >= wire.UID_VERSION else {}
        return await self._answered(
            name, _SURVEY_S, lambda number: wire.Survey(number, tuple(uids), told), wire.Surveyed
        )

    async def _answered(
        self, name: str, timeout_s: float, message: Callable[[int], wire.ToAgent], _: type[Kind]
    ) -> Kind | None:
        """The answer, of that kind, to a question of that number; None where there is none in time."""
        number = next(self._requests)
        future: asyncio.Future[Kind] = asyncio.get_running_loop().create_future()
        self._asked[number] = (name, future)
        try:
            if not self.send(name, message(number)):
                return None
            async with asyncio.timeout(timeout_s):
                return await future
        except (TimeoutError, ConnectionError):
            return None
        finally:
            del self._asked[number]

    # connections

    async def accept(self, request: web.Request) -> web.StreamResponse:
        """Serve one agent until its connection ends."""
        name = self._node_of(request)
        secured = secured_by(request)
        assert secured is not None  # by the node's certificate
        serial = serial_of(secured)
        socket = web.WebSocketResponse(max_msg_size=wire.MAX_FRAME_BYTES, compress=False, timeout=2.0)
        await socket.prepare(request)
        transport = request.transport
        if transport is None:
            return socket
        try:
            async with asyncio.timeout(_HELLO_S):
                hello = await self._hello(socket, name)
                self._member(name, serial)
                self._newest(name, serial, since_of(secured))
                entry = self._welcome(hello, name)
        except (_Removed, BadInput, TimeoutError) as error:
            removed, reason = isinstance(error, _Removed), str(error) or f"no hello within {_HELLO_S:g} s"
            kind = "version" if reason.startswith(wire.WRONG_VERSION) else "hello"
            self._refuse(name, "removed" if removed else kind, reason)
            if not removed and (known := self.book.get(name)) is not None:
                known.refused = reason
            await _say(socket, wire.Rejected(reason, self.fence if removed else None))
            return socket
        session = self.sessions[name] = Session(socket, transport, name, self.log, hello)
        entry.heard_at = datetime.now().astimezone()
        entry.expires_s = expiry_of(secured)
        self.feed(Connected(name, hello, session.session, serial, self.members.revoked))
        self._look_at_certificate(name, session, time.time())
        writer = asyncio.create_task(session.write())
        try:
            await self._read(socket, entry, session)
        finally:
            writer.cancel()
            if self.sessions.get(name) is session:
                del self.sessions[name]
                self.feed(Disconnected(name))
            for peer, future in list(self._asked.values()):
                if peer == name and not future.done():
                    future.set_exception(ConnectionResetError(f"{name} is away"))
        return socket

    def _node_of(self, request: web.Request) -> str:
        peer = certificate_of(request)
        if peer is None:
            raise Refusal(403, "agents come over TLS, with their node's certificate")
        if peer.kind != "node":
            self._refuse(f"{peer.kind} {peer.name}", "certificate", "not a node's")
            raise Refusal(403, f"the agents' link is for nodes; this is the certificate of {peer.kind} {peer.name!r}")
        return peer.name

    async def _hello(self, socket: web.WebSocketResponse, name: str) -> wire.Hello:
        """The first message, checked. Raises :class:`BadInput`, whose words go to the agent."""
        first = await socket.receive()
        if first.type is not WSMsgType.BINARY:
            raise BadInput("hello", f"a {first.type.name.lower()} frame", "a Hello in a binary frame")
        return checked_hello(wire.from_agent(first.data), name, self.fence, self.config.name, self._last_job_id)

    def _member(self, name: str, serial: str) -> None:
        """Raises :class:`BadInput` for a node that never belonged here, :class:`_Removed` for one that did."""
        if self.members.is_revoked(serial):
            raise _Removed(f"certificate: that of node {name!r} was revoked; 'cosched node add' makes another")
        if name not in self.book.allowed:
            if self.members.was_removed(name):
                raise _Removed(f"node {name!r} was removed from this cluster; 'cosched node add' takes it in again")
            near = nearest(name, self.book.allowed)
            raise BadInput("hello: node", f"{name!r} is not in this cluster's list of nodes", nearest=near)

    def _newest(self, name: str, serial: str, since_s: float | None) -> None:
        """Revoke the certificate that the node showed before this one. Raises :class:`BadInput` for an older one."""
        if since_s is None:
            return
        try:
            if self.members.shown(name, serial, since_s):
                self.log.info("certificate replaced", node=name, serial=serial)
                self.tell_revoked()
        except Failed as error:  # what runs there goes on; it is tried again at the next connection
            self.log.warn("certificate not noted", node=name, why=str(error))

    def _welcome(self, hello: wire.Hello, name: str) -> NodeEntry:
        """The node's entry, free for this agent. Raises :class:`BadInput` where another one is alive."""
        entry = self.book.entry(name)
        if (session := self.sessions.get(name)) is not None:
            silent_s = self.book.now_s() - (entry.heard_s or 0.0)
            if silent_s <= _DEAD_BEATS * self.beat_s and not self.members.is_revoked(entry.serial):
                heard = humanised(int(silent_s * US_PER_S))
                raise BadInput("hello: node", f"an agent of {name} is connected, heard {heard} ago", "one agent a node")
            self.log.warn("agent replaced", node=name, silent_s=round(silent_s, 3))
            del self.sessions[name]
            session.cut()
        return entry

    async def _read(self, socket: web.WebSocketResponse, entry: NodeEntry, session: Session) -> None:
        bad = 0
        async for frame in socket:
            if self.sessions.get(entry.name) is not session:
                return  # replaced
            if frame.type is WSMsgType.ERROR:
                self._refuse(entry.name, "oversized", str(frame.data))
                return
            try:
                if frame.type is not WSMsgType.BINARY:
                    raise BadInput("message", f"a {frame.type.name.lower()} frame", "a binary one")
                message = wire.from_agent(session.turn.payload(frame.data))
            except BadInput as error:
                kind = error.kind if isinstance(error, OutOfTurn) else "undecodable"
                self._refuse(entry.name, kind, str(error))
                bad += 1
                if bad >= _MOST_BAD or kind == "out of order":
                    session.cut()
                    return
                continue
            entry.heard_at = datetime.now().astimezone()
            if self.closing:
                continue  # what is said now is said again to the next scheduler
            if isinstance(message, wire.OwnersWord):
                await self.bans.said(session, message)
            else:
                self._hand_on(entry, session, message)

    def _hand_on(self, entry: NodeEntry, session: Session, message: wire.FromAgent) -> None:
        if isinstance(message, wire.Refused) and message.code == "fenced":
            # it obeys another scheduler: nothing that this one says counts there
            self._refuse(entry.name, "fenced", message.message)
            session.cut()
            return
        if isinstance(message, wire.Hello):
            self._refuse(entry.name, "second hello", "on a connection that has been welcomed")
        elif isinstance(message, wire.OutputChunk | wire.Surveyed):
            peer, future = self._asked.get(message.request, ("", None))
            if future is not None and peer == entry.name and not future.done():
                future.set_result(message)
        elif isinstance(message, wire.Heartbeat):
            entry.paused_at = (entry.paused_at or entry.heard_at) if message.paused else None
            entry.limited_at = None if message.limited_cpus is None else entry.limited_at or entry.heard_at
        self.feed(Heard(entry.name, message))

    def _refuse(self, peer: str, kind: str, why: str) -> None:
        self.refused[kind] += 1
        self.log.peer(peer, f"message refused: {kind}", why=why[:500])

    # leases

    async def watch(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Have leases counted, for ever. (Agents hear the scheduler by the answers to their pings.)"""
        while True:
            await sleep(self.beat_s)
            self.feed(Ticked())
            for name, session in list(self.sessions.items()):
                self._look_at_certificate(name, session, time.time())
            self.bans.look_again()

    def _look_at_certificate(self, name: str, session: Session, now_s: float) -> None:
        """Nothing more starts on a node whose certificate has expired; when its grace is over too it is cut off."""
        entry = self.book.entry(name)
        if entry.expires_s is None or entry.expires_s > now_s:
            return
        since = f"{datetime.fromtimestamp(entry.expires_s, UTC):%Y-%m-%d}"
        if entry.expires_s + GRACE_S["node"] < now_s:
            self._refuse(name, "certificate", f"expired on {since}")
            session.cut()
        elif not entry.expired:
            self.feed(CertificateExpired(name, since))

    def remove(self, name: str) -> None:
        """A node belongs to the cluster no more: it and all others are told."""
        self.feed(Removed(name, self.members.revoked))

    def tell_revoked(self) -> None:
        """All agents are told which certificates count no more."""
        self.feed(RevocationsChanged(self.members.revoked))

    def close(self) -> None:
        """End all connections; the agents go on with what runs, and call again."""
        self.closing = True
        self.bans.close()
        for session in self.sessions.values():
            session.cut()


async def _say(socket: web.WebSocketResponse, message: wire.ToAgent) -> None:
    """A last word, where it still can be said."""
    try:
        async with asyncio.timeout(2.0):
            await socket.send_bytes(wire.encode(message))
            await socket.close()
    except (ConnectionError, TimeoutError, RuntimeError):
        pass

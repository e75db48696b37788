"""The agents' side of the service: one WebSocket for each agent, over TLS with the node's certificate.

The link decides nothing about jobs. It says who is there (a hello that is welcome), who is not any more (silent for a
whole lease), hands on what nodes report, and carries orders. An order for a node that is not connected is dropped: when
the agent comes back it says what it has, and whoever gave the order asks again (see :mod:`~.gang`).
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final, Protocol

from aiohttp import WSMsgType, web

from cosched.config.cluster import ClusterConfig
from cosched.errors import BadInput, nearest
from cosched.model.time import US_PER_S, humanised
from cosched.wire import messages as wire
from space_scheduler.service.callers import certificate_of
from space_scheduler.service.log import Log
from space_scheduler.service.nodes import NodeBook, NodeEntry
from space_scheduler.service.problems import Refusal

_MOST_WAITING: Final = 512
_MOST_WAITING_BYTES: Final = 64 << 20
#: So many messages that cannot be read end a connection: the other side does not speak this language.
_MOST_BAD: Final = 100
_HELLO_S: Final = 10.0
#: A connection that was silent for so many heartbeats is dead, should another agent of that name call.
_DEAD_BEATS: Final = 3


class Keeper(Protocol):
    """Who hears of what nodes say and of their coming and going."""

    def hello(self, entry: NodeEntry, hello: wire.Hello) -> None:
        """An agent was welcomed, and has taken the welcome."""

    def heard(self, entry: NodeEntry, message: wire.FromAgent) -> None:
        """An agent reports something about a job."""

    def lost(self, entry: NodeEntry) -> None:
        """A node was silent for a whole lease."""


class Session:
    """One connection of one agent. What it is sent waits in a bounded queue: who reads too slowly is cut off."""

    def __init__(self, socket: web.WebSocketResponse, transport: asyncio.Transport, name: str, log: Log) -> None:
        self.name = name
        self._socket = socket
        self._transport = transport
        self._log = log
        self.agreed = False  # it has said something after the welcome: it obeys this scheduler
        self._frames: asyncio.Queue[bytes] = asyncio.Queue(_MOST_WAITING)
        self._waiting_bytes = 0

    def send(self, message: wire.ToAgent) -> None:
        """Send, in order, as soon as the agent reads."""
        frame = wire.encode(message)
        if self._frames.full() or self._waiting_bytes + len(frame) > _MOST_WAITING_BYTES:
            self._log.peer(self.name, "agent reads too slowly", waiting_bytes=self._waiting_bytes)
            self.cut()
            return
        self._waiting_bytes += len(frame)
        self._frames.put_nowait(frame)

    def cut(self) -> None:
        """End the connection at once, without a word."""
        self._transport.abort()

    async def write(self) -> None:
        """Send what waits, until the connection ends."""
        while True:
            frame = await self._frames.get()
            self._waiting_bytes -= len(frame)
            try:
                await self._socket.send_bytes(frame)
            except (ConnectionError, RuntimeError):  # it has ended; the reader sees that too
                return


class Link:
    """The endpoint /v1/agent, and the leases."""

    def __init__(self, config: ClusterConfig, book: NodeBook, fence: wire.Fence, log: Log, keeper: Keeper) -> None:
        self.config = config
        self.book = book
        self.fence = fence
        self.log = log
        self.keeper = keeper
        self.refused: Counter[str] = Counter()
        self.closing = False
        self.beat_s = config.time_us("heartbeat") / US_PER_S
        self.lease_s = config.time_us("lease") / US_PER_S
        self._requests = 0
        self._reading: dict[int, tuple[str, asyncio.Future[wire.OutputChunk]]] = {}

    # sending

    def send(self, name: str, message: wire.ToAgent) -> bool:
        """Send to a node; False where it is not connected."""
        entry = self.book.get(name)
        if entry is None or entry.session is None:
            return False
        entry.session.send(message)
        return True

    def connected(self, name: str) -> bool:
        """Whether the node's agent is here."""
        entry = self.book.get(name)
        return entry is not None and entry.session is not None

    async def read_output(
        self, name: str, job_id: int, attempt: int, stream: str, offset: int, max_bytes: int, timeout_s: float = 15.0
    ) -> wire.OutputChunk | None:
        """A piece of a job's spooled output; None where the node is not connected or does not answer in time."""
        self._requests += 1
        number = self._requests
        future: asyncio.Future[wire.OutputChunk] = asyncio.get_running_loop().create_future()
        self._reading[number] = (name, future)
        max_bytes = min(max_bytes, wire.MAX_CHUNK_BYTES)
        try:
            if not self.send(name, wire.ReadOutput(number, job_id, attempt, stream, offset, max_bytes)):
                return None
            async with asyncio.timeout(timeout_s):
                return await future
        except (TimeoutError, ConnectionError):
            return None
        finally:
            del self._reading[number]

    # connections

    async def accept(self, request: web.Request) -> web.StreamResponse:
        """Serve one agent until its connection ends."""
        name = self._node_of(request)
        socket = web.WebSocketResponse(max_msg_size=wire.MAX_FRAME_BYTES, compress=False, timeout=2.0)
        await socket.prepare(request)
        transport = request.transport
        if transport is None:
            return socket
        try:
            async with asyncio.timeout(_HELLO_S):
                hello = await self._hello(socket, name)
                entry = self._welcome(hello, name)
        except (BadInput, TimeoutError) as error:
            reason = str(error) or f"no hello within {_HELLO_S:g} s"
            self._refuse(name, "hello", reason)
            await _say(socket, wire.Rejected(reason))
            return socket
        session = Session(socket, transport, name, self.log)
        entry.session, entry.hello, entry.beat = session, hello, None
        self._now_heard(entry)
        self.log.info("agent connected", node=name, address=hello.address, procs=hello.procs, groups=len(hello.groups))
        session.send(
            wire.Welcome(
                wire.VERSION,
                self.fence,
                self.config.time_us("heartbeat"),
                self.config.time_us("lease"),
                self.config.contract,
            )
        )
        writer = asyncio.create_task(session.write())
        try:
            await self._read(socket, entry, session)
        finally:
            writer.cancel()
            if entry.session is session:
                entry.session = None
            for peer, future in list(self._reading.values()):
                if peer == name and not future.done():
                    future.set_exception(ConnectionResetError(f"{name} is away"))
            self.log.info("agent disconnected", node=name)
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
        hello = wire.from_agent(first.data)
        if not isinstance(hello, wire.Hello):
            raise BadInput("hello", f"a {type(hello).__name__}", "a Hello first")
        if hello.version != wire.VERSION:
            raise BadInput("hello: version", f"found {hello.version}", str(wire.VERSION))
        if hello.node != name:
            raise BadInput("hello: node", f"{hello.node!r} with the certificate of node {name!r}", "one and the same")
        if name not in self.book.allowed:
            near = nearest(name, self.book.allowed)
            raise BadInput("hello: node", f"{name!r} is not in this cluster's list of nodes", nearest=near)
        if hello.procs < 1 or hello.memory_bytes < 1 or not 0 < hello.port < 1 << 16 or not hello.address:
            raise BadInput("hello", "sizes or an address that cannot be", "procs, memory_bytes, address and port")
        if hello.highest_epoch > self.fence.epoch:
            expected = f"at most {self.fence.epoch}, this scheduler's (--take-over, if its journal is the one to obey)"
            raise BadInput("hello: highest_epoch", f"found {hello.highest_epoch}", expected)
        return hello

    def _welcome(self, hello: wire.Hello, name: str) -> NodeEntry:
        """The node's entry, free for this agent. Raises :class:`BadInput` where another one is alive."""
        entry = self.book.entry(name)
        if entry.session is not None:
            silent_s = self.book.now_s() - (entry.heard_s or 0.0)
            if silent_s <= _DEAD_BEATS * self.beat_s:
                heard = humanised(int(silent_s * US_PER_S))
                raise BadInput("hello: node", f"an agent of {name} is connected, heard {heard} ago", "one agent a node")
            self.log.warn("agent replaced", node=name, silent_s=round(silent_s, 3))
            entry.session.cut()
            entry.session = None
        return entry

    async def _read(self, socket: web.WebSocketResponse, entry: NodeEntry, session: Session) -> None:
        bad = 0
        async for frame in socket:
            if entry.session is not session:
                return  # replaced
            if frame.type is WSMsgType.ERROR:
                self._refuse(entry.name, "oversized", str(frame.data))
                return
            try:
                message = self._decoded(frame.type, frame.data)
            except BadInput as error:
                self._refuse(entry.name, "undecodable", str(error))
                bad += 1
                if bad >= _MOST_BAD:
                    session.cut()
                    return
                continue
            self._now_heard(entry)
            if self.closing:
                continue  # what is said now is said again to the next scheduler
            if not session.agreed and entry.hello is not None:
                session.agreed = True
                self.keeper.hello(entry, entry.hello)
            self._hand_on(entry, session, message)

    def _decoded(self, kind: WSMsgType, data: Any) -> wire.FromAgent:
        if kind is not WSMsgType.BINARY:
            raise BadInput("message", f"a {kind.name.lower()} frame", "a binary one")
        return wire.from_agent(data)

    def _hand_on(self, entry: NodeEntry, session: Session, message: wire.FromAgent) -> None:
        if isinstance(message, wire.Heartbeat):
            entry.beat = message
        elif isinstance(message, wire.OutputChunk):
            peer, future = self._reading.get(message.request, ("", None))
            if future is not None and peer == entry.name and not future.done():
                future.set_result(message)
        elif isinstance(message, wire.Hello):
            self._refuse(entry.name, "second hello", "on a connection that has been welcomed")
        elif isinstance(message, wire.Refused) and message.code == "fenced":
            # it obeys another scheduler: nothing that this one says counts there
            self._refuse(entry.name, "fenced", message.message)
            session.cut()
        else:
            self.keeper.heard(entry, message)

    def _now_heard(self, entry: NodeEntry) -> None:
        entry.heard_s = self.book.now_s()
        entry.heard_at = datetime.now().astimezone()

    def _refuse(self, peer: str, kind: str, why: str) -> None:
        self.refused[kind] += 1
        self.log.peer(peer, f"message refused: {kind}", why=why[:500])

    # leases

    async def watch(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Count leases, for ever. (Agents hear the scheduler by the answers to their pings.)

        A scheduler that was stopped itself, or its machine suspended, has heard nobody and says so of nobody: the time
        it missed does not count.
        """
        last_s = self.book.now_s()
        while True:
            await sleep(self.beat_s)
            now_s = self.book.now_s()
            missed_s = now_s - last_s - self.beat_s
            last_s = now_s
            for entry in self.book:
                if missed_s > self.beat_s and entry.heard_s is not None:
                    entry.heard_s += missed_s
                if entry.heard_s is not None and now_s - entry.heard_s > self.lease_s:
                    self._lose(entry)

    def _lose(self, entry: NodeEntry) -> None:
        self.log.warn("node lost", node=entry.name, lease_s=self.lease_s, connected=entry.session is not None)
        if entry.session is not None:
            entry.session.cut()
            entry.session = None
        entry.heard_s = None
        entry.beat = None
        self.keeper.lost(entry)

    def close(self) -> None:
        """End all connections; the agents go on with what runs, and call again."""
        self.closing = True
        for entry in self.book:
            if entry.session is not None:
                entry.session.cut()


async def _say(socket: web.WebSocketResponse, message: wire.ToAgent) -> None:
    """A last word, where it still can be said."""
    try:
        async with asyncio.timeout(2.0):
            await socket.send_bytes(wire.encode(message))
            await socket.close()
    except (ConnectionError, TimeoutError, RuntimeError):
        pass

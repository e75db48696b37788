"""Where connections come in: each has a place before anything is made for it, and waits its turn where many ask.

A connection belongs to a job, a user or another machine's address; it is idle until it has said what it wants, and
:mod:`cosched.admission` gives it its place. Each owner has its own budget of the agent's CPU: over it, its connections
wait. What strangers do is paid for before it is known whose they are: accepting has a budget as well.

Descriptors are kept in reserve: the places together take at most half of what this process may open.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Final

from cosched.admission import Bounds, NoPlace, Places
from cosched.linux.descriptors import raised_limit
from cosched.listening import Listener
from node_agent.guard.base.budget import Budget
from node_agent.guard.base.sockets import listening

#: A client at a Unix socket waits in turn, also behind a full backlog; at a port it would have to come again.
_BACKLOG, _BACKLOG_OF_PORT = 64, 512
_AT_ONCE: Final = 16
#: What accepting may cost, of one CPU, and at once.
_SHARE_OF_ACCEPTING: Final = 0.02
_MOST_OF_ACCEPTING_US: Final = 100_000
#: Of the agent's CPU and the guard's, for one connection.
_COST_NS: Final = 3_000_000
_BUFFER_BYTES: Final = 32 << 10
_BUDGETS: Final = 1024
_DESCRIPTORS: Final = 16_384

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter, "Place"], Awaitable[None]]


def open_to_all(path: str) -> socket.socket:
    """A Unix socket that every user of this node may connect to, in place of an earlier agent's. Raises OSError."""
    return listening(path, 0o111, _BACKLOG, socket.SOCK_STREAM)


class Place:
    """A connection's place. Call :meth:`finished` once it has said what it wants."""

    def __init__(self, owner: Hashable, connection: socket.socket, places: "Places[Hashable, Place]") -> None:
        self.owner, self.connection = owner, connection
        self._places = places
        self.is_taken = False  # a transport has the socket, and closes it
        self.task: asyncio.Task[None] | None = None

    def finished(self) -> None:
        """From now on it is at work, and is not evicted."""
        self._places.settle(self)

    def gone(self, _: object) -> None:
        """Its task has ended, perhaps before it began."""
        if not self.is_taken:
            self.connection.close()


class Entrance:
    """One listening socket (or several for one name), and the connections that have come in by it."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        bounds: Bounds,
        share: float,
        burst_us: int,
        owner_of: Callable[[socket.socket], Hashable],
        serve: Serve,
        turned_away: Callable[[socket.socket, str], None],
        context: ssl.SSLContext | None = None,
        patience_s: float = 10.0,
    ) -> None:
        """``owner_of`` says to whom a connection belongs; ``patience_s`` is for its first word and for its handshake.

        One owner may use ``share`` of one CPU, and ``burst_us`` at once. ``context`` may be replaced by another, for
        the connections that come in from then on.
        """
        self._share, self._burst_us = share, burst_us
        self._owner_of, self._serve, self._turned_away = owner_of, serve, turned_away
        is_shared = context is not None  # an address, by agents and strangers
        self.context, self._patience_s = context, patience_s
        self._places: Places[Hashable, Place] = Places(bounds.within(raised_limit(_DESCRIPTORS)), replaces=is_shared)
        self._budgets: dict[Hashable, Budget] = {}
        self._accepting = Budget(_SHARE_OF_ACCEPTING, _MOST_OF_ACCEPTING_US)
        self._loop = asyncio.get_running_loop()
        self._listener = Listener(self._come_in, _AT_ONCE, paid=self._paid)
        for each in sockets:
            each.listen(_BACKLOG_OF_PORT if is_shared else _BACKLOG)
            self._listener.add(each)

    def close(self) -> None:
        """Let nobody in any more. Who is in stays until the end."""
        sockets = [*self._listener.sockets]
        self._listener.close()
        for each in sockets:
            each.close()

    def __len__(self) -> int:
        """How many are in."""
        return len(self._places)

    def _paid(self, cpu_ns: int) -> float:
        """What accepting has cost; for how many seconds it has to rest."""
        self._accepting.spend(cpu_ns)
        return self._accepting.rest_us() / 1e6

    def _come_in(self, fresh: socket.socket, _: object) -> None:
        try:
            place = Place(self._owner_of(fresh), fresh, self._places)
            evicted = self._places.enter(place, place.owner)
        except (NoPlace, OSError) as error:
            with contextlib.suppress(OSError):
                self._turned_away(fresh, str(error))
            fresh.close()
            return
        if evicted is not None and evicted.task is not None:
            evicted.task.cancel()
        place.task = self._loop.create_task(self._inside(place))
        place.task.add_done_callback(place.gone)

    async def _inside(self, place: Place) -> None:
        writer: asyncio.StreamWriter | None = None
        try:
            await self._word(place.connection)
            await self._turn(place.owner)
            reader = asyncio.StreamReader(limit=_BUFFER_BYTES)
            protocol = asyncio.StreamReaderProtocol(reader)
            secured = self.context is not None
            place.is_taken = True
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol,
                place.connection,
                ssl=self.context,
                ssl_handshake_timeout=self._patience_s if secured else None,
                ssl_shutdown_timeout=1.0 if secured else None,
            )
            writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
            await self._serve(reader, writer, place)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # there is nobody to tell
        except asyncio.CancelledError:
            if place in self._places:  # not evicted: the agent ends
                raise
        finally:
            self._places.leave(place)
            if writer is not None:
                writer.close()
                with contextlib.suppress(OSError, TimeoutError):
                    await writer.wait_closed()

    async def _turn(self, owner: Hashable) -> None:
        """Wait until an owner may use CPU again, and pay."""
        budget = self._budgets.get(owner)
        if budget is None:
            if len(self._budgets) >= _BUDGETS:
                del self._budgets[next(iter(self._budgets))]
            budget = self._budgets[owner] = Budget(self._share, self._burst_us)
        while rest_us := budget.rest_us():
            await asyncio.sleep(rest_us / 1e6)
        budget.spend(_COST_NS)

    async def _word(self, connection: socket.socket) -> None:
        """Wait for the first bytes of a connection: one that is silent costs nothing. Raises TimeoutError."""
        heard = asyncio.Event()
        self._loop.add_reader(connection.fileno(), heard.set)
        try:
            async with asyncio.timeout(self._patience_s):
                await heard.wait()
        finally:
            self._loop.remove_reader(connection.fileno())

"""One connection of one agent: what it is sent, in order and numbered, and what counts of what it says."""

import asyncio
from typing import Final

from aiohttp import web

from cosched.wire import messages as wire
from cosched.wire.sequence import Numbering, Turn, new_session
from space_scheduler.service.log import Log

_MOST_WAITING: Final = 512
_MOST_WAITING_BYTES: Final = 64 << 20


class Session:
    """One connection of one agent. What it is sent waits in a bounded queue: who reads too slowly is cut off."""

    def __init__(
        self, socket: web.WebSocketResponse, transport: asyncio.Transport, name: str, log: Log, hello: wire.Hello
    ) -> None:
        self.name = name
        self.session = new_session()
        self.turn = Turn(self.session)
        self._numbering = Numbering(hello.session)
        self._socket = socket
        self._transport = transport
        self._log = log
        self._frames: asyncio.Queue[bytes] = asyncio.Queue(_MOST_WAITING)
        self._waiting_bytes = 0
        self.word: wire.OwnersWord | None = None  # of the owner, as the agent said it last
        self.banned: tuple[int, ...] = ()  # whom it bans, as it was handed on
        self.looked_up_s = float("-inf")  # when names of it were looked up last

    def send(self, message: wire.ToAgent) -> None:
        """Send, in order, as soon as the agent reads."""
        frame = wire.encode(message)
        frame = frame if isinstance(message, wire.Welcome) else self._numbering.frame(frame)
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

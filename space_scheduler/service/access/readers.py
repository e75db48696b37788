"""Who asks and does not read the answer: whatever it is (output that is followed, a list, an agent's orders), cut off.

What waits for one reader is bounded by what is sent at once: output goes in pieces, the next one is asked for when the
last was read, and an answer is made once. So one reader costs little, and not for longer than ``slow_reader``.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from space_scheduler.service.log import Log

_LOOKS: Final = 8  # in the time after which somebody is cut off


class Readers:
    """Looks at all connections of the service. ``cut`` counts those that were ended."""

    def __init__(
        self, server: web.Server, patience_s: float, log: Log, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Nothing read for ``patience_s`` while something waits to be sent: the connection is ended."""
        self._server = server
        self._patience_s = patience_s
        self._log = log
        self._now_s = now_s
        self._stalled: dict[RequestHandler, tuple[int, float]] = {}  # what waits, and since when it is so much
        self.cut = 0

    async def watch(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(min(1.0, self._patience_s / _LOOKS))
            self.look()

    def look(self) -> None:
        """One look: what waits, and whether it is what waited before."""
        now_s, before, self._stalled = self._now_s(), self._stalled, {}
        for connection in self._server.connections:
            transport = connection.transport
            waiting_bytes = transport.get_write_buffer_size() if transport is not None else 0
            if transport is None or not waiting_bytes:
                continue
            before_bytes, since_s = before.get(connection, (-1, now_s))
            if waiting_bytes != before_bytes:
                since_s = now_s
            if now_s - since_s < self._patience_s:
                self._stalled[connection] = (waiting_bytes, since_s)
            else:
                self.cut += 1
                self._log.peer("a client", "reader is too slow", waiting_bytes=waiting_bytes)
                transport.abort()

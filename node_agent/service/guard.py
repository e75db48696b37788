"""The guard, as the event loop sees it: requests and their answers, events, and a connection that comes back."""

import asyncio
import contextlib
import logging
import os
import random
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence

from node_agent.guard import requests
from node_agent.guard.client import GuardClient, GuardGone, GuardRefused, Message

_log = logging.getLogger("cosched.agent")
_RETRY_S = (0.2, 2.0)
_PATIENCE_S = 20.0
#: How often a guard that is asked nothing is asked for a sign of life, and how long it may take for that.
_SIGN_EVERY_S = 2.0
_SIGN_WITHIN_S = 5.0


class Guard:
    """The connection to this node's guard."""

    def __init__(
        self, path: str, on_event: Callable[[Message], None], on_connected: Callable[[], Awaitable[None]]
    ) -> None:
        """``on_event`` gets what comes unasked; ``on_connected`` is awaited after each connection, first."""
        self._path = path
        self._on_event = on_event
        self._on_connected = on_connected
        self._client: GuardClient | None = None
        self._lost = asyncio.Event()
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self.problem = "not connected yet"
        self.ready = asyncio.Event()

    async def keep(self) -> None:
        """Connect, and connect again whenever the connection is lost, until cancelled."""
        while True:
            try:
                self._connect()
                await self._on_connected()
                self.ready.set()
                _log.info("connected to the guard at %s", self._path)
                await self._watch()
            except GuardGone as error:
                self._lose(error)
            except GuardRefused as error:
                self._lose(GuardGone(f"the guard refuses to say what it runs: {error}"))
            finally:
                self._hang_up()
            await asyncio.sleep(random.uniform(*_RETRY_S))

    async def _watch(self) -> None:
        """Until the connection is lost. A guard that is there and does not answer is as good as gone."""
        while not self._lost.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SIGN_EVERY_S):
                    await self._lost.wait()
                    return
            await self.ask(requests.Status(), patience_s=_SIGN_WITHIN_S)

    @property
    def pid(self) -> int:
        """The guard's process; 0 while there is none."""
        if self._client is None:
            return 0
        with socket.socket(fileno=os.dup(self._client.fileno())) as connection:
            pid: int = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        return pid

    async def ask(
        self, request: requests.Request, fds: Sequence[int] = (), *, patience_s: float = _PATIENCE_S
    ) -> Message:
        """Its answer. Raises :class:`GuardGone`, :class:`GuardRefused`, or ValueError where the request is too long."""
        if self._client is None:
            raise GuardGone(f"no guard at {self._path}: {self.problem}")
        number = self._client.send(request, fds)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Message] = loop.create_future()
        self._waiting[number] = answer
        late = loop.call_later(
            patience_s, self._late, answer, requests.word(request), patience_s
        )  # half of a timeout()'s cost
        try:
            message = await answer
        finally:
            late.cancel()
            self._waiting.pop(number, None)
        if "error" in message:
            raise GuardRefused(str(message["error"]), str(message.get("message", "")))
        return message

    def _late(self, answer: asyncio.Future[Message], what: object, patience_s: float) -> None:
        if not answer.done():
            gone = GuardGone(f"the guard has not answered {what!r} for {patience_s:.0f} s")
            answer.set_exception(gone)
            self._lose(gone)

    def _connect(self) -> None:
        self._client = GuardClient(self._path)
        self._lost.clear()
        asyncio.get_running_loop().add_reader(self._client.fileno(), self._readable)

    def _readable(self) -> None:
        try:
            while self._client is not None and (message := self._client.receive()) is not None:
                waiting = self._waiting.get(message["re"]) if "re" in message else None
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
                elif "event" in message:
                    self._on_event(message)
        except GuardGone as error:
            self._lose(error)

    def _lose(self, error: GuardGone) -> None:
        if self.problem != str(error):
            _log.warning("%s", error)
        self.problem = str(error)
        self.ready.clear()
        self._hang_up()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)
        self._lost.set()

    def _hang_up(self) -> None:
        if self._client is not None:
            with contextlib.suppress(ValueError, OSError):
                asyncio.get_running_loop().remove_reader(self._client.fileno())
            self._client.close()
            self._client = None

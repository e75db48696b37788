"""The guard, as the event loop sees it: requests and their answers, events, and a connection that comes back."""

import asyncio
import contextlib
import logging
import os
import random
import socket
from collections.abc import Awaitable, Callable, Sequence

from cosched.linux.peers import peer_credentials
from node_agent.guard.base import requests
from node_agent.guard.base.client import GuardClient, GuardGone, GuardRefused, Message
from node_agent.service.complaints import log_change
from node_agent.service.tasks import ends_within

_log = logging.getLogger("cosched.agent")
_RETRY_S = (0.2, 2.0)
_PATIENCE_S = 20.0
#: How often a guard that is asked nothing is asked for a sign of life, and how long it may take for that.
_SIGN_EVERY_S = 2.0
_SIGN_WITHIN_S = 5.0

#: Takes the answer to a request, or why there will be none.
Then = Callable[[Message | GuardGone], None]


class Guard:
    """The connection to this node's guard. What it says, answers and events, is handed on in its order."""

    def __init__(
        self,
        path: str,
        on_event: Callable[[Message], None],
        on_connected: Callable[[], Awaitable[None]],
        on_lost: Callable[[str], None] = lambda problem: None,
    ) -> None:
        """``on_event`` gets what comes unasked; ``on_connected`` is awaited after each connection, first.

        ``on_lost`` gets the reason whenever there is no guard (any more), before those who wait for answers.
        """
        self._path = path
        self._on_event = on_event
        self._on_connected = on_connected
        self._on_lost = on_lost
        self._client: GuardClient | None = None
        self._lost = asyncio.Event()
        self._waiting: dict[int, tuple[Then, asyncio.TimerHandle]] = {}  # who takes the answer; when it is late
        self.problem = "not connected yet"
        self.ready = asyncio.Event()

    async def keep(self) -> None:
        """Connect, and connect again whenever the connection is lost, until cancelled."""
        while True:
            try:
                self._client = GuardClient(self._path)
                self._lost.clear()
                asyncio.get_running_loop().add_reader(self._client.fileno(), self._readable)
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
        while not await ends_within(_SIGN_EVERY_S, self._lost.wait()):
            await self.ask(requests.Status(), patience_s=_SIGN_WITHIN_S)

    @property
    def pid(self) -> int:
        """The guard's process; 0 while there is none."""
        if self._client is None:
            return 0
        with socket.socket(fileno=os.dup(self._client.fileno())) as connection:
            return peer_credentials(connection).pid

    async def ask(
        self,
        request: requests.Request,
        fds: Sequence[int] = (),
        *,
        patience_s: float = _PATIENCE_S,
        at_once: Callable[[Message], None] = lambda message: None,
    ) -> Message:
        """Its answer; ``at_once`` gets it before anything else that the guard says.

        Raises :class:`GuardGone`, :class:`GuardRefused`, or ValueError where the request is too long.
        """
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def then(found: Message | GuardGone) -> None:
            if answer.done():
                return
            if isinstance(found, GuardGone):
                answer.set_exception(found)
            else:
                if "error" not in found:
                    at_once(found)
                answer.set_result(found)

        number = self.send(request, fds, then, patience_s=patience_s)
        try:
            message = await answer
        finally:
            if (asked := self._waiting.pop(number, None)) is not None:
                asked[1].cancel()
        if "error" in message:
            raise GuardRefused(str(message["error"]), str(message.get("message", "")))
        return message

    def send(
        self, request: requests.Request, fds: Sequence[int], then: Then, *, patience_s: float = _PATIENCE_S
    ) -> int:
        """Send a request, whose answer ``then`` takes; its number. Raises :class:`GuardGone`, ValueError."""
        if self._client is None:
            raise GuardGone(f"no guard at {self._path}: {self.problem}")
        number = self._client.send(request, fds)
        late = GuardGone(f"the guard has not answered {requests.word(request)!r} for {patience_s:.0f} s")
        self._waiting[number] = then, asyncio.get_running_loop().call_later(patience_s, self._lose, late)
        return number

    def _readable(self) -> None:
        try:
            while self._client is not None and (message := self._client.receive()) is not None:
                asked = self._waiting.pop(message["re"], None) if "re" in message else None
                if asked is not None:
                    then, late = asked
                    late.cancel()
                    then(message)
                elif "event" in message:
                    self._on_event(message)
        except GuardGone as error:
            self._lose(error)

    def _lose(self, error: GuardGone) -> None:
        self.problem = log_change(self.problem, str(error), "%s")
        self.ready.clear()
        self._hang_up()
        waiting, self._waiting = self._waiting, {}
        self._on_lost(self.problem)
        for then, late in waiting.values():
            late.cancel()
            then(error)
        self._lost.set()

    def _hang_up(self) -> None:
        if self._client is not None:
            with contextlib.suppress(ValueError, OSError):
                asyncio.get_running_loop().remove_reader(self._client.fileno())
            self._client.close()
            self._client = None

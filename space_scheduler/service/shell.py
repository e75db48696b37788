"""The shell around :mod:`~.service_core`: feeds it what happens and carries out its effects, on the event loop.

No rule is here. What the core does not take (a report of a job that has ended meanwhile) is said in the log.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from cosched.model.time import US_PER_S
from space_scheduler.machine.record import IllegalTransition, UnknownJob
from space_scheduler.service.core.host import CoreHost
from space_scheduler.service.core.worker import Annotate, AskWanted, NotAccepting, Post
from space_scheduler.service.launch.service_core import ServiceCore
from space_scheduler.service.launch.values import (
    AnyInput,
    CancelTimer,
    Cut,
    Effect,
    Say,
    Send,
    SetTimer,
    TimedOut,
    Wake,
    Wanted,
)
from space_scheduler.service.link.link import Link
from space_scheduler.service.link.magic_packet import send_magic_packet
from space_scheduler.service.log import Log


class Shell:
    """Carries out the effects of ``rules``. ``link`` has to be set before anything happens."""

    link: Link

    def __init__(self, rules: ServiceCore, core: CoreHost, log: Log, now_s: Callable[[], float]) -> None:
        self.rules = rules
        self.now_s = now_s
        self._core = core
        self._log = log
        self._timers: dict[tuple[int, int], asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        #: How a machine that sleeps is called, by its card's address and its network's.
        self.call: Callable[[str, str], None] = send_magic_packet
        #: Who is told of each input, when it came, and what followed: a recorder.
        self.record: Callable[[float, AnyInput, list[Effect]], None] | None = None

    def feed(self, happened: AnyInput) -> None:
        """Something has happened: do what is to be done, in order."""
        now_s = self.now_s()
        effects = self.rules.handle(happened, now_s)
        if self.record is not None:
            self.record(now_s, happened, effects)
        for effect in effects:
            work: Coroutine[Any, Any, object] | None = None
            match effect:
                case Send(node, message):
                    self.link.send(node, message)
                case Post():
                    work = self._core.ask(effect)
                case Annotate():
                    work = self._core.ask(effect)
                case SetTimer(key, after_us):
                    self._timers[key] = asyncio.get_running_loop().call_later(after_us / US_PER_S, self._timed_out, key)
                case CancelTimer(key) if key in self._timers:
                    self._timers.pop(key).cancel()
                case Cut(node, after_s):
                    self.link.cut(node, after_s)
                case AskWanted():
                    work = self._ask_wanted(effect)
                case Wake():
                    self._wake(effect)
                case Say(level, what, fields):
                    self._log.of(str(fields.get("node") or fields.get("job") or ""), level, what, **fields)
            if work is not None:  # begun in the order of the effects; nothing that goes wrong is lost
                task = asyncio.get_running_loop().create_task(work)
                self._tasks.add(task)
                task.add_done_callback(self._done)

    async def _ask_wanted(self, question: AskWanted) -> None:
        with suppress(NotAccepting):  # it closes: it is asked again at its next start
            self.feed(Wanted(await self._core.ask(question)))

    def _wake(self, call: Wake) -> None:
        try:
            self.call(call.mac, call.broadcast)
        except OSError as error:
            self._log.warn("node not called from its sleep", node=call.node, address=call.broadcast, why=str(error))

    def _timed_out(self, key: tuple[int, int]) -> None:
        self._timers.pop(key, None)
        self.feed(TimedOut(key))

    def _done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, UnknownJob | IllegalTransition):
            self._log.peer("a node", "report does not fit", why=str(error))
        else:
            self._log.fault("report not journalled", error)

    async def settle(self) -> None:
        """Wait until all that was reported is in the journal."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def close(self) -> None:
        """No more time-outs; what is flying is left to the next start."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

"""The machine's sleep: logind says that it begins and holds it back for a moment, in which the scheduler is told.

A *delay* lock (systemd.io/INHIBITOR_LOCKS) is held while the machine is awake, and let go as soon as the word is out,
or a second later: an owner who closes the lid waits for nobody. By the system's D-Bus, where the package dbus-fast is
installed (extra ``desktop``); without it, or without logind, a machine that sleeps is lost after its lease.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

from node_agent.service.complaints import log_change
from node_agent.service.desk_watch import Desk
from node_agent.service.logind import NAME, PATH
from node_agent.service.tasks import ends_within, first_ended

_log = logging.getLogger("cosched.agent")
_AGAIN_S: Final = 30.0
_WORD_S: Final = 1.0
#: Time awake (the loop's clock stands still meanwhile) after which a sleep that was announced has not come, or is over.
_OVER_S: Final = 30.0
_MANAGER: Final = f"{NAME}.Manager"
_BUS: Final = "org.freedesktop.DBus"
_BUS_PATH: Final = "/org/freedesktop/DBus"
NOT_INSTALLED: Final = "the package dbus-fast is not installed (extra desktop)"


class SleepWatch:
    """Keeps ``desk.asleep`` true from logind's word that the machine sleeps until its word that it is awake."""

    def __init__(self, desk: Desk, say_now: Callable[[], Awaitable[None]]) -> None:
        """``say_now`` ends when the scheduler has been sent a heartbeat, and may take as long as it likes."""
        self._desk = desk
        self._say_now = say_now
        self._lock: int | None = None
        self._over: asyncio.TimerHandle | None = None
        self.problem = "just started"

    async def keep(self) -> None:
        """Listen until cancelled; dial again where the bus has gone."""
        try:
            from dbus_fast import DBusFastError  # noqa: PLC0415 (an extra)
        except ImportError:
            self._tell_problem(NOT_INSTALLED)
            return
        while True:
            try:
                await self._listen()
            except (OSError, EOFError, DBusFastError) as error:
                self._tell_problem(str(error) or type(error).__name__)
            finally:
                self._awake()
                self._let_go()
            await asyncio.sleep(_AGAIN_S)

    def _tell_problem(self, words: str) -> None:
        self.problem = log_change(self.problem, words, "the machine's sleep is not seen: %s", level=logging.INFO)

    async def _listen(self) -> None:
        from dbus_fast import BusType, Message  # noqa: PLC0415
        from dbus_fast.aio import MessageBus  # noqa: PLC0415

        async with asyncio.timeout(_AGAIN_S):
            bus: Any = await MessageBus(bus_type=BusType.SYSTEM, negotiate_unix_fd=True).connect()
        signals: asyncio.Queue[Any] = asyncio.Queue(maxsize=16)

        def take(message: Message) -> None:
            if message.member == "PrepareForSleep" and message.interface == _MANAGER and message.path == PATH:
                with contextlib.suppress(asyncio.QueueFull):  # only who floods it comes so far
                    signals.put_nowait(message)

        calls = _Calls(bus)
        bus.add_message_handler(take)
        gone = asyncio.ensure_future(bus.wait_for_disconnect())
        try:
            rule = f"type='signal',sender='{NAME}',interface='{_MANAGER}',member='PrepareForSleep'"
            await calls.reply(_BUS, _BUS_PATH, _BUS, "AddMatch", rule)
            await self._take_lock(calls)
            self.problem = ""
            await first_ended(asyncio.wait([gone]), self._follow(calls, signals))
            raise EOFError("the bus has gone")
        finally:
            gone.cancel()
            bus.disconnect()

    async def _follow(self, calls: "_Calls", signals: asyncio.Queue[Any]) -> None:
        """Take in signals that say that the machine sleeps or is awake; any process may have sent one."""
        while True:
            message = await signals.get()
            owner = await calls.reply(_BUS, _BUS_PATH, _BUS, "GetNameOwner", NAME)
            if message.sender != owner.body[0] or message.signature != "b":
                continue
            if message.body[0]:
                await self._sleeps()
            else:
                self._awake()
                await self._take_lock(calls)

    async def _sleeps(self) -> None:
        _log.info("the machine is about to be suspended")
        self._desk.asleep = True
        if self._over is not None:
            self._over.cancel()
        self._over = asyncio.get_running_loop().call_later(_OVER_S, self._awake)
        await ends_within(_WORD_S, self._say_now())
        self._let_go()

    def _awake(self) -> None:
        if self._over is not None:
            self._over.cancel()
        if self._desk.asleep:
            _log.info("the machine is awake")
            self._desk.asleep = False
            self._desk.again()

    async def _take_lock(self, calls: "_Calls") -> None:
        self._let_go()
        why = "The scheduler is told that this machine sleeps."
        reply = await calls.reply(NAME, PATH, _MANAGER, "Inhibit", "sleep", "cosched", why, "delay")
        if len(reply.unix_fds) != 1:
            _close_descriptors(reply)
            raise EOFError("logind has answered without a lock")
        self._lock = reply.unix_fds[0]

    def _let_go(self) -> None:
        """The machine may sleep."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class _Calls:
    """Calls on a bus. Descriptors that come with any other message than their replies are closed.

    Any process may send messages with descriptors to any other on the bus, and nobody else would close them.
    """

    def __init__(self, bus: Any) -> None:
        self._bus = bus
        self._awaited: set[int] = set()  # serial numbers of calls that have no reply yet
        bus.add_message_handler(self._close_unasked)

    async def reply(self, name: str, path: str, interface: str, member: str, *texts: str) -> Any:
        """The reply to a call whose arguments are texts. Raises ``DBusFastError``, EOFError, OSError."""
        from dbus_fast import DBusError, Message, MessageType  # noqa: PLC0415

        serial = self._bus.next_serial()
        call = Message(name, path, interface, member, signature="s" * len(texts), body=list(texts), serial=serial)
        self._awaited.add(serial)
        try:
            async with asyncio.timeout(_AGAIN_S):
                reply = await self._bus.call(call)
        finally:
            self._awaited.discard(serial)
        if reply is None:
            raise EOFError("the bus has gone")
        if reply.message_type is MessageType.ERROR:
            raise DBusError(reply.error_name, str(reply.body[0]) if reply.body else member)
        return reply

    def _close_unasked(self, message: Any) -> None:
        from dbus_fast import MessageType  # noqa: PLC0415

        if message.message_type is not MessageType.METHOD_RETURN or message.reply_serial not in self._awaited:
            _close_descriptors(message)


def _close_descriptors(message: Any) -> None:
    for fd in message.unix_fds:
        os.close(fd)

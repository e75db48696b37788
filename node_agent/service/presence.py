"""The sources of presence of this desk, as its settings name them: asked once a look, and heard at once where they can.

A source is a name and a function that gives its :class:`Reading`; whatever fails in it is that source's error, never
the look's. A further source is one more entry in :meth:`Sources._ask`, and its name in ``cosched.config.node``.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from cosched.config.node import PresenceSettings
from cosched.linux import sessions
from cosched.linux.devices import Devices
from cosched.linux.presence import KeyWatch, Terminals
from cosched.linux.presence_reading import Reading
from node_agent.service.idle import IdleTimes
from node_agent.service.logind import Inhibitors

_log = logging.getLogger("cosched.agent")
_DEAF_S: Final = 0.2
#: A session that is used needs nobody to say that somebody watches a film.
_QUIET_S: Final = 10.0


class Sources:
    """Who tells whether somebody is at the desk. ``on_sign`` is called at once with a source that has seen somebody."""

    def __init__(
        self,
        settings: PresenceSettings,
        jobs_terminals: Callable[[], set[int]],
        busy_cpus: Callable[[], float],
        on_sign: Callable[[Reading], None],
        *,
        by_guard: bool = False,
    ) -> None:
        """``jobs_terminals``: device numbers that are no sign; ``busy_cpus``: CPUs people's processes use, or -1.

        ``by_guard``: others' terminals cannot be watched from here, and the guard is asked to.
        """
        self._settings = settings
        self._jobs_terminals = jobs_terminals
        self._busy_cpus = busy_cpus
        self._on_sign = on_sign
        self._terminals = Terminals()
        self._devices = Devices()
        self._idle = IdleTimes(self._display_touched)
        self._inhibitors = Inhibitors()
        #: Whether the guard is to tell of keys on terminals, and whether it does.
        self.wants_guard = by_guard and settings.events and "terminals" in settings.sources
        self.guard_tells = False
        self._keys: KeyWatch | None = None
        self._heard: set[int] = set()
        self._faults: dict[str, type[Exception]] = {}  # what a source raised last that is a fault of its own
        self._deaf = False  # while the sources are asked (descriptors come and go then), and in the end
        self.blind: tuple[str, ...] = ()  # sources that fail, or see less than they could: "name: why"

    def listen(self) -> None:
        """Hear keys on terminals at once from now on."""
        if "terminals" not in self._settings.sources or not self._settings.events or self.wants_guard:
            return
        try:
            self._keys = KeyWatch()
        except OSError as error:
            _log.warning("keys are seen at the next look only: %s: %s", error.filename, error.strerror)
        else:
            self._hear(True)

    @property
    def hears(self) -> bool:
        """Whether keys or input devices tell at once; else somebody is seen at the next look."""
        return bool(self._heard) or self.guard_tells

    async def close(self) -> None:
        """Watch nothing any more."""
        self._hear(False)
        self._deaf = True
        if self._keys is not None:
            self._keys.close()
        self._devices.close()
        await self._idle.close()

    async def look(self, recent_s: float, *, forgotten_sessions: bool) -> list[Reading]:
        """What each source sees now. Sessions are not asked where one that is there may have been forgotten."""
        readings = []
        self._hear(False)
        self._deaf = True
        for name in self._settings.sources:
            try:
                if name == "sessions" and forgotten_sessions:
                    readings += await self._inhibited(sessions.active())
                else:
                    readings.append(await self._ask(name, recent_s))
            except OSError as error:
                readings.append(Reading(name, None, f"{error.filename or name}: {error.strerror or error}"))
            except Exception as error:  # a source of its own must not take the others along
                if self._faults.get(name) is not type(error):  # once, not at each look
                    _log.exception("source %s", name)
                self._faults[name] = type(error)
                readings.append(Reading(name, None, f"{type(error).__name__}: {error}"))
        failed = [(reading.source, reading.error) for reading in readings] + [("sessions", self._idle.problem)]
        self.blind = tuple(f"{source}: {problem}" for source, problem in failed if problem)
        self._deaf = False
        self._hear(True)
        return readings

    async def _ask(self, name: str, recent_s: float) -> Reading:
        match name:
            case "terminals":
                return self._terminals.reading(self._jobs_terminals, recent_s)
            case "input":
                return self._devices.reading(time.monotonic())
            case "sessions":
                found = sessions.active()
                await self._idle.follow(found or (), alone=not self._devices.filenos())
                reading = sessions.reading(found, self._idle.of)
                quiet = reading.idle_s is not None and reading.idle_s > min(_QUIET_S, recent_s / 2)
                inhibited = await self._inhibited(found) if quiet else []
                return inhibited[0] if inhibited else reading
        used = self._busy_cpus()
        idle_s = 0.0 if used > self._settings.busy_cpus else float("inf")
        return Reading("processes", idle_s if used >= 0 else None)

    async def _inhibited(self, found: list[sessions.Session] | None) -> list[Reading]:
        """A sign where a program on the screen keeps the desktop from being idle: somebody watches it."""
        return [Reading("sessions", 0.0)] if found and await self._inhibitors.there(found) else []

    def _key_pressed(self, keys: KeyWatch) -> None:
        """Something was read from a pseudo-terminal. Fast typists, and jobs that type, cost little."""
        used = keys.used()
        self._rest()
        self.terminals_used(used)

    def terminals_used(self, used: set[int]) -> None:
        """Something was read from those terminals just now. Device numbers; jobs' own are no sign."""
        if used and used - self._jobs_terminals():
            self._on_sign(Reading("terminals", 0.0))

    def _display_touched(self) -> None:
        if self._settings.events:
            self._on_sign(Reading("sessions", 0.0))

    def _device_used(self) -> None:
        self._rest()
        if self._devices.used(time.monotonic()):
            self._on_sign(Reading("input", 0.0))

    def _rest(self) -> None:
        """Hear nothing for a moment: one sign is enough."""
        self._hear(False)
        asyncio.get_running_loop().call_later(_DEAF_S, self._hear, True)

    def _hear(self, on: bool) -> None:
        if self._deaf:
            return
        devices = self._devices.filenos() if on and self._settings.events else ()
        wanted: dict[int, Callable[[], None]] = dict.fromkeys(devices, self._device_used)
        if on and self._keys is not None:
            wanted[self._keys.fileno()] = partial(self._key_pressed, self._keys)
        loop = asyncio.get_running_loop()
        for fd in self._heard - wanted.keys():
            with contextlib.suppress(OSError, ValueError):  # closed since
                loop.remove_reader(fd)
        self._heard = {*wanted}
        for fd, callback in wanted.items():
            loop.add_reader(fd, callback)

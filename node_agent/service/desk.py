"""The desk: who is there, how the machine is used, and what the guard is told because of it.

Looks at all sources once a period; a key on a pseudo-terminal is seen at once, by inotify. Runs whether or not the
scheduler is there: without it the contract is armed.
"""

import asyncio
import contextlib
import logging
import os
import time
from pathlib import Path
from typing import Any

from cosched.config.node import NodeConfig
from cosched.model.contract import SocialContract
from cosched.model.node import Usage
from cosched.wire.messages import Heartbeat
from node_agent.guard.client import GuardGone, GuardRefused
from node_agent.linux.load import Load
from node_agent.linux.presence import KeyWatch, Terminals, sessions, terminals_of
from node_agent.policy.contract import Arm, Relax, decided, judged, unwatched
from node_agent.policy.sight import Sight
from node_agent.service.guard import Guard
from node_agent.service.whose import Whose

_log = logging.getLogger("cosched.agent")
_US_PER_S = 1_000_000
_KEEP_LOOKS = 3  # for how many looks a relaxation lasts, unless renewed
_LONGEST_LOOK_S = 5.0
_DEAF_S = 0.2


def now_us() -> int:
    """Microseconds since boot, sleep included: what guard and agent both count in."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class Desk:
    """Presence and load of this node."""

    def __init__(self, config: NodeConfig, guard: Guard, whose: Whose) -> None:
        self._config = config
        self._guard = guard
        self._whose = whose
        self._terminals = Terminals()
        self._load = Load(
            Path(config.cgroup.mount),
            config.cgroup.cosched,
            config.cgroup.desk,
            config.memory_bytes,
            own=self._own,
            tasks=self._whose.tasks,
            min_uid=config.security.min_uid,
            use_cgroups=config.cgroup.mode != "none",
        )
        self.watched = unwatched(now_us())
        self.usage = Usage()
        self.armed = False
        self.limited_cpus: float | None = None
        self.enforces: dict[str, str] = {}
        self._asked: Arm | Relax | None = None
        self._problem = ""
        self._contract: SocialContract | None = None
        self.heard_us: int | None = None
        self.lease_us = 0
        self.epoch = 0
        self._keys: KeyWatch | None = None
        self._key = asyncio.Event()
        self._work = asyncio.Lock()

    def welcome(self, contract: SocialContract, lease_us: int, epoch: int) -> None:
        """The scheduler was heard, and says what the contract is."""
        self._contract, self.lease_us, self.epoch = contract, lease_us, epoch
        self.heard()
        self.again()

    def heard(self) -> None:
        """The scheduler gave a sign of life."""
        self.heard_us = now_us()

    def again(self) -> None:
        """Tell the guard everything anew (it was restarted, or there is something new to tell)."""
        self._asked = None
        self._key.set()

    def heartbeat(self) -> Heartbeat:
        """What the scheduler gets to know."""
        watched = self.watched
        return Heartbeat(self.usage, watched.presence, watched.source, self.limited_cpus, self.armed)

    async def keep(self) -> None:
        """Watch until cancelled."""
        try:
            self._keys = KeyWatch()
            asyncio.get_running_loop().add_reader(self._keys.fileno(), self._key_pressed)
        except OSError as error:
            _log.warning("keys are seen at the next look only: %s: %s", error.filename, error.strerror)
        try:
            while True:
                await self._look()
                self._key.clear()
                self._listen(True)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(self._config.presence.poll_s, _LONGEST_LOOK_S)):
                        await self._key.wait()
        finally:
            if self._keys is not None:
                self._listen(False)
                self._keys.close()
                self._keys = None

    async def _look(self) -> None:
        self.usage = Usage(*self._load.look())
        terminals = self._terminals.sight(self._terminals_of_jobs, self._config.presence.away_after_s)
        sights = [terminals, sessions(), self._processes()]
        self._judge(sights)
        await self._tell_guard()

    def _judge(self, sights: list[Sight]) -> None:
        before = self.watched
        away_after_us = round(min(self._config.presence.away_after_s, 1e9) * _US_PER_S)
        self.watched = judged(before, sights, now_us(), away_after_us)
        if self.watched.presence is not before.presence:
            _log.info("the desk: %s (%s)", self.watched.presence, self.watched.source)

    def _key_pressed(self) -> None:
        """Something was read from a pseudo-terminal. Fast typists, and jobs that type, cost little."""
        assert self._keys is not None
        used = self._keys.used()
        self._listen(False)
        if not used or not used - self._terminals_of_jobs():
            asyncio.get_running_loop().call_later(_DEAF_S, self._listen, True)
            return
        before = self.watched.presence
        self._judge([Sight("terminals", 0.0)])
        if self.watched.presence is not before:
            self._key.set()

    def _listen(self, on: bool) -> None:
        if self._keys is not None:
            loop = asyncio.get_running_loop()
            if on:
                loop.add_reader(self._keys.fileno(), self._key_pressed)
            else:
                loop.remove_reader(self._keys.fileno())

    def _processes(self) -> Sight:
        if self.usage.cpu_local < 0:
            return Sight("processes", None)
        busy = self.usage.cpu_local > self._config.presence.busy_cpus
        return Sight("processes", 0.0 if busy else float("inf"))

    def _terminals_of_jobs(self) -> set[int]:
        return terminals_of(self._whose.tasks())

    def _own(self) -> set[int]:
        return {os.getpid(), self._guard.pid}

    async def _tell_guard(self) -> None:
        """Contract, limits, and then how they are."""
        if not self._guard.ready.is_set():
            self.armed, self.limited_cpus, self._asked = False, None, None
            return
        keep_us = round(_KEEP_LOOKS * min(self._config.presence.poll_s, _LONGEST_LOOK_S) * _US_PER_S)
        wanted = decided(self.watched.presence, self.heard_us, self.lease_us, now_us(), keep_us)
        try:
            if self._asked is None and self._contract is not None:
                contract = self._contract
                await self._guard.ask(
                    {
                        "do": "contract",
                        "cpu_ratio": contract.cpu_ratio,
                        "memory_ratio": contract.memory_ratio,
                        "mpl": contract.mpl,
                    }
                )
            if isinstance(wanted, Relax):
                await self._guard.ask({"do": "relax", "until_us": wanted.until_us, "epoch": self.epoch})
            elif not isinstance(self._asked, Arm):
                await self._guard.ask({"do": "arm"})
            if type(wanted) is not type(self._asked):
                _log.info("the contract: %s", f"armed, {wanted.why}" if isinstance(wanted, Arm) else "relaxed")
            self._asked = wanted
            self.take(await self._guard.ask({"do": "status"}))
        except (GuardGone, GuardRefused) as error:
            self.armed, self._asked = False, None
            if self._problem != str(error):
                _log.warning("the guard was not told who is at the desk: %s", error)
            self._problem = str(error)

    def take(self, status: dict[str, Any]) -> None:
        """What the guard says of its limits."""
        self._problem = ""
        self.armed = bool(status.get("armed"))
        can = {str(name): str(answer) for name, answer in (status.get("can") or {}).items()}
        if can.get("cgroups") in {"v1", "v2"}:
            can["cgroups"] = "yes"  # for the scheduler a capability is yes, or why not
        self.enforces = can
        limits = status.get("limits") or {}
        cpus = limits.get("cpus")
        self.limited_cpus = float(cpus) if isinstance(cpus, int | float) else None

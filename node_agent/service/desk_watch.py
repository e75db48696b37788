"""The desk: who is there, how the machine is used, and what the guard is told because of it.

Looks at all sources once a period, and hears some at once (:mod:`node_agent.service.presence`). Runs whether or not the
scheduler is there: without it the contract is armed.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from cosched.config.node import NodeConfig
from cosched.linux.presence import terminals_of
from cosched.linux.presence_reading import Reading
from cosched.linux.pressure import Pressure
from cosched.linux.process import boottime_us
from cosched.model.contract import SocialContract
from cosched.model.desk import ContractReason, DeskReport, Wakeable, Wakeups
from cosched.model.desk import Pressure as PressureShares
from cosched.model.job import PRIVATE_PLACES
from cosched.model.node import Presence, Usage
from cosched.model.presets import Habit
from cosched.model.time import US_PER_S
from cosched.wire.messages import NO_WORD, Heartbeat, OwnersWord
from node_agent.core.lease import Lease
from node_agent.guard.base import requests
from node_agent.guard.base.client import GuardGone, GuardRefused
from node_agent.policy.backoff import Backoff, backed_off
from node_agent.policy.contract import Arm, Relax, decided, judged, reason_of, unwatched
from node_agent.service.card import Card, card_of
from node_agent.service.complaints import log_change
from node_agent.service.guard import Guard
from node_agent.service.job_lookup import JobLookup
from node_agent.service.load import Load
from node_agent.service.presence import Sources
from node_agent.service.tasks import ends_within

_log = logging.getLogger("cosched.agent")
_KEEP_LOOKS = 3  # for how many looks a relaxation lasts, unless renewed
_LONGEST_LOOK_S = 5.0
_CARD_S = 60.0  # between two looks at the network card
_REST_S = 1.0  # between two words of the owner's that end nothing
_UNHEARD_S = 0.5  # somebody who comes is noticed within a second also where nothing is heard


class Desk:
    """Presence and load of this node."""

    def __init__(
        self,
        config: NodeConfig,
        guard: Guard,
        job_lookup: JobLookup,
        lease: Lease,
        disk_problem: Callable[[], str] = str,
    ) -> None:
        """``lease`` says when the scheduler was heard, ``disk_problem`` why the disk takes no new work."""
        self._disk_problem = disk_problem
        self._config = config
        self._period_s = min(config.presence.poll_s, _LONGEST_LOOK_S)
        self._guard = guard
        self._lease = lease
        self._load = Load(
            Path(config.cgroup.mount),
            config.cgroup.cosched,
            config.cgroup.desk,
            config.memory_bytes,
            own=lambda: {os.getpid(), guard.pid},
            tasks=job_lookup.tasks,
            min_uid=config.security.min_uid,
            use_cgroups=config.cgroup.mode != "none",
        )
        self.watched = unwatched(boottime_us())
        self.usage = Usage()
        self._pressure = Pressure(config.cgroup.mount, config.cgroup.desk)
        self._shares: dict[str, float] = {}
        self._status: dict[str, Any] = {}  # what the guard said last
        self._may_wake: list[list[int]] | None = None  # when the owner lets this machine be woken, as the guard says it
        self._card: Card | None = None  # by which it would be
        self._looking: asyncio.Task[None] | None = None
        self.backoff = Backoff()
        self.armed = False
        self.limited_cpus: float | None = None
        self.asleep = False  # the machine is about to be suspended, or was just now
        self.paused = ""  # why nothing may run here now; empty where it may
        self.enforces: dict[str, str] = {}
        self._kept = [path for path in config.paths.keep if path.startswith(PRIVATE_PLACES)]
        self.word = NO_WORD  # what the owner has said, beside a pause
        self.tell_word: Callable[[OwnersWord], None] = lambda word: None  # whoever has the link sets it
        self._worded_s = -_REST_S
        self._inhibited_until_us = 0
        self._asked: Arm | Relax | None = None
        self._wanted: Arm | Relax = Arm("just started", ContractReason.UNKNOWN)
        self._tightened = False
        self._problem = ""
        self._contract: SocialContract | None = None
        self.epoch = 0
        self._again = asyncio.Event()
        self.sources = Sources(
            config.presence,
            lambda: terminals_of(job_lookup.tasks()),
            lambda: self.usage.cpu_local,
            self._sign,
            by_guard=bool(config.security.agent_user) and os.geteuid() != 0,
        )

    def welcome(self, contract: SocialContract, epoch: int) -> None:
        """The scheduler says what the contract is."""
        self._contract, self.epoch = contract, epoch
        self.again()

    def again(self) -> None:
        """Tell the guard everything anew (it was restarted, or there is something new to tell)."""
        self._asked = None
        self._again.set()

    def heartbeat(self) -> Heartbeat:
        """What the scheduler gets to know."""
        if not self._config.parallel:  # this desk takes part in nothing: nothing is told of it
            return Heartbeat(
                Usage(),
                Presence.UNKNOWN,
                paused=self.paused,
                guard="" if self._guard.ready.is_set() else self._guard.problem,
            )
        blind = self.sources.blind if self._habit().watched else ()
        return Heartbeat(
            self.usage,
            self.watched.presence,
            self.watched.source,
            self.limited_cpus,
            self.armed,
            blind,
            self.paused,
            guard="" if self._guard.ready.is_set() else self._guard.problem,
        )

    def report(self) -> DeskReport:
        """What the owner feels, and which contract is in force."""
        if not self._config.parallel:
            return DeskReport(ContractReason.PAUSED)
        status = self._status
        probed = (status.get("probe") or {}).get("wakeups")  # what the guard's probe has counted
        opens_us = status.get("paused_until_us") if status.get("closed") else None  # its owner's hours alone
        reason = (
            ContractReason.ASLEEP
            if self.asleep
            else reason_of(
                self._wanted,
                armed=self.armed,
                tight=self.backoff.step > 0,
                paused=bool(self.paused),
                guarded=self._guard.ready.is_set(),
            )
        )
        return DeskReport(
            reason,
            _cpus(status.get("contract_cpus")),
            int(status.get("pauses") or 0),
            _pressure(self._shares),
            Wakeups(tuple(probed["counts"]), probed["late_us"]) if probed else None,
            self._wakeable() if self.asleep else None,
            None if opens_us is None else max(0, opens_us - boottime_us()) / US_PER_S,
            self._disk_problem(),
        )

    def _wakeable(self) -> Wakeable | None:
        """How this machine is woken for jobs; None where its owner does not agree, or it has no Ethernet card."""
        if not self._may_wake or self._card is None:
            return None
        at_us = boottime_us()
        spans = [((max(begin, at_us) - at_us) / US_PER_S, (end - at_us) / US_PER_S) for begin, end in self._may_wake]
        return Wakeable(self._card.mac, self._card.broadcast, tuple(span for span in spans if span[0] < span[1]))

    def _look_for_card(self) -> None:
        """Before it is needed, since a report just before a sleep has no time for it; and beside, as names may hang."""
        if self._may_wake and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._find_card())

    async def _find_card(self) -> None:
        try:
            self._card = await asyncio.to_thread(card_of, self._config.launch.address)
        except OSError as error:
            _log.info("the network card cannot be looked up: %s", error)
        await asyncio.sleep(_CARD_S)

    async def keep(self) -> None:
        """Watch until cancelled."""
        if self._config.parallel:
            self.sources.listen()
        try:
            while True:
                await self._look()
                self._again.clear()
                await ends_within(self.next_look_s(), self._again.wait())
        finally:
            if self._looking is not None:
                self._looking.cancel()
            await self.sources.close()

    def next_look_s(self) -> float:
        """After how many seconds to look again: soon where an arrival would not be heard."""
        unheard = self.watched.presence is Presence.AWAY and self._habit().watched and not self.sources.hears
        return min(self._period_s, _UNHEARD_S) if unheard else self._period_s

    async def _look(self) -> None:
        self.usage = self._load.look(0.9 * self._period_s)  # over less, a short-lived process is much
        now = self._habit()
        readings = []
        if now.watched and self._config.parallel:
            readings = await self.sources.look(now.away_after_s, forgotten_sessions=now.forgotten_sessions)
            if self._inhibited_until_us > boottime_us() and "sessions" in self._config.presence.sources:
                readings.append(Reading("sessions", 0.0))  # a film, by the helper in the session
        self._judge(readings, now)
        before, self._shares = self.backoff, self._pressure.look(time.monotonic())
        self.backoff = backed_off(before, self.watched.presence is Presence.PRESENT, self._shares, boottime_us())
        if self.backoff.step != before.step:  # the owner waits though the contract is kept, or no more
            _log.info("the contract: %g of its ceiling (waiting: %s)", self.backoff.ratio, self.backoff.why or "nobody")
        await self._tell_guard()
        self._look_for_card()

    def _habit(self) -> Habit:
        """What the preset means at this moment of local time."""
        return self._config.presence.habit(datetime.now().astimezone())

    def _judge(self, readings: list[Reading], now: Habit) -> None:
        before = self.watched
        self.watched = judged(before, readings, boottime_us(), now)
        if self.watched.presence is not before.presence:
            _log.info("the desk: %s (%s)", self.watched.presence, self.watched.source)

    def _sign(self, reading: Reading) -> None:
        """Somebody was seen just now."""
        before = self.watched.presence
        self._judge([reading], self._habit())
        if self.watched.presence is not before:
            self._again.set()

    async def _tell_guard(self) -> None:
        """Contract, limits, and then how they are."""
        if not self._guard.ready.is_set():
            self.armed, self.limited_cpus, self._asked, self._may_wake = False, None, None, None
            self.sources.guard_tells = False
            return
        keep_us = round(_KEEP_LOOKS * self._period_s * US_PER_S)
        wanted = decided(self.watched.presence, self._lease.heard_us, self._lease.lease_us, boottime_us(), keep_us)
        self._wanted = wanted
        try:
            if self._asked is None and self.sources.wants_guard and self._config.parallel:
                await self._have_keys_told()
            if self._asked is None and self._contract is not None:
                contract = self._contract
                await self._guard.ask(requests.Contract(contract.cpu_ratio, contract.memory_ratio, contract.mpl))
            if self.backoff.step or self._tightened:
                self._tightened = self.backoff.step > 0
                await self._guard.ask(requests.Tighten(self.backoff.ratio, boottime_us() + keep_us))
            if isinstance(wanted, Relax):
                await self._guard.ask(requests.Relax(wanted.until_us, self.epoch))
            elif not isinstance(self._asked, Arm):
                await self._guard.ask(requests.Arm())
            if type(wanted) is not type(self._asked):
                _log.info("the contract: %s", f"armed, {wanted.why}" if isinstance(wanted, Arm) else "relaxed")
            self._asked = wanted
            self.take(await self._guard.ask(requests.Status()))
        except (GuardGone, GuardRefused) as error:
            self.armed, self._asked = False, None
            self._problem = log_change(self._problem, str(error), "the guard was not told of presence at the desk: %s")

    async def _have_keys_told(self) -> None:
        """Where the guard cannot either, keys are seen at the next look. Raises :class:`GuardGone`."""
        try:
            await self._guard.ask(requests.Keys())
        except GuardRefused as error:
            _log.warning("keys are seen at the next look only: %s", error)
            self.sources.guard_tells = False
        else:
            self.sources.guard_tells = True

    def decided(self, status: dict[str, Any]) -> None:
        """Somebody at the desk has decided something, says the guard: have the scheduler know.

        What was ended is told before anything that comes of it; else once a second is enough.
        """
        self._inhibited_until_us = int(status.get("inhibited_until_us") or 0)
        self._may_wake = status.get("wake")
        word = _word(status.get("word") or {})
        if not self._config.parallel:  # this desk takes part in nothing: what is ended is told, and nothing else
            word = OwnersWord(ended=word.ended)
        now_s = time.monotonic()
        if word == self.word or (word.ended == self.word.ended and now_s - self._worded_s < _REST_S):
            return
        _log.info("the desk's owner has said: %s", word)
        self.word, self._worded_s = word, now_s
        self.tell_word(word)

    def take(self, status: dict[str, Any]) -> None:
        """What the guard says of its limits."""
        self._problem, self._status = "", status
        self.armed = bool(status.get("armed"))
        paused = str(status.get("paused") or "")
        if paused != self.paused:
            _log.info("%s", paused or "parallel work goes on at this desk")
        self.paused = paused
        self.decided(status)
        can = {str(name): str(answer) for name, answer in (status.get("can") or {}).items()}
        if can.get("cgroups") in {"v1", "v2"}:
            can["cgroups"] = "yes"  # for the scheduler a capability is yes, or why not
        if can.get("private /tmp") == "yes" and self._kept:
            can["private /tmp"] = f"yes, but for {', '.join(self._kept)}"
        self.enforces = can
        self.limited_cpus = _cpus((status.get("limits") or {}).get("cpus"))


def _cpus(found: object) -> float | None:
    return float(found) if isinstance(found, int | float) else None


def _pressure(shares: Mapping[str, float]) -> PressureShares | None:
    """For the scheduler; None where the kernel tells none."""
    by_kind = {name.partition(" ")[0]: round(share, 4) for name, share in shares.items()}
    return PressureShares(**by_kind) if by_kind else None


def _word(found: dict[str, Any]) -> OwnersWord:
    """What the owner has said, as the guard has it."""
    ratio = found.get("cpu_ratio")
    ended = tuple((int(job), int(attempt)) for job, attempt in found.get("ended", ()))
    return OwnersWord(1.0 if ratio is None else float(ratio), tuple(map(str, found.get("bans", ()))), ended)

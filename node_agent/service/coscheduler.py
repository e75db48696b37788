"""Coscheduling on this node: what the scheduler says of its jobs, what is seen of them, and what the guard is asked.

Decides nothing: ``node_agent.policy.modes`` does, from signs and the moment. What is asked of the guard lasts for a
while; so when this stops, or the scheduler is silent for some seconds, jobs are as plain Linux has them.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from cosched.config.node import NodeConfig
from cosched.linux.cgroups import PERIOD_US
from cosched.linux.job_signs import JobGroups
from cosched.linux.process import boottime_us
from cosched.linux.sock_diag import SockDiag
from cosched.model.coscheduling import Mode
from cosched.wire.messages import Heartbeat, Turn, Turns
from cosched.wire.version_4 import watched_in
from node_agent.core.attempt import Attempt
from node_agent.guard.base import requests
from node_agent.guard.base.client import GuardGone, GuardRefused
from node_agent.policy.gang import period_begins_us
from node_agent.policy.modes import LEASE_US, SELDOM_US, Coscheduling, looks_for_arrivals
from node_agent.policy.raising import NEUTRAL, Job, Key, Slots
from node_agent.service.complaints import log_change
from node_agent.service.guard import Guard
from node_agent.service.watching import Watching

#: What the scheduler said counts for so long.
_TOLD_US: Final = LEASE_US
#: Slots whose beginning has moved by less than this share of one are not asked for anew.
_SAME: Final = 0.01
_MOST_JOBS: Final = 64


class Coscheduler:
    """The coscheduling of one node."""

    def __init__(self, config: NodeConfig, guard: Guard, attempts: Iterable[Attempt]) -> None:
        self._guard = guard
        self._config = config
        self._attempts = attempts
        self._groups = JobGroups(config.cgroup.mount, config.cgroup.cosched)
        self._core = Coscheduling()
        self._diag: SockDiag | None = None
        self._watched: dict[Key, Watching] = {}
        self._turns = Turns(0, 0, 1)
        self._told_us = -_TOLD_US
        self._looked_us = -SELDOM_US
        self._asked: Slots | None = None
        self._in_step_until_us = 0
        self._problem = ""
        self._news = asyncio.Event()
        self.raises = 0

    # the scheduler's side

    def welcome(self) -> None:
        """Another scheduler's clock may count from now on."""
        self._core.clock.forget()

    def told(self, turns: Turns) -> None:
        """The scheduler has answered a heartbeat."""
        now_us = boottime_us()
        self._core.clock.answered(turns.asked_us, turns.now_us + self._config.coscheduling.clock_shift_us, now_us)
        before, self._turns, self._told_us = self._turns, turns, now_us
        if (turns.jobs, turns.contended, turns.slot_us) != (before.jobs, before.contended, before.slot_us):
            self._news.set()

    def signed(self, beat: Heartbeat) -> Heartbeat:
        """A heartbeat with what is seen of the jobs here."""
        now_us = boottime_us()
        known = self._core.clock.ahead_us(now_us)
        return replace(
            beat,
            asked_us=now_us,
            clock_bound_us=-1 if known is None else known[1],
            raises=self.raises,
            jobs=tuple(watched.signs(now_us) for watched in list(self._watched.values())[:_MOST_JOBS]),
        )

    # the guard's side

    def guard_is_new(self) -> None:
        """All levers are as they were made."""
        self._asked = None
        self._in_step_until_us = 0
        self._core.given.clear()
        self._news.set()

    async def keep(self) -> None:
        """Watch and decide until cancelled."""
        try:
            while True:
                self._news.clear()
                try:
                    look_us = await self._step()
                    self._problem = ""
                except (OSError, GuardGone, GuardRefused) as error:
                    look_us = SELDOM_US
                    self._problem = log_change(self._problem, str(error), "coscheduling: %s")
                # A hundred times a second: half of what asyncio.timeout would cost.
                timer = asyncio.get_running_loop().call_later(look_us / 1e6, self._news.set)
                await self._news.wait()
                timer.cancel()
        finally:
            if self._diag is not None:
                self._diag.close()

    async def _step(self) -> int:
        """One decision carried out; when to look again. Raises OSError, GuardGone, GuardRefused."""
        now_us = boottime_us()
        here = self._follow()
        if here and now_us - self._looked_us >= SELDOM_US:
            self._look(now_us)
            self._looked_us = now_us
        if now_us - self._told_us > _TOLD_US:
            return SELDOM_US  # what was asked for ends by itself
        if here:
            await self._ask_periods(now_us)
        there = [self._job(turn) for turn in self._turns.jobs if (turn.job_id, turn.attempt) in here]
        jobs = [self._seen(job, there) for job in there] if self._turns.contended else there
        decision = self._core.decide(jobs, self._turns.slot_us, boottime_us(), contended=self._turns.contended)
        for weight in decision.weights:
            await self._ask(requests.Weigh(*weight.key, weight.percent, weight.until_us))
            if weight.percent > NEUTRAL:
                self.raises += 1
                self._watched[weight.key].raises += 1
        await self._ask_slots(decision.slots, now_us)
        return decision.look_us

    def _follow(self) -> set[Key]:
        """The attempts that may have processes here; who is new is watched from now on."""
        here = {
            (each.job_id, each.attempt): (min(each.prepare.tasks, self._config.procs), watched_in(each.prepare))
            for each in self._attempts
            if each.prepare is not None and not each.ended
        }
        self._watched = {
            key: self._watched.get(key) or Watching(key, self._groups, *about) for key, about in here.items()
        }
        return set(here)

    def _look(self, now_us: int) -> None:
        self._diag = self._diag or SockDiag()
        inet = {each.inode: each for each in self._diag.inet()}
        for watched in self._watched.values():
            watched.look(inet, now_us)

    def _job(self, turn: Turn) -> Job:
        watched = self._watched[turn.job_id, turn.attempt]
        mode = Mode(turn.mode) if turn.mode in list(Mode) else Mode.NONE  # else a later scheduler's
        rows = turn.rows if self._core.clock.good_for(self._turns.slot_us, boottime_us()) else 0
        return Job(watched.key, mode, watched.receives, False, 0, turn.share, turn.row, rows, watched.cpus)

    def _seen(self, job: Job, here: Sequence[Job]) -> Job:
        """A job with what it has used, and whether a message waits, where that matters."""
        watched = self._watched[job.key]
        waiting = self._diag is not None and looks_for_arrivals(job, here) and watched.waiting(self._diag)
        return job._replace(waiting=waiting, cpu_us=watched.count_cpu() if waiting else watched.cpu_us)

    async def _ask_periods(self, now_us: int) -> None:
        """Have a ceiling's periods begin when those of all nodes do, whether or not jobs take turns."""
        if self._in_step_until_us - now_us > LEASE_US // 2:
            return
        begin_us = period_begins_us(self._core.clock, PERIOD_US, now_us)
        if begin_us is not None:
            self._in_step_until_us = now_us + LEASE_US
            await self._ask(requests.Periods(begin_us, self._in_step_until_us))

    async def _ask_slots(self, wanted: Slots | None, now_us: int) -> None:
        """Have the turns kept, changed, or ended, where that is not what was asked for lately."""
        before = self._asked
        if wanted is None:
            if before is not None and before.until_us > now_us:
                await self._ask(requests.Slots(begin_us=0, slot_us=before.slot_us, rows=(), until_us=0))
            self._asked = None
            return
        if before is not None and before[1:3] == wanted[1:3] and before.until_us - now_us > LEASE_US // 2:
            round_us = wanted.slot_us * len(wanted.rows)
            moved_us = (wanted.begin_us - before.begin_us) % round_us
            if min(moved_us, round_us - moved_us) <= _SAME * wanted.slot_us:
                return
        await self._ask(requests.Slots(wanted.begin_us, wanted.slot_us, wanted.rows, wanted.until_us))
        self._asked = wanted

    async def _ask(self, request: requests.Request) -> None:
        try:
            await self._guard.ask(request)
        except GuardRefused as error:
            if error.code not in ("unknown", "stale"):  # the job has just ended, or we were late
                raise

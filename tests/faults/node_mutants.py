"""Nodes that break a promise on purpose: agents, guards and desks. Each has to be found, or the judge sees nothing."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cosched.linux.presence_reading import Reading
from cosched.model.node import Presence
from cosched.wire import messages as wire
from faults.desk import Desk
from faults.guarding import Guard
from faults.mutants import altered
from faults.node import Node
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.agent import AgentCore
from node_agent.core.attempt import Attempt, Key
from node_agent.core.guard_model import GuardModel, ModelGroup
from node_agent.core.replies import Declined, Done, Reply
from node_agent.guard.desk.limiter import Limiter
from node_agent.policy.contract import Watched
from node_agent.policy.processors import Claim

# --- agents -----------------------------------------------------------------------------------------------------------


class SwallowsKills(AgentCore):
    """A kill of what was never prepared here is not answered."""

    def handle(self, event: happened.Input, now_us: int) -> list[fx.Effect]:
        if isinstance(event, happened.Ordered) and isinstance(event.order, wire.Kill):
            order = event.order.order
            if self.get(order.job_id, order.attempt) is None:
                return []
        return super().handle(event, now_us)


class ObeysTwice(AgentCore):
    """An order is obeyed as often as it comes, and the guard starts a command as often as it is asked."""

    def handle(self, event: happened.Input, now_us: int) -> list[fx.Effect]:
        if isinstance(event, happened.Ordered) and isinstance(event.order, wire.Run):
            order = event.order.order
            if (attempt := self.get(order.job_id, order.attempt)) is not None:
                before = order.n - 1
                again = msgspec.structs.replace(attempt, last_order=before, ran=False, answers=_but(attempt, order.n))
                self._memory.keep(again, last_order=before)
        return super().handle(event, now_us)


def _but(attempt: Attempt, number: int) -> Mapping[int, Any]:
    return {n: answer for n, answer in attempt.answers.items() if n != number}


class _Careless(GuardModel):
    def refusal(self, request: fx.Spawn, group: ModelGroup) -> Declined | None:
        return None


class ForgetsAttempts(Node):
    """Nothing that the agent knows outlives it, and what its guard has and it does not know is no matter of its own."""

    def start(self) -> None:
        self.attempts.clear()
        super().start()

    def _hear_guard(self, event: happened.Input, life: int) -> None:
        if isinstance(event, happened.GuardReports):
            event = happened.GuardReports(tuple(each for each in event.groups if self.core.get(*each.key)))
        super()._hear_guard(event, life)


class ObeysAnybody(AgentCore):
    """Orders of any scheduler are obeyed, be its epoch over."""

    def handle(self, event: happened.Input, now_us: int) -> list[fx.Effect]:
        if isinstance(event, happened.Ordered) and self.fence is not None:
            event = happened.Ordered(msgspec.structs.replace(event.order, fence=self.fence))
        return super().handle(event, now_us)


class SpeaksForOthers(AgentCore):
    """The end of a script is told by another node than its own."""

    def handle(self, event: happened.Input, now_us: int) -> list[fx.Effect]:
        effects = super().handle(event, now_us)
        for effect in list(effects):
            if isinstance(effect, fx.Tell) and isinstance(effect.message, wire.Prepared):
                order = effect.message.order
                attempt = self.get(order.job_id, order.attempt)
                if attempt is not None and attempt.prepare and attempt.prepare.peers[0].name != self._memory.node:
                    effects.append(fx.Tell(wire.ProgramEnded(order.job_id, order.attempt, wire.Exit(status=0))))
        return effects


# --- guards -----------------------------------------------------------------------------------------------------------


class StartsInPauses(GuardModel):
    """A pause of the owner keeps nothing from starting."""

    @property
    def paused(self) -> str:
        return ""

    @paused.setter
    def paused(self, why: str) -> None:
        self.wanted = why


class _HeedlessDesk(Desk):
    @property
    def holds(self) -> bool:
        return bool(getattr(self._guard.model, "wanted", ""))


class GoesOnInPauses(Guard):
    """A pause of the owner stops nothing that runs."""

    def pause(self, why: str) -> None:
        self.model.paused = why


class RunsUnderAnyUid(GuardModel):
    """A submitter's name is all that is asked of the user database."""

    def ask(self, request: fx.GuardRequest) -> Reply:
        self.uids.clear()
        return super().ask(request)


class KeepsGroups(GuardModel):
    """What is to be forgotten stays."""

    def ask(self, request: fx.GuardRequest) -> Reply:
        return Done() if isinstance(request, fx.ForgetGroup) else super().ask(request)


# --- desks ------------------------------------------------------------------------------------------------------------


class SeesNobody(Desk):
    """Whoever comes, the desk is taken for free."""

    def seen(self, before: Watched, readings: list[Reading], now_us: int) -> Watched:
        return super().seen(before, readings, now_us)._replace(presence=Presence.AWAY)


class HopesForNobody(Desk):
    """Where it is not known whether somebody is there, nobody is."""

    def seen(self, before: Watched, readings: list[Reading], now_us: int) -> Watched:
        found = super().seen(before, readings, now_us)
        return found._replace(presence=Presence.AWAY) if found.presence is Presence.UNKNOWN else found


class _Endless(Limiter):
    def tick(self, now_us: int) -> str | None:
        self.until_us = max(self.until_us, now_us + 1) if not self.armed else self.until_us
        return super().tick(now_us)


class RelaxesForEver(Desk):
    """A limit that was lifted stays so until somebody sets it."""

    limiter_type = _Endless


# --- shapes of jobs ---------------------------------------------------------------------------------------------------


class SaysItIsResized(GuardModel):
    """A share is said to have been changed, and is as it was."""

    def _resize(self, request: fx.ResizeGroup, group: ModelGroup) -> Reply:
        was = group.tasks
        reply = super()._resize(request, group)
        group.tasks = was
        return reply


class LeavesTheSet(GuardModel):
    """A job is folded, and goes on on the CPUs that it had: whoever starts on them shares them."""

    def _resize(self, request: fx.ResizeGroup, group: ModelGroup) -> Reply:
        was = group.cpus
        reply = super()._resize(request, group)
        group.cpus = was
        return reply


class StartsOnAllCpus(GuardModel):
    """A job that starts folded runs on all of the node's CPUs."""

    def _prepare(self, request: fx.PrepareGroup, group: ModelGroup | None) -> Reply:
        reply = super()._prepare(request, group)
        if group is None and request.key in self.groups:
            self.groups[request.key].cpus = None
        return reply


class ForgetsTheSet(Guard):
    """A guard that is started anew does not know which CPUs its predecessor had given."""

    def _starts(self) -> None:
        for group in self.model.groups.values():
            group.cpus = None
        super()._starts()


class CountsEndedJobsAsPresent(GuardModel):
    """A job that has ended uses its CPUs until it is forgotten: two jobs are on one CPU while one idles."""

    def claims(self, group: ModelGroup) -> list[Claim]:
        return [Claim(group.processors)]


# --- file systems that do not answer ----------------------------------------------------------------------------------


class StartsLate(GuardModel):
    """What was refused because a file system did not answer begins when it does."""

    def let_go(self, key: Key, n: int = 0) -> Reply:
        group = self.groups[key]
        ending, group.ending = group.ending, False
        try:
            return super().let_go(key, n)
        finally:
            group.ending = ending


class TellsNoStall(Guard):
    """What cannot be ended is the guard's secret."""

    def tells(self, event: happened.Input) -> None:
        if not isinstance(event, happened.GroupStalled):
            super().tells(event)


#: Each with the promise that the judge names (empty: any), and the first seed that finds it: a test begins there.
NODES: dict[type[Node], tuple[str, int]] = {
    altered(Node, core_type=SwallowsKills): ("", 16),
    altered(Node, core_type=ObeysTwice, model_type=_Careless): ("P2", 16),
    ForgetsAttempts: ("", 0),
    altered(Node, core_type=ObeysAnybody): ("O4", 0),
    altered(Node, core_type=SpeaksForOthers): ("O8", 0),
    altered(Node, model_type=StartsInPauses, desk_type=_HeedlessDesk): ("D4", 2),
    altered(Node, guard_type=GoesOnInPauses): ("D4", 10),
    altered(Node, model_type=RunsUnderAnyUid): ("O16", 0),
    altered(Node, model_type=KeepsGroups): ("D6", 0),
    altered(Node, desk_type=SeesNobody): ("D1", 0),
    altered(Node, desk_type=HopesForNobody): ("D2", 1),
    altered(Node, desk_type=RelaxesForEver): ("D3", 5),
    altered(Node, model_type=SaysItIsResized): ("S1", 2),
    altered(Node, model_type=LeavesTheSet): ("S1", 2),
    altered(Node, model_type=StartsOnAllCpus): ("S1", 2),
    altered(Node, guard_type=ForgetsTheSet): ("S1", 34),
    altered(Node, model_type=CountsEndedJobsAsPresent): ("O12", 75),
    altered(Node, model_type=StartsLate): ("P2", 1),
    altered(Node, guard_type=TellsNoStall): ("O14", 25),
}

"""Nodes that break a promise on purpose: agents, guards and desks. Each has to be found, or the judge sees nothing."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cosched.linux.presence_reading import Reading
from cosched.model.node import Presence
from cosched.wire import messages as wire
from faults.desk import Desk
from faults.guarding import Guard
from faults.node import Node
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.agent import AgentCore
from node_agent.core.attempt import Attempt
from node_agent.core.guard_model import GuardModel, ModelGroup
from node_agent.core.replies import Declined, Done, Reply
from node_agent.guard.desk.limiter import Limiter
from node_agent.policy.contract import Watched

# --- agents -----------------------------------------------------------------------------------------------------------


class _SwallowsKills(AgentCore):
    def handle(self, event: happened.Input, now_us: int) -> list[fx.Effect]:
        if isinstance(event, happened.Ordered) and isinstance(event.order, wire.Kill):
            order = event.order.order
            if self.get(order.job_id, order.attempt) is None:
                return []
        return super().handle(event, now_us)


class SwallowsKills(Node):
    """A kill of what was never prepared here is not answered."""

    core_type = _SwallowsKills


class _Twice(AgentCore):
    """Every order is new to it."""

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


class ObeysTwice(Node):
    """An order is obeyed as often as it comes, and the guard starts a command as often as it is asked."""

    core_type = _Twice
    model_type = _Careless


class ForgetsAttempts(Node):
    """Nothing that the agent knows outlives it, and what its guard has and it does not know is no matter of its own."""

    def start(self) -> None:
        self.attempts.clear()
        super().start()

    def _hear_guard(self, event: happened.Input, life: int) -> None:
        if isinstance(event, happened.GuardReports):
            event = happened.GuardReports(tuple(each for each in event.groups if self.core.get(*each.key)))
        super()._hear_guard(event, life)


class _ObeysAnybody(AgentCore):
    def handle(self, event: happened.Input, now_us: int) -> list[fx.Effect]:
        if isinstance(event, happened.Ordered) and self.fence is not None:
            event = happened.Ordered(msgspec.structs.replace(event.order, fence=self.fence))
        return super().handle(event, now_us)


class ObeysAnybody(Node):
    """Orders of any scheduler are obeyed, be its epoch over."""

    core_type = _ObeysAnybody


class _SpeaksForOthers(AgentCore):
    def handle(self, event: happened.Input, now_us: int) -> list[fx.Effect]:
        effects = super().handle(event, now_us)
        for effect in list(effects):
            if isinstance(effect, fx.Tell) and isinstance(effect.message, wire.Prepared):
                order = effect.message.order
                attempt = self.get(order.job_id, order.attempt)
                if attempt is not None and attempt.prepare and attempt.prepare.peers[0].name != self._memory.node:
                    effects.append(fx.Tell(wire.ProgramEnded(order.job_id, order.attempt, wire.Exit(status=0))))
        return effects


class SpeaksForOthers(Node):
    """The end of a script is told by another node than its own."""

    core_type = _SpeaksForOthers


# --- guards -----------------------------------------------------------------------------------------------------------


class _Heedless(GuardModel):
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


class StartsInPauses(Node):
    """A pause of the owner keeps nothing from starting."""

    model_type = _Heedless
    desk_type = _HeedlessDesk


class _NeverFreezes(Guard):
    def pause(self, why: str) -> None:
        self.model.paused = why


class GoesOnInPauses(Node):
    """A pause of the owner stops nothing that runs."""

    guard_type = _NeverFreezes


class _ByName(GuardModel):
    def ask(self, request: fx.GuardRequest) -> Reply:
        self.uids.clear()
        return super().ask(request)


class RunsUnderAnyUid(Node):
    """A submitter's name is all that is asked of the user database."""

    model_type = _ByName


class _Keeper(GuardModel):
    def ask(self, request: fx.GuardRequest) -> Reply:
        return Done() if isinstance(request, fx.ForgetGroup) else super().ask(request)


class KeepsGroups(Node):
    """What is to be forgotten stays."""

    model_type = _Keeper


# --- desks ------------------------------------------------------------------------------------------------------------


class _Blind(Desk):
    def seen(self, before: Watched, readings: list[Reading], now_us: int) -> Watched:
        return super().seen(before, readings, now_us)._replace(presence=Presence.AWAY)


class SeesNobody(Node):
    """Whoever comes, the desk is taken for free."""

    desk_type = _Blind


class _Hopeful(Desk):
    def seen(self, before: Watched, readings: list[Reading], now_us: int) -> Watched:
        found = super().seen(before, readings, now_us)
        return found._replace(presence=Presence.AWAY) if found.presence is Presence.UNKNOWN else found


class HopesForNobody(Node):
    """Where it is not known whether somebody is there, nobody is."""

    desk_type = _Hopeful


class _Endless(Limiter):
    def tick(self, now_us: int) -> str | None:
        self.until_us = max(self.until_us, now_us + 1) if not self.armed else self.until_us
        return super().tick(now_us)


class _EndlessDesk(Desk):
    limiter_type = _Endless


class RelaxesForEver(Node):
    """A limit that was lifted stays so until somebody sets it."""

    desk_type = _EndlessDesk


#: Each with the promise that the judge names (empty: any), and the first seed that finds it: a test begins there.
NODES: dict[type[Node], tuple[str, int]] = {
    SwallowsKills: ("", 16),
    ObeysTwice: ("P2", 16),
    ForgetsAttempts: ("", 0),
    ObeysAnybody: ("O4", 0),
    SpeaksForOthers: ("O8", 0),
    StartsInPauses: ("D4", 2),
    GoesOnInPauses: ("D4", 10),
    RunsUnderAnyUid: ("O16", 0),
    KeepsGroups: ("D6", 0),
    SeesNobody: ("D1", 0),
    HopesForNobody: ("D2", 1),
    RelaxesForEver: ("D3", 5),
}

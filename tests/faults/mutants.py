"""Hosts that break a promise on purpose: each has to be found, or the judge sees nothing."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from cosched.model.job import JobState
from cosched.wire import messages as wire
from faults.node import Node
from faults.scheduler import Scheduler
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.agent import AgentCore
from node_agent.core.attempt import Attempt
from node_agent.core.guard_model import GuardModel, ModelGroup
from node_agent.core.replies import Declined, Reply
from space_scheduler.machine import events as ev
from space_scheduler.service.launch import inputs as given
from space_scheduler.service.launch.effects import Effect, Post, Send
from space_scheduler.service.launch.gang import Gang, Order
from space_scheduler.service.launch.numbers import OrderKind
from space_scheduler.service.launch.reshaping import Kept, Reshaping, Stage
from space_scheduler.service.launch.service_core import ServiceCore


class AnswersBeforeCommit(Scheduler):
    """Who submits a job is told that it is accepted before it is in the journal."""

    def _committed(self, answers: list[Any]) -> bool:
        for answer, value in answers:
            answer(value)
        return super()._committed([])


class _Rules(ServiceCore):
    def drop(self, effect: Effect) -> bool:
        return False

    def handle(self, happened: given.AnyInput, now_s: float) -> list[Effect]:
        return [effect for effect in super().handle(happened, now_s) if not self.drop(effect)]


class _LosesLimits(_Rules):
    after_restart = False

    def handle(self, happened: given.AnyInput, now_s: float) -> list[Effect]:
        self.after_restart = self.after_restart or (isinstance(happened, given.Started) and bool(happened.jobs))
        effects = super().handle(happened, now_s)
        return [self.without(effect) if self.after_restart else effect for effect in effects]

    @staticmethod
    def without(effect: Effect) -> Effect:
        if isinstance(effect, Send) and isinstance(effect.message, wire.Prepare):
            return Send(effect.node, msgspec.structs.replace(effect.message, limit_us=None))
        return effect


class LosesLimits(Scheduler):
    """A job that is prepared after a restart has no limit."""

    rules_type = _LosesLimits


class _Hasty(_Rules):
    def handle(self, happened: given.AnyInput, now_s: float) -> list[Effect]:
        for launch in self.launches.attempts.values():
            launch.gang.__class__ = HastyGang
        return super().handle(happened, now_s)


class HastyGang(Gang):
    """Runs the script as soon as its own node is ready."""

    def prepared(self, node: str) -> list[Any]:
        actions = super().prepared(node)
        if not actions and node == self.first and len(self.nodes) > 1:
            return [Order(node, OrderKind.RUN)]
        return actions


class Hasty(Scheduler):
    """The script runs before all nodes are ready."""

    rules_type = _Hasty


class _Relauncher(_Rules):
    def handle(self, happened: given.AnyInput, now_s: float) -> list[Effect]:
        effects = super().handle(happened, now_s)
        if isinstance(happened, given.Started):
            effects += [
                Post(ev.JobEnded(job.id, JobState.NODE_LOST)) for job in happened.jobs if job.state is JobState.RUNNING
            ]
        return effects


class Relauncher(Scheduler):
    """A job that runs when the scheduler is started anew is run again instead of adopted."""

    rules_type = _Relauncher
    requeues = True


class _DeafToLeases(_Rules):
    def handle(self, happened: given.AnyInput, now_s: float) -> list[Effect]:
        return [] if isinstance(happened, given.Ticked) else super().handle(happened, now_s)


class DeafToLeases(Scheduler):
    """A node that is silent stays in service for ever."""

    rules_type = _DeafToLeases


class _Forgetful(_Rules):
    def drop(self, effect: Effect) -> bool:
        return isinstance(effect, Send) and isinstance(effect.message, wire.Forget)


class Leaker(Scheduler):
    """Nodes are never told that they may forget a job."""

    rules_type = _Forgetful


class _Reshapes(_Rules):
    kind: type[Reshaping]

    def handle(self, happened: given.AnyInput, now_s: float) -> list[Effect]:
        for launch in self.launches.attempts.values():
            if launch.reshaping is not None:
                launch.reshaping.__class__ = self.kind
        return super().handle(happened, now_s)


class _Hurried(Reshaping):
    def answered(self, node: str) -> list[Any]:
        self._waits &= {node}
        return super().answered(node)


class _NeverBack(Reshaping):
    def _undo(self, why: str, unchanged: str = "") -> list[Any]:
        self.stage = Stage.OVER
        return [Kept(why)]


class _HurriedRules(_Reshapes):
    kind = _Hurried


class _NeverBackRules(_Reshapes):
    kind = _NeverBack


class CountsBeforeAllHaveAnswered(Scheduler):
    """A job is counted with its new share when the first of its nodes has it."""

    rules_type = _HurriedRules


class LeavesWhatItHasChanged(Scheduler):
    """Where one node refuses a new share, the others keep it."""

    rules_type = _NeverBackRules


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

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.guard = _Careless(cpu_us=1000)


class _SaysSo(GuardModel):
    def _resize(self, request: fx.ResizeGroup, group: ModelGroup) -> Reply:
        was = group.tasks
        reply = super()._resize(request, group)
        group.tasks = was
        return reply


class SaysItIsResized(Node):
    """A share is said to have been changed, and is as it was."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.guard = _SaysSo(cpu_us=1000)


class ForgetsAttempts(Node):
    """Nothing that the agent knows outlives it."""

    def start(self) -> None:
        self.attempts.clear()
        super().start()


SCHEDULERS: Iterable[type[Scheduler]] = (
    AnswersBeforeCommit,
    LosesLimits,
    Hasty,
    Relauncher,
    DeafToLeases,
    Leaker,
    CountsBeforeAllHaveAnswered,
    LeavesWhatItHasChanged,
)
NODES: Iterable[type[Node]] = (SwallowsKills, ObeysTwice, SaysItIsResized, ForgetsAttempts)

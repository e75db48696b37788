"""Hosts that break a promise on purpose where jobs change their shape: each has to be found."""

from typing import Any

from faults.guarding import Guard
from faults.node import Node
from faults.scheduler import Scheduler
from node_agent.core import effects as fx
from node_agent.core.guard_model import GuardModel, ModelGroup
from node_agent.core.replies import Reply
from node_agent.policy.processors import Claim
from space_scheduler.service.launch import values as given
from space_scheduler.service.launch.resizing import Kept, Resizing, Stage
from space_scheduler.service.launch.service_core import ServiceCore
from space_scheduler.service.launch.values import Effect


class _Reshapes(ServiceCore):
    kind: type[Resizing]

    def handle(self, happened: given.AnyInput, now_s: float) -> list[Effect]:
        for launch in self.launches.attempts.values():
            if launch.resizing is not None:
                launch.resizing.__class__ = self.kind
        return super().handle(happened, now_s)


class _Hurried(Resizing):
    def answered(self, node: str) -> list[Any]:
        self._waits &= {node}
        return super().answered(node)


class _NeverBack(Resizing):
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


class _Deaf(ServiceCore):
    def __init__(self, *made: Any) -> None:
        super().__init__(*made)
        self.launches.audit.heard = lambda entry, said, there: None  # type: ignore[method-assign]


class NeverComparesAHeartbeat(Scheduler):
    """What nodes say with their heartbeats that they were told of jobs is not compared with what the core holds."""

    rules_type = _Deaf


class _SaysSo(GuardModel):
    def _resize(self, request: fx.ResizeGroup, group: ModelGroup) -> Reply:
        was = group.tasks
        reply = super()._resize(request, group)
        group.tasks = was
        return reply


class SaysItIsResized(Node):
    """A share is said to have been changed, and is as it was."""

    model_type = _SaysSo


class _NoSets(GuardModel):
    def _resize(self, request: fx.ResizeGroup, group: ModelGroup) -> Reply:
        was = group.cpus
        reply = super()._resize(request, group)
        group.cpus = was
        return reply


class LeavesTheSet(Node):
    """A job is folded, and goes on on the CPUs that it had: whoever starts on them shares them."""

    model_type = _NoSets


class _Unconfined(GuardModel):
    def _prepare(self, request: fx.PrepareGroup, group: ModelGroup | None) -> Reply:
        reply = super()._prepare(request, group)
        if group is None and request.key in self.groups:
            self.groups[request.key].cpus = None
        return reply


class StartsOnAllCpus(Node):
    """A job that starts folded runs on all of the node's CPUs."""

    model_type = _Unconfined


class _Forgetful(Guard):
    def _starts(self) -> None:
        for group in self.model.groups.values():
            group.cpus = None
        super()._starts()


class ForgetsTheSet(Node):
    """A guard that is started anew does not know which CPUs its predecessor had given."""

    guard_type = _Forgetful


class _CountsTheEnded(GuardModel):
    def claims(self, group: ModelGroup) -> list[Claim]:
        return [Claim(group.processors)]


class CountsEndedJobsAsPresent(Node):
    """A job that has ended uses its CPUs until it is forgotten: two jobs are on one CPU while one idles."""

    model_type = _CountsTheEnded


#: Each with the promise that the judge names (empty: any), and the first seed that finds it: a test begins there.
SCHEDULERS: dict[type[Scheduler], tuple[str, int]] = {
    CountsBeforeAllHaveAnswered: ("S1", 44),
    LeavesWhatItHasChanged: ("S1", 30),
    NeverComparesAHeartbeat: ("O15", 27),
}
NODES: dict[type[Node], tuple[str, int]] = {
    SaysItIsResized: ("S1", 2),
    LeavesTheSet: ("S1", 2),
    StartsOnAllCpus: ("S1", 2),
    ForgetsTheSet: ("S1", 34),
    CountsEndedJobsAsPresent: ("O12", 75),
}

"""Hosts that break a promise where a file system does not answer: each has to be found, or the judge sees nothing."""

from typing import Any

from faults.guarding import Guard
from faults.mutants import GangRules
from faults.node import Node
from faults.scheduler import Scheduler
from node_agent.core import inputs as happened
from node_agent.core.attempt import Key
from node_agent.core.guard_model import GuardModel
from node_agent.core.replies import Reply
from space_scheduler.service.launch import values as given
from space_scheduler.service.launch.gang import Gang
from space_scheduler.service.launch.service_core import ServiceCore
from space_scheduler.service.launch.values import Effect


class _LateStarter(GuardModel):
    def let_go(self, key: Key, n: int = 0) -> Reply:
        group = self.groups[key]
        ending, group.ending = group.ending, False
        try:
            return super().let_go(key, n)
        finally:
            group.ending = ending


class StartsLate(Node):
    """What was refused because a file system did not answer begins when it does."""

    model_type = _LateStarter


class _Silent(Guard):
    def tells(self, event: happened.Input) -> None:
        if not isinstance(event, happened.GroupStalled):
            super().tells(event)


class TellsNoStall(Node):
    """What cannot be ended is the guard's secret."""

    guard_type = _Silent


class _PatientGang(Gang):
    def cannot_end(self, node: str) -> list[Any]:
        return []


class _PatientRules(GangRules):
    gang_type = _PatientGang


class WaitsForStalledStarts(Scheduler):
    """A job whose script never began waits for a node that cannot end it."""

    rules_type = _PatientRules


class _NothingHeld(ServiceCore):
    def handle(self, happened: given.AnyInput, now_s: float) -> list[Effect]:
        for entry in self.book:
            entry.left.clear()
        return super().handle(happened, now_s)


class GivesHeldProcessors(Scheduler):
    """What is left of an attempt that was given up counts for nothing."""

    rules_type = _NothingHeld


#: Each with the promise that the judge names, and the first seed that finds it: a test begins there.
NODES: dict[type[Node], tuple[str, int]] = {
    StartsLate: ("P2", 1),
    TellsNoStall: ("O14", 25),
}
SCHEDULERS: dict[type[Scheduler], tuple[str, int]] = {
    WaitsForStalledStarts: ("O14", 1),
    GivesHeldProcessors: ("P6", 1),
}

"""Schedulers that wake machines on purpose which they should leave alone: each has to be found."""

from collections.abc import Iterator

from cosched.model.desk import Wakeable
from cosched.model.node import Node
from faults.scheduler import Scheduler
from space_scheduler.service.launch import values as given
from space_scheduler.service.launch.owners import Sleepers
from space_scheduler.service.launch.service_core import ServiceCore
from space_scheduler.service.launch.values import Effect


class WakesForNobody(Scheduler):
    """Whoever sleeps is wanted, whether a job waits or not."""

    def _ask_wanted(self, nodes: tuple[Node, ...]) -> None:
        self.feed(given.Wanted(tuple(each.name for each in nodes)))


class _Rules(ServiceCore):
    sleepers_type: type[Sleepers]

    def handle(self, happened: given.AnyInput, now_s: float) -> list[Effect]:
        self.sleepers.__class__ = self.sleepers_type
        return super().handle(happened, now_s)


class _AlwaysAgreed(Sleepers):
    def look(self) -> Iterator[Effect]:
        for entry in self._book:
            entry.wakeable = Wakeable("52:54:00:12:34:56", "10.0.0.255", ((0.0, 86400.0),))
        yield from super().look()


class _AlwaysAgreedRules(_Rules):
    sleepers_type = _AlwaysAgreed


class DeafToOwnersWord(Scheduler):
    """A machine is woken whether its owner agrees or not."""

    rules_type = _AlwaysAgreedRules


class _Forgetful(Sleepers):
    def wanted(self, names: tuple[str, ...]) -> Iterator[Effect]:
        yield from super().wanted(names)
        self._calls.clear()


class _ForgetfulRules(_Rules):
    sleepers_type = _Forgetful


class CallsAgain(Scheduler):
    """A machine that was called in vain is called as often as one looks."""

    rules_type = _ForgetfulRules


#: Each with the promise that the judge names, and the first seed that finds it: a test begins there.
SCHEDULERS: dict[type[Scheduler], tuple[str, int]] = {
    WakesForNobody: ("D7", 5),
    DeafToOwnersWord: ("D7", 27),
    CallsAgain: ("D7", 114),
}

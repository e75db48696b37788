"""What the core has to hear of nodes to decide who takes turns and who is folded: clocks, and how jobs receive there.

Heartbeats say both, each time. The core hears only what is new, and of a clock only what lasts.
"""

from collections.abc import Iterable
from typing import Final

from cosched.config.cluster import ClusterConfig
from cosched.config.units import duration_us
from cosched.model.coscheduling import Mode, Receives
from space_scheduler.launch import yields
from space_scheduler.machine import events as ev
from space_scheduler.machine.turns import NEEDS_TURNS
from space_scheduler.service.launch.nodes import NodeEntry
from space_scheduler.service.launch.orders import LaunchAttempt
from space_scheduler.service.launch.sharing import reshaping

#: A node whose clock may be off by more than this share of a slot keeps no time (``node_agent.policy.gang.MOST_OFF``).
MOST_OFF: Final = 0.1
#: So many heartbeats in a row have to say that a clock is good, or is not any more.
_BEATS: Final = 3
#: What matters of how a job receives.
_TOLD: Final = {each.value: each for each in (*NEEDS_TURNS, Receives.BLOCKS)}


class TurnSigns:
    """What the core was told, and what it has to be told next."""

    def __init__(self, config: ClusterConfig) -> None:
        self._most_off_us = MOST_OFF * duration_us(config.coscheduling.slot, "coscheduling.slot")
        self._mode = config.coscheduling.mode
        self._reshaping = reshaping(config)
        self._keeps_time: set[str] = set()
        self._differs: dict[str, int] = {}  # by node: heartbeats in a row that say otherwise

    def begin(self, keeps_time: Iterable[str]) -> None:
        """The core counts with these nodes' clocks."""
        self._keeps_time = set(keeps_time)

    def clock(self, entry: NodeEntry) -> ev.ClockSeen | None:
        """What the core has to be told of a node's clock after a heartbeat; None: nothing new."""
        if entry.beat is None or not entry.known:
            return None
        name = entry.name
        good = 0 <= entry.beat.clock_bound_us <= self._most_off_us
        if good == (name in self._keeps_time):
            self._differs.pop(name, None)
            return None
        self._differs[name] = self._differs.get(name, 0) + 1
        if self._differs[name] < _BEATS:
            return None
        del self._differs[name]
        (self._keeps_time.add if good else self._keeps_time.discard)(name)
        return ev.ClockSeen(name, good)

    def lost(self, name: str) -> None:
        """The core does not count with that node's clock any more."""
        self._keeps_time.discard(name)

    def receives(self, launch: LaunchAttempt, name: str, how: str) -> ev.ReceivesSeen | None:
        """What the core has to be told of how a job receives, of which a node has said this; None: nothing new."""
        mode = launch.record.submission.coscheduling or self._mode
        if not (launch.allocation.processes > 1 if self._reshaping else len(launch.tasks) > 1 and mode == Mode.CCS):
            return None
        launch.receives[name] = how
        found = tuple(sorted({self._seen(launch, each) for each in launch.receives.values() if each in _TOLD}))
        if found == launch.receives_told:
            return None
        launch.receives_told = found
        return ev.ReceivesSeen(launch.job_id, found)

    def _seen(self, launch: LaunchAttempt, how: str) -> Receives:
        """What is to be believed: a process that yields, and has its CPU to itself, looks as if it polled."""
        folded = launch.allocation.folded and not launch.record.job.resident
        if self._reshaping and not folded and how == Receives.POLLS and yields(launch.record.submission.environment):
            return Receives.YIELDS
        return _TOLD[how]

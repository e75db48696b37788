"""The owners, as their nodes tell of them: whether one is there, and whether he has paused parallel work.

A node whose owner has paused is drained until he resumes, and so is one whose guard does not answer until it does and
nothing is left there of jobs that have ended here meanwhile. The core knows it as a drain whose reason begins with
:data:`PAUSED` or :data:`NO_GUARD`, so what the journal has is enough after a restart. An operator's drain is never
undone here, and an operator cannot resume a node against its owner.
"""

from typing import Final

from cosched.model.node import Owner
from cosched.wire.messages import NO_GUARD
from space_scheduler.machine import events as ev
from space_scheduler.service.nodes import NodeEntry

PAUSED: Final = "paused: "


#: In what steps the core is told of an owner's CPU, in thousandths of one.
CPU_STEP_PERMILLE: Final = 250
#: How far it has to be from what was told before another step is: a load that lies between two of them is told once.
_CPU_SLACK_PERMILLE: Final = 188
#: So many heartbeats in a row have to say so: the burst of one second is no step.
_CPU_BEATS: Final = 3


class AtDesks:
    """Who is there, and how much of the CPU he uses, for policies that choose nodes and predict ends by it.

    A change is told once, however many heartbeats come until it is in the journal. CPU is followed while he is there,
    in steps of a quarter of a CPU with hysteresis.
    """

    def __init__(self) -> None:
        self._told: dict[str, Owner | None] = {}  # by node: who is there (None: nobody), on its way to the journal
        self._moved: dict[str, int] = {}  # by node: heartbeats in a row with another step than the one that was told

    def event(self, entry: NodeEntry) -> ev.OwnerCame | ev.OwnerLeft | None:
        """What the core has to be told after a node's heartbeat; None: nothing new.

        What he uses of the CPU counts in the order of nodes and in rates. His memory does not: on a real node parallel
        work has the contract's part of it whoever is there.
        """
        if entry.beat is None or not entry.known:
            return None
        there = self._seen(entry)
        if there == entry.owner:
            self._told.pop(entry.name, None)
            return None
        if entry.name in self._told and self._told[entry.name] == there:
            return None
        self._told[entry.name] = there
        return ev.OwnerLeft(entry.name) if there is None else ev.OwnerCame(entry.name, there)

    def _seen(self, entry: NodeEntry) -> Owner | None:
        """Who is there by the last heartbeat, with the CPU that the core is to know of."""
        assert entry.beat is not None
        if not entry.beat.presence.counts_as_present:
            self._moved.pop(entry.name, None)
            return None
        used = round(1000 * max(0.0, entry.beat.usage.cpu_local))
        step = Owner(CPU_STEP_PERMILLE * round(used / CPU_STEP_PERMILLE))
        if entry.owner is None:
            return self._told.get(entry.name) or step
        if abs(used - entry.owner.cpu_permille) < _CPU_SLACK_PERMILLE:
            self._moved.pop(entry.name, None)
            return entry.owner
        self._moved[entry.name] = self._moved.get(entry.name, 0) + 1
        return step if self._moved[entry.name] >= _CPU_BEATS else entry.owner


class Owners:
    """What follows from heartbeats; a change is asked for once, however many come until it is in the journal."""

    def __init__(self) -> None:
        self._asked: dict[str, bool] = {}  # by node: whether a drain (or else a resumption) is on its way

    def event(self, entry: NodeEntry) -> ev.NodeDrained | ev.NodeResumed | None:
        """What the core has to be told after a node's heartbeat; None: nothing new."""
        if entry.beat is None or not entry.known:
            return None
        why = _kept_out(entry)
        by_node = entry.drained and entry.reason.startswith((PAUSED, NO_GUARD))
        if bool(why) == by_node or (why and entry.drained):
            self._asked.pop(entry.name, None)
            return None
        if self._asked.get(entry.name) is bool(why):
            return None
        self._asked[entry.name] = bool(why)
        return ev.NodeDrained(entry.name, why) if why else ev.NodeResumed(entry.name)


def _kept_out(entry: NodeEntry) -> str:
    """Why nothing may start there by the node's own word, as a drain's reason; empty where it may."""
    assert entry.beat is not None
    if entry.beat.paused:
        return PAUSED + entry.beat.paused
    if entry.beat.guard:
        return NO_GUARD + entry.beat.guard
    waits = entry.stale and entry.drained and entry.reason.startswith(NO_GUARD)
    return entry.reason if waits else ""

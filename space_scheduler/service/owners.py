"""The owners, as their nodes tell of them: whether one is there, and whether he has paused parallel work.

A node whose owner has paused is drained until he resumes. The core knows it as a drain whose reason begins with
:data:`PAUSED`, so what the journal has is enough after a restart. An operator's drain is never undone here, and an
operator cannot resume a node against its owner.
"""

from typing import Final

from cosched.model.node import Owner
from space_scheduler.machine import events as ev
from space_scheduler.service.nodes import NodeEntry

PAUSED: Final = "paused: "


class AtDesks:
    """Who is there, for policies that choose nodes by it. A change is told once, however many heartbeats come."""

    def __init__(self) -> None:
        self._told: dict[str, bool] = {}  # by node: whether somebody came (or else left), on its way to the journal

    def event(self, entry: NodeEntry) -> ev.OwnerCame | ev.OwnerLeft | None:
        """What the core has to be told after a node's heartbeat; None: nothing new.

        What he uses of the CPU counts in the order of nodes. His memory does not: on a real node parallel work has the
        contract's part of it whoever is there.
        """
        if entry.beat is None or not entry.known:
            return None
        present = entry.beat.presence.counts_as_present
        if present == entry.owned:
            self._told.pop(entry.name, None)
            return None
        if self._told.get(entry.name) is present:
            return None
        self._told[entry.name] = present
        if not present:
            return ev.OwnerLeft(entry.name)
        return ev.OwnerCame(entry.name, Owner(round(1000 * max(0.0, entry.beat.usage.cpu_local))))


class Owners:
    """What follows from heartbeats; a change is asked for once, however many come until it is in the journal."""

    def __init__(self) -> None:
        self._asked: dict[str, bool] = {}  # by node: whether a drain (or else a resumption) is on its way

    def event(self, entry: NodeEntry) -> ev.NodeDrained | ev.NodeResumed | None:
        """What the core has to be told after a node's heartbeat; None: nothing new."""
        if entry.beat is None or not entry.known:
            return None
        why, by_owner = entry.beat.paused, entry.drained and entry.reason.startswith(PAUSED)
        if bool(why) == by_owner or (why and entry.drained):
            self._asked.pop(entry.name, None)
            return None
        if self._asked.get(entry.name) is bool(why):
            return None
        self._asked[entry.name] = bool(why)
        return ev.NodeDrained(entry.name, PAUSED + why) if why else ev.NodeResumed(entry.name)

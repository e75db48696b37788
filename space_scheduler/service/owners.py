"""The owners' word, as their nodes pass it on: a node whose owner has paused parallel work is drained until he resumes.

The core knows it as a drain whose reason begins with :data:`PAUSED`, so what the journal has is enough after a restart.
An operator's drain is never undone here, and an operator cannot resume a node against its owner.
"""

from typing import Final

from space_scheduler.machine import events as ev
from space_scheduler.service.nodes import NodeEntry

PAUSED: Final = "paused: "


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

"""The owners, as their nodes tell of them: whether one is there, and whether parallel work is paused there.

A node whose owner has paused parallel work is drained until the owner resumes it, and so is one whose guard does not
answer until it does and nothing is left there of jobs that have ended here meanwhile, one on which a file system that
is not one user's own does not answer (:mod:`~.stalls`), one whose disk has no room for new work until it has, and
one whose certificate has expired until it shows another.
One that is outside of its owner's hours is drained until they begin; the core is told when that is, for promises.
The core knows it as a drain whose reason begins with :data:`PAUSED`, :data:`CLOSED`, :data:`ASLEEP`, :data:`NO_GUARD`,
:data:`STALLED`, :data:`NO_ROOM` or :data:`EXPIRED`, so what the journal has is enough after a restart. An operator's
drain is never undone here, and an operator cannot resume a node against its owner.

A machine that is about to be suspended says so: nothing starts there any more. Its jobs end when it has been silent for
a lease, as of any node that is not heard: one that wakes before that goes on with them.
"""

from datetime import timedelta
from typing import Final

from cosched.model.node import Owner
from cosched.model.time import us
from cosched.wire.messages import EXPIRED, NO_GUARD, NO_ROOM
from space_scheduler.machine import events as ev
from space_scheduler.service.launch.nodes import ASLEEP, CLOSED, NodeEntry
from space_scheduler.service.launch.stalls import STALLED, why_aside

PAUSED: Final = "paused: "
#: In place of the words of a desk, which name the owner.
BY_ITS_OWNER: Final = "its owner has paused parallel work there"

#: An agent says within this that its hours have begun; promises count with it.
_OPENS_LATE_S: Final = 10.0
_HALF_A_MINUTE: Final = timedelta(seconds=30)

#: In what steps the core is told of the CPU that an owner uses, in thousandths of one, and of the memory, in parts of
#: the node's.
CPU_STEP_PERMILLE: Final = 250
MEMORY_STEPS: Final = 16
#: How far it has to be from what was told, in steps, before another is: a load between two steps is told once.
_SLACK_STEPS: Final = 0.75
#: So many heartbeats in a row have to say so: the burst of one second is no step.
_BEATS: Final = 3


class AtDesks:
    """Who is there, and how much of CPU and memory is used there, for policies that choose nodes and predict by it.

    A change is told once, however many heartbeats come until it is in the journal. What is used is followed while
    somebody is there, in steps with hysteresis.
    """

    def __init__(self) -> None:
        self._told: dict[str, Owner | None] = {}  # by node: who is there (None: nobody), on its way to the journal
        self._moved: dict[str, int] = {}  # by node: heartbeats in a row with another step than the one that was told

    def event(self, entry: NodeEntry) -> ev.OwnerCame | ev.OwnerLeft | None:
        """What the core has to be told after a node's heartbeat; None: nothing new."""
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
        """Who is there by the last heartbeat, with the use that the core is to know of."""
        assert entry.beat is not None
        if not entry.beat.presence.counts_as_present:
            self._moved.pop(entry.name, None)
            return None
        usage, told = entry.beat.usage, entry.owner
        memory_step = max(1, entry.hello.memory_bytes // MEMORY_STEPS) if entry.hello else 1 << 30
        used = round(1000 * max(0.0, usage.cpu_local)), max(0, usage.memory_local_bytes)
        cpu_permille = _stepped(used[0], CPU_STEP_PERMILLE, told.cpu_permille if told else None)
        memory_bytes = _stepped(used[1], memory_step, told.memory_bytes if told else None)
        step = Owner(cpu_permille, memory_bytes)
        if told is None:
            return self._told.get(entry.name) or step
        if step == told:
            self._moved.pop(entry.name, None)
            return told
        self._moved[entry.name] = self._moved.get(entry.name, 0) + 1
        return step if self._moved[entry.name] >= _BEATS else told


def _stepped(used: int, step: int, told: int | None) -> int:
    """A use in whole steps: as it was told, where it is not far from that."""
    if told is not None and abs(used - told) < _SLACK_STEPS * step:
        return told
    return step * round(used / step)


class Owners:
    """What follows from heartbeats; a change is asked for once, however many come until it is in the journal."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[bool, str]] = {}  # by node: what is on its way: a drain, if it is of a kind told

    def resumed(self, name: str) -> None:
        """A node was resumed, by whomever: what was asked for before is over."""
        self._asked.pop(name, None)

    def event(self, entry: NodeEntry) -> ev.NodeDrained | ev.NodeResumed | None:
        """What the core has to be told after a node's heartbeat; None: nothing new."""
        if entry.beat is None or not entry.known:
            return None
        why = _kept_out(entry)
        if drained_by_node(entry):
            settled = bool(why) and _kind(why) == _kind(entry.reason)
        else:
            settled = not why or entry.drained
        if settled:
            self._asked.pop(entry.name, None)
            return None
        asks = bool(why), _kind(why)
        if self._asked.get(entry.name) == asks:
            return None
        self._asked[entry.name] = asks
        if not why:
            return ev.NodeResumed(entry.name)
        opens_s = entry.opens_s if why.startswith(CLOSED) else None
        return ev.NodeDrained(entry.name, why, None if opens_s is None else us(opens_s + _OPENS_LATE_S))


def _kind(reason: str) -> str:
    """What of a reason the core is told anew where it changes: that it sleeps, and until when it is closed."""
    return reason if reason == ASLEEP or reason.startswith(CLOSED) else ""


def public_reason(reason: str) -> str:
    """Why a node is out of service, as everybody may know it."""
    return PAUSED + BY_ITS_OWNER if reason.startswith(PAUSED) else reason


def drained_by_node(entry: NodeEntry) -> bool:
    """Whether its owner's word, its guard, a file system, its disk, its sleep or its certificate keeps a node out."""
    return entry.drained and entry.reason.startswith((PAUSED, CLOSED, ASLEEP, NO_GUARD, STALLED, NO_ROOM, EXPIRED))


def _closed(entry: NodeEntry) -> str:
    """Until when a node is closed by its owner's hours, as a drain's reason; empty where it is not."""
    if entry.opens_s is None:
        return ""
    if entry.heard_at is None:
        return f"{CLOSED}outside of its owner's hours"
    opens = entry.heard_at + timedelta(seconds=entry.opens_s) + _HALF_A_MINUTE
    return f"{CLOSED}until {opens.astimezone():%a %H:%M}"


def _kept_out(entry: NodeEntry) -> str:
    """Why nothing may start there by the node's own word, as a drain's reason; empty where it may."""
    assert entry.beat is not None
    if entry.asleep:
        return ASLEEP
    if entry.beat.paused:
        return _closed(entry) or PAUSED + entry.beat.paused
    if entry.beat.guard:
        return NO_GUARD + entry.beat.guard
    if entry.report is not None and entry.report.disk:
        return NO_ROOM + entry.report.disk
    return _kept_out_here(entry)


def _kept_out_here(entry: NodeEntry) -> str:
    """The same by what this scheduler concludes from its word and its certificate."""
    if why := why_aside(entry.stalls.values()):
        return STALLED + why
    if entry.expired:
        return f"{EXPIRED}expired on {entry.expired}"
    return entry.reason if entry.stale and drained_by_node(entry) else ""

"""What the core hears of nodes and their owners, and when the scheduler takes a node out of service or wakes it.

:class:`Owners`. A node is drained while its owner has paused parallel work; while its guard does not answer, and until
nothing is left there of jobs that have ended here meanwhile; while a file system there that is not one user's own does
not answer (:func:`why_aside`); while its disk has no room for new work; and while its certificate has expired. Outside
of its owner's hours it is drained until they begin; the core is told when that is, for promises. The drain's reason
begins with :data:`PAUSED`, :data:`CLOSED`, :data:`ASLEEP`, :data:`NO_GUARD`, :data:`STALLED`, :data:`NO_ROOM` or
:data:`EXPIRED`, so the journal's drains are enough after a restart. An operator's drain is never undone here, and an
operator cannot resume a node against its owner.

A machine that is about to be suspended says so: nothing starts there any more. Its jobs end when it has been silent for
a lease, as of any node that is not heard: one that wakes before that goes on with them.

:class:`AtDesks`, :class:`Clocks`: the core hears only changes of what owners use and of clocks. :class:`Suspects`:
nodes on which launches fail again and again, or which come and go, are set aside. :class:`Sleepers`: which sleeping
machines are woken.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from datetime import timedelta
from typing import Final, NamedTuple

from cosched.config.cluster import ClusterConfig
from cosched.config.units import duration_us
from cosched.model.contract import SocialContract
from cosched.model.node import Owner
from cosched.model.stall import Stall
from cosched.model.time import US_PER_S, humanised, us
from cosched.wire.messages import EXPIRED, NO_GUARD, NO_ROOM, Heartbeat
from space_scheduler.machine import events as ev
from space_scheduler.service.core.worker import AskWanted
from space_scheduler.service.launch.nodes import ASLEEP, CLOSED, NodeBook, NodeEntry
from space_scheduler.service.launch.values import Effect, Outbox, Say, Wake

PAUSED: Final = "paused: "
#: What the reason of a node begins with that is drained because a file system there does not answer.
STALLED: Final = "file system: "
#: So many different users' jobs on one file system that does not answer: it is hardly one user's own.
_USERS: Final = 2
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
        self._moved: Counter[str] = Counter()  # by node: heartbeats in a row with another step than was told

    def event(self, entry: NodeEntry, beat: Heartbeat) -> ev.OwnerCame | ev.OwnerLeft | None:
        """What the core has to be told after a node's heartbeat; None: nothing new."""
        there = self._seen(entry, beat)
        if there == entry.owner:
            self._told.pop(entry.name, None)
        elif self._told.get(entry.name, entry.owner) != there:
            self._told[entry.name] = there
            return ev.OwnerLeft(entry.name) if there is None else ev.OwnerCame(entry.name, there)
        return None

    def _seen(self, entry: NodeEntry, beat: Heartbeat) -> Owner | None:
        """Who is there by the last heartbeat, with the use that the core is to know of."""
        if not beat.presence.counts_as_present:
            self._moved.pop(entry.name, None)
            return None
        usage, told = beat.usage, entry.owner
        memory_step = max(1, entry.hello.memory_bytes // MEMORY_STEPS) if entry.hello else 1 << 30
        cpu_permille, memory_bytes = round(1000 * max(0.0, usage.cpu_local)), max(0, usage.memory_local_bytes)
        step = Owner(
            _stepped(cpu_permille, CPU_STEP_PERMILLE, told.cpu_permille if told else None),
            _stepped(memory_bytes, memory_step, told.memory_bytes if told else None),
        )
        if told is None:
            return self._told.get(entry.name) or step
        if step == told:
            self._moved.pop(entry.name, None)
            return told
        self._moved[entry.name] += 1
        return step if self._moved[entry.name] >= _BEATS else told


def _stepped(used: int, step: int, told: int | None) -> int:
    """A use in whole steps: as it was told, where it is not far from that."""
    return told if told is not None and abs(used - told) < _SLACK_STEPS * step else step * round(used / step)


class Owners:
    """What follows from heartbeats; a change is asked for once, however many come until it is in the journal."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[bool, str]] = {}  # by node: what is on its way: a drain, if it is of a kind told

    def resumed(self, name: str) -> None:
        """A node was resumed, by whomever: what was asked for before is over."""
        self._asked.pop(name, None)

    def event(self, entry: NodeEntry, beat: Heartbeat) -> ev.NodeDrained | ev.NodeResumed | None:
        """What the core has to be told after a node's heartbeat; None: nothing new."""
        why = _kept_out(entry, beat)
        same = bool(why) and _kind(why) == _kind(entry.reason)
        settled = same if drained_by_node(entry) else not why or entry.drained
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


def _kept_out(entry: NodeEntry, beat: Heartbeat) -> str:
    """Why nothing may start there, as a drain's reason; empty where it may.

    By the node's own word, then by what this scheduler concludes from its word and its certificate.
    """
    disk, aside = entry.report.disk if entry.report else "", why_aside(entry.stalls.values())
    reasons = (
        ASLEEP if entry.asleep else "",
        _closed(entry) or PAUSED + beat.paused if beat.paused else "",
        NO_GUARD + beat.guard if beat.guard else "",
        NO_ROOM + disk if disk else "",
        STALLED + aside if aside else "",
        f"{EXPIRED}expired on {entry.expired}" if entry.expired else "",
        entry.reason if entry.stale and drained_by_node(entry) else "",
    )
    return next(filter(None, reasons), "")


def why_aside(stalls: Collection[Stall]) -> str:
    """Why a node is set aside, by what cannot be ended there; empty where it is not.

    A file system that does not answer is the node's where guard and agent write to it, or jobs of several users wait
    for it.
    """
    users: dict[str, set[str]] = {}
    for stall in stalls:
        for each in stall.processes:
            if each.own:
                return f"{each.mount} does not answer, to which this node's guard and agent write"
            if each.device:
                users.setdefault(each.device, set()).add(stall.user)
    shared = sorted(device for device, named in users.items() if len(named) >= _USERS)
    if not shared:
        return ""
    mounts = {each.mount for stall in stalls for each in stall.processes if each.device == shared[0]}
    return f"{min(mounts)} does not answer: jobs of {' and '.join(sorted(users[shared[0]]))} wait for it"


#: Failures of a launch that are the node's own: not those that a job brings upon itself (its user or its directory is
#: not there, it needs more memory than is left), nor a lost node's, which is counted as lost.
NODES_OWN: Final = frozenset({"failed", "silent"})
_FAILED: Final = " launches in a row have failed there, the last: "
_WAS_LOST: Final = "it was lost "


def by_scheduler(reason: str) -> bool:
    """Whether a node that is drained for this reason was set aside here, and not by an operator."""
    count, failed, _ = reason.partition(_FAILED)
    return (bool(failed) and count.isdecimal()) or reason.startswith(_WAS_LOST)


class Suspects:
    """Counts, and drains nodes on which too much has gone wrong."""

    def __init__(self, config: ClusterConfig, book: NodeBook, out: Outbox) -> None:
        self._out = out
        self._after = config.set_aside
        self._book = book
        self._failures: Counter[str] = Counter()  # in a row
        self._losses: dict[str, deque[float]] = {}  # when, of the last hour or what it is
        self.counted: Counter[str] = Counter()  # how many were set aside, by cause

    def launched(self, nodes: Iterable[str]) -> None:
        """A job was launched on these."""
        for name in nodes:
            self._failures.pop(name, None)

    def resumed(self, name: str) -> None:
        """An operator trusts it again."""
        self._failures.pop(name, None)
        self._losses.pop(name, None)

    def failed(self, nodes: Iterable[str], message: str) -> None:
        """A launch has failed on these, by their own fault."""
        going = 0
        for name in nodes:
            self._failures[name] += 1
            count = self._failures[name]
            if 0 < self._after.failed_launches <= count and self._may_go(name, going):
                going += 1
                self._set_aside(name, f"{count}{_FAILED}{message}", "launches")

    def lost(self, name: str) -> None:
        """It was in service, and fell silent for a lease."""
        now_s = self._book.now_s()
        times = self._losses.setdefault(name, deque())
        times.append(now_s)
        while times[0] < now_s - self._after.within_us / US_PER_S:
            times.popleft()
        if 0 < self._after.losses <= len(times) and self._may_go(name, 0):
            self._set_aside(name, f"{_WAS_LOST}{len(times)} times within {humanised(self._after.within_us)}", "losses")

    def _set_aside(self, name: str, reason: str, cause: str) -> None:
        self.counted[cause] += 1
        self._out.say("warn", "node set aside", node=name, why=reason)
        self._out.post(ev.NodeDrained(name, f"set aside: {reason}"), "by the scheduler")

    def _may_go(self, name: str, going: int) -> bool:
        """Whether it is there to be set aside, and at least half of the nodes that were ever here stay."""
        known = [entry for entry in self._book if entry.known]
        out = sum(entry.drained for entry in known) + going
        return any(entry.name == name and not entry.drained for entry in known) and 2 * (out + 1) <= len(known)


#: A node whose clock may be off by more than this share of a slot keeps no time (``node_agent.policy.gang.MOST_OFF``).
MOST_OFF: Final = 0.1


class Clocks:
    """Which clocks the core counts with for turns. It hears of a change that lasts."""

    def __init__(self, config: ClusterConfig) -> None:
        self._most_off_us = MOST_OFF * duration_us(config.coscheduling.slot, "coscheduling.slot")
        self.keeps_time: set[str] = set()
        self._differs: Counter[str] = Counter()  # by node: heartbeats in a row that say otherwise

    def event(self, entry: NodeEntry, beat: Heartbeat) -> ev.ClockSeen | None:
        """What the core has to be told of a node's clock after a heartbeat; None: nothing new."""
        name = entry.name
        good = 0 <= beat.clock_bound_us <= self._most_off_us
        differs = 0 if good == (name in self.keeps_time) else self._differs[name] + 1
        self._differs[name] = differs % _BEATS
        if differs < _BEATS:
            return None
        self.keeps_time ^= {name}
        return ev.ClockSeen(name, good)


#: Between two looks at what the queue would use.
_LOOK_S: Final = 30.0
#: Between the first two calls of a node; each further wait is twice as long, up to the longest.
_FIRST_WAIT_S: Final = 300.0
_LONGEST_WAIT_S: Final = 4 * 3600.0
#: How long a machine that was called may take until it is there.
_COMING_S: Final = 180.0


class _Call(NamedTuple):
    """How often a node was called, when last, and from when on it may be again."""

    calls: int
    at_s: float
    next_s: float


_NEVER: Final = _Call(0, float("-inf"), float("-inf"))


class Sleepers:
    """Wakes machines on which a job that waits would start, where their owners agree.

    A node says with its last report before it sleeps whether it may be woken, and how. The core is asked which of them
    a pass would use, were they there. A node that was called in vain (it does not come, or no job started there, or it
    slept again under one) is called again later and later.
    """

    def __init__(self, book: NodeBook, contract: SocialContract) -> None:
        self._book = book
        self._contract = contract
        self._looked_s = float("-inf")
        self._calls: dict[str, _Call] = {}  # by node: since it was last of use
        self._used: set[str] = set()  # on which a job has started since they last slept

    def slept(self, entry: NodeEntry, *, busy: bool) -> None:
        """A node is about to sleep; ``busy``: with a job on it. Was it of use, it is as if it had never been called."""
        if entry.name in self._used and not busy:
            self._calls.pop(entry.name, None)
        self._used.discard(entry.name)

    def started(self, names: Iterable[str]) -> None:
        """A job starts on these."""
        self._used.update(names)

    def look(self) -> Iterator[Effect]:
        """Have the core asked, if anybody could be woken; not at each heartbeat."""
        now_s = self._book.now_s()
        if now_s - self._looked_s < _LOOK_S or not any(map(self._may_be_called, self._book)):
            return
        self._looked_s = now_s
        there = (entry for entry in self._book if self._may_be_called(entry) or self._is_coming(entry))
        yield AskWanted(tuple(entry.offers(self._contract) for entry in there))

    def wanted(self, names: tuple[str, ...]) -> Iterator[Effect]:
        """A job would start on these: call them."""
        now_s = self._book.now_s()
        for entry in map(self._book.entry, names):
            if not self._may_be_called(entry):
                continue
            assert entry.wakeable is not None
            calls = self._calls.get(entry.name, _NEVER).calls + 1
            wait_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** min(calls - 1, 16))
            self._calls[entry.name] = _Call(calls, now_s, now_s + wait_s)
            entry.called += 1
            yield Say("info", "node is called from its sleep", {"node": entry.name, "calls": calls, "next_s": wait_s})
            yield Wake(entry.name, entry.wakeable.mac, entry.wakeable.broadcast)

    def _may_be_called(self, entry: NodeEntry) -> bool:
        """Asleep for certain, since it is silent too, for no other reason out of service, and by its owner's word."""
        if entry.connected or entry.wakeable is None or not self._sleeps(entry):
            return False
        now_s = self._book.now_s()
        may_be = any(begin_s <= now_s - entry.slept_s < end_s for begin_s, end_s in entry.wakeable.spans)
        return may_be and self._calls.get(entry.name, _NEVER).next_s <= now_s

    def _is_coming(self, entry: NodeEntry) -> bool:
        """Called a moment ago, and not there yet: what waits for it needs no other."""
        return self._sleeps(entry) and self._book.now_s() - self._calls.get(entry.name, _NEVER).at_s < _COMING_S

    def _sleeps(self, entry: NodeEntry) -> bool:
        if entry.wakeable is None or not entry.asleep or (entry.drained and entry.reason != ASLEEP):
            return False
        return entry.hello is not None and not entry.expired and entry.name in self._book.allowed

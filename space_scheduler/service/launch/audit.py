"""What each node was told of its jobs, compared at every heartbeat with what the core holds; repaired, and counted.

A node says it before each heartbeat (:class:`JobsHeld`). A job whose change is under way is left to its change
(:mod:`~.reshaping`), which ends with one share on every node; an order that was sent on this link counts as under way
for two heartbeats. What differs else is a difference: an answer came before all orders had arrived, a link broke, an
agent lost its record or does not carry out what it answers. Which side is right:

=================================================  ==================================================================
a node says                                        right is, and what follows
=================================================  ==================================================================
another map than the shares that the core holds    the core, since others may have been started on what the map gives
                                                   up: the map is sent again, by a higher number where the node has
                                                   that number with other shares
other places or CPUs, awake or asleep, stopped     the core, for the same reason: the share is asked for again
or not
nothing of a job whose script runs                 the node: no process can be born there any more. The job ends as
                                                   one that has lost a node
a job that is not the core's, or not there, or     the core: its processors are free for others. It is killed
whose end was ordered two heartbeats ago
no record of what it was told of a job             neither: what runs there goes on, and its end is the guard's word
=================================================  ==================================================================

A repair is repeated, and counted, every five heartbeats until the node says otherwise. Nothing is compared where
nothing is kept: a job's mode, its due and its turn are told whole in each answer to a heartbeat
(:mod:`~.coscheduling`), the contract in each welcome, and it changes at a start of the scheduler alone.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Final

from cosched.config.cluster import ClusterConfig
from cosched.model.job import JobState
from cosched.model.time import US_PER_S
from cosched.wire.messages import JobHeld, JobsHeld
from space_scheduler.service.launch.effects import Speaks
from space_scheduler.service.launch.gang import Action, NodePhase, Order, Phase
from space_scheduler.service.launch.nodes import NodeBook, NodeEntry
from space_scheduler.service.launch.numbers import OrderKind
from space_scheduler.service.launch.orders import LaunchAttempt, Orders
from space_scheduler.service.launch.reshapes import Reshapes

#: For so many heartbeats an order may be under way.
_UNDER_WAY_BEATS: Final = 2
#: After so many a repair that has not helped is made again.
_AGAIN_BEATS: Final = 5
#: A node's differences are logged at most so often.
_LOG_EVERY_S: Final = 60.0


class Kind(StrEnum):
    """What differs."""

    MAP = "map"
    SHARE = "share"
    MISSING = "missing"
    STRAY = "stray"


class Audit:
    """Compares, and has repaired what differs."""

    def __init__(
        self,
        config: ClusterConfig,
        book: NodeBook,
        attempts: Mapping[int, LaunchAttempt],
        orders: Orders,
        reshapes: Reshapes,
        do: Callable[[LaunchAttempt, list[Action]], None],
        kill_stray: Callable[[NodeEntry, tuple[int, int]], None],
        say: Speaks,
    ) -> None:
        """``do`` carries out what a gang wants done; ``kill_stray`` has a node end what is not the core's."""
        self._beat_s: Final = config.time_us("heartbeat") / US_PER_S
        self._book = book
        self._attempts = attempts
        self._orders, self._reshapes = orders, reshapes
        self._do, self._kill_stray, self._say = do, kill_stray, say
        self._logged_s: dict[str, float] = {}  # by node: when its differences were logged last

    def heard(self, entry: NodeEntry, said: JobsHeld, there: Iterable[int]) -> None:
        """A node says what it was told; ``there`` are the jobs that the core has there, as of a moment ago."""
        held = {(each.job_id, each.attempt): each for each in said.jobs}
        for job_id in there:
            if (launch := self._attempts.get(job_id)) is not None and launch.key not in held:
                self._compare(entry, launch, None)
        for key, each in held.items():
            launch = self._attempts.get(key[0])
            if launch is not None and launch.key == key and entry.name in launch.gang.node_phases:
                self._compare(entry, launch, each)
            elif key not in entry.stale:
                self._found(entry, key, Kind.STRAY, "not there by the book: ended")
                self._kill_stray(entry, key)

    def _compare(self, entry: NodeEntry, launch: LaunchAttempt, has: JobHeld | None) -> None:
        gang, name = launch.gang, entry.name
        phase = gang.node_phases.get(name)
        if phase in (NodePhase.KILLING, NodePhase.LEAVING):
            self._kill_again(entry, launch, open_there=has is not None)
        if gang.phase is not Phase.RUNNING or phase is not NodePhase.READY:
            return
        if launch.reshaping is not None or launch.key in entry.stale:
            return
        if has is None:
            if not self._book.entry(gang.first).agreed:
                return  # its script may have ended, and all nodes been told, before this scheduler was started
            self._found(entry, launch.key, Kind.MISSING, "nothing of it is left there: ended")
            self._do(launch, gang.kill(JobState.NODE_LOST, f"{name} has nothing of it any more"))
            return
        if has.tasks is None or self._under_way(launch, name, has):
            return
        self._repair(entry, launch, has, Kind.SHARE, self._other_share(launch, name, has))
        self._repair(entry, launch, has, Kind.MAP, _other_map(launch, has))

    def _kill_again(self, entry: NodeEntry, launch: LaunchAttempt, *, open_there: bool) -> None:
        """A node is to end a job; where that is still open after two heartbeats, its agent has failed at the order."""
        mark, now_s = (entry.name, "ending"), self._book.now_s()
        if not open_there:
            launch.differs.pop(mark, None)
        elif now_s - launch.differs.setdefault(mark, now_s) >= _UNDER_WAY_BEATS * self._beat_s:
            launch.differs[mark] = now_s
            self._found(entry, launch.key, Kind.STRAY, "being ended by the book: ended")
            self._do(launch, [Order(entry.name, OrderKind.KILL)])

    def _under_way(self, launch: LaunchAttempt, name: str, has: JobHeld) -> bool:
        number, sent_s = launch.sent.get(name, (0, 0.0))
        return has.order < number and self._book.now_s() - sent_s < _UNDER_WAY_BEATS * self._beat_s

    def _other_share(self, launch: LaunchAttempt, name: str, has: JobHeld) -> str:
        """How a node's share differs, in words; empty where it is as it should be.

        A job that was started under a policy that sets no CPUs aside has none set aside until it is resized.
        """
        share = launch.share(name)
        cpus, asleep = self._orders.confined(launch, share)
        if has.tasks != share.tasks:
            return f"{has.tasks} places, not {share.tasks}"
        if None not in (has.cpus, cpus) and (has.cpus, has.asleep) != (cpus, asleep):
            return f"{has.cpus} CPUs{' asleep' * has.asleep}, not {cpus}{' asleep' * asleep}"
        return ""

    def _repair(self, entry: NodeEntry, launch: LaunchAttempt, has: JobHeld, kind: Kind, differs: str) -> None:
        mark, now_s = (entry.name, kind.value), self._book.now_s()
        repaired_s = launch.differs.get(mark)
        if not differs:
            launch.differs.pop(mark, None)
        elif repaired_s is None or now_s - repaired_s >= _AGAIN_BEATS * self._beat_s:
            launch.differs[mark] = now_s
            self._found(entry, launch.key, kind, differs)
            if kind is Kind.SHARE:
                self._reshapes.ask_again(launch, entry.name)
            else:
                self._reshapes.offer_again(launch, entry.name, has)

    def _found(self, entry: NodeEntry, key: tuple[int, int], kind: Kind, words: str) -> None:
        entry.differences[kind.value] += 1
        now_s = self._book.now_s()
        if now_s - self._logged_s.get(entry.name, -_LOG_EVERY_S) >= _LOG_EVERY_S:
            self._logged_s[entry.name] = now_s
            self._say("warn", "node differs", node=entry.name, job=key[0], attempt=key[1], kind=kind.value, has=words)


def _other_map(launch: LaunchAttempt, has: JobHeld) -> str:
    """How a node's map differs from what a job holds, in words; empty where it does not.

    A job that is suspended as a whole is stopped, and its ranks keep their map.
    """
    if has.map is None or not launch.record.job.resident or not launch.allocation.procs:
        return ""
    core = {share.node: share.procs for share in launch.allocation.nodes if share.procs}
    node = {name: count for name, count in has.map.enabled.items() if count}
    return "" if node == core else f"map {has.map.number} {node}, not {core}"

"""What each node was told of its jobs, compared at every heartbeat with what the core holds; repaired, and counted.

A node says it before each heartbeat (:class:`JobsHeld`). A job whose resize is under way is left to its resize
(:mod:`~.resizing`), which ends with one share on every node; an order that was sent on this link counts as under way
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

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from cosched.model.job import JobState
from cosched.model.time import US_PER_S
from cosched.wire.api import RestartDoc
from cosched.wire.messages import GroupReport, JobHeld, JobsHeld
from space_scheduler.service.launch.attempt import Attempts, LaunchAttempt
from space_scheduler.service.launch.gang import Gang, NodePhase, Order, Phase
from space_scheduler.service.launch.nodes import NodeEntry
from space_scheduler.service.launch.orders import OrderKind
from space_scheduler.service.launch.values import Level, Outbox

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

    def __init__(self, attempts: Attempts) -> None:
        self._beat_s: Final = attempts.config.time_us("heartbeat") / US_PER_S
        self._all = attempts
        self._logged_s: dict[str, float] = {}  # by node: when its differences were logged last

    def heard(self, entry: NodeEntry, said: JobsHeld, there: Iterable[int]) -> None:
        """A node says what it was told; ``there`` are the jobs that the core has there, as of a moment ago."""
        held = {(each.job_id, each.attempt): each for each in said.jobs}
        for job_id in there:
            if (launch := self._all.attempts.get(job_id)) is not None and launch.key not in held:
                self._compare(entry, launch, None)
        for key, each in held.items():
            if launch := self._all.on(entry.name, key):
                self._compare(entry, launch, each)
            elif key not in entry.stale:
                self._found(entry, key, Kind.STRAY, "not there by the book: ended")
                self._all.end_stray(entry, key, over=False)

    def _compare(self, entry: NodeEntry, launch: LaunchAttempt, has: JobHeld | None) -> None:
        gang, name = launch.gang, entry.name
        phase = gang.node_phases.get(name)
        if phase in (NodePhase.KILLING, NodePhase.LEAVING):
            two_beats_s = _UNDER_WAY_BEATS * self._beat_s  # still open after them: its agent has failed at the order
            if self._is_due(launch, (name, "ending"), has is not None, two_beats_s, two_beats_s):
                self._found(entry, launch.key, Kind.STRAY, "being ended by the book: ended")
                launch.do([Order(name, OrderKind.KILL)])
        settled = gang.phase is Phase.RUNNING and phase is NodePhase.READY and launch.resizing is None
        if not settled or launch.key in entry.stale:
            return
        if has is None:
            if not self._all.book.entry(gang.first).agreed:
                return  # its script may have ended, and all nodes been told, before this scheduler was started
            self._found(entry, launch.key, Kind.MISSING, "nothing of it is left there: ended")
            launch.do(gang.kill(JobState.NODE_LOST, f"{name} has nothing of it any more"))
            return
        number, sent_s = launch.sent.get(name, (0, 0.0))
        under_way = has.order < number and self._all.book.now_s() - sent_s < _UNDER_WAY_BEATS * self._beat_s
        if has.tasks is None or under_way:
            return
        for kind, words in ((Kind.SHARE, _other_share(launch, name, has)), (Kind.MAP, _other_map(launch, has))):
            if not self._is_due(launch, (name, kind.value), bool(words), 0, _AGAIN_BEATS * self._beat_s):
                continue
            self._found(entry, launch.key, kind, words)
            if kind is Kind.SHARE:
                launch.ask_again(name)
            else:
                launch.offer_again(name, has)

    def _is_due(
        self, launch: LaunchAttempt, mark: tuple[str, str], differs: bool, first_s: float, again_s: float
    ) -> bool:
        """Whether a difference is to be repaired now: when it has lasted for ``first_s``, and every ``again_s``."""
        now_s = self._all.book.now_s()
        if not differs:
            launch.differs.pop(mark, None)
        elif now_s >= launch.differs.setdefault(mark, now_s + first_s):
            launch.differs[mark] = now_s + again_s
            return True
        return False

    def _found(self, entry: NodeEntry, key: tuple[int, int], kind: Kind, words: str) -> None:
        entry.differences[kind.value] += 1
        now_s = self._all.book.now_s()
        if now_s - self._logged_s.get(entry.name, -_LOG_EVERY_S) >= _LOG_EVERY_S:
            self._logged_s[entry.name] = now_s
            self._all.out.say(
                "warn", "node differs", node=entry.name, job=key[0], attempt=key[1], kind=kind.value, has=words
            )


def _other_share(launch: LaunchAttempt, name: str, has: JobHeld) -> str:
    """How a node's share differs, in words; empty where it is as it should be.

    A job that was started under a policy that sets no CPUs aside has none set aside until it is resized.
    """
    share = launch.share(name)
    cpus, asleep = launch.confined(share)
    if has.tasks != share.tasks:
        return f"{has.tasks} places, not {share.tasks}"
    if None not in (has.cpus, cpus) and (has.cpus, has.asleep) != (cpus, asleep):
        return f"{has.cpus} CPUs{' asleep' * has.asleep}, not {cpus}{' asleep' * asleep}"
    return ""


def _other_map(launch: LaunchAttempt, has: JobHeld) -> str:
    """How a node's map differs from what a job holds, in words; empty where it does not.

    A job that is suspended as a whole is stopped, and its ranks keep their map.
    """
    if has.map is None or not launch.record.job.resident or not launch.allocation.procs:
        return ""
    core = {share.node: share.procs for share in launch.allocation.nodes if share.procs}
    node = {name: count for name, count in has.map.enabled.items() if count}
    return "" if node == core else f"map {has.map.number} {node}, not {core}"


class Comparison:
    """What a scheduler that was started anew knew of the running jobs, and what the nodes said: where the two differed.

    Told once all nodes that held a job, or were in service, have been heard or are lost: in the log, in ``GET
    /v1/cluster`` and by ``cosched doctor``. The gangs repair a difference; here it is only told.
    """

    def __init__(self, out: Outbox) -> None:
        self._out = out
        self._jobs = 0
        self._awaited: set[str] = set()
        self._differed: list[str] = []

    def begin(self, jobs: int, nodes: Iterable[str]) -> None:
        """So many jobs were taken over from the journal, and these nodes are to be heard."""
        self._jobs, self._awaited = jobs, set(nodes)

    def found(self, node: str, job_id: int, gang: Gang, report: GroupReport | None) -> None:
        """A node has said what it has of a job."""
        if node in self._awaited and (words := difference(gang, node, report)):
            self._differed.append(f"job {job_id} on {node}: {words}")

    def stray(self, node: str, key: tuple[int, int]) -> None:
        """A node has what should not be there."""
        if node in self._awaited:
            self._differed.append(
                f"job {key[0]} (attempt {key[1]}) on {node}: is not to be there any more: ended there"
            )

    def lost(self, node: str) -> None:
        """A node was not heard."""
        if node in self._awaited:
            self._differed.append(f"{node}: did not come back within its lease: lost, with its jobs")
            self.heard(node)

    def document(self) -> RestartDoc:
        """For operators."""
        return RestartDoc(jobs=self._jobs, awaited=sorted(self._awaited), differed=list(self._differed))

    def heard(self, node: str) -> None:
        """That was all that this node has."""
        if node in self._awaited:
            self._awaited.discard(node)
            if not self._awaited:
                level: Level = "warn" if self._differed else "info"
                self._out.say(level, "restart compared", jobs=self._jobs, differed=list(self._differed))


def difference(gang: Gang, node: str, report: GroupReport | None) -> str:
    """What a node says of a job beside what was known of it, in words; empty where it is as it should be."""
    if gang.phase is Phase.OVER or gang.gone(node):
        return ""
    if report is None:
        missing = {Phase.PREPARING: "not made ready yet: asked again", Phase.ENDING: "nothing of it is left there"}
        return missing.get(gang.phase, "the node knows nothing of it")
    if report.rebooted:
        return "the machine was started anew"
    if gang.phase is Phase.ENDING:
        return "" if report.state == "ended" else "still there: killed again"
    return _difference_of_script(gang, report) if node == gang.first else ""


def _difference_of_script(gang: Gang, report: GroupReport) -> str:
    if report.exit is not None or report.state == "ended":
        return "its script has ended meanwhile"
    words = {(True, False): "its script does not run", (False, True): "its script runs already"}
    return words.get((gang.phase is Phase.RUNNING, report.state == "running"), "")

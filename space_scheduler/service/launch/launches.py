"""Carries out what the core instructs, as a pure state machine: what happens goes in, effects come out (``effects``).

An attempt (:mod:`~.attempt`) for each job that holds nodes, between the journal and the agents; here is the index over
them, and what concerns nodes. Nothing here decides which job runs where. When a node comes (back), what it has is
compared with the attempts: what is missing is asked for again, what has ended here is ended there, before the node
counts.

A cluster (a lab) of which no node is heard any more is cut off: whether it has lost its power or its link cannot be
told from here. A job that runs wholly on its nodes goes on there for all that is known (agents without a scheduler end
nothing), so it is waited for: it holds what it has, and is adopted when its nodes are heard again, or has ended
meanwhile by their word. It is not waited for longer than it may run. A job with a component there and one elsewhere has
lost a node like any other. Nothing is started there meanwhile.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from cosched.config.cluster import ClusterConfig
from cosched.model.job import TERMINAL, JobState
from cosched.model.time import US_PER_S, humanised
from cosched.wire import messages as wire
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Answer, Instruction, Kill, RateChanged, Resize, SharePlan, Start
from space_scheduler.progress import ALONE_PPM
from space_scheduler.reasons import Reason, Why
from space_scheduler.service.journal.records import JobRecord
from space_scheduler.service.launch.attempt import LaunchAttempt, Site, attempt_on
from space_scheduler.service.launch.audit import Audit, Comparison
from space_scheduler.service.launch.coscheduling import Coscheduling
from space_scheduler.service.launch.effects import Outbox
from space_scheduler.service.launch.gang import Gang, Phase
from space_scheduler.service.launch.inputs import Started
from space_scheduler.service.launch.nodes import NodeBook, NodeEntry
from space_scheduler.service.launch.orders import OrderKind, Orders
from space_scheduler.service.launch.owners import AtDesks, Clocks, Owners, Sleepers, drained_by_node
from space_scheduler.service.launch.sharing import shared

_MOST_UNFORGOTTEN: Final = 10_000
#: So often in a heartbeat's time the core hears that a node offers something else: said, and taken back.
_MOST_CHANGES: Final = 2


class Launches(Site):
    """All jobs that hold nodes, by number (``attempts``), and what they have in common."""

    def __init__(self, config: ClusterConfig, book: NodeBook, orders: Orders, out: Outbox) -> None:
        super().__init__(config, book, orders, out)
        self.attempts: dict[int, LaunchAttempt] = {}
        self.coscheduling = Coscheduling(config, book, self.attempts)
        self.sleepers = Sleepers(book, config.contract)
        self.clocks = Clocks(config)
        self.comparison = Comparison(out)
        self.audit = Audit(self, self.attempts)
        self._owners = Owners()
        self._desks = AtDesks() if shared(config) else None
        self._lease_us = config.time_us("lease")
        self._most_cut_off_s = (config.time_us("grace") + self._lease_us) / US_PER_S  # beyond a job's limit

    # the core's side

    def adopt(self, found: Started) -> set[str]:
        """After a restart: the jobs that hold nodes, by the journal. Gives the names of those nodes."""
        names: set[str] = set()
        for record in found.jobs:
            if record.allocation is None or record.state in TERMINAL:
                continue
            last = record.history[-1].reason if record.history else None
            ending = last if record.state is JobState.ENDING else None
            gang = Gang(
                tuple(share.node for share in record.allocation.nodes),
                adopted=record.state,
                ending=_outcome(last.why if last is not None else Why.CANCELLED),
                begins_anew=ending is not None and _by_plan(ending),
            )
            launch = LaunchAttempt(self, record, record.allocation, record.limit_us, gang)
            self.attempts[record.id] = launch
            launch.adopt(found)
            names.update(gang.nodes)
        return names

    def committed(self, event: ev.Event, instructions: Iterable[Instruction], started: Mapping[int, JobRecord]) -> None:
        """An event is in the journal, and with it what was instructed; ``started`` are records of jobs that start."""
        if isinstance(event, ev.NodeResumed):
            self._resumed(self.book.entry(event.name))
        self.book.committed(event)
        match event:
            case ev.NodeLost(name) | ev.NodeCutOff(name):
                self.clocks.keeps_time.discard(name)
                self._into_service(self.book.entry(name))  # it may be back already
            case ev.NodeJoined(node):
                self._into_service(self.book.entry(node.name))  # it may offer something else meanwhile
            case ev.JobEnded(job_id) | ev.JobSentAway(job_id) | ev.LaunchFailed(job_id):
                launch = self.attempts.get(job_id)
                if launch is not None and launch.gang.phase is Phase.OVER:
                    del self.attempts[job_id]
                    launch.recorded()
            case ev.JobCancelled(job_id) if launch := self.attempts.get(job_id):
                launch.do(launch.gang.cancel())
        for instruction in instructions:
            match instruction:
                case SharePlan(turns):
                    self.coscheduling.follow(turns)
                case Start(job, held, limit_us=limit_us):
                    gang = Gang(tuple(share.node for share in held.nodes))
                    self.sleepers.started(gang.nodes)
                    launch = self.attempts[job.id] = LaunchAttempt(self, started[job.id], held, limit_us, gang)
                    launch.begin()
                case RateChanged(job_id) | Answer(job_id) | Resize(job_id) | Kill(job_id) if job_id in self.attempts:
                    self._instructed(self.attempts[job_id], instruction)

    def _instructed(self, launch: LaunchAttempt, instruction: RateChanged | Answer | Resize | Kill) -> None:
        match instruction:
            case RateChanged():
                launch.rate_changed(float(instruction.rate) / ALONE_PPM)
            case Answer():
                launch.answer(instruction.given, waits=instruction.waits)
            case Resize():
                launch.resize(instruction.old, instruction.new)
            case Kill():
                lost = instruction.reason.why is Why.NODE_LOST
                outcome, message = (JobState.NODE_LOST, Why.NODE_LOST.value) if lost else (JobState.CANCELLED, "")
                launch.do(launch.gang.kill(outcome, message, begins_anew=_by_plan(instruction.reason)))
                launch.give_up("it is cut off")

    def _resumed(self, entry: NodeEntry) -> None:
        """A node is about to be resumed: an operator trusts it again, unless it was kept out by its own word."""
        self._owners.resumed(entry.name)
        if not drained_by_node(entry):
            self.suspects.resumed(entry.name)

    def timed_out(self, key: tuple[int, int]) -> None:
        """The launch of that attempt, or its resize, has taken as long as it may."""
        launch = self.attempts.get(key[0])
        if launch is not None and launch.key == key:
            launch.timed_out()

    # the nodes' side

    def _on(self, entry: NodeEntry, key: tuple[int, int]) -> LaunchAttempt | None:
        return attempt_on(self.attempts, entry.name, key)

    def beat(self, entry: NodeEntry) -> None:
        """A heartbeat has come: pass its owner's word on to the core, and keep what it says of jobs."""
        assert entry.beat is not None
        for sign in entry.beat.jobs:
            if launch := self._on(entry, (sign.job_id, sign.attempt)):
                launch.sees(entry, sign)
        self._take_stalls(entry, entry.beat)
        self._give_up_unguarded(entry, entry.beat.guard)
        if not entry.beat.guard:
            again, entry.unforgotten = sorted(entry.unforgotten), set()
            for key in again:
                launch = self._on(entry, key)
                if launch is None:
                    self.order(entry.name, key, OrderKind.FORGET)
                elif launch.gang.gone(entry.name):  # its gang counts on it no more: when its end is in the journal
                    launch.returned.append(entry.name)
        if not entry.known:
            return
        if clock := self.clocks.event(entry):
            self.out.post(clock, "by the node")
        if event := self._owners.event(entry):
            self.out.post(event, "by the node")
        if self._desks and (came_or_left := self._desks.event(entry)):
            self.out.post(came_or_left)

    def _take_stalls(self, entry: NodeEntry, beat: wire.Heartbeat) -> None:
        """Keep what cannot be ended there: a stall that no live attempt waits for is the node's loss (``left``).

        A job whose script never began leaves it to the node, and is tried elsewhere once the core knows what is held.
        """
        entry.stalls = {(sign.job_id, sign.attempt): sign.stall for sign in beat.jobs if sign.stall}
        launches = {key: self._on(entry, key) for key in entry.stalls}
        entry.left = {
            key: entry.stalls[key]
            for key, launch in launches.items()
            if launch is None or launch.gang.gone(entry.name) or launch.gang.may_leave(entry.name)
        }
        entry.stale -= entry.left.keys()  # the node is in service with the rest
        self._into_service(entry)
        if entry.size is not None and entry.size != entry.offers(self.config.contract):
            return
        for key, launch in launches.items():
            if launch is not None:
                launch.cannot_end(entry.name, entry.stalls[key])

    def _give_up_unguarded(self, entry: NodeEntry, guard: str) -> None:
        """Jobs that are being killed do not wait for a node whose guard has been away for a launch's time-out.

        What is left of them there is killed when the guard is back; until then nothing starts there (``owners``).
        ``guard``: why it does not answer; empty where it does.
        """
        now_s, since_s = self.book.now_s(), entry.unguarded_s
        entry.unguarded_s = None if not guard else now_s if since_s is None else since_s
        if entry.unguarded_s is None or now_s - entry.unguarded_s < self.timeout_us / US_PER_S:
            return
        for launch in list(self.attempts.values()):
            if launch.gang.waits_for(entry.name):
                entry.stale.add(launch.key)
                self.out.say("warn", "node given up by a job", node=entry.name, job=launch.job_id, why=guard)
                launch.do(launch.gang.lost(entry.name, f"{entry.name}'s guard does not answer"))

    def hello(self, entry: NodeEntry, hello: wire.Hello) -> None:
        """A node is there: compare what it has with what it should have."""
        reports = {(report.job_id, report.attempt): report for report in hello.groups}
        entry.stale, entry.unforgotten = set(), set()
        self._link_is_back(entry)
        for launch in list(self.attempts.values()):
            launch.sent.pop(entry.name, None)
            if entry.name in launch.gang.node_phases:
                report = reports.get(launch.key)
                self.comparison.found(entry.name, launch.job_id, launch.gang, report)
                launch.came(entry, report)
        for key, report in reports.items():
            launch_here, over = self._on(entry, key), report.state == "ended"
            if launch_here is None or launch_here.gang.gone(entry.name):
                if launch_here is not None and over:
                    launch_here.returned.append(entry.name)  # it may forget the job when its end is in the journal
                    continue
                if launch_here is None and not over:
                    self.comparison.stray(entry.name, key)
                self.end_stray(entry, key, over=over)
        self.comparison.heard(entry.name)
        self._into_service(entry)

    def owner_said(self, entry: NodeEntry) -> None:
        """A node's owner has said something: end what was ended there, and have the core know what is left."""
        for key in entry.word.ended:
            if launch := self._on(entry, key):
                launch.do(launch.gang.ended_by_owner(entry.name))
        self._into_service(entry)

    def take_report(self, entry: NodeEntry, message: wire.FromAgent, key: tuple[int, int]) -> None:
        """A node reports something of an attempt."""
        launch = self._on(entry, key)
        if launch is not None and key not in entry.stale:
            launch.heard(entry.name, message)
            return
        self.end_stray(entry, key, over=isinstance(message, wire.GroupEnded))
        self._into_service(entry)

    def take_refusal(self, entry: NodeEntry, refusal: wire.Refused, key: tuple[int, int]) -> None:
        """A node does not obey an order about an attempt."""
        kind, launch = self.orders.kind(entry.name, refusal.order), self._on(entry, key)
        if kind is OrderKind.FORGET:
            if len(entry.unforgotten) < _MOST_UNFORGOTTEN:  # more no honest node has
                entry.unforgotten.add(key)  # its guard is away, or was not done yet
        elif launch is not None and key not in entry.stale:
            launch.refused(entry.name, refusal, kind)
        else:
            if kind is OrderKind.KILL and refusal.code == "unknown":
                entry.stale.discard(key)  # it has nothing of it
            self._into_service(entry)

    def lost(self, entry: NodeEntry) -> None:
        """A node was silent for a lease: its jobs end, and it offers nothing any more.

        Where no node of its cluster is heard, the link to that may be down, and jobs that run wholly there go on.
        """
        silent = "was suspended for longer than" if entry.asleep else "was not heard for"
        message = f"{entry.name} {silent} {humanised(self._lease_us)}"
        cut_off = not entry.asleep and self._cut_off(entry)
        self.comparison.lost(entry.name)
        if entry.joining is not None or entry.size is not None:
            entry.joining = entry.size = None
            if cut_off:
                self.out.post(ev.NodeCutOff(entry.name), f"{message}, nor was any other node of its cluster")
            else:
                self.out.post(ev.NodeLost(entry.name), message)
                if not entry.asleep:
                    self.set_aside(self.suspects.lost(entry.name))
        for launch in list(self.attempts.values()):
            if entry.name in launch.gang.node_phases and not (cut_off and launch.waits_for_cluster(entry)):
                launch.do(launch.gang.lost(entry.name, message))
                launch.give_up(message)

    def _cut_off(self, entry: NodeEntry) -> bool:
        """Whether a node that was silent for a lease is on a cluster of which no node is heard, of several clusters.

        The others have been silent for half a lease at least, for they do not all fall silent at one instant. A node
        that was removed is lost for good.
        """
        if entry.name not in self.book.allowed:
            return False
        if len({each.cluster for each in self.book if each.known or each.hello is not None}) < 2:
            return False
        since_s = self.book.now_s() - self._lease_us / US_PER_S / 2
        others = (each for each in self.book if each is not entry and each.cluster == entry.cluster)
        return not any(each.heard_s is not None and each.heard_s > since_s for each in others)

    def _link_is_back(self, entry: NodeEntry) -> None:
        """A node's cluster is not cut off any more: its other nodes that hold jobs have a lease to be heard."""
        for launch in self.attempts.values():
            if launch.cut_off_s is not None and launch.inside(entry.cluster):
                launch.cut_off_s = None
                for other in map(self.book.entry, launch.gang.nodes):
                    if other.heard_s is None:
                        other.heard_s = self.book.now_s()

    def give_up_overdue(self) -> None:
        """A job that has been cut off for longer than it may run is not waited for any more."""
        for launch in list(self.attempts.values()):
            if launch.cut_off_s is None or (limit_us := launch.node_limit_us) is None:
                continue
            if self.book.now_s() - launch.cut_off_s > limit_us / US_PER_S + self._most_cut_off_s:
                launch.give_up("it was cut off for longer than its time limit")

    def ticked(self) -> None:
        """Another heartbeat's time has passed: what nodes offer may change again."""
        for entry in self.book:
            if entry.changes:
                entry.changes = 0
                self._into_service(entry)

    def _into_service(self, entry: NodeEntry) -> None:
        """Have the core know what a node offers: one thing after the other, and few changes in a heartbeat's time."""
        changes = entry.changes + (entry.size is not None)
        if entry.stale or not entry.agreed or entry.joining is not None or changes > _MOST_CHANGES:
            return
        size = entry.offers(self.config.contract)
        if size != entry.size:
            entry.joining, entry.changes = size, changes
            self.out.post(ev.NodeJoined(size))


def _by_plan(reason: Reason) -> bool:
    """Whether a job was ended by a plan of the policy, whose reasons are its own: it waits again then."""
    return reason.why not in (Why.CANCELLED, Why.NODE_LOST, Why.CANNOT_END)


def _outcome(why: Why) -> JobState | None:
    """What a job becomes that was ended for that reason; None: its script's end says."""
    outcomes = {Why.NODE_LOST: JobState.NODE_LOST, Why.CANNOT_END: None}
    return outcomes.get(why, JobState.CANCELLED)

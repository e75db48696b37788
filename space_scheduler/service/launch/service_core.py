"""The live service's rules without input or output: ``handle(input, now_s) -> effects``.

What happens to the service (an agent calls, says something, falls silent; an event is in the journal; a time has come)
goes in as a value; what is to be done (events for the core, messages for nodes, timers, lines for the log) comes out.
Around it are the shell that carries the effects out (``shell``), the link's sockets, and the journal's thread. The same
inputs at the same times give the same effects, so a record of them can be taken in again.

An attempt (:mod:`~.attempt`) for each job that holds nodes stands between the journal and the agents;
:class:`Launches` is the index over them. Nothing here decides which job runs where. When a node comes (back), what it
has is compared with the attempts: what is missing is asked for again, what has ended here is ended there, before the
node counts.

A cluster (a lab) of which no node is heard any more is cut off: whether it has lost its power or its link cannot be
told from here. A job that runs wholly on its nodes goes on there for all that is known (agents without a scheduler end
nothing), so it is waited for: it holds what it has, and is adopted when its nodes are heard again, or has ended
meanwhile by their word. It is not waited for longer than it may run. A job with a component there and one elsewhere has
lost a node like any other. Nothing is started there meanwhile.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from cosched.config.cluster import ClusterConfig
from cosched.model.desk import ContractReason
from cosched.model.job import TERMINAL, JobState
from cosched.model.time import US_PER_S, humanised
from cosched.wire import messages as wire
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Answer, Instruction, Kill, RateChanged, Resize, SharePlan, Start
from space_scheduler.progress import ALONE_PPM
from space_scheduler.reasons import Reason, Why
from space_scheduler.service.journal.records import JobRecord
from space_scheduler.service.launch import values as given
from space_scheduler.service.launch.attempt import Attempts, LaunchAttempt
from space_scheduler.service.launch.audit import Audit, Comparison
from space_scheduler.service.launch.coscheduling import Coscheduling
from space_scheduler.service.launch.gang import Gang, Phase
from space_scheduler.service.launch.nodes import NodeBook, NodeEntry
from space_scheduler.service.launch.orders import OrderKind, Orders
from space_scheduler.service.launch.owners import AtDesks, Clocks, Owners, Sleepers, drained_by_node
from space_scheduler.service.launch.values import Cut, Effect, Outbox, Send, Started

_MOST_UNFORGOTTEN: Final = 10_000
#: What a job becomes that is ended for that reason, where it is not cancelled; None: its script's end says.
_OUTCOMES: Final = {Why.NODE_LOST: JobState.NODE_LOST, Why.CANNOT_END: None}
#: So often in a heartbeat's time the core hears that a node offers something else: said, and taken back.
_MOST_CHANGES: Final = 2
#: For how long a removed node's connection stays open, so that it hears of it.
_LAST_WORDS_S = 2.0


class ServiceCore:
    """All that a service knows of its nodes and of the jobs on them. Times in seconds of one clock that never jumps."""

    def __init__(self, config: ClusterConfig, nodes: Sequence[str], fence: wire.Fence, orders: Orders) -> None:
        self.config = config
        self.fence = fence
        self.now_s = 0.0
        self.book = NodeBook(nodes, lambda: self.now_s)
        self._out = Outbox()
        self.launches = Launches(config, self.book, orders, self._out)
        self.sleepers, self.coscheduling = self.launches.sleepers, self.launches.coscheduling
        self.beat_s = config.time_us("heartbeat") / US_PER_S
        self.lease_s = config.time_us("lease") / US_PER_S
        self._ticked_s: float | None = None

    def handle(self, happened: given.AnyInput, now_s: float) -> list[Effect]:
        """Apply an input; return the effects to carry out, in order."""
        self.now_s = now_s
        match happened:
            case given.InJournal(event, instructions, started):
                self.launches.committed(event, instructions, started)
            case given.Heard(node, message):
                self._heard(self.book.entry(node), message)
            case given.Ticked():
                self._count_leases()
                self.launches.ticked()
                self._out.extend(self.sleepers.look())
            case given.TimedOut(key):
                self.launches.timed_out(key)
            case given.Wanted(nodes):
                self._out.extend(self.sleepers.wanted(nodes))
            case given.Discarded(node, job_id, attempt):
                self.launches.order(node, (job_id, attempt), OrderKind.DISCARD)
            case given.Removed(node, revoked):
                self._remove(node, revoked)
            case given.RevocationsChanged(revoked):
                self._tell_revoked(revoked)
            case given.Started():
                self._adopt(happened)
            case _:
                self._with_an_agent(happened)
        effects = list(self._out)
        self._out.clear()
        return effects

    # the service

    def _adopt(self, found: given.Started) -> None:
        """Take over the jobs that hold nodes by the journal, and await those nodes."""
        self.coscheduling.follow(found.turns.turns)
        self.launches.clocks.keeps_time = set(found.turns.keeps_time)
        self.book.recovered(found.nodes, self.launches.adopt(found))
        awaited = {entry.name for entry in self.book if entry.heard_s is not None}
        self.launches.comparison.begin(len(self.launches.attempts), awaited)

    # agents

    def _with_an_agent(
        self,
        happened: given.Connected | given.OwnerSaid | given.Disconnected | given.CertificateExpired,
    ) -> None:
        entry = self.book.entry(happened.node)
        match happened:
            case given.OwnerSaid(_, word, banned) if entry.connected:
                entry.word, entry.banned = word, banned
                self._agree(entry)
                self.launches.owner_said(entry)
            case given.Connected():
                self._connected(entry, happened)
            case given.Disconnected():
                entry.connected = entry.agreed = False
                self._out.say("info", "agent disconnected", node=entry.name)
            case given.CertificateExpired(_, since):
                entry.expired = since

    def _connected(self, entry: NodeEntry, called: given.Connected) -> None:
        hello = called.hello
        entry.connected, entry.agreed, entry.refused, entry.expired = True, False, "", ""
        entry.asleep, entry.wakeable = False, None
        entry.hello, entry.serial = hello, called.serial
        entry.beat = entry.report = None
        entry.word, entry.banned = wire.NO_WORD, ()
        entry.heard_s = self.now_s
        self._out.say(
            "info",
            "agent connected",
            node=entry.name,
            address=hello.address,
            procs=hello.procs,
            groups=len(hello.groups),
            version=entry.version,
        )
        self._out.append(
            Send(
                entry.name,
                wire.Welcome(
                    entry.version,
                    self.fence,
                    self.config.time_us("heartbeat"),
                    self.config.time_us("lease"),
                    self.config.contract,
                    called.session,
                    hello.session,
                    called.revoked,
                ),
            )
        )

    def _heard(self, entry: NodeEntry, message: wire.FromAgent) -> None:
        if not entry.connected:
            return  # it was replaced, or removed
        self._agree(entry)
        match message:
            case wire.Heartbeat():
                self._sleeps(entry)
                entry.beat = message
                self.launches.beat(entry, message)
                if message.asked_us:
                    self._out.append(Send(entry.name, self.coscheduling.answer(entry, message)))
            case wire.JobsHeld():
                self.launches.audit.heard(entry, message, self.coscheduling.plan().there.get(entry.name, ()))
            case wire.DeskReported(report):
                entry.report, entry.wakeable, entry.slept_s = report, report.wakeable, self.now_s
            case wire.ProgramEnded() | wire.GroupEnded() | wire.Adapted() | wire.Asked():
                self.launches.take_report(entry, message, (message.job_id, message.attempt))
            case wire.Prepared(order) | wire.Started(order) | wire.Resized(order) | wire.Offered(order):
                self.launches.take_report(entry, message, (order.job_id, order.attempt))
            case wire.Refused(order):
                self.launches.take_refusal(entry, message, (order.job_id, order.attempt))

    def _sleeps(self, entry: NodeEntry) -> None:
        """Whether its machine is about to be suspended, or is awake."""
        asleep = entry.report is not None and entry.report.reason is ContractReason.ASLEEP
        if asleep != entry.asleep:
            entry.asleep = asleep
            if asleep:
                held = (each.allocation.nodes for each in self.launches.attempts.values())
                self.sleepers.slept(entry, busy=any(share.node == entry.name for nodes in held for share in nodes))
            self._out.say("info", "node asleep" if asleep else "node awake", node=entry.name)

    def _agree(self, entry: NodeEntry) -> None:
        entry.heard_s = self.now_s
        if not entry.agreed and entry.hello is not None:
            entry.agreed = True  # it has taken the welcome: it obeys this scheduler
            self.launches.hello(entry, entry.hello)

    def _remove(self, name: str, revoked: tuple[str, ...]) -> None:
        """Hear nothing more of a node, at once; tell it, and tell all others which certificates count no more."""
        self.book.remove(name)
        entry = self.book.get(name)
        if revoked:
            self._tell_revoked(revoked, entry)
        if entry is not None:
            if entry.connected:
                rejected = wire.Rejected(f"node {name!r} was removed from this cluster", self.fence)
                self._out.extend((Send(name, rejected), Cut(name, _LAST_WORDS_S)))
                entry.connected = False
            self._lose(entry)

    def _tell_revoked(self, revoked: tuple[str, ...], but: NodeEntry | None = None) -> None:
        others = (each for each in self.book if each is not but and each.connected)
        self._out.extend(Send(each.name, wire.Revoked(revoked)) for each in others)

    # leases

    def _count_leases(self) -> None:
        """Lose nodes that were silent for a lease.

        A scheduler that was stopped itself, or its machine suspended, has heard no node meanwhile: the time it missed
        does not count.
        """
        missed_s = 0.0 if self._ticked_s is None else self.now_s - self._ticked_s - self.beat_s
        self._ticked_s = self.now_s
        for entry in self.book:
            if missed_s > self.beat_s and entry.heard_s is not None:
                entry.heard_s = min(
                    self.now_s, entry.heard_s + missed_s
                )  # a node that has called since is not heard later
            if entry.heard_s is not None and self.now_s - entry.heard_s > self.lease_s:
                self._lose(entry)
        self.launches.give_up_overdue()

    def _lose(self, entry: NodeEntry) -> None:
        self._out.say("warn", "node lost", node=entry.name, lease_s=self.lease_s, connected=entry.connected)
        if entry.connected:
            self._out.append(Cut(entry.name))
        entry.connected = entry.agreed = False
        entry.heard_s = entry.beat = entry.report = None
        self.launches.lost(entry)


class Launches(Attempts):
    """All jobs that hold nodes, by number: what happens to several of them, and to their nodes."""

    def __init__(self, config: ClusterConfig, book: NodeBook, orders: Orders, out: Outbox) -> None:
        super().__init__(config, book, orders, out)
        self.coscheduling = Coscheduling(config, book, self.attempts)
        self.sleepers = Sleepers(book, config.contract)
        self.clocks = Clocks(config)
        self.comparison = Comparison(out)
        self.audit = Audit(self)
        self._owners = Owners()
        self._desks = AtDesks() if self.shares else None
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
            gang = Gang(
                tuple(share.node for share in record.allocation.nodes),
                adopted=record.state,
                ending=_OUTCOMES.get(last.why, JobState.CANCELLED) if last is not None else JobState.CANCELLED,
                begins_anew=record.state is JobState.ENDING and last is not None and _by_plan(last),
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

    def beat(self, entry: NodeEntry, beat: wire.Heartbeat) -> None:
        """A heartbeat has come: pass its owner's word on to the core, and keep what it says of jobs."""
        for sign in beat.jobs:
            if launch := self.on(entry.name, (sign.job_id, sign.attempt)):
                launch.sees(entry, sign, paused=bool(beat.paused))
        self._take_stalls(entry, beat)
        self._give_up_unguarded(entry, beat.guard)
        if not beat.guard:
            again, entry.unforgotten = sorted(entry.unforgotten), set()
            for key in again:
                launch = self.on(entry.name, key)
                if launch is None:
                    self.order(entry.name, key, OrderKind.FORGET)
                elif launch.gang.gone(entry.name):  # its gang counts on it no more: when its end is in the journal
                    launch.returned.append(entry.name)
        if not entry.known:
            return
        for event in filter(None, (self.clocks.event(entry, beat), self._owners.event(entry, beat))):
            self.out.post(event, "by the node")
        if self._desks and (came_or_left := self._desks.event(entry, beat)):
            self.out.post(came_or_left)

    def _take_stalls(self, entry: NodeEntry, beat: wire.Heartbeat) -> None:
        """Keep what cannot be ended there: a stall that no live attempt waits for is the node's loss (``left``).

        A job whose script never began leaves it to the node, and is tried elsewhere once the core knows what is held.
        """
        entry.stalls = {(sign.job_id, sign.attempt): sign.stall for sign in beat.jobs if sign.stall}
        launches = {key: self.on(entry.name, key) for key in entry.stalls}
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
            here, over = self.on(entry.name, key), report.state == "ended"
            if here is None and not over:
                self.comparison.stray(entry.name, key)
            if here is not None and here.gang.gone(entry.name) and over:
                here.returned.append(entry.name)  # it may forget the job when its end is in the journal
            elif here is None or here.gang.gone(entry.name):
                self.end_stray(entry, key, over=over)
        self.comparison.heard(entry.name)
        self._into_service(entry)

    def owner_said(self, entry: NodeEntry) -> None:
        """A node's owner has said something: end what was ended there, and have the core know what is left."""
        for key in entry.word.ended:
            if launch := self.on(entry.name, key):
                launch.do(launch.gang.ended_by_owner(entry.name))
        self._into_service(entry)

    def take_report(self, entry: NodeEntry, message: wire.FromAgent, key: tuple[int, int]) -> None:
        """A node reports something of an attempt."""
        launch = self.on(entry.name, key)
        if launch is not None and key not in entry.stale:
            launch.heard(entry.name, message)
            return
        self.end_stray(entry, key, over=isinstance(message, wire.GroupEnded))
        self._into_service(entry)

    def take_refusal(self, entry: NodeEntry, refusal: wire.Refused, key: tuple[int, int]) -> None:
        """A node does not obey an order about an attempt."""
        kind, launch = self.orders.kind(entry.name, refusal.order), self.on(entry.name, key)
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
                    self.suspects.lost(entry.name)
        for launch in list(self.attempts.values()):
            if entry.name in launch.gang.node_phases and not (cut_off and launch.waits_for_cluster(entry)):
                launch.do(launch.gang.lost(entry.name, message))
                launch.give_up(message)

    def _cut_off(self, entry: NodeEntry) -> bool:
        """Whether a node that was silent for a lease is on a cluster of which no node is heard, of several clusters.

        The others have been silent for half a lease at least, for they do not all fall silent at one instant. A node
        that was removed is lost for good.
        """
        clusters = {each.cluster for each in self.book if each.known or each.hello is not None}
        if entry.name not in self.book.allowed or len(clusters) < 2:
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

"""Carries out what the core instructs, as a pure state machine: what happens goes in, effects come out (``effects``).

A gang for each job that holds nodes, between the journal and the agents. Nothing here decides which job runs where. The
gangs (:mod:`~.gang`) say what each node is to be asked; this makes the messages, keeps the launch time-out, and posts
what became of a job to the core. When a node comes (back), what it has is compared with the gangs: what is missing is
asked for again, what has ended here is ended there, before the node counts.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from cosched.config.cluster import ClusterConfig
from cosched.model.job import TERMINAL, JobState
from cosched.model.time import US_PER_S, humanised
from cosched.wire import messages as wire
from space_scheduler.clusters import crossing_ppm
from space_scheduler.launch import unnoticed
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Answer, Instruction, Kill, RateChanged, Resize, Start
from space_scheduler.progress import ALONE_PPM
from space_scheduler.reasons import Reason, Why
from space_scheduler.service.journal.records import Facts, JobRecord
from space_scheduler.service.launch.audit import Audit
from space_scheduler.service.launch.comparison import Comparison
from space_scheduler.service.launch.cut_off import CutOff
from space_scheduler.service.launch.effects import Annotate, CancelTimer, Effect, Level, Post, Say, Send, SetTimer
from space_scheduler.service.launch.efforts import total
from space_scheduler.service.launch.failures import failure_of
from space_scheduler.service.launch.gang import Action, CannotEnd, Ended, Gang, Launched, Left, Order, Phase
from space_scheduler.service.launch.inputs import Started
from space_scheduler.service.launch.limits import Limits
from space_scheduler.service.launch.nodes import NodeBook, NodeEntry
from space_scheduler.service.launch.numbers import OrderKind
from space_scheduler.service.launch.orders import LaunchAttempt, Orders
from space_scheduler.service.launch.owners import AtDesks, Owners, drained_by_node
from space_scheduler.service.launch.reshapes import Reshapes
from space_scheduler.service.launch.sharing import shared
from space_scheduler.service.launch.stalls import left_of
from space_scheduler.service.launch.suspects import NODES_OWN, Suspects
from space_scheduler.service.launch.turn_signs import TurnSigns
from space_scheduler.service.launch.verdicts import BY_OWNER, SLOW_USERS

_MOST_UNFORGOTTEN: Final = 10_000
#: Attempts that have ended here and are still on one node: of more than an honest node has, no more are ended there.
_MOST_STALE: Final = 10_000
#: So often in a heartbeat's time the core hears that a node offers something else: said, and taken back.
_MOST_CHANGES: Final = 2


class Launches:
    """All jobs that hold nodes.

    Every method but :meth:`take` takes in something that has happened, at the time that the book's clock tells; what is
    to be done about it is kept until it is taken.
    """

    def __init__(
        self,
        config: ClusterConfig,
        book: NodeBook,
        orders: Orders,
        record_of: Callable[[int], JobRecord],
    ) -> None:
        """``record_of`` gives what is known of a job that the core has just started."""
        self.config = config
        self.book = book
        self.attempts: dict[int, LaunchAttempt] = {}
        self._orders = orders
        self.signs = TurnSigns(config)
        self._record_of = record_of
        self._timeout_us = config.time_us("launch_timeout")
        self.suspects = Suspects(config, book)
        self.comparison = Comparison(self._say)
        self._owners = Owners()
        self._desks = AtDesks() if shared(config) else None
        self._limits = Limits(config, book)
        self._between = config.components.between(config.name)
        self._effects: list[Effect] = []
        self._reshapes = Reshapes(config, book, orders, self._do, self._add)
        self.cut_off = CutOff(config, book, self.attempts, self._say, self._do, orders.limit_us)
        self.audit = Audit(
            config, book, self.attempts, orders, self._reshapes, self._do,
            lambda entry, key: self._stray(entry, key, over=False), self._say,
        )  # fmt: skip

    def take(self) -> list[Effect]:
        """What is to be done, in order; from now on somebody else's task."""
        effects, self._effects = self._effects, []
        return effects

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
            launch = LaunchAttempt(record, record.allocation, record.limit_us, gang)
            launch.peers = record.facts.peers or ()
            self.attempts[record.id] = launch
            launch.receives_told = found.turns.receives.get(record.id, ())
            launch.given, launch.asking = found.asked.get(record.id, (0, False))
            launch.running_s = self.book.now_s()
            if (known := found.progress.get(record.id)) is not None:
                left_us, launch.rate = known
                if record.state is JobState.RUNNING:
                    self._limits.begin(launch, left_us)
            if gang.launching:
                self._set_timer(launch)
            if record.state is JobState.RUNNING and (new := found.resizing.get(record.id)) is not None:
                self._reshapes.begin(launch, record.allocation, new, resumed=True)
            names.update(gang.nodes)
        return names

    def committed(self, event: ev.Event, instructions: Iterable[Instruction]) -> None:
        """An event is in the journal, and with it what was instructed."""
        if isinstance(event, ev.NodeLost | ev.NodeCutOff) and (entry := self.book.get(event.name)):
            self.signs.lost(entry.name)
            self._into_service(entry)  # it may be back already
        if isinstance(event, ev.NodeJoined):
            self._into_service(self.book.entry(event.node.name))  # it may offer something else meanwhile
        if isinstance(event, ev.JobEnded | ev.JobSentAway | ev.LaunchFailed):
            self._recorded(event.job_id)
        if isinstance(event, ev.JobCancelled) and (launch := self.attempts.get(event.job_id)):
            self._do(launch, launch.gang.cancel())
        for instruction in instructions:
            if isinstance(instruction, Start):
                self._start(instruction)
            elif isinstance(instruction, RateChanged) and (launch := self.attempts.get(instruction.job_id)):
                launch.rate = float(instruction.rate) / ALONE_PPM
                if launch.work is not None:
                    launch.work.rate_changed(launch.rate, self.book.now_s())
            elif isinstance(instruction, Answer) and (launch := self.attempts.get(instruction.job_id)):
                self._reshapes.answer(launch, instruction.given, waits=instruction.waits)
            elif isinstance(instruction, Resize) and (launch := self.attempts.get(instruction.job_id)):
                self._reshapes.begin(launch, instruction.old, instruction.new)
            elif isinstance(instruction, Kill) and (launch := self.attempts.get(instruction.job_id)):
                lost = instruction.reason.why is Why.NODE_LOST
                outcome, message = (JobState.NODE_LOST, Why.NODE_LOST.value) if lost else (JobState.CANCELLED, "")
                self._do(launch, launch.gang.kill(outcome, message, begins_anew=_by_plan(instruction.reason)))
                self.cut_off.give_up(launch, "it is cut off")

    def resumed(self, entry: NodeEntry) -> None:
        """A node is about to be resumed: an operator trusts it again, unless it was kept out by its own word."""
        self._owners.resumed(entry.name)
        if not drained_by_node(entry):
            self.suspects.resumed(entry.name)

    def _start(self, start: Start) -> None:
        record = self._record_of(start.job.id)
        gang = Gang(tuple(share.node for share in start.allocation.nodes))
        launch = self.attempts[record.id] = LaunchAttempt(record, start.allocation, start.limit_us, gang)
        launch.crossing = self._crossing(launch)
        self._set_timer(launch)
        self._do(launch, gang.begin())

    def _crossing(self, launch: LaunchAttempt) -> float:
        """How many times longer a job takes that lies on several clusters, by what the link is known to cost."""
        clusters = {self.book.entry(node).cluster for node in launch.gang.nodes}
        return 1.0 + crossing_ppm(launch.record.job, clusters, self._between) / ALONE_PPM

    def _set_timer(self, launch: LaunchAttempt) -> None:
        launch.timed = True
        self._effects.append(SetTimer(launch.key, self._timeout_us))

    def timed_out(self, key: tuple[int, int]) -> None:
        """The launch of that attempt, or a change of what it holds, has taken as long as it may."""
        launch = self.attempts.get(key[0])
        if launch is None or launch.key != key:
            return
        if launch.timed:
            launch.timed = False
            self._do(launch, launch.gang.timed_out(humanised(self._timeout_us)))
        else:
            self._reshapes.timed_out(launch)

    # the nodes' side

    def beat(self, entry: NodeEntry) -> None:
        """A heartbeat has come: pass its owner's word on to the core, and keep what it says of jobs."""
        for sign in entry.beat.jobs if entry.beat else ():
            launch = self.attempts.get(sign.job_id)
            if launch and sign.attempt == launch.attempt and entry.name in launch.gang.node_phases:
                launch.efforts[entry.name] = sign.effort
                launch.hydra = launch.hydra or sign.hydra is True
                if received := self.signs.receives(launch, entry.name, sign.receives):
                    self._post(received, note=f"seen by {entry.name}")
                self._keep_limit(launch, entry, sign)
        self._take_stalls(entry)
        self._give_up_unguarded(entry)
        if entry.unforgotten and entry.beat is not None and not entry.beat.guard:
            again, entry.unforgotten = sorted(entry.unforgotten), set()
            for key in again:
                launch = self.attempts.get(key[0])
                # another journal's job may have had its number, or the node has left this one
                if launch is None or launch.key != key or entry.name not in launch.gang.node_phases:
                    self._order(entry.name, key, OrderKind.FORGET)
                elif launch.gang.gone(entry.name):  # its gang counts on it no more: when its end is in the journal
                    launch.returned.append(entry.name)
        if clock := self.signs.clock(entry):
            self._post(clock, note="by the node")
        if event := self._owners.event(entry):
            self._post(event, note="by the node")
        if self._desks and (came_or_left := self._desks.event(entry)):
            self._post(came_or_left)

    def _keep_limit(self, launch: LaunchAttempt, entry: NodeEntry, sign: wire.JobSigns) -> None:
        """A node says how its part of a job went: end the job at its limit, tell the core of an end that moves."""
        found = self._limits.heard(launch, entry, sign)
        if isinstance(found, ev.JobProgress):
            self._post(found, note="measured by its nodes")
        elif found:
            self._do(launch, launch.gang.kill(JobState.TIMED_OUT, found))

    def _take_stalls(self, entry: NodeEntry) -> None:
        """Keep what cannot be ended there. A job whose script never began leaves it to the node, and is tried elsewhere
        once the core knows what is held.
        """
        assert entry.beat is not None
        entry.stalls = {(sign.job_id, sign.attempt): sign.stall for sign in entry.beat.jobs if sign.stall}
        entry.left = left_of(entry, self.attempts)
        entry.stale -= entry.left.keys()  # the node is in service with the rest
        self._into_service(entry)
        if entry.size is not None and entry.size != entry.offers(self.config.contract):
            return
        for key, stall in entry.stalls.items():
            launch = self.attempts.get(key[0])
            if launch is None or launch.key != key or entry.name not in launch.gang.node_phases:
                continue
            if actions := launch.gang.cannot_end(entry.name):
                why = "; ".join(each.words for each in stall.processes)
                self._say("warn", "job cannot be ended", node=entry.name, job=launch.job_id, why=why)
                self._do(launch, actions)

    def _give_up_unguarded(self, entry: NodeEntry) -> None:
        """Jobs that are being killed do not wait for a node whose guard has been away for a launch's time-out.

        What is left of them there is killed when the guard is back; until then nothing starts there (``owners``).
        """
        if entry.beat is None or not entry.beat.guard:
            entry.unguarded_s = None
            return
        now_s = self.book.now_s()
        entry.unguarded_s = now_s if entry.unguarded_s is None else entry.unguarded_s
        if now_s - entry.unguarded_s < self._timeout_us / US_PER_S:
            return
        for launch in list(self.attempts.values()):
            if launch.gang.waits_for(entry.name):
                entry.stale.add(launch.key)
                self._say("warn", "node given up by a job", node=entry.name, job=launch.job_id, why=entry.beat.guard)
                self._do(launch, launch.gang.lost(entry.name, f"{entry.name}'s guard does not answer"))

    def hello(self, entry: NodeEntry, hello: wire.Hello) -> None:
        """A node is there: compare what it has with what it should have."""
        reports = {(report.job_id, report.attempt): report for report in hello.groups}
        entry.stale, entry.unforgotten = set(), set()
        self.cut_off.heard(entry)
        for launch in list(self.attempts.values()):
            launch.sent.pop(entry.name, None)
            if entry.name in launch.gang.node_phases:
                launch.crossing = self._crossing(launch)  # after a restart it was not known where its nodes are
                self.comparison.found(entry.name, launch.job_id, launch.gang, reports.get(launch.key))
                actions = launch.gang.reported(entry.name, reports.get(launch.key))
                if actions:
                    self._say("info", "node compared", node=entry.name, job=launch.job_id, todo=_names(actions))
                self._do(launch, actions)
                self._release_held(launch)
                self._reshapes.came_back(launch, entry.name, reports.get(launch.key))
        for key, report in reports.items():
            launch_here = self.attempts.get(key[0])
            ours = launch_here is not None and launch_here.key == key and entry.name in launch_here.gang.node_phases
            over = report.state == "ended"
            if launch_here is not None and ours and over and launch_here.gang.gone(entry.name):
                launch_here.returned.append(entry.name)  # it may forget the job when its end is in the journal
            elif not ours or (launch_here is not None and launch_here.gang.gone(entry.name)):
                if report.state != "ended" and not ours:
                    self.comparison.stray(entry.name, key)
                self._stray(entry, key, over=over)
        self.comparison.heard(entry.name)
        self._into_service(entry)

    def owner_said(self, entry: NodeEntry) -> None:
        """A node's owner has said something: end what was ended there, and have the core know what is left."""
        for key in entry.word.ended:
            launch = self.attempts.get(key[0])
            if launch is not None and launch.key == key and entry.name in launch.gang.node_phases:
                self._do(launch, launch.gang.ended_by_owner(entry.name))
        self._into_service(entry)

    def take_report(self, entry: NodeEntry, message: wire.FromAgent) -> None:
        """A node reports something of a job."""
        if isinstance(message, wire.Prepared | wire.Started | wire.Resized | wire.Offered | wire.Refused):
            key = (message.order.job_id, message.order.attempt)
        elif isinstance(message, wire.ProgramEnded | wire.GroupEnded | wire.Adapted | wire.Asked):
            key = (message.job_id, message.attempt)
        else:
            return
        kind = self._orders.numbers.kind(entry.name, message.order) if isinstance(message, wire.Refused) else None
        if kind is OrderKind.FORGET:
            if len(entry.unforgotten) < _MOST_UNFORGOTTEN:  # more no honest node has
                entry.unforgotten.add(key)  # its guard is away, or was not done yet
            return
        launch = self.attempts.get(key[0])
        if launch is None or launch.key != key or entry.name not in launch.gang.node_phases or key in entry.stale:
            self._heard_of_stray(entry, key, message, kind)
            return
        self._do(launch, self._report_to_gang(launch, entry.name, message, kind))
        if isinstance(message, wire.Prepared | wire.Resized):
            self._reshapes.answered(launch, entry.name, message)
        elif isinstance(message, wire.Offered):
            self._reshapes.offered(launch, entry.name, message.order, joined=message.joined)
        elif isinstance(message, wire.Adapted):
            self._reshapes.adapted(launch, message.number)
        elif isinstance(message, wire.Asked):
            self._reshapes.asks(launch, message.more)
        elif isinstance(message, wire.Refused) and kind in (OrderKind.PREPARE, OrderKind.RESIZE):
            self._reshapes.refused(launch, entry.name, message)
        elif isinstance(message, wire.Refused) and kind is OrderKind.ADAPT:
            self._reshapes.offered(launch, entry.name, message.order, joined=False)

    def _report_to_gang(
        self, launch: LaunchAttempt, node: str, message: wire.FromAgent, kind: OrderKind | None
    ) -> list[Action]:
        gang = launch.gang
        if isinstance(message, wire.Prepared):
            return gang.prepared(node)
        if isinstance(message, wire.Started):
            return gang.started(node)
        if isinstance(message, wire.Refused):
            self._say(
                "warn", "order refused", node=node, job=message.order.job_id, code=message.code, why=message.message
            )
            return gang.refused(node, kind, message.code, message.message) if kind is not None else []
        if isinstance(message, wire.ProgramEnded):
            return gang.program_ended(node, message.exit, message.error_tail)
        if isinstance(message, wire.GroupEnded):
            if gang.gone(node):
                launch.returned.append(node)  # it may forget the job when its end is in the journal
            return gang.emptied(node, message.cpu_us, message.memory_peak_bytes)
        return []

    def lost(self, entry: NodeEntry) -> None:
        """A node was silent for a lease: its jobs end, and it offers nothing any more.

        Where no node of its cluster is heard, the link to that may be down, and jobs that run wholly there go on.
        """
        message = f"{entry.name} was not heard for {humanised(self.config.time_us('lease'))}"
        if entry.asleep:
            message = f"{entry.name} was suspended for longer than {humanised(self.config.time_us('lease'))}"
        cut_off = not entry.asleep and self.cut_off.holds(entry)
        self.comparison.lost(entry.name)
        if entry.joining is not None or entry.size is not None:
            entry.joining = entry.size = None
            if cut_off:
                self._post(ev.NodeCutOff(entry.name), note=f"{message}, nor was any other node of its cluster")
            else:
                self._post(ev.NodeLost(entry.name), note=message)
                if not entry.asleep:
                    self._set_aside(self.suspects.lost(entry.name))
        for launch in list(self.attempts.values()):
            if entry.name in launch.gang.node_phases and not (cut_off and self.cut_off.waited_for(launch, entry)):
                self._do(launch, launch.gang.lost(entry.name, message))
                self.cut_off.give_up(launch, message)

    def _heard_of_stray(
        self, entry: NodeEntry, key: tuple[int, int], message: wire.FromAgent, kind: OrderKind | None
    ) -> None:
        if isinstance(message, wire.Refused):
            if kind is OrderKind.KILL and message.code == "unknown":
                entry.stale.discard(key)  # it has nothing of it
        else:
            self._stray(entry, key, over=isinstance(message, wire.GroupEnded))
        self._into_service(entry)

    def _stray(self, entry: NodeEntry, key: tuple[int, int], *, over: bool) -> None:
        """A node has a job that has ended here, or was never its: it is ended there too, and forgotten."""
        if over:
            entry.stale.discard(key)
            self._order(entry.name, key, OrderKind.FORGET)
        elif key not in entry.stale and len(entry.stale) < _MOST_STALE:
            entry.stale.add(key)
            self._say("info", "stray job", node=entry.name, job=key[0], attempt=key[1])
            self._order(entry.name, key, OrderKind.KILL)

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
            self._post(ev.NodeJoined(size))

    # carrying out

    def _do(self, launch: LaunchAttempt, actions: list[Action]) -> None:
        gang = launch.gang
        for action in actions:
            if isinstance(action, Order):
                self._send(launch, action)
            elif isinstance(action, Launched):
                self.suspects.launched(gang.nodes)
                self._limits.begin(launch)
                launch.running_s = self.book.now_s()
                self._post(ev.JobLaunched(launch.job_id), note=f"the script runs on {gang.first}")
            elif isinstance(action, Left):
                self._reshapes.left(launch, action.node)
            elif isinstance(action, CannotEnd):
                self._post(ev.JobCannotEnd(launch.job_id, action.node), note="by the node")
            else:
                self._ended(launch, action)
        if launch.timed and not gang.launching:
            launch.timed = False
            self._effects.append(CancelTimer(launch.key))
        if gang.phase in (Phase.ENDING, Phase.OVER):
            self._reshapes.over(launch)

    def _send(self, launch: LaunchAttempt, action: Order) -> None:
        if action.kind is OrderKind.PREPARE:
            launch.held[action.node] = None
            self._release_held(launch)
        elif action.kind is OrderKind.RUN:
            self._tell(action.node, self._orders.run(launch))
        else:
            self._order(action.node, launch.key, action.kind)

    def _release_held(self, launch: LaunchAttempt) -> None:
        """Send each Prepare that waits, once every node has said where it is (also after a restart of the service)."""
        if not launch.held or not launch.gang.launching:
            launch.held.clear()
            return
        if not launch.peers:
            launch.peers = self.book.peers(launch.allocation)
            if not launch.peers:
                return
            self._effects.append(Annotate(launch.job_id, Facts(peers=launch.peers)))
        held, launch.held = launch.held, {}
        for name in held:
            rigid = self._reshapes.rigid(name)
            if rigid and (launch.share(name).procs != launch.share(name).tasks or launch.record.job.resident):
                self._do(launch, launch.gang.refused(name, OrderKind.PREPARE, "version", rigid))
                return
            self._tell(name, self._orders.prepare(launch, name, launch.peers, self.book.entry(name).version))

    def _order(self, name: str, key: tuple[int, int], kind: OrderKind) -> None:
        self._tell(name, self._orders.plain(kind, name, key))
        if kind in (OrderKind.FORGET, OrderKind.DISCARD):
            self._orders.numbers.over(name, key)

    def discard(self, name: str, job_id: int, attempt: int) -> None:
        """The output of a job is no longer kept."""
        self._order(name, (job_id, attempt), OrderKind.DISCARD)

    def _ended(self, launch: LaunchAttempt, end: Ended) -> None:
        if end.outcome is JobState.COMPLETED and launch.peers and (lost := unnoticed(end.error_tail, launch.peers)):
            end = msgspec.structs.replace(end, outcome=JobState.FAILED, message=lost.message)
        seen = total(launch.efforts)
        if seen.orientation and launch.record.job.program:
            program = launch.record.job.program
            self._post(ev.ProgramMeasured(program, seen.orientation, seen.cpu_permille), note=f"job {launch.job_id}")
        failure = None if end.outcome in (JobState.COMPLETED, JobState.CANCELLED) else failure_of(end, launch)
        facts = Facts(
            exit=end.exit,
            failure=failure,
            cpu_us=end.cpu_us or None,
            memory_peak_bytes=end.memory_peak_bytes or None,
            efforts=launch.efforts or None,
        )
        if end.blamed and end.code in NODES_OWN:
            self._set_aside(self.suspects.failed(end.blamed, end.message))
        self._post(_end_of(launch.job_id, end), note=end.message, facts=facts)

    def _recorded(self, job_id: int) -> None:
        """The end of a job is in the journal: its nodes may forget it."""
        launch = self.attempts.get(job_id)
        if launch is None or launch.gang.phase is not Phase.OVER:
            return
        del self.attempts[job_id]
        for order in launch.gang.recorded():
            assert isinstance(order, Order)
            self._order(order.node, launch.key, order.kind)
        for name in launch.returned:
            self._order(name, launch.key, OrderKind.FORGET)

    def _set_aside(self, found: dict[str, str]) -> None:
        """Drain nodes on which too much has gone wrong, each with its reason."""
        for name, reason in found.items():
            self._say("warn", "node set aside", node=name, why=reason)
            self._post(ev.NodeDrained(name, f"set aside: {reason}"), note="by the scheduler")

    # effects

    def _add(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _post(self, event: ev.Event, *, note: str = "", facts: Facts | None = None) -> None:
        self._effects.append(Post(event, note, facts))

    def _tell(self, name: str, message: wire.ToAgent) -> None:
        self._effects.append(Send(name, message))

    def _say(self, level: Level, what: str, **fields: object) -> None:
        self._effects.append(Say(level, what, fields))


def _by_plan(reason: Reason) -> bool:
    """Whether a job was ended by a plan of the policy, whose reasons are its own: it waits again then."""
    return reason.why not in (Why.CANCELLED, Why.NODE_LOST, Why.CANNOT_END)


def _outcome(why: Why) -> JobState | None:
    """What a job becomes that was ended for that reason; None: its script's end says."""
    outcomes = {Why.NODE_LOST: JobState.NODE_LOST, Why.CANNOT_END: None}
    return outcomes.get(why, JobState.CANCELLED)


def _end_of(job_id: int, end: Ended) -> ev.LaunchFailed | ev.JobSentAway | ev.JobEnded:
    """What the core is told of an end."""
    if end.outcome is JobState.LAUNCH_FAILED and end.unrun:
        return ev.LaunchFailed(job_id, end.blamed, passing=end.code == SLOW_USERS)
    if end.outcome is JobState.NODE_LOST and end.code == BY_OWNER and end.node:
        return ev.JobSentAway(job_id, end.node)
    return ev.JobEnded(job_id, end.outcome)


def _names(actions: list[Action]) -> str:
    return ", ".join(action.kind.name.lower() if isinstance(action, Order) else "report" for action in actions)

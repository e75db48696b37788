"""One attempt at a job, as the machine of that job: its gang, its orders, its resize, its limit, what its nodes see.

What happens to the job comes in by the methods; effects go to the outbox. The gang (:mod:`~.gang`) and the resize
(:mod:`~.resizing`) say what each node is to be asked; this makes the messages and posts the outcome to the core. A node
whose agent speaks version 1 resizes no job: an attempt that would need it is refused with that reason.
"""

import math
from typing import Final

import msgspec

from cosched.config.cluster import ClusterConfig
from cosched.model.allocation import Allocation, Share
from cosched.model.coscheduling import Mode, Receives
from cosched.model.effort import Effort, total
from cosched.model.job import JobState
from cosched.model.stall import Stall
from cosched.model.time import US_PER_S, humanised
from cosched.model.width import Range
from cosched.wire import messages as wire
from cosched.wire.api import Failure
from cosched.wire.grant import Grant, signed
from cosched.wire.version_4 import known_environment, seen_in
from space_scheduler.clusters import crossing_ppm
from space_scheduler.launch import (
    Context,
    cause_of_time_out,
    diagnose,
    job_environment,
    job_files,
    unnoticed,
    watched,
    yields,
)
from space_scheduler.machine import events as ev
from space_scheduler.machine.turns import NEEDS_TURNS
from space_scheduler.policy.reshape.free import smallest
from space_scheduler.progress import ALONE_PPM
from space_scheduler.service.core.worker import Annotate
from space_scheduler.service.journal.records import Facts, JobRecord
from space_scheduler.service.launch.gang import (
    BY_OWNER,
    SLOW_USERS,
    Action,
    CannotEnd,
    Ended,
    Gang,
    Launched,
    Left,
    Order,
    Phase,
)
from space_scheduler.service.launch.nodes import NodeBook, NodeEntry
from space_scheduler.service.launch.orders import COUNT_BITS, OrderKind, Orders
from space_scheduler.service.launch.owners import NODES_OWN, Suspects
from space_scheduler.service.launch.resizing import (
    Absent,
    Ask,
    Join,
    Kept,
    Leave,
    MalleableResizing,
    Offer,
    Resized,
    Resizing,
    Stage,
    Step,
)
from space_scheduler.service.launch.sharing import policy_of, resizes, shares_nodes, stretch
from space_scheduler.service.launch.values import CancelTimer, Outbox, Send, SetTimer, Started
from space_scheduler.service.launch.work_done import WorkDone

#: Codes of a refused resize after which the node may have the new share.
_UNKNOWN: Final = frozenset({"failed", "busy"})
#: Attempts that have ended here and are still on one node: of more than an honest node has, no more are ended there.
_MOST_STALE: Final = 10_000
#: What matters of how a job receives.
_RECEIVES: Final = {each.value: each for each in (*NEEDS_TURNS, Receives.BLOCKS)}
#: Of the error output of a job that failed, so many lines are shown, each so long at most.
_TAIL_LINES: Final = 20
_LONGEST_LINE: Final = 400


class Attempts:
    """All attempts of one scheduler, by job, and what they share: settings, nodes, orders, the outbox."""

    def __init__(self, config: ClusterConfig, book: NodeBook, orders: Orders, out: Outbox) -> None:
        self.config: Final = config
        self.book: Final = book
        self.orders: Final = orders
        self.out: Final = out
        self.attempts: Final[dict[int, LaunchAttempt]] = {}
        self.suspects: Final = Suspects(config, book, out)
        self.timeout_us: Final = config.time_us("launch_timeout")
        self.between: Final = config.components.between(config.name)
        self.stretch: Final = stretch(config)
        #: Whether the policy resizes jobs.
        self.resizes: Final = resizes(policy_of(config))
        #: Whether it chooses nodes by their residents. Then, and where it resizes jobs, limits count work; else a node
        #: ends a job by the clock.
        self.shares: Final = shares_nodes(policy_of(config))

    def on(self, name: str, key: tuple[int, int]) -> "LaunchAttempt | None":
        """The attempt of that key, where it has a part on the node of that name; else None.

        Another journal's job may have had its number, or the node may have left the job.
        """
        found = self.attempts.get(key[0])
        return found if found is not None and found.key == key and name in found.gang.node_phases else None

    def order(self, name: str, key: tuple[int, int], kind: OrderKind) -> None:
        """Send an order that says nothing of the job but its number and attempt."""
        self.out.append(Send(name, self.orders.plain(kind, name, key)))

    def end_stray(self, entry: NodeEntry, key: tuple[int, int], *, over: bool) -> None:
        """A node has a job that has ended here, or was never its: end it there too, and have it forgotten."""
        if over:
            entry.stale.discard(key)
            self.order(entry.name, key, OrderKind.FORGET)
        elif key not in entry.stale and len(entry.stale) < _MOST_STALE:
            entry.stale.add(key)
            self.out.say("info", "stray job", node=entry.name, job=key[0], attempt=key[1])
            self.order(entry.name, key, OrderKind.KILL)


class LaunchAttempt:
    """One attempt at a job and its gang. ``peers`` is empty until the address of every node is known."""

    def __init__(
        self, shared: Attempts, record: JobRecord, allocation: Allocation, limit_us: int | None, gang: Gang
    ) -> None:
        self._shared: Final = shared
        self._out: Final = shared.out
        self.job_id: Final = record.id
        #: Job and attempt, as agents name it.
        self.key: Final = (record.id, max(1, record.attempt))
        self.record = record
        self.allocation = allocation
        self.limit_us = limit_us
        self.gang = gang
        self.peers: tuple[wire.Peer, ...] = ()
        self.efforts: dict[str, Effort] = {}  # by node, as its last heartbeat had it
        self.seen: set[str] = set()  # processes of launchers that its nodes have seen
        self.rate = 1.0  # how fast it goes by the core's model, against alone on idle nodes
        self.work: WorkDone | None = None  # while it runs, where its limit counts work
        self.receives: dict[str, str] = {}  # by node, as its last heartbeat had it
        self.receives_told: tuple[Receives, ...] = ()  # what the core knows of that
        self.returned: list[str] = []  # nodes that were lost and have come back with what is over
        self.held: dict[str, None] = {}  # nodes whose Prepare waits for the others' addresses
        self.timed = gang.launching  # the launch time-out counts
        self.resizing: Resizing | None = None
        self.resize_held: list[Ask | Join] = []  # steps of the resize that wait for the others' addresses
        self.cut_off_s: float | None = None  # since when no node of its cluster is heard (boot time); None: some are
        self.renewals = 0  # of its grant, by this scheduler
        self.given = 0  # how many processes more it was given of what it asked for
        self.asking = False  # for more or fewer, and has no answer that is its last
        self.running_s = 0.0  # since when its script runs (boot time), or this scheduler, where it was adopted
        self.adapts = False  # its program has adopted a map
        self.sent: dict[str, tuple[int, float]] = {}  # by node: the last order of a share or map on this link, and when
        self.differs: dict[tuple[str, str], float] = {}  # by node and kind: when a difference is to be repaired

    def share(self, name: str) -> Share:
        """Its share of one of its nodes, as that node has been or is to be told."""
        return next(share for share in self.wanted.nodes if share.node == name)

    @property
    def wanted(self) -> Allocation:
        """What its nodes are to be told now that it holds."""
        return self.allocation if self.resizing is None else self.resizing.wanted

    @property
    def tasks(self) -> dict[str, int]:
        """How many it has on each node."""
        return {share.node: share.tasks for share in self.allocation.nodes}

    @property
    def clusters(self) -> set[str]:
        """The clusters of its nodes."""
        return {self._shared.book.entry(node).cluster for node in self.gang.nodes}

    # its beginning and its end

    def begin(self) -> None:
        """The core has just started it."""
        self._out.append(SetTimer(self.key, self._shared.timeout_us))
        self.do(self.gang.begin())

    def adopt(self, found: Started) -> None:
        """After a restart: take over what the journal has of it."""
        self.peers = self.record.facts.peers or ()
        self.receives_told = found.turns.receives.get(self.job_id, ())
        self.given, self.asking = found.asked.get(self.job_id, (0, False))
        self.running_s = self._shared.book.now_s()
        running = self.record.state is JobState.RUNNING
        if (known := found.progress.get(self.job_id)) is not None:
            left_us, self.rate = known
            if running:
                self._count_work(left_us)
        if self.timed:
            self._out.append(SetTimer(self.key, self._shared.timeout_us))
        if running and (new := found.resizing.get(self.job_id)) is not None:
            self.resize(self.allocation, new, resumed=True)

    def timed_out(self) -> None:
        """The launch, or the resize, has taken as long as it may."""
        after = humanised(self._shared.timeout_us)
        if self.timed:
            self.timed = False
            self.do(self.gang.timed_out(after))
        elif self.resizing is not None:
            self._take_new_steps(self.resizing.timed_out(after))

    def recorded(self) -> None:
        """Its end is in the journal: its nodes may forget it."""
        self.do(self.gang.recorded())
        for name in self.returned:
            self._shared.order(name, self.key, OrderKind.FORGET)

    def _ended(self, end: Ended) -> None:
        if end.outcome is JobState.COMPLETED and self.peers and (lost := unnoticed(end.error_tail, self.peers)):
            end = msgspec.structs.replace(end, outcome=JobState.FAILED, message=lost.message)
        seen, program = total(self.efforts), self.record.job.program
        if seen.orientation and program:
            self._out.post(ev.ProgramMeasured(program, seen.orientation, seen.cpu_permille), f"job {self.job_id}")
        facts = Facts(
            exit=end.exit,
            failure=None if end.outcome in (JobState.COMPLETED, JobState.CANCELLED) else self._failure(end),
            cpu_us=end.cpu_us or None,
            memory_peak_bytes=end.memory_peak_bytes or None,
            efforts=self.efforts or None,
        )
        if end.blamed and end.code in NODES_OWN:
            self._shared.suspects.failed(end.blamed, end.message)
        event: ev.Event = ev.JobEnded(self.job_id, end.outcome)
        if end.outcome is JobState.LAUNCH_FAILED and end.unrun:
            event = ev.LaunchFailed(self.job_id, end.blamed, passing=end.code == SLOW_USERS)
        elif end.outcome is JobState.NODE_LOST and end.code == BY_OWNER and end.node:
            event = ev.JobSentAway(self.job_id, end.node)
        self._out.post(event, end.message, facts)

    def _failure(self, end: Ended) -> Failure:
        """Why it failed, for its user: by its launcher's own words, else by its nodes' reports; the last lines."""
        error = end.error_tail.decode(errors="replace")
        lines = [line[:_LONGEST_LINE] for line in error.splitlines()[-_TAIL_LINES:]]
        if end.outcome is JobState.FAILED and self.peers and (found := diagnose(end.error_tail, self.peers)):
            return Failure(found.message, found.node or end.node, found.rank, found.tail or lines)
        message = end.message or end.outcome.value
        if end.outcome is JobState.TIMED_OUT:
            tasks = sum(peer.tasks for peer in self.peers)
            cause = cause_of_time_out(error, tasks, self.record.submission.script, self.seen)
            message = f"{message}; {cause}" if cause else message
        return Failure(message, end.node, tail=lines)

    # what its nodes say

    def came(self, entry: NodeEntry, report: wire.GroupReport | None) -> None:
        """One of its nodes connects and reports what it has of the job (None: nothing): ask for what is missing."""
        if actions := self.gang.reported(entry.name, report):
            todo = ", ".join(each.kind.name.lower() if isinstance(each, Order) else "report" for each in actions)
            self._out.say("info", "node compared", node=entry.name, job=self.job_id, todo=todo)
        self.do(actions)
        self._release_held()
        self._resume_resize(entry, report)

    def heard(self, node: str, message: wire.FromAgent) -> None:
        """One of its nodes reports something of the job."""
        match message:
            case wire.Prepared():
                self.do(self.gang.prepared(node))
                self._share_answered(node, message)
            case wire.Resized():
                self._share_answered(node, message)
            case wire.Offered():
                self._map_answered(node, message.order, joined=message.joined)
            case wire.Adapted():
                self.adapts = True
                if isinstance(self.resizing, MalleableResizing) and message.number == self.map_number:
                    self._take_steps(self.resizing.adapted())
            case wire.Asked():
                self._asks(message.more)
            case wire.Started():
                self.do(self.gang.started(node))
            case wire.ProgramEnded():
                self.do(self.gang.program_ended(node, message.exit, message.error_tail))
            case wire.GroupEnded():
                if self.gang.gone(node):
                    self.returned.append(node)  # it may forget the job when its end is in the journal
                self.do(self.gang.emptied(node, message.cpu_us, message.memory_peak_bytes))

    def refused(self, node: str, refusal: wire.Refused, kind: OrderKind | None) -> None:
        """One of its nodes does not obey an order; ``kind`` is None for one that is not in force any more."""
        why = refusal.message
        self._out.say("warn", "order refused", node=node, job=refusal.order.job_id, code=refusal.code, why=why)
        if kind is not None:
            self.do(self.gang.refused(node, kind, refusal.code, why))
        if kind is OrderKind.ADAPT:
            self._map_answered(node, refusal.order, joined=False)
        elif kind in (OrderKind.PREPARE, OrderKind.RESIZE) and self.resizing is not None:
            # it may have the new share where its guard went before it had answered, or the scheduler before asked it
            unchanged = refusal.code not in _UNKNOWN and not self.resizing.resumed
            self._take_new_steps(self.resizing.refused(node, why, unchanged=unchanged))

    def sees(self, entry: NodeEntry, sign: wire.JobSigns, *, paused: bool) -> None:
        """What a heartbeat of a node says of the job: end it at its limit, tell the core of what is new.

        ``paused``: the node's owner has paused parallel work.
        """
        self.efforts[entry.name] = sign.effort
        self.seen |= seen_in(sign)
        if received := self.receives_seen(entry.name, sign.receives):
            self._out.post(received, f"seen by {entry.name}")
        work = self.work
        if work is None or self.gang.phase is not Phase.RUNNING:
            return
        now_s = self._shared.book.now_s()
        if not work.heard(entry.name, sign.ran_us, sign.queued_us, now_s, paused=paused):
            return
        if work.over:
            limit = humanised(work.limit_us)
            self.do(self.gang.kill(JobState.TIMED_OUT, f"it has done the work of its time limit, {limit}"))
        elif (done_us := work.news()) is not None:
            work.told(done_us, now_s)
            self._out.post(ev.JobProgress(self.job_id, done_us), "measured by its nodes")

    def receives_seen(self, name: str, how: str) -> ev.ReceivesSeen | None:
        """What the core has to be told of how the job receives, of which a node has said this; None: nothing new."""
        mode = self.record.submission.coscheduling or self._shared.config.coscheduling.mode
        if not (self.allocation.processes > 1 if self._shared.resizes else len(self.tasks) > 1 and mode == Mode.CCS):
            return None
        self.receives[name] = how
        found = tuple(sorted({self._believed(each) for each in self.receives.values() if each in _RECEIVES}))
        if found == self.receives_told:
            return None
        self.receives_told = found
        return ev.ReceivesSeen(self.job_id, found)

    def _believed(self, how: str) -> Receives:
        """A process that yields, and has its CPU to itself, looks as if it polled."""
        alone = self.record.job.resident or not self.allocation.folded
        polls = self._shared.resizes and alone and how == Receives.POLLS
        return Receives.YIELDS if polls and yields(self.record.submission.environment) else _RECEIVES[how]

    def cannot_end(self, name: str, stall: Stall) -> None:
        """What was killed of it on a node hears no signal."""
        if actions := self.gang.cannot_end(name):
            why = "; ".join(each.words for each in stall.processes)
            self._out.say("warn", "job cannot be ended", node=name, job=self.job_id, why=why)
            self.do(actions)

    # its limit

    def _count_work(self, left_us: float | None = None) -> None:
        """Its script runs, with so much left to do (None: everything)."""
        if (self._shared.shares or self._shared.resizes) and self.limit_us is not None:
            now_s, nodes = self._shared.book.now_s(), self.gang.nodes
            self.work = WorkDone(self.limit_us, nodes, now_s, left_us, self.rate, self._width_speed())

    def rate_changed(self, rate: float) -> None:
        """By the core's model it goes so fast from now on."""
        self.rate = rate
        if self.work is not None:
            self.work.rate_changed(rate, self._shared.book.now_s())

    def _width_speed(self) -> float:
        """How much it does in the width that it has, against that in which its limit was given."""
        return self._speed(self.allocation.procs if self.record.job.resident else self.allocation.processes)

    def _speed(self, processes: int) -> float:
        job = self.record.job
        return job.shape.speed(processes) / job.shape.speed(job.procs) if isinstance(job.shape, Range) else 1.0

    @property
    def node_limit_us(self) -> int | None:
        """The run time at which its nodes end it: where its limit counts work, the last bound of that.

        Longer by what the link is known to cost where it lies on several clusters.
        """
        if self.limit_us is None:
            return None
        slowest = self._speed(smallest(self.record.job)) if self._shared.resizes else 1
        crossing = 1 + crossing_ppm(self.record.job, self.clusters, self._shared.between) / ALONE_PPM
        return math.ceil(self.limit_us * self._shared.stretch * crossing / slowest)

    # a cluster that is cut off

    def waits_for_cluster(self, entry: NodeEntry) -> bool:
        """Whether the job goes on although that node of it is cut off; it is waited for from now on."""
        if self.gang.phase is not Phase.RUNNING or not self.inside(entry.cluster):
            return False
        if self.cut_off_s is None:
            self.cut_off_s = self._shared.book.now_s()
            self._out.say("warn", "job cut off", job=self.job_id, cluster=entry.cluster, todo="it goes on there")
        return True

    def inside(self, cluster: str) -> bool:
        """Whether all nodes of it are of that cluster, and it is not being resized."""
        return self.resizing is None and self.clusters == {cluster}

    def give_up(self, message: str) -> None:
        """Do not wait for the cluster any more, if the job did: what is left of it ends when its nodes are back."""
        if self.cut_off_s is None:
            return
        self.cut_off_s = None
        for node in self.gang.nodes:
            self.do(self.gang.lost(node, message))

    # what its gang wants done

    def do(self, actions: list[Action]) -> None:
        """Carry out what the gang wants done."""
        gang = self.gang
        for action in actions:
            match action:
                case Order(node, OrderKind.PREPARE):
                    self.held[node] = None
                    self._release_held()
                case Order(node, OrderKind.RUN):
                    self._out.append(Send(node, self._run_order()))
                case Order(node, kind):
                    self._shared.order(node, self.key, kind)
                case Launched():
                    self._shared.suspects.launched(gang.nodes)
                    self._count_work()
                    self.running_s = self._shared.book.now_s()
                    self._out.post(ev.JobLaunched(self.job_id), f"the script runs on {gang.first}")
                case Left(node):
                    if self.resizing is not None:
                        self._take_steps(self.resizing.answered(node))
                case CannotEnd(node):
                    self._out.post(ev.JobCannotEnd(self.job_id, node), "by the node")
                case Ended():
                    self._ended(action)
        if self.timed and not gang.launching:
            self.timed = False
            self._out.append(CancelTimer(self.key))
        if self.resizing is not None and gang.phase in (Phase.ENDING, Phase.OVER):
            self._close_resize()

    def _release_held(self) -> None:
        """Send each Prepare that waits, once every node has said where it is (also after a restart of the service)."""
        if not self.held or not self.gang.launching:
            self.held.clear()
            return
        book = self._shared.book
        if not self.peers:
            self.peers = book.peers(self.allocation)
            if not self.peers:
                return
            self._out.append(Annotate(self.job_id, Facts(peers=self.peers)))
        held, self.held = self.held, {}
        for name in held:
            rigid, share = book.entry(name).rigid, self.share(name)
            if rigid and (share.procs != share.tasks or self.record.job.resident):
                self.do(self.gang.refused(name, OrderKind.PREPARE, "version", rigid))
                return
            self._out.append(Send(name, self._prepare_order(name, self.peers)))

    # its resize

    def resize(self, old: Allocation, new: Allocation, *, resumed: bool = False) -> None:
        """It is to hold something else; ``resumed``: the scheduler before had begun with it."""
        if why := self._cannot_resize(old, new):
            self._resize_failed(why)
            return
        # a resize to 0 processors freezes the job: its ranks are not consulted
        kind = MalleableResizing if self.record.job.resident and new.procs else Resizing
        self.resizing = kind(old, new, resumed=resumed)
        self._take_new_steps(self.resizing.begin())

    def _cannot_resize(self, old: Allocation, new: Allocation) -> str:
        """Why it need not even be asked for; empty where it may be."""
        gang, entry = self.gang, self._shared.book.entry
        if gang.phase is not Phase.RUNNING:
            return f"it is {gang.phase}"
        if new.nodes[0].node != gang.first:
            return f"its script runs on {gang.first}, which has to be the first of its nodes"
        return next(filter(None, (entry(share.node).rigid for share in (*old.nodes, *new.nodes))), "")

    def _share_answered(self, node: str, message: wire.Prepared | wire.Resized) -> None:
        """A node has the share that it was asked for; an answer to an order that another has replaced is ignored.

        So is a Prepared of the job's launch that comes again from a node that the job keeps.
        """
        resizing, known = self.resizing, self._shared.orders.kind(node, message.order) is not None
        if resizing is not None and known and (isinstance(message, wire.Resized) or resizing.joins(node)):
            self._take_steps(resizing.answered(node))

    def _map_answered(self, node: str, order: wire.OrderId, *, joined: bool) -> None:
        """A node has told the job's ranks a map; an answer to an order that another has replaced is ignored."""
        resizing = self.resizing
        if isinstance(resizing, MalleableResizing) and self._shared.orders.kind(node, order) is OrderKind.ADAPT:
            steps = resizing.offered(node, joined=joined, absent=self._absent())
            if resizing.stage is Stage.UNDOING and any(isinstance(step, Offer) for step in steps):
                self._renew()
            self._take_steps(steps)

    def _absent(self) -> Absent:
        """What it means that no node has a rank of the job."""
        if self.adapts:
            return Absent.LEFT
        ran_s = self._shared.book.now_s() - self.running_s
        return Absent.NOT_STARTED if ran_s < self._shared.timeout_us / US_PER_S else Absent.UNKNOWN

    def _resume_resize(self, entry: NodeEntry, report: wire.GroupReport | None) -> None:
        """A node calls: ask again for what it has not answered, and send what has waited for its address."""
        resizing, node = self.resizing, entry.name
        if resizing is None or node not in resizing.nodes:
            return
        started_anew = report is not None and report.rebooted and resizing.joins(node)
        if entry.rigid and resizing.stage is Stage.UNDOING:  # neither that agent nor its guard keeps anything of this
            steps = resizing.answered(node)
            if isinstance(resizing, MalleableResizing):
                steps += resizing.offered(node, joined=False)
            self._take_steps(steps)
        elif why := entry.rigid or ("it was started anew" if started_anew else ""):
            self._take_new_steps(resizing.refused(node, why, unchanged=bool(entry.rigid)))
        else:
            held, self.resize_held = self.resize_held, []
            steps = [*resizing.again(node, has_it=report is not None), *(step for step in held if step.node != node)]
            self._take_steps(steps, again=True)

    def _take_new_steps(self, steps: list[Step]) -> None:
        """Nodes are asked for another share: for the first time, or once more."""
        if steps:
            self._renew()
        self._take_steps(steps)

    def _renew(self) -> None:
        """Nodes are told what they were not told before: by a newer grant or map, within a new time-out."""
        self.renewals += 1
        self.resize_held.clear()
        self._out.extend((CancelTimer(self.key), SetTimer(self.key, self._shared.timeout_us)))

    def _take_steps(self, steps: list[Step], *, again: bool = False) -> None:
        """``again``: nodes are asked once more what they were asked before, by orders of the same numbers."""
        for step in steps:
            if isinstance(step, Ask | Offer) and not again:
                kind = OrderKind.RESIZE if isinstance(step, Ask) else OrderKind.ADAPT
                self._shared.orders.new(step.node, self.key, kind)
            match step:
                case Leave(node):
                    self.do(self.gang.leave(node))
                case Kept(why):
                    self._close_resize()
                    self._resize_failed(why)
                case Resized() if self.resizing is not None:
                    self._resized(self.resizing.new)
                case Offer(node):
                    self._send_numbered(node, self._map_order(node))
                case Ask() | Join() if self.resizing is not None:
                    self._ask(step, self.resizing.wanted)

    def _ask(self, step: Ask | Join, wanted: Allocation) -> None:
        node, shared, peers = step.node, self._shared, self._shared.book.peers(wanted)
        if isinstance(step, Join) and node not in self.gang.node_phases:
            self.gang.join(node)
        if not peers:
            self.resize_held.append(step)
        elif isinstance(step, Ask):
            self._send_numbered(node, self._share_order(node, peers))
        else:
            if not step.again:  # what it may have kept of an earlier time in the job goes first
                shared.orders.anew(node, self.key)
                shared.order(node, self.key, OrderKind.DISCARD)
            self._out.append(Send(node, self._prepare_order(node, peers)))

    def _send_numbered(self, node: str, order: wire.Resize | wire.Adapt) -> None:
        if self._shared.book.entry(node).connected:
            self.sent[node] = order.order.n, self._shared.book.now_s()
        self._out.append(Send(node, order))

    def _resized(self, held: Allocation) -> None:
        self.allocation = held
        self.peers = self._shared.book.peers(self.allocation)
        if self.work is not None:
            self.work.on_nodes(self.gang.nodes, self._width_speed())
        self._close_resize()
        self._out.say("info", "job resized", job=self.job_id, tasks=self.tasks)
        self._out.post(ev.JobResized(self.job_id), "by its nodes", Facts(peers=self.peers))

    def _resize_failed(self, why: str) -> None:
        self._out.say("warn", "job not resized", job=self.job_id, why=why)
        self._out.post(ev.ResizeFailed(self.job_id, why), why)

    def _close_resize(self) -> None:
        self.resizing = None
        self.resize_held.clear()
        self._out.append(CancelTimer(self.key))

    def _asks(self, more: int) -> None:
        """The job asks for other numbers of processes: the core decides, within what the job has said of itself.

        It asks one thing at a time: what it asks before it has its answer is not heard.
        """
        if self.asking:
            return
        shape, wanted = self.record.job.shape, self.given + more
        may = isinstance(shape, Range) and -shape.ask_fewer <= wanted <= shape.ask_more
        if may and self.gang.phase is Phase.RUNNING:
            self.asking = True
            self._out.post(ev.ResizeAsked(self.job_id, more), "by itself")
        else:
            self.answer(0, waits=False)

    def answer(self, given: int, *, waits: bool) -> None:
        """The core has answered what the job asked for."""
        self.given += given
        self.asking = waits
        self._out.extend(Send(name, wire.AskAnswered(*self.key, given, waits)) for name in self.gang.nodes)

    # what differs (audit)

    def ask_again(self, node: str) -> None:
        """Ask a node for the share that the core holds, where the addresses of all of the job's nodes are known."""
        if peers := self._shared.book.peers(self.allocation):
            self._shared.orders.new(node, self.key, OrderKind.RESIZE)
            self._send_numbered(node, self._share_order(node, peers))

    def offer_again(self, node: str, has: wire.JobHeld) -> None:
        """Have a node tell its ranks the map of what the core holds.

        Where it has other shares under that number or a higher one, all nodes get the map by the next number, unless
        the number is a later scheduler's.
        """
        nodes: tuple[str, ...] = (node,)
        if has.map is not None and has.map.number >= self.map_number:
            renewals = has.map.number - (self._shared.orders.fence.epoch << COUNT_BITS)
            if self.renewals <= renewals < (1 << COUNT_BITS) - 1:
                self.renewals = renewals + 1
            nodes = self.gang.nodes
        for each in nodes:
            self._shared.orders.new(each, self.key, OrderKind.ADAPT)
            self._send_numbered(each, self._map_order(each))

    # its orders: the same order has the same number again

    def confined(self, share: Share) -> tuple[int | None, bool]:
        """How many CPUs of a node are set aside for the job, and whether its processes there all sleep.

        None where tasks of several jobs share them. Processes that sleep get one CPU, at the lowest priority.
        """
        if not (self._shared.resizes or self._shared.config.contract.mpl == 1):
            return None, False
        asleep = not share.procs and bool(self.wanted.procs) and self.record.job.resident
        return (1 if asleep else share.procs), asleep

    @property
    def map_number(self) -> int:
        """The number of the map that its ranks were told last, or are told next: a later scheduler's are all higher."""
        return (self._shared.orders.fence.epoch << COUNT_BITS) + self.renewals

    def _prepare_order(self, name: str, peers: tuple[wire.Peer, ...]) -> wire.Prepare:
        """For the node of that name, which is one of ``peers``, in the version that its agent speaks."""
        shared, record, submission = self._shared, self.record, self.record.submission
        version, context = shared.book.entry(name).version, self._context(peers)
        environment, files = job_environment(context), job_files(context, name)
        brings, confines = version >= wire.FILES_VERSION, shared.resizes and version != wire.RIGID_VERSION
        return wire.Prepare(
            shared.orders.fence,
            shared.orders.of(name, self.key, OrderKind.PREPARE),
            user=record.user,
            peers=peers,
            tasks=next(peer.tasks for peer in peers if peer.name == name),
            memory_bytes=record.job.memory_bytes or None,
            limit_us=self.node_limit_us,
            grace_us=shared.orders.grace_us,
            directory=submission.directory,
            environment=environment if brings else known_environment(environment, files),
            grant=self._grant(peers),
            umask=submission.umask,
            cpus=self.confined(self.share(name))[0] if confines else None,
            map=self._map() if shared.resizes and record.job.resident else None,
            uid=record.job.user if version >= wire.UID_VERSION else None,
            files=files if brings else msgspec.UNSET,
            watched=watched() if brings else (),
        )

    def _context(self, peers: tuple[wire.Peer, ...]) -> Context:
        """What launchers know of it."""
        config, record, submission = self._shared.config, self.record, self.record.submission
        return Context(
            job_id=self.job_id,
            attempt=self.key[1],
            name=submission.name,
            tasks=sum(peer.tasks for peer in peers),
            user=record.user,
            cluster=config.name,
            peers=peers,
            network=config.network,
            directory=submission.directory,
            submitted=submission.environment,
            coscheduling=submission.coscheduling or config.coscheduling.mode,
            folds=self._shared.resizes and record.job.foldable,
        )

    def _run_order(self) -> wire.Run:
        """For the first node."""
        record, orders = self.record, self._shared.orders
        return wire.Run(
            orders.fence,
            orders.of(self.gang.first, self.key, OrderKind.RUN),
            record.submission.script.encode(),
            record.submission.arguments,
            record.output,
            record.error,
        )

    def _share_order(self, node: str, peers: tuple[wire.Peer, ...]) -> wire.Resize:
        """For a node that the job keeps."""
        share, orders = self.share(node), self._shared.orders
        cpus, asleep = self.confined(share)
        brings = self._shared.book.entry(node).version >= wire.FILES_VERSION
        return wire.Resize(
            orders.fence,
            orders.of(node, self.key, OrderKind.RESIZE),
            tasks=share.tasks,
            cpus=cpus,
            peers=peers,
            grant=self._grant(peers),
            asleep=asleep,
            files=job_files(self._context(peers), node) if brings else msgspec.UNSET,
        )

    def _map_order(self, node: str) -> wire.Adapt:
        """For a node of a job whose ranks are all there: tell them which of them are to be enabled."""
        orders = self._shared.orders
        return wire.Adapt(orders.fence, orders.of(node, self.key, OrderKind.ADAPT), self._map())

    def _map(self) -> wire.JobMap:
        return wire.JobMap(self.map_number, {share.node: share.procs for share in self.wanted.nodes})

    def _grant(self, peers: tuple[wire.Peer, ...]) -> bytes:
        nodes, orders = tuple(peer.name for peer in peers), self._shared.orders
        fence, user = orders.fence, self.record.user
        return signed(Grant(fence.cluster_id, fence.epoch, *self.key, user, nodes, self.renewals), orders.key)

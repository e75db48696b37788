"""The live service's rules without input or output: ``handle(input, now_s) -> effects``.

What happens to the service (an agent calls, says something, falls silent; an event is in the journal; a time has come)
goes in as a value; what is to be done (events for the core, messages for nodes, timers, lines for the log) comes out.
Around it are the shell that carries the effects out (``shell``), the link's sockets, and the journal's thread. The same
inputs at the same times give the same effects, so a record of them can be taken in again.
"""

from collections.abc import Sequence

from cosched.config.cluster import ClusterConfig
from cosched.model.desk import ContractReason
from cosched.model.time import US_PER_S
from cosched.wire import messages as wire
from space_scheduler.service.launch import inputs as given
from space_scheduler.service.launch.effects import Cut, Effect, Outbox, Send
from space_scheduler.service.launch.launches import Launches
from space_scheduler.service.launch.nodes import NodeBook, NodeEntry
from space_scheduler.service.launch.orders import OrderKind, Orders

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
        return self._out.take()

    # the service

    def _adopt(self, found: given.Started) -> None:
        """Take over the jobs that hold nodes by the journal, and await those nodes."""
        self.coscheduling.follow(found.turns.turns)
        self.launches.clocks.keeps_time = set(found.turns.keeps_time)
        holding = self.launches.adopt(found)
        self.book.recovered(found.nodes, holding)
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
        welcome = wire.Welcome(
            entry.version,
            self.fence,
            self.config.time_us("heartbeat"),
            self.config.time_us("lease"),
            self.config.contract,
            called.session,
            hello.session,
            called.revoked,
        )
        self._out.append(Send(entry.name, welcome))

    def _heard(self, entry: NodeEntry, message: wire.FromAgent) -> None:
        if not entry.connected:
            return  # it was replaced, or removed
        self._agree(entry)
        match message:
            case wire.Heartbeat():
                self._sleeps(entry)
                entry.beat = message
                self.launches.beat(entry)
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
        if entry is None:
            return
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

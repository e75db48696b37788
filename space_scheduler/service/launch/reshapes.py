"""Carries out what the core wants resized: the steps of :mod:`~.reshaping` as orders, and what came of them as events.

A node whose agent speaks version 1 resizes no job: what would need it is refused with that reason.
"""

from collections.abc import Callable
from typing import Final

from cosched.config.cluster import ClusterConfig
from cosched.model.allocation import Allocation
from cosched.model.time import US_PER_S, humanised
from cosched.model.width import Range
from cosched.wire import messages as wire
from space_scheduler.machine import events as ev
from space_scheduler.service.journal.records import Facts
from space_scheduler.service.launch.adapting import Absent, Adapting
from space_scheduler.service.launch.effects import CancelTimer, Effect, Post, Say, Send, SetTimer
from space_scheduler.service.launch.gang import Action, Phase
from space_scheduler.service.launch.nodes import NodeBook
from space_scheduler.service.launch.numbers import OrderKind
from space_scheduler.service.launch.orders import LaunchAttempt, Orders
from space_scheduler.service.launch.reshaping import Ask, Join, Kept, Leave, Offer, Reshaped, Reshaping, Stage, Step

#: Codes of refusals after which it may have been done.
_UNKNOWN: Final = frozenset({"failed", "busy"})


class Reshapes:
    """All changes of what jobs hold that are under way."""

    def __init__(
        self,
        config: ClusterConfig,
        book: NodeBook,
        orders: Orders,
        do: Callable[[LaunchAttempt, list[Action]], None],
        effect: Callable[[Effect], None],
    ) -> None:
        """``do`` carries out what a gang wants done, ``effect`` takes what is to be done besides."""
        self._book = book
        self._orders = orders
        self._do_gang = do
        self._effect = effect
        self._timeout_us: Final = config.time_us("launch_timeout")
        self._held: dict[
            int, list[Ask | Join]
        ] = {}  # by job: what waits until all of its nodes have said where they are

    def begin(self, launch: LaunchAttempt, old: Allocation, new: Allocation, *, resumed: bool = False) -> None:
        """A job is to hold something else; what it holds already of that changes nothing.

        ``resumed``: the scheduler before had begun with it.
        """
        if why := self._trouble(launch, old, new):
            self._failed(launch, why)
            return
        # who is suspended is stopped where it is, whatever its ranks do
        kind = Adapting if launch.record.job.resident and new.procs else Reshaping
        reshaping = launch.reshaping = kind(old, new, resumed=resumed)
        steps = reshaping.begin()
        self._ask_anew(launch, reshaping)
        self._do(launch, steps)

    def _trouble(self, launch: LaunchAttempt, old: Allocation, new: Allocation) -> str:
        """Why it need not even be asked for; empty where it may be."""
        gang = launch.gang
        if gang.phase is not Phase.RUNNING:
            return f"it is {gang.phase}"
        if new.nodes[0].node != gang.first:
            return f"its script runs on {gang.first}, which has to be the first of its nodes"
        return next(filter(None, (self.rigid(share.node) for share in (*old.nodes, *new.nodes))), "")

    def rigid(self, name: str) -> str:
        """Why a node resizes no job; empty where it does, or has not called since the service's start."""
        version = self._book.entry(name).version
        if version != wire.RIGID_VERSION:
            return ""
        words = f"which resizes no job; version {wire.RIGID_VERSION + 1} does"
        return f"{name}'s agent speaks version {version} of the link, {words}"

    # what happens

    def answered(self, launch: LaunchAttempt, node: str, message: wire.Prepared | wire.Resized) -> None:
        """A node has done what it was asked; an answer to an order that another has replaced says nothing.

        Nor does a Prepared of the job's launch that comes again from a node that the job keeps.
        """
        reshaping = launch.reshaping
        if reshaping is None or self._orders.numbers.kind(node, message.order) is None:
            return
        if isinstance(message, wire.Resized) or reshaping.joins(node):
            self._do(launch, reshaping.answered(node))

    def offered(self, launch: LaunchAttempt, node: str, order: wire.OrderId, *, joined: bool) -> None:
        """A node has told a job's ranks a map; an answer to an order that another has replaced says nothing."""
        reshaping = launch.reshaping
        if isinstance(reshaping, Adapting) and self._orders.numbers.kind(node, order) is OrderKind.ADAPT:
            steps = reshaping.offered(node, joined=joined, absent=self._absent(launch))
            if reshaping.stage is Stage.UNDOING and any(isinstance(step, Offer) for step in steps):
                self._ask_anew(launch, reshaping)
            self._do(launch, steps)

    def _absent(self, launch: LaunchAttempt) -> Absent:
        """What it means that no node has a rank of a job."""
        if launch.adapts:
            return Absent.LEFT
        ran_s = self._book.now_s() - launch.running_s
        return Absent.NOT_STARTED if ran_s < self._timeout_us / US_PER_S else Absent.UNKNOWN

    def adapted(self, launch: LaunchAttempt, number: int) -> None:
        """All ranks of a job have done what a map asks."""
        launch.adapts = True
        reshaping = launch.reshaping
        if isinstance(reshaping, Adapting) and number == self._orders.map_number(launch):
            self._do(launch, reshaping.adapted())

    def refused(self, launch: LaunchAttempt, node: str, refusal: wire.Refused) -> None:
        """A node does not do what it was asked last.

        It may have another share than the old one where its guard went before it had answered, or where the scheduler
        before has asked it.
        """
        if (reshaping := launch.reshaping) is not None:
            unchanged = refusal.code not in _UNKNOWN and not reshaping.resumed
            self._go_back(launch, reshaping, reshaping.refused(node, refusal.message, unchanged=unchanged))

    def left(self, launch: LaunchAttempt, node: str) -> None:
        """Nothing of a job is left on a node that was to leave it."""
        if launch.reshaping is not None:
            self._do(launch, launch.reshaping.answered(node))

    def timed_out(self, launch: LaunchAttempt) -> None:
        """The nodes have had as long as they may take."""
        if (reshaping := launch.reshaping) is not None:
            self._go_back(launch, reshaping, reshaping.timed_out(humanised(self._timeout_us)))

    def came_back(self, launch: LaunchAttempt, node: str, report: wire.GroupReport | None) -> None:
        """A node's agent calls: ask again for what it has not answered, and send what has waited for its address."""
        reshaping = launch.reshaping
        if reshaping is None or node not in reshaping.nodes:
            return
        if why := self.rigid(node):
            if reshaping.stage is Stage.UNDOING:  # neither that agent nor its guard keeps anything of this
                steps = reshaping.answered(node)
                if isinstance(reshaping, Adapting):
                    steps += reshaping.offered(node, joined=False)
                self._do(launch, steps)
            else:
                self._go_back(launch, reshaping, reshaping.refused(node, why, unchanged=True))
            return
        if report is not None and report.rebooted and reshaping.joins(node):
            self._go_back(launch, reshaping, reshaping.refused(node, "it was started anew", unchanged=False))
            return
        held = [step for step in self._held.pop(launch.job_id, []) if step.node != node]
        self._do(launch, [*reshaping.again(node, has_it=report is not None), *held], again=True)

    def asks(self, launch: LaunchAttempt, more: int) -> None:
        """A job asks for other numbers of processes: the core decides, within what the job has said of itself.

        It asks one thing at a time: what it asks before it has its answer is not heard.
        """
        if launch.asking:
            return
        shape, total = launch.record.job.shape, launch.given + more
        may = isinstance(shape, Range) and -shape.ask_fewer <= total <= shape.ask_more
        if may and launch.gang.phase is Phase.RUNNING:
            launch.asking = True
            self._effect(Post(ev.ResizeAsked(launch.job_id, more), "by itself"))
        else:
            self.answer(launch, 0, waits=False)

    def answer(self, launch: LaunchAttempt, given: int, *, waits: bool) -> None:
        """The core has answered."""
        launch.given += given
        launch.asking = waits
        for name in launch.gang.nodes:
            self._effect(Send(name, wire.AskAnswered(*launch.key, given, waits)))

    # what differs (audit)

    def ask_again(self, launch: LaunchAttempt, node: str) -> None:
        """Ask a node for the share that the core holds, where the addresses of all of the job's nodes are known."""
        if peers := self._book.peers(launch.allocation):
            self._orders.numbers.new(node, launch.key, OrderKind.RESIZE)
            self._send(launch, node, self._orders.resize(launch, launch.share(node), peers))

    def offer_again(self, launch: LaunchAttempt, node: str, has: wire.JobHeld) -> None:
        """Have a node tell its ranks the map of what the core holds.

        Where it has other shares under that number or a higher one, all nodes get the map by the next number.
        """
        nodes: tuple[str, ...] = (node,)
        if has.map is not None and has.map.number >= self._orders.map_number(launch):
            self._orders.surpass(launch, has.map.number)
            nodes = launch.gang.nodes
        for each in nodes:
            self._orders.numbers.new(each, launch.key, OrderKind.ADAPT)
            self._send(launch, each, self._orders.adapt(launch, each))

    def over(self, launch: LaunchAttempt) -> None:
        """A job is ending: what it was to hold does not matter any more."""
        if launch.reshaping is not None:
            self._close(launch)

    def _go_back(self, launch: LaunchAttempt, reshaping: Reshaping, steps: list[Step]) -> None:
        """Nodes are asked for the old share: for the first time, or once more."""
        if steps:
            self._ask_anew(launch, reshaping)
        self._do(launch, steps)

    def _ask_anew(self, launch: LaunchAttempt, reshaping: Reshaping) -> None:
        """Nodes are told what they were not told before: by a newer grant, and by orders of other numbers."""
        launch.renewals += 1
        self._held.pop(launch.job_id, None)
        for name in reshaping.kept if not isinstance(reshaping, Adapting) else ():
            self._orders.numbers.new(name, launch.key, OrderKind.RESIZE)
        self._effect(CancelTimer(launch.key))
        self._effect(SetTimer(launch.key, self._timeout_us))

    # carrying out

    def _do(self, launch: LaunchAttempt, steps: list[Step], *, again: bool = False) -> None:
        """``again``: nodes are asked once more what they were asked before, by the same orders."""
        if isinstance(launch.reshaping, Adapting) and not again:
            for step in steps:
                if isinstance(step, Ask | Offer):
                    kind = OrderKind.RESIZE if isinstance(step, Ask) else OrderKind.ADAPT
                    self._orders.numbers.new(step.node, launch.key, kind)
        for step in steps:
            if isinstance(step, Leave):
                self._do_gang(launch, launch.gang.leave(step.node))
            elif isinstance(step, Kept):
                self._close(launch)
                self._failed(launch, step.why)
            elif isinstance(step, Reshaped):
                self._reshaped(launch)
            elif isinstance(step, Offer):
                self._send(launch, step.node, self._orders.adapt(launch, step.node))
            elif launch.reshaping is not None:
                self._ask(launch, step, launch.reshaping.wanted)

    def _ask(self, launch: LaunchAttempt, step: Ask | Join, wanted: Allocation) -> None:
        node, key, peers = step.node, launch.key, self._book.peers(wanted)
        if isinstance(step, Join) and node not in launch.gang.node_phases:
            launch.gang.join(node)
        if not peers:
            self._held.setdefault(launch.job_id, []).append(step)
        elif isinstance(step, Ask):
            share = next(share for share in wanted.nodes if share.node == node)
            self._send(launch, node, self._orders.resize(launch, share, peers))
        else:
            if not step.again:  # what it may have kept of an earlier time in the job goes first
                self._orders.numbers.anew(node, key)
                self._effect(Send(node, self._orders.plain(OrderKind.DISCARD, node, key)))
            self._effect(Send(node, self._orders.prepare(launch, node, peers, self._book.entry(node).version)))

    def _send(self, launch: LaunchAttempt, node: str, order: wire.Resize | wire.Adapt) -> None:
        if self._book.entry(node).connected:
            launch.sent[node] = order.order.n, self._book.now_s()
        self._effect(Send(node, order))

    def _reshaped(self, launch: LaunchAttempt) -> None:
        assert launch.reshaping is not None
        launch.allocation = launch.reshaping.new
        launch.peers = self._book.peers(launch.allocation)
        if launch.work is not None:
            launch.work.on_nodes(launch.gang.nodes, launch.width_speed)
        self._close(launch)
        self._effect(Say("info", "job resized", {"job": launch.job_id, "tasks": launch.tasks}))
        self._effect(Post(ev.JobResized(launch.job_id), "by its nodes", Facts(peers=launch.peers)))

    def _failed(self, launch: LaunchAttempt, why: str) -> None:
        self._effect(Say("warn", "job not resized", {"job": launch.job_id, "why": why}))
        self._effect(Post(ev.ResizeFailed(launch.job_id, why), note=why))

    def _close(self, launch: LaunchAttempt) -> None:
        launch.reshaping = None
        self._held.pop(launch.job_id, None)
        self._effect(CancelTimer(launch.key))

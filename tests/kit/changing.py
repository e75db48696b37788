"""A service, without input or output, whose job runs on two nodes and is to hold something else."""

from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cosched.config.cluster import ClusterConfig
from cosched.model.allocation import Allocation, Share
from cosched.model.contract import SocialContract
from cosched.model.job import Job, JobState
from cosched.model.width import Range
from cosched.wire import messages as wire
from cosched.wire.api import Submission
from cosched.wire.grant import verified
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Instruction, Kill, Resize
from space_scheduler.machine.turns import SavedTurns
from space_scheduler.reasons import CANCELLED, Reason, Why
from space_scheduler.service.core.worker import Post
from space_scheduler.service.journal.records import JobRecord
from space_scheduler.service.launch.orders import Orders
from space_scheduler.service.launch.service_core import ServiceCore
from space_scheduler.service.launch.values import (
    AnyInput,
    CancelTimer,
    Connected,
    Effect,
    Heard,
    InJournal,
    Send,
    SetTimer,
    Started,
)

KEY = (1, 1)
NODES = ("n1", "n2", "n3")


def on(**tasks: int) -> Allocation:
    return Allocation(sum(tasks.values()), tuple(Share(name, count) for name, count in tasks.items()))


class Rules:
    """A service whose job runs on n1 and n2, two tasks each, by its journal; its nodes say what a test has them say."""

    def __init__(
        self,
        mpl: int = 1,
        resizing: Allocation | None = None,
        come: bool = True,
        shape: Range | None = None,
        held: Allocation | None = None,
        policy: str = "easy",
        asked: tuple[int, bool] | None = None,
        state: JobState = JobState.RUNNING,
        attempt: int = 1,
    ) -> None:
        contract = SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=mpl)
        config = ClusterConfig(name="c", nodes=list(NODES), contract=contract, launch_timeout="60s", policy=policy)
        fence, self.key = wire.Fence("c", 2, "i"), Ed25519PrivateKey.generate()
        self.core = ServiceCore(config, config.nodes, fence, Orders(config, fence, self.key))
        self.launch_key = (1, attempt)
        self.held = held or on(n1=2, n2=2)
        self.sent: list[tuple[str, wire.ToAgent]] = []
        self.posted: list[ev.Event] = []
        self.timed = False
        self.now_s = 100.0
        record = JobRecord(
            job=Job(1, 4, 60_000_000, 0, shape=shape), user="ann", state=state, submit_us=0, attempt=attempt,
            submission=Submission(script="#!/bin/sh\n", directory="/", tasks=4), allocation=self.held,
        )  # fmt: skip
        changes = ({1: resizing} if resizing else {}, {1: asked} if asked else {})
        self.feed(Started((record,), (), {}, SavedTurns(), *changes))
        if come:
            self.come("n1", "running")
            self.come("n2", "prepared")
            self.come("n3")
        self.sent.clear()
        self.posted.clear()

    def feed(self, happened: AnyInput) -> None:
        for effect in self.core.handle(happened, self.now_s):
            self._note(effect)

    def _note(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            self.sent.append((effect.node, effect.message))
        elif isinstance(effect, Post) and not isinstance(effect.event, ev.NodeJoined):
            self.posted.append(effect.event)
        elif isinstance(effect, SetTimer | CancelTimer):
            assert effect.key == self.launch_key
            self.timed = isinstance(effect, SetTimer)

    def come(self, name: str, state: str = "", version: int = wire.VERSION, **more: Any) -> None:
        groups = (wire.GroupReport(*self.launch_key, state, 2, **more),) if state else ()
        address = f"10.0.0.{name[1:]}"
        hello = wire.Hello(version, name, "b", 4, 1 << 30, address, 1, "t", groups=groups, session=b"s" * 8)
        self.feed(Connected(name, hello, b"t" * 8))
        self.feed(Heard(name, wire.GroupEnded(99, 1)))

    def resize(self, new: Allocation) -> None:
        """The core wants it."""
        cause = ev.Boundary()
        self.instruct(Resize(1, self.held, new, cause, Reason(Why.SHRUNK)))

    def instruct(self, instruction: Instruction) -> None:
        """An instruction of the core."""
        self.feed(InJournal(ev.Boundary(), (instruction,)))  # type: ignore[arg-type]

    def orders(self) -> dict[str, wire.Order]:
        """The last order to each node since this was asked last; to no node more than one that was to be obeyed."""
        return dict(self.all_orders())

    def all_orders(self) -> list[tuple[str, wire.Order]]:
        """All of them, each with its node."""
        found = [(name, each) for name, each in self.sent if isinstance(each, wire.Order) and each.order.job_id == 1]
        self.sent.clear()
        return [*found]

    def told(self) -> list[tuple[str, wire.ToAgent]]:
        """What nodes are told of the job that is no order."""
        found = [(name, each) for name, each in self.sent if isinstance(each, wire.AskAnswered)]
        self.sent.clear()
        return [*found]

    def feed_from(self, name: str, message: wire.FromAgent) -> None:
        """A node says something."""
        self.feed(Heard(name, message))

    def answers(self, name: str, order: wire.Order) -> None:
        """The node does as it is told."""
        if isinstance(order, wire.Kill):
            self.feed(Heard(name, wire.GroupEnded(*self.launch_key)))
        elif isinstance(order, wire.Prepare | wire.Resize):
            kind = wire.Prepared if isinstance(order, wire.Prepare) else wire.Resized
            self.feed(Heard(name, kind(order.order)))

    def refuses(self, name: str, order: wire.Order, code: str = "memory") -> None:
        self.feed(Heard(name, wire.Refused(order.order, code, "it has none")))

    def shape(self, order: wire.Order) -> tuple[int, int | None, tuple[str, ...], int]:
        """Tasks, CPUs, the job's nodes, and the grant's serial number."""
        assert isinstance(order, wire.Resize)
        grant = verified(order.grant, self.key.public_key())
        assert grant.nodes == tuple(peer.name for peer in order.peers)
        return order.tasks, order.cpus, grant.nodes, grant.serial

    def cancel(self) -> None:
        self.feed(InJournal(ev.JobCancelled(1), (Kill(1, ev.JobCancelled(1), CANCELLED),)))

"""The orders of one attempt at a job, as messages: what each node is told, signed where others have to believe it."""

import math
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cosched.config.cluster import ClusterConfig
from cosched.model.allocation import Allocation
from cosched.model.coscheduling import Receives
from cosched.model.effort import Effort
from cosched.wire import messages as wire
from cosched.wire.grant import Grant, signed
from space_scheduler.launch import Context, job_environment
from space_scheduler.service.journal.records import JobRecord
from space_scheduler.service.launch.gang import Gang, OrderKind
from space_scheduler.service.launch.sharing import stretch
from space_scheduler.service.launch.work_done import WorkDone


class LaunchAttempt:
    """One attempt at a job and its gang. ``peers`` is empty until the address of every node is known."""

    def __init__(self, record: JobRecord, allocation: Allocation, limit_us: int | None, gang: Gang) -> None:
        self.job_id: Final = record.id
        self.attempt: Final = max(1, record.attempt)
        self.record = record
        self.allocation = allocation
        self.tasks: Final = {share.node: share.tasks for share in allocation.nodes}  # by node
        self.limit_us = limit_us
        self.gang = gang
        self.peers: tuple[wire.Peer, ...] = ()
        self.efforts: dict[str, Effort] = {}  # by node, as its last heartbeat had it
        self.rate = 1.0  # how fast it goes by the core's model, against alone on idle nodes
        self.work: WorkDone | None = None  # while it runs, where its limit counts work
        self.receives: dict[str, str] = {}  # by node, as its last heartbeat had it
        self.receives_told: tuple[Receives, ...] = ()  # what the core knows of that
        self.returned: list[str] = []  # nodes that were lost and have come back with what is over
        self.held: dict[str, None] = {}  # nodes whose Prepare waits for the others' addresses
        self.timed = False  # the launch time-out counts

    @property
    def key(self) -> tuple[int, int]:
        """Job and attempt, as agents name it."""
        return self.job_id, self.attempt


class Orders:
    """Makes them. An order's number is its kind's (:class:`~.gang.OrderKind`): the same order, the same id."""

    def __init__(self, config: ClusterConfig, fence: wire.Fence, key: Ed25519PrivateKey) -> None:
        self._config = config
        self._fence = fence
        self._key = key
        self._grace_us = config.time_us("grace")
        self._stretch = stretch(config)

    def prepare(self, launch: LaunchAttempt, name: str) -> wire.Prepare:
        """For the node of that name."""
        record, submission = launch.record, launch.record.submission
        nodes = tuple(peer.name for peer in launch.peers)
        grant = Grant(self._fence.cluster_id, self._fence.epoch, *launch.key, record.user, nodes)
        context = Context(
            job_id=launch.job_id,
            attempt=launch.attempt,
            name=submission.name,
            tasks=submission.tasks,
            user=record.user,
            cluster=self._config.name,
            peers=launch.peers,
            network=self._config.network,
            directory=submission.directory,
            submitted=submission.environment,
            coscheduling=submission.coscheduling or self._config.coscheduling.mode,
        )
        return wire.Prepare(
            self._fence,
            wire.OrderId(*launch.key, OrderKind.PREPARE),
            user=record.user,
            peers=launch.peers,
            tasks=next(peer.tasks for peer in launch.peers if peer.name == name),
            memory_bytes=record.job.memory_bytes or None,
            limit_us=None if launch.limit_us is None else math.ceil(launch.limit_us * self._stretch),
            grace_us=self._grace_us,
            directory=submission.directory,
            environment=job_environment(context),
            grant=signed(grant, self._key),
            umask=submission.umask,
        )

    def run(self, launch: LaunchAttempt) -> wire.Run:
        """For the first node."""
        submission = launch.record.submission
        return wire.Run(
            self._fence,
            wire.OrderId(*launch.key, OrderKind.RUN),
            submission.script.encode(),
            submission.arguments,
            submission.output,
            submission.error,
        )

    def plain(self, kind: OrderKind, key: tuple[int, int]) -> wire.Kill | wire.Forget | wire.Discard:
        """Those that say nothing of the job but its number and attempt."""
        order = wire.OrderId(*key, kind)
        if kind is OrderKind.KILL:
            return wire.Kill(self._fence, order, self._grace_us)
        return (wire.Forget if kind is OrderKind.FORGET else wire.Discard)(self._fence, order)

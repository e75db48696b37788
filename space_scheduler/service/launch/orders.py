"""The orders of one attempt at a job, as messages: what each node is told, signed where others have to believe it."""

import math
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cosched.config.cluster import ClusterConfig
from cosched.model.allocation import Allocation, Share
from cosched.model.coscheduling import Receives
from cosched.model.effort import Effort
from cosched.model.job import Job
from cosched.model.width import Range
from cosched.wire import messages as wire
from cosched.wire.grant import Grant, signed
from space_scheduler.launch import Context, job_environment
from space_scheduler.policy.reshape.free import smallest
from space_scheduler.service.journal.records import JobRecord
from space_scheduler.service.launch.gang import Gang
from space_scheduler.service.launch.numbers import OrderKind, OrderNumbers
from space_scheduler.service.launch.reshaping import Reshaping
from space_scheduler.service.launch.sharing import reshaping, stretch
from space_scheduler.service.launch.work_done import WorkDone

#: Bits of a map's number that count within an epoch.
_COUNT_BITS: Final = 20


class Confined(NamedTuple):
    """CPUs of a node that are set aside for a job, None where none are; whether its processes there all sleep."""

    cpus: int | None
    asleep: bool = False


class LaunchAttempt:
    """One attempt at a job and its gang. ``peers`` is empty until the address of every node is known."""

    def __init__(self, record: JobRecord, allocation: Allocation, limit_us: int | None, gang: Gang) -> None:
        self.job_id: Final = record.id
        self.attempt: Final = max(1, record.attempt)
        self.record = record
        self.allocation = allocation
        self.limit_us = limit_us
        self.gang = gang
        self.peers: tuple[wire.Peer, ...] = ()
        self.efforts: dict[str, Effort] = {}  # by node, as its last heartbeat had it
        self.hydra = False  # whether a node has seen MPICH's process manager
        self.rate = 1.0  # how fast it goes by the core's model, against alone on idle nodes
        self.work: WorkDone | None = None  # while it runs, where its limit counts work
        self.receives: dict[str, str] = {}  # by node, as its last heartbeat had it
        self.receives_told: tuple[Receives, ...] = ()  # what the core knows of that
        self.returned: list[str] = []  # nodes that were lost and have come back with what is over
        self.held: dict[str, None] = {}  # nodes whose Prepare waits for the others' addresses
        self.timed = False  # the launch time-out counts
        self.reshaping: Reshaping | None = None  # what it holds is being changed
        self.crossing = 1.0  # how many times longer it takes because its components are on several clusters
        self.cut_off_s: float | None = None  # since when no node of its cluster is heard (boot time); None: some are
        self.renewals = 0  # of its grant, by this scheduler
        self.given = 0  # how many processes more it was given of what it asked for
        self.asking = False  # for more or fewer, and has no answer that is its last
        self.running_s = 0.0  # since when its script runs (boot time), or this scheduler, where it was adopted
        self.adapts = False  # its program has adopted a map
        self.sent: dict[str, tuple[int, float]] = {}  # by node: the last order of a share or map on this link, and when
        self.differs: dict[tuple[str, str], float] = {}  # by node and kind: when a difference was repaired last

    @property
    def key(self) -> tuple[int, int]:
        """Job and attempt, as agents name it."""
        return self.job_id, self.attempt

    def share(self, name: str) -> Share:
        """What it has, or is to have, of a node of its."""
        return next(share for share in self.wanted.nodes if share.node == name)

    @property
    def wanted(self) -> Allocation:
        """What its nodes are to be told now that it holds."""
        return self.allocation if self.reshaping is None else self.reshaping.wanted

    @property
    def width_speed(self) -> float:
        """How much it does in the width that it has, against that in which its limit was given."""
        held = self.allocation
        return _width_speed(self.record.job, held.procs if self.record.job.resident else held.processes)

    @property
    def slowest(self) -> float:
        """The same for the smallest of its widths."""
        return _width_speed(self.record.job, smallest(self.record.job))

    @property
    def tasks(self) -> dict[str, int]:
        """How many it has on each node."""
        return {share.node: share.tasks for share in self.allocation.nodes}


class Orders:
    """Makes them, each with its number (:mod:`~.numbers`): the same order has the same one again."""

    def __init__(self, config: ClusterConfig, fence: wire.Fence, key: Ed25519PrivateKey) -> None:
        self._config = config
        self._fence = fence
        self.numbers: Final = OrderNumbers(fence.epoch)
        #: That grants are signed with from now on.
        self.key = key
        self._grace_us = config.time_us("grace")
        self._stretch = stretch(config)
        self._reshaping = reshaping(config)

    def prepare(self, launch: LaunchAttempt, name: str, peers: tuple[wire.Peer, ...], version: int) -> wire.Prepare:
        """For the node of that name, which is one of the job's ``peers``; ``version``: what its agent speaks."""
        record, submission = launch.record, launch.record.submission
        rigid = version == wire.RIGID_VERSION
        context = Context(
            job_id=launch.job_id,
            attempt=launch.attempt,
            name=submission.name,
            tasks=sum(peer.tasks for peer in peers),
            user=record.user,
            cluster=self._config.name,
            peers=peers,
            network=self._config.network,
            directory=submission.directory,
            submitted=submission.environment,
            coscheduling=submission.coscheduling or self._config.coscheduling.mode,
            folds=self._reshaping and record.job.foldable,
        )
        return wire.Prepare(
            self._fence,
            self.numbers.of(name, launch.key, OrderKind.PREPARE),
            user=record.user,
            peers=peers,
            tasks=_tasks(name, peers),
            memory_bytes=record.job.memory_bytes or None,
            limit_us=self.limit_us(launch),
            grace_us=self._grace_us,
            directory=submission.directory,
            environment=job_environment(context),
            grant=self._grant(launch, peers),
            umask=submission.umask,
            cpus=self.confined(launch, launch.share(name)).cpus if self._reshaping and not rigid else None,
            map=self._map(launch) if self._reshaping and record.job.resident else None,
            uid=record.job.user if version >= wire.UID_VERSION else None,
        )

    def run(self, launch: LaunchAttempt) -> wire.Run:
        """For the first node."""
        submission = launch.record.submission
        return wire.Run(
            self._fence,
            self.numbers.of(launch.gang.first, launch.key, OrderKind.RUN),
            submission.script.encode(),
            submission.arguments,
            launch.record.output,
            launch.record.error,
        )

    def resize(self, launch: LaunchAttempt, share: Share, peers: tuple[wire.Peer, ...]) -> wire.Resize:
        """For a node that the job keeps."""
        cpus, asleep = self.confined(launch, share)
        return wire.Resize(
            self._fence,
            self.numbers.of(share.node, launch.key, OrderKind.RESIZE),
            tasks=share.tasks,
            cpus=cpus,
            peers=peers,
            grant=self._grant(launch, peers),
            asleep=asleep,
        )

    def adapt(self, launch: LaunchAttempt, name: str) -> wire.Adapt:
        """For a node of a job whose ranks are all there: tell them which of them are to be enabled."""
        return wire.Adapt(self._fence, self.numbers.of(name, launch.key, OrderKind.ADAPT), self._map(launch))

    def map_number(self, launch: LaunchAttempt) -> int:
        """The number of the map that its ranks were told last, or are told next: a later scheduler's are all higher."""
        return (self._fence.epoch << _COUNT_BITS) + launch.renewals

    def surpass(self, launch: LaunchAttempt, number: int) -> None:
        """Give the next map a higher number than this one, unless that is of a later scheduler."""
        renewals = number - (self._fence.epoch << _COUNT_BITS)
        if launch.renewals <= renewals < (1 << _COUNT_BITS) - 1:
            launch.renewals = renewals + 1

    def _map(self, launch: LaunchAttempt) -> wire.JobMap:
        enabled = {share.node: share.procs for share in launch.wanted.nodes}
        return wire.JobMap(self.map_number(launch), enabled)

    def limit_us(self, launch: LaunchAttempt) -> int | None:
        """The run time at which a job's nodes end it: where its limit counts work, the last bound of that."""
        if launch.limit_us is None:
            return None
        return math.ceil(launch.limit_us * self._stretch * launch.crossing / (launch.slowest if self._reshaping else 1))

    def confined(self, launch: LaunchAttempt, share: Share) -> Confined:
        """How many CPUs of a node are set aside for a job; where tasks of several share them, none are.

        Processes that are all to sleep have a CPU of somebody's, and come after whoever that is.
        """
        if not (self._reshaping or self._config.contract.mpl == 1):
            return Confined(None)
        if not share.procs and launch.wanted.procs and launch.record.job.resident:
            return Confined(1, asleep=True)
        return Confined(share.procs)

    def _grant(self, launch: LaunchAttempt, peers: tuple[wire.Peer, ...]) -> bytes:
        nodes = tuple(peer.name for peer in peers)
        user, fence = launch.record.user, self._fence
        return signed(Grant(fence.cluster_id, fence.epoch, *launch.key, user, nodes, launch.renewals), self.key)

    def plain(self, kind: OrderKind, name: str, key: tuple[int, int]) -> wire.Kill | wire.Forget | wire.Discard:
        """Those that say nothing of the job but its number and attempt, for the node of that name."""
        order = self.numbers.latest(name, key, kind)
        if kind is OrderKind.KILL:
            return wire.Kill(self._fence, order, self._grace_us)
        return (wire.Forget if kind is OrderKind.FORGET else wire.Discard)(self._fence, order)


def _width_speed(job: Job, processes: int) -> float:
    if not isinstance(job.shape, Range):
        return 1.0
    return job.shape.speed(processes) / job.shape.speed(job.procs)


def _tasks(name: str, peers: tuple[wire.Peer, ...]) -> int:
    return next(peer.tasks for peer in peers if peer.name == name)

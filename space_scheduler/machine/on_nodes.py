"""The part of the state machine that knows nodes by name: they join, are drained, resumed and lost."""

from typing import NoReturn

from cosched.model.allocation import Allocation
from cosched.model.job import Job, JobState
from cosched.model.node import Owner
from space_scheduler.feasibility import Place, Room
from space_scheduler.machine import events as ev
from space_scheduler.machine.cluster import Cluster, Member, NodeStatus
from space_scheduler.machine.instructions import Instruction, Kill
from space_scheduler.machine.paces import Paces
from space_scheduler.machine.record import Record
from space_scheduler.machine.rules import MachineRules
from space_scheduler.policy.interface import Changes, Policy, traits_of
from space_scheduler.policy.place import place_of
from space_scheduler.reasons import Reason, Why


class OnNodes:
    """What :class:`~space_scheduler.machine.state.SchedulerState` does about named nodes."""

    policy: Policy
    rules: MachineRules
    now_us: int
    procs_installed: int
    procs_total: int
    free_procs: int
    records: dict[int, Record]
    cluster: Cluster | None
    paces: Paces | None
    _changes: Changes
    _trigger: ev.Event | None

    @property
    def place(self) -> Place:
        """How tasks are laid on nodes: the policy's way, or where it has none, the machine's."""
        return place_of(traits_of(self.policy).place or self.rules.place)

    def nodes(self) -> list[NodeStatus]:
        """The named nodes in their order, with what is used of them and by whom."""
        return [] if self.cluster is None else [member.status() for member in self.cluster]

    def _node_joined(self, event: ev.NodeJoined) -> list[Instruction]:
        if event.node.procs < 0 or event.node.memory_bytes < 0:
            raise ValueError(f"a node cannot have less than nothing: {event.node}")
        if self.cluster is None:
            if self.procs_installed or self.rules.release_at_limit:
                self._mixed(event)
            self.cluster = Cluster(self.rules.mpl)
        known = event.node.name in self.cluster.members
        if self.cluster.join(event.node):
            self._see(self.cluster[event.node.name])
            if known:
                self._capacity_changed(event)
            else:
                places = self.cluster.places(event.node)
                self.procs_total += places
                self.procs_installed += places
                self.free_procs += places
                self._disturbed(event, Why.CAPACITY_CHANGED)
        return []

    def _owner_came(self, event: ev.OwnerCame) -> list[Instruction]:
        if event.owner.cpu_permille < 0 or event.owner.memory_bytes < 0:
            raise ValueError(f"an owner cannot use less than nothing: {event.owner}")
        return self._owned(event, event.owner)

    def _owner_left(self, event: ev.OwnerLeft) -> list[Instruction]:
        return self._owned(event, None)

    def _owned(self, event: ev.OwnerCame | ev.OwnerLeft, owner: Owner | None) -> list[Instruction]:
        cluster = self._named(event)
        if cluster.owned(event.name, owner):
            self._see(cluster[event.name])
            self._capacity_changed(event, Why.OWNER_CHANGED)
        return []

    def _see(self, member: Member) -> None:
        if self.paces is not None:
            self.paces.see(member)

    def _node_drained(self, event: ev.NodeDrained) -> list[Instruction]:
        member = self._named(event)[event.name]
        changed, member.drained, member.reason = not member.drained, True, event.reason
        self._named(event).changed()
        if changed:
            self._capacity_changed(event)
        return []

    def _node_resumed(self, event: ev.NodeResumed) -> list[Instruction]:
        member = self._named(event)[event.name]
        changed, member.drained, member.reason = member.drained, False, ""
        self._named(event).changed()
        if changed:
            self._capacity_changed(event)
        return []

    def _node_lost(self, event: ev.NodeLost) -> list[Instruction]:
        member = self._named(event)[event.name]
        if member.lost:
            return []
        member.lost = True
        self._named(event).changed()
        self._capacity_changed(event)
        records = [self.records[job_id] for job_id in sorted(member.tasks)]
        return [
            self._kill(record, Reason(Why.NODE_LOST, node=event.name), event)
            for record in records
            if record.state is not JobState.ENDING
        ]

    def _named(self, event: ev.Event) -> Cluster:
        if self.cluster is None:
            if self.procs_installed:
                self._mixed(event)
            return Cluster()  # nobody has joined: it will not know the name
        return self.cluster

    def _mixed(self, event: ev.Event) -> NoReturn:
        kind = "counted processors" if self.cluster is None else "named nodes"
        raise ValueError(f"this machine has {kind}: it cannot take {event}")

    def _see_all(self, allocation: Allocation) -> None:
        assert self.cluster is not None
        for share in allocation.nodes:
            self._see(self.cluster[share.node])

    def _capacity_changed(self, event: ev.Event, why: Why = Why.CAPACITY_CHANGED) -> None:
        self._count_procs()
        self._disturbed(event, why)

    def _count_procs(self) -> None:
        """What there is, follows from the nodes, the rules and what jobs hold."""
        assert self.cluster is not None
        self.procs_total = self.cluster.procs()
        self.procs_installed = self.cluster.procs(installed=True)
        self.free_procs = self._free_procs()

    def _disturbed(self, event: ev.Event, why: Why) -> None:
        self._trigger = event
        self._changes.disturbed = self._changes.disturbed or why

    def _ever_fits(self, job: Job) -> bool:
        """Whether the job could start with all nodes empty that ever joined."""
        if self.cluster is None:
            return True
        room = self.cluster.empty(self.rules.max_nodes_per_job, self.place, installed=True)
        return room.obstacle(job) is None

    def _room(self) -> Room:
        """What is free on the nodes in service."""
        assert self.cluster is not None
        return self.cluster.free(self.rules.max_nodes_per_job, self.place)

    def _free_procs(self) -> int:
        assert self.cluster is not None
        return self.cluster.free_procs(self.rules.max_nodes_per_job, self.place)

    def _kill(self, record: Record, reason: Reason, event: ev.AnyEvent) -> Kill:
        record.become(JobState.ENDING, self.now_us)
        record.decided(reason, self.now_us, event)
        return Kill(record.job.id, event, reason)

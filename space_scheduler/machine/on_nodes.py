"""The part of the state machine that knows nodes by name: they join, are drained, resumed and lost."""

from typing import NoReturn

from cosched.model.allocation import Allocation
from cosched.model.job import Job, JobState
from cosched.model.node import Owner
from space_scheduler.feasibility import Place
from space_scheduler.machine import events as ev
from space_scheduler.machine.capacity import Capacity
from space_scheduler.machine.instructions import Instruction, Kill
from space_scheduler.machine.named_capacity import NamedCapacity
from space_scheduler.machine.nodes import Member, NodeStatus
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
    records: dict[int, Record]
    capacity: Capacity
    paces: Paces | None
    _changes: Changes
    _trigger: ev.Event | None

    @property
    def place(self) -> Place:
        """How tasks are laid on nodes: the policy's way, or where it has none, the machine's."""
        return place_of(traits_of(self.policy).place or self.rules.place)

    def nodes(self) -> list[NodeStatus]:
        """The named nodes in their order, with what is used of them and by whom."""
        return self.capacity.status() if isinstance(self.capacity, NamedCapacity) else []

    def _node_joined(self, event: ev.NodeJoined) -> list[Instruction]:
        if event.node.procs < 0 or event.node.memory_bytes < 0:
            raise ValueError(f"a node cannot have less than nothing: {event.node}")
        if not isinstance(self.capacity, NamedCapacity):
            if self.capacity.procs_installed or self.rules.release_at_limit:
                self._mixed(event)
            self.capacity = NamedCapacity(self.rules, self.place)
        if self.capacity.join(event.node):
            self._see(self.capacity[event.node.name])
            self._disturbed(event)
        return []

    def _owner_came(self, event: ev.OwnerCame) -> list[Instruction]:
        if event.owner.cpu_permille < 0 or event.owner.memory_bytes < 0:
            raise ValueError(f"an owner cannot use less than nothing: {event.owner}")
        return self._owned(event, event.owner)

    def _owner_left(self, event: ev.OwnerLeft) -> list[Instruction]:
        return self._owned(event, None)

    def _owned(self, event: ev.OwnerCame | ev.OwnerLeft, owner: Owner | None) -> list[Instruction]:
        capacity = self._named(event)
        if capacity.own(event.name, owner):
            self._see(capacity[event.name])
            self._disturbed(event, Why.OWNER_CHANGED)
        return []

    def _see(self, member: Member) -> None:
        if self.paces is not None:
            self.paces.see(member)

    def _node_drained(self, event: ev.NodeDrained) -> list[Instruction]:
        if self._named(event).drain(event.name, event.reason):
            self._disturbed(event)
        return []

    def _node_resumed(self, event: ev.NodeResumed) -> list[Instruction]:
        if self._named(event).resume(event.name):
            self._disturbed(event)
        return []

    def _node_lost(self, event: ev.NodeLost) -> list[Instruction]:
        capacity = self._named(event)
        if not capacity.lose(event.name):
            return []
        self._disturbed(event)
        records = [self.records[job_id] for job_id in sorted(capacity[event.name].residents)]
        return [
            self._kill(record, Reason(Why.NODE_LOST, node=event.name), event)
            for record in records
            if record.state is not JobState.ENDING
        ]

    def _named(self, event: ev.Event) -> NamedCapacity:
        if isinstance(self.capacity, NamedCapacity):
            return self.capacity
        if self.capacity.procs_installed:
            self._mixed(event)
        return NamedCapacity(self.rules, self.place)  # nobody has joined: it will not know the name

    def _mixed(self, event: ev.Event) -> NoReturn:
        kind = "named nodes" if isinstance(self.capacity, NamedCapacity) else "counted processors"
        raise ValueError(f"this machine has {kind}: it cannot take {event}")

    def _see_all(self, allocation: Allocation) -> None:
        assert isinstance(self.capacity, NamedCapacity)
        for share in allocation.nodes:
            self._see(self.capacity[share.node])

    def _disturbed(self, event: ev.Event, why: Why = Why.CAPACITY_CHANGED) -> None:
        self._trigger = event
        self._changes.disturbed = self._changes.disturbed or why

    def _ever_fits(self, job: Job) -> bool:
        """Whether the job could start with all nodes empty that ever joined."""
        capacity = self.capacity
        return not isinstance(capacity, NamedCapacity) or capacity.empty(installed=True).obstacle(job) is None

    def _kill(self, record: Record, reason: Reason, event: ev.AnyEvent) -> Kill:
        record.become(JobState.ENDING, self.now_us)
        record.decided(reason, self.now_us, event)
        return Kill(record.job.id, event, reason)

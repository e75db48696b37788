"""The named nodes of a machine: what they have, who uses it, and who may be given more."""

import re
from collections.abc import Iterator

import msgspec

from cosched.model.allocation import Allocation
from cosched.model.job import Job
from cosched.model.node import Node
from space_scheduler.feasibility import Place, Resident, Room, resident
from space_scheduler.machine.saved import SavedNode


class UnknownNode(KeyError):
    """An event names a node that never joined."""

    def __str__(self) -> str:
        return f"node {self.args[0]} never joined"


class NodeStatus(msgspec.Struct, frozen=True):
    """A node as it stands: what it has, what jobs hold of it, and which jobs (tasks by job's number)."""

    node: Node
    lost: bool
    drained: bool
    reason: str
    used_procs: int
    used_memory_bytes: int
    tasks: dict[int, int]
    most_procs: int  # what may be used: more than the node has while jobs hold what it had before it shrank
    most_memory_bytes: int

    @property
    def in_service(self) -> bool:
        """Whether jobs may be started there."""
        return not (self.lost or self.drained)

    @property
    def state(self) -> str:
        """up, draining (jobs still run there), drained, or lost."""
        if self.lost:
            return "lost"
        if self.drained:
            return "draining" if self.tasks else "drained"
        return "up"


class Member:
    """One node and what jobs hold of it."""

    __slots__ = ("before", "drained", "lost", "node", "reason", "residents", "used_memory_bytes", "used_procs")

    def __init__(self, node: Node, lost: bool = False, drained: bool = False, reason: str = "") -> None:
        self.node = node
        self.lost = lost
        self.drained = drained
        self.reason = reason
        self.used_procs = 0
        self.used_memory_bytes = 0
        self.residents: dict[int, Resident] = {}  # by job
        self.before = (0, 0)  # processors and memory that were held when it shrank

    @property
    def tasks(self) -> dict[int, int]:
        """How many tasks of each job are there."""
        return {job_id: each.tasks for job_id, each in self.residents.items()}

    def status(self) -> NodeStatus:
        """All of it as a value."""
        node = self.node
        return NodeStatus(
            node,
            self.lost,
            self.drained,
            self.reason,
            self.used_procs,
            self.used_memory_bytes,
            self.tasks,
            max(node.procs, self.before[0]),
            max(node.memory_bytes, self.before[1]),
        )


class Cluster:
    """The nodes in order: by name, numbers in it by their value (``node2`` before ``node10``)."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}

    def __getitem__(self, name: str) -> Member:
        if name not in self.members:
            raise UnknownNode(name)
        return self.members[name]

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members.values())

    def join(self, node: Node) -> bool:
        """Enter a node, or know a lost or changed one again; returns whether anything is different now."""
        known = self.members.get(node.name)
        if known is None:
            self.add(Member(node))
            return True
        changed = known.lost or known.node != node
        known.node, known.lost = node, False
        known.before = (known.used_procs, known.used_memory_bytes)  # may be more than it has now
        return changed

    def add(self, member: Member) -> None:
        """Enter a node that is not known yet, in its place."""
        members = {**self.members, member.node.name: member}
        self.members = dict(sorted(members.items(), key=lambda entry: _by_number(entry[0])))

    def hold(self, job: Job, allocation: Allocation) -> None:
        """A job takes what it was given."""
        for share in allocation.nodes:
            member = self.members[share.node]
            member.residents[job.id] = resident(job, share.tasks)
            member.used_procs += share.tasks
            member.used_memory_bytes += share.tasks * job.memory_bytes

    def give_back(self, job: Job, allocation: Allocation) -> None:
        """A job holds nothing any more."""
        for share in allocation.nodes:
            member = self.members[share.node]
            del member.residents[job.id]
            member.used_procs -= share.tasks
            member.used_memory_bytes -= share.tasks * job.memory_bytes
            before_procs, before_bytes = member.before
            member.before = (min(before_procs, member.used_procs), min(before_bytes, member.used_memory_bytes))

    def procs(self, *, installed: bool = False) -> int:
        """Processors of the nodes in service, or of all nodes that ever joined: what could come back."""
        return sum(each.node.procs for each in self if installed or not (each.lost or each.drained))

    def free(self, most_nodes: int | None, place: Place) -> Room:
        """What is free on the nodes in service."""
        members = [each for each in self if not (each.lost or each.drained)]
        procs = [each.node.procs - each.used_procs for each in members]
        memory_bytes = [each.node.memory_bytes - each.used_memory_bytes for each in members]
        residents = [tuple(each.residents.values()) for each in members]
        names, cpus = [each.node.name for each in members], [each.node.cpus or each.node.procs for each in members]
        return Room(names, procs, memory_bytes, most_nodes, place, residents, cpus)

    def empty(self, most_nodes: int | None, place: Place, *, installed: bool = False) -> Room:
        """What the nodes in service would have free without any job; ``installed``: all nodes that ever joined."""
        nodes = [each.node for each in self if installed or not (each.lost or each.drained)]
        sizes = ([node.procs for node in nodes], [node.memory_bytes for node in nodes])
        cpus = [node.cpus or node.procs for node in nodes]
        return Room([node.name for node in nodes], *sizes, most_nodes, place, cpus=cpus)

    def restored(self) -> None:
        """What jobs hold by now is rightly theirs."""
        for each in self:
            each.before = (each.used_procs, each.used_memory_bytes)

    def saved(self) -> tuple[SavedNode, ...]:
        """The nodes on paper."""
        return tuple(SavedNode(each.node, each.lost, each.drained, each.reason) for each in self)


def _by_number(name: str) -> list[tuple[bool, int, str]]:
    parts = re.findall(r"\d+|\D+", name)
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]

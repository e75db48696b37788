"""The named nodes of a machine: what they have, who uses it, and who may be given more."""

import re
from collections.abc import Iterator

import msgspec

from cosched.model.allocation import Allocation
from cosched.model.job import Job
from cosched.model.node import Node, Owner
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
    owner: Owner | None = None

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

    __slots__ = ("before", "drained", "lost", "node", "owner", "reason", "residents", "used_memory_bytes", "used_procs")

    def __init__(
        self, node: Node, lost: bool = False, drained: bool = False, reason: str = "", owner: Owner | None = None
    ) -> None:
        self.node = node
        self.lost = lost
        self.drained = drained
        self.reason = reason
        self.owner = owner
        self.used_procs = 0
        self.used_memory_bytes = 0
        self.residents: dict[int, Resident] = {}  # by job
        self.before = (0, 0)  # processors and memory that were held when it shrank

    @property
    def memory_bytes(self) -> int:
        """What parallel work may have of its memory just now."""
        return self.node.memory_beside(self.owner)

    @property
    def tasks(self) -> dict[int, int]:
        """How many tasks of each job are there."""
        return {job_id: each.tasks for job_id, each in self.residents.items()}

    def shrunk(self) -> None:
        """It may have less now than jobs hold."""
        self.before = (self.used_procs, self.used_memory_bytes)

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
            max(self.memory_bytes, self.before[1]),
            self.owner,
        )


class Cluster:
    """The nodes in order: by name, numbers in it by their value (``node2`` before ``node10``).

    ``mpl``: how many tasks may share a CPU (None: as many as the node offers places for).
    """

    def __init__(self, mpl: int | None = None) -> None:
        self.members: dict[str, Member] = {}
        self._mpl = mpl
        self._room: Room | None = None  # what is free, kept up to date until nodes change

    def __getitem__(self, name: str) -> Member:
        if name not in self.members:
            raise UnknownNode(name)
        return self.members[name]

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members.values())

    def places(self, node: Node) -> int:
        """How many tasks may be on a node."""
        return node.procs if self._mpl is None else min(node.procs, self._mpl * (node.cpus or node.procs))

    def changed(self) -> None:
        """Nodes are not what they were."""
        self._room = None

    def join(self, node: Node) -> bool:
        """Enter a node, or know a lost or changed one again; returns whether anything is different now."""
        known = self.members.get(node.name)
        if known is None:
            self.add(Member(node))
            return True
        self.changed()
        changed = known.lost or known.node != node
        known.node, known.lost = node, False
        known.shrunk()
        return changed

    def owned(self, name: str, owner: Owner | None) -> bool:
        """Somebody is at a node's desk, or nobody any more; whether that is different."""
        member = self[name]
        if member.owner == owner:
            return False
        member.owner = owner
        member.shrunk()
        self.changed()
        return True

    def add(self, member: Member) -> None:
        """Enter a node that is not known yet, in its place."""
        self.changed()
        name = member.node.name
        last = next(reversed(self.members), None)
        self.members[name] = member
        if last is not None and by_number(name) < by_number(last):  # most come in order
            self.members = dict(sorted(self.members.items(), key=lambda entry: by_number(entry[0])))

    def hold(self, job: Job, allocation: Allocation) -> None:
        """A job takes what it was given."""
        for share in allocation.nodes:
            member = self.members[share.node]
            member.residents[job.id] = resident(job, share.tasks)
            member.used_procs += share.tasks
            member.used_memory_bytes += share.tasks * job.memory_bytes
        if self._room is not None:
            self._room.take(job, allocation)

    def give_back(self, job: Job, allocation: Allocation) -> None:
        """A job holds nothing any more."""
        for share in allocation.nodes:
            member = self.members[share.node]
            del member.residents[job.id]
            member.used_procs -= share.tasks
            member.used_memory_bytes -= share.tasks * job.memory_bytes
            before_procs, before_bytes = member.before
            member.before = (min(before_procs, member.used_procs), min(before_bytes, member.used_memory_bytes))
        if self._room is not None:
            self._room.give(job, allocation)

    def procs(self, *, installed: bool = False) -> int:
        """Processors of the nodes in service, or of all nodes that ever joined: what could come back."""
        return sum(self.places(each.node) for each in self if installed or not (each.lost or each.drained))

    def free(self, most_nodes: int | None, place: Place) -> Room:
        """What is free on the nodes in service; a copy."""
        if self._room is None:
            self._room = self._free(most_nodes, place)
        return self._room.copy()

    def free_procs(self, most_nodes: int | None, place: Place) -> int:
        """How many processors that are."""
        return (self._room or self.free(most_nodes, place)).free_procs

    def _free(self, most_nodes: int | None, place: Place) -> Room:
        members = [each for each in self if not (each.lost or each.drained)]
        procs = [self.places(each.node) - each.used_procs for each in members]
        memory_bytes = [each.memory_bytes - each.used_memory_bytes for each in members]
        residents = [tuple(each.residents.values()) for each in members]
        names, cpus = [each.node.name for each in members], [each.node.cpus or each.node.procs for each in members]
        return Room(names, procs, memory_bytes, most_nodes, place, residents, cpus, [each.owner for each in members])

    def empty(self, most_nodes: int | None, place: Place, *, installed: bool = False) -> Room:
        """What the nodes in service would have free without any job.

        ``installed``: all nodes that ever joined, without their owners, as they could be.
        """
        members = [each for each in self if installed or not (each.lost or each.drained)]
        nodes = [each.node for each in members]
        memory_bytes = [each.node.memory_bytes if installed else each.memory_bytes for each in members]
        cpus = [node.cpus or node.procs for node in nodes]
        owners = [None if installed else each.owner for each in members]
        names, procs = [node.name for node in nodes], [self.places(node) for node in nodes]
        return Room(names, procs, memory_bytes, most_nodes, place, (), cpus, owners)

    def restored(self) -> None:
        """What jobs hold by now is rightly theirs."""
        for each in self:
            each.before = (each.used_procs, each.used_memory_bytes)

    def saved(self) -> tuple[SavedNode, ...]:
        """The nodes on paper."""
        return tuple(SavedNode(each.node, each.lost, each.drained, each.reason, each.owner) for each in self)


def by_number(name: str) -> list[tuple[bool, int, str]]:
    """The sort key of a node's name: ``node2`` before ``node10``."""
    parts = re.findall(r"\d+|\D+", name)
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]

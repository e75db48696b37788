"""One named node of a machine: what it has, who uses it, and what jobs hold of it."""

import re
from functools import lru_cache

import msgspec

from cosched.model.allocation import Share
from cosched.model.job import Job
from cosched.model.node import Node, Owner
from space_scheduler.on_nodes import Resident, resident


class UnknownNode(KeyError):
    """An event names a node that never joined."""

    def __str__(self) -> str:
        return f"node {self.args[0]} never joined"


class SavedNode(msgspec.Struct, omit_defaults=True):
    """A node and what was said of it, as snapshots have it. What it holds follows from the jobs.

    ``since_us``: since when it is in service, drained or lost (core time); None: not known, from an earlier journal.
    ``opens_us``: when one that is drained is to be resumed, where that is known.
    """

    node: Node
    lost: bool = False
    drained: bool = False
    reason: str = ""
    owner: Owner | None = None
    since_us: int | None = None
    opens_us: int | None = None

    @property
    def in_service(self) -> bool:
        """Whether jobs may be started there."""
        return not (self.lost or self.drained)


class NodeStatus(SavedNode, kw_only=True):
    """A node as it stands, as a value: what jobs hold of it, and which jobs (tasks by job's number)."""

    used_procs: int
    used_memory_bytes: int
    tasks: dict[int, int]
    most_procs: int
    most_memory_bytes: int

    @property
    def state(self) -> str:
        """up, draining (jobs still run there), drained, or lost."""
        if self.lost:
            return "lost"
        if self.drained:
            return "draining" if self.tasks else "drained"
        return "up"


class Member(SavedNode, kw_only=True):
    """A node as a machine keeps it. ``places``: how many tasks of jobs may be there, by the rules.

    ``held_places`` more are held by what is left of ended jobs. ``residents`` are by job; ``before`` is how many
    processors and how much memory were held when it shrank.
    """

    places: int = 0
    held_places: int = 0
    used_procs: int = 0
    used_memory_bytes: int = 0
    residents: dict[int, Resident] = {}
    before: tuple[int, int] = (0, 0)

    def resize(self, node: Node, places: int) -> None:
        """Its node is this, with so many places in all."""
        self.node = node
        self.held_places = min(places, node.held_procs)
        self.places = places - self.held_places

    def opens_after(self, now_us: int) -> bool:
        """Whether it is out of service for now, and to be resumed at a time that is to come."""
        return self.drained and not self.lost and self.opens_us is not None and self.opens_us > now_us

    @property
    def free_procs(self) -> int:
        """Places that jobs could be given; none where more are held than there are."""
        return max(0, self.places - self.used_procs) if self.in_service else 0

    @property
    def memory_bytes(self) -> int:
        """What parallel work may have of its memory just now."""
        return self.node.memory_beside(self.owner)

    @property
    def most_procs(self) -> int:
        """How many processors may be used: more than it has while jobs hold what it had before it shrank."""
        return max(self.node.procs - self.node.held_procs, self.before[0])

    @property
    def most_memory_bytes(self) -> int:
        """How much memory may be used, likewise."""
        return max(self.memory_bytes, self.before[1])

    @property
    def tasks(self) -> dict[int, int]:
        """How many tasks of each job are there."""
        return {job_id: each.tasks for job_id, each in self.residents.items()}

    def take(self, job: Job, share: Share) -> None:
        """A job has this share of it from now on."""
        self.residents[job.id] = resident(job, share.tasks)
        self.used_procs += share.procs
        self.used_memory_bytes += share.tasks * job.memory_bytes

    def give(self, job: Job, share: Share) -> None:
        """It has it no more."""
        del self.residents[job.id]
        self.used_procs -= share.procs
        self.used_memory_bytes -= share.tasks * job.memory_bytes
        before_procs, before_bytes = self.before
        self.before = (min(before_procs, self.used_procs), min(before_bytes, self.used_memory_bytes))

    def shrunk(self) -> None:
        """It may have less now than jobs hold: what they hold is rightly theirs."""
        self.before = (self.used_procs, self.used_memory_bytes)

    def said(self) -> SavedNode:
        """What was said of it, as a value."""
        return SavedNode(self.node, self.lost, self.drained, self.reason, self.owner, self.since_us, self.opens_us)

    def status(self) -> NodeStatus:
        """All of it as a value."""
        return NodeStatus(
            **msgspec.structs.asdict(self.said()),
            used_procs=self.used_procs,
            used_memory_bytes=self.used_memory_bytes,
            tasks=self.tasks,
            most_procs=self.most_procs,
            most_memory_bytes=self.most_memory_bytes,
        )


@lru_cache(maxsize=1 << 14)
def by_number(name: str) -> tuple[tuple[bool, int, str], ...]:
    """The sort key of a node's name: ``node2`` before ``node10``."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts)

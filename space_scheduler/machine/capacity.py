"""What a machine has, and what its jobs hold of it: one value, that follows from nodes, rules and holdings alone.

A capacity changes when nodes do, and when a job takes, changes or gives back what it holds. Its totals are kept from
one change to the next, and never anywhere else: a machine is restored by making a capacity of its nodes under the rules
of now and having every job take what it holds, and ``validate()`` finds the same totals in that way.

There are two kinds. :class:`PooledCapacity` counts interchangeable processors; where nodes have names it is
:class:`~space_scheduler.machine.named_capacity.NamedCapacity`. What is held stays held, whatever becomes of the nodes:
then what is free is nothing, and nothing starts there until enough has been given back.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from cosched.model.allocation import Allocation
from cosched.model.job import Job
from space_scheduler.feasibility import obstacle
from space_scheduler.reasons import Reason


class Totals(NamedTuple):
    """Processors that were ever in service at once or on all nodes that ever joined, that are in service, and free."""

    procs_installed: int
    procs_total: int
    free_procs: int


class Free(Protocol):
    """What is free, as a copy to plan with: who can start there, and what is left when it does."""

    @property
    def free_procs(self) -> int:
        """How many processors are free."""
        ...

    def obstacle(self, job: Job) -> Reason | None:
        """Why the job has no place, with the numbers, or None."""
        ...

    def placed(self, job: Job) -> Allocation | None:
        """A place for the job, or None where there is an obstacle."""
        ...

    def misfit(self, job: Job, allocation: Allocation) -> str | None:
        """What is wrong with this place for this job, in words, or None."""
        ...

    def misfit_wider(self, job: Job, old: Allocation, new: Allocation) -> str | None:
        """What is wrong with this place for a job that holds the old one, in words, or None."""
        ...

    def lacks(self, job: Job, allocation: Allocation) -> bool:
        """Whether the job would hold more of some node than is free there, whatever the rules of placing say."""
        ...

    def take(self, job: Job, allocation: Allocation) -> None:
        """Take away what a job will hold."""
        ...

    def give(self, job: Job, allocation: Allocation) -> None:
        """Give back what a job has held."""
        ...


class Capacity(Protocol):
    """What a machine has and what is held of it. The totals are plain attributes, read at every pass."""

    procs_installed: int
    procs_total: int
    free_procs: int

    def take(self, job: Job, allocation: Allocation) -> None:
        """A job holds this from now on."""
        ...

    def change(self, job: Job, old: Allocation, new: Allocation) -> None:
        """A job that held the old holds the new, in one step."""
        ...

    def give(self, job: Job, allocation: Allocation) -> None:
        """A job holds this no more."""
        ...

    def room(self) -> Free:
        """What is free; a copy."""
        ...

    def totals(self) -> Totals:
        """All three of them, as a value."""
        ...

    def anew(self) -> "Capacity":
        """What there is by the same nodes and rules, with nothing held."""
        ...


class PooledCapacity:
    """Interchangeable processors, counted: in one pool, or in several that have names, one number each.

    One pool has no name and needs none: an allocation from it is a number of processors. From pools with names (a
    site's clusters) it has a share of each. ``free_procs`` is negative while drained processors are still held.
    """

    __slots__ = ("free", "free_procs", "procs_installed", "procs_total", "sizes")

    def __init__(self, procs: int = 0, pools: Mapping[str, int] | None = None) -> None:
        """So many processors in one pool, or in each of the pools of these names."""
        self.sizes = dict(pools or {})
        self.free = dict(self.sizes)  # by pool, where they have names
        self.procs_total = self.procs_installed = self.free_procs = procs + sum(self.sizes.values())

    def resize(self, procs: int, pool: str = "") -> None:
        """Processors come into service, or leave it (negative): those that are held, as they are given back."""
        in_service = self.sizes[pool] if pool else self.procs_total
        if in_service + procs < 0:
            raise ValueError(f"{-procs} processors cannot go: {in_service} are in service")
        if pool:
            self.sizes[pool] += procs
            self.free[pool] += procs
        self.procs_total += procs
        self.procs_installed = max(self.procs_installed, self.procs_total)
        self.free_procs += procs

    def take(self, job: Job, allocation: Allocation) -> None:
        """A job holds this from now on."""
        self.free_procs -= allocation.procs
        for share in allocation.nodes:
            self.free[share.node] -= share.procs

    def change(self, job: Job, old: Allocation, new: Allocation) -> None:
        """A job that held the old holds the new, in one step."""
        self.give(job, old)
        self.take(job, new)

    def give(self, job: Job, allocation: Allocation) -> None:
        """A job holds this no more."""
        self.free_procs += allocation.procs
        for share in allocation.nodes:
            self.free[share.node] += share.procs

    def room(self) -> "PooledRoom":
        """What is free; a copy."""
        return PooledRoom(self.free_procs, self.free.copy())

    def totals(self) -> Totals:
        """All three of them, as a value."""
        return Totals(self.procs_installed, self.procs_total, self.free_procs)

    def anew(self) -> "PooledCapacity":
        """The same processors, none of them held."""
        made = PooledCapacity(self.procs_total - sum(self.sizes.values()), self.sizes)
        made.procs_installed = self.procs_installed
        return made


class PooledRoom:
    """What is free of interchangeable processors: altogether, and of each pool where they have names."""

    __slots__ = ("free", "free_procs")

    def __init__(self, free_procs: int, free: dict[str, int]) -> None:
        self.free_procs = free_procs
        self.free = free

    def obstacle(self, job: Job) -> Reason | None:
        """Why the job has no place, with the numbers, or None."""
        why = obstacle(job.procs, job.estimate_us, 0, self.free_procs)
        return Reason(why, {"procs": job.procs, "free_procs": self.free_procs}) if why else None

    def placed(self, job: Job) -> Allocation | None:
        """The job's processors out of the one pool, or None where there is an obstacle."""
        return None if self.obstacle(job) else Allocation(job.procs)

    def misfit(self, job: Job, allocation: Allocation) -> str | None:
        """What is wrong with this place for this job, in words, or None."""
        for share in allocation.nodes:
            if share.procs > self.free.get(share.node, 0):
                return f"{share.procs} processors of {share.node}, where {self.free.get(share.node, 0)} are free"
        return obstacle(allocation.procs, job.estimate_us, 0, self.free_procs)

    def misfit_wider(self, job: Job, old: Allocation, new: Allocation) -> str | None:
        """What is wrong with this place for a job that holds the old one, in words, or None."""
        return self.misfit(job, new.beyond(old))

    def lacks(self, job: Job, allocation: Allocation) -> bool:
        """Whether the job would hold more than is free, of all of them or of some pool."""
        return allocation.procs > self.free_procs or any(
            share.procs > self.free.get(share.node, 0) for share in allocation.nodes
        )

    def take(self, job: Job, allocation: Allocation) -> None:
        """Take away what a job will hold."""
        self.free_procs -= allocation.procs
        for share in allocation.nodes:
            self.free[share.node] -= share.procs

    def give(self, job: Job, allocation: Allocation) -> None:
        """Give back what a job has held."""
        self.free_procs += allocation.procs
        for share in allocation.nodes:
            self.free[share.node] += share.procs

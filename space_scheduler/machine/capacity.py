"""What a machine has, and what its jobs hold of it: one value, that follows from nodes, rules and holdings alone.

A capacity changes when nodes do, and when a job takes, changes or gives back what it holds. Its totals are kept from
one change to the next, and never anywhere else: a machine is restored by making a capacity of its nodes under the rules
of now and having every job take what it holds, and ``validate()`` finds the same totals in that way.

There are two kinds. :class:`CountedCapacity` counts interchangeable processors; where nodes have names it is
:class:`~space_scheduler.machine.named_capacity.NamedCapacity`. What is held stays held, whatever becomes of the nodes:
then what is free is nothing, and nothing starts there until enough has been given back.
"""

from cosched.model.allocation import Allocation
from cosched.model.job import Job
from space_scheduler.feasibility import Room, obstacle
from space_scheduler.reasons import Reason


class CountedRoom:
    """How many interchangeable processors are free."""

    __slots__ = ("free_procs",)

    def __init__(self, free_procs: int) -> None:
        self.free_procs = free_procs

    def obstacle(self, job: Job) -> Reason | None:
        """Why the job has no place, with the numbers, or None."""
        why = obstacle(job.procs, job.estimate_us, 0, self.free_procs)
        return Reason(why, {"procs": job.procs, "free_procs": self.free_procs}) if why else None

    def misfit(self, job: Job, allocation: Allocation) -> str | None:
        """What is wrong with so many processors for this job, in words, or None."""
        if allocation.nodes:
            return "nodes are named where processors are counted"
        return obstacle(allocation.procs, job.estimate_us, 0, self.free_procs)

    def misfit_wider(self, job: Job, old: Allocation, new: Allocation) -> str | None:
        """What is wrong with so many for a job that holds the old ones, in words, or None."""
        return self.misfit(job, new.beyond(old))

    def lacks(self, job: Job, allocation: Allocation) -> bool:
        """Whether the job would hold more than is free."""
        return allocation.procs > self.free_procs

    def take(self, job: Job, allocation: Allocation) -> None:
        """Take away what a job will hold."""
        self.free_procs -= allocation.procs

    def give(self, job: Job, allocation: Allocation) -> None:
        """Give back what a job has held."""
        self.free_procs += allocation.procs


#: What is free, as a copy to plan with, of either kind.
Free = CountedRoom | Room


class CountedCapacity(CountedRoom):
    """Interchangeable processors, counted. ``free_procs`` is negative while drained processors are still held."""

    __slots__ = ("procs_installed", "procs_total")

    def __init__(self, procs: int = 0) -> None:
        """So many processors."""
        self.procs_total = self.procs_installed = self.free_procs = procs

    def resize(self, procs: int) -> None:
        """Processors come into service, or leave it (negative): those that are held, as they are given back."""
        if self.procs_total + procs < 0:
            raise ValueError(f"{-procs} processors cannot go: {self.procs_total} are in service")
        self.procs_total += procs
        self.procs_installed = max(self.procs_installed, self.procs_total)
        self.free_procs += procs

    def change(self, job: Job, old: Allocation, new: Allocation) -> None:
        """A job that held the old holds the new, in one step."""
        self.free_procs += old.procs - new.procs

    def room(self) -> CountedRoom:
        """What is free; a copy."""
        return CountedRoom(self.free_procs)

    def anew(self) -> "CountedCapacity":
        """The same processors, none of them held."""
        made = CountedCapacity(self.procs_total)
        made.procs_installed = self.procs_installed
        return made

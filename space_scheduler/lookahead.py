"""What will be: named nodes and the jobs that share them, walked from one predicted end to the next.

Between two ends nothing changes, so rates are constant and the next end is exact, under the premise of all predictions:
jobs do the work that was estimated, nodes and owners stay as they are.
"""

from collections.abc import Iterable, Set
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from cosched.model.allocation import Allocation
from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from space_scheduler.feasibility import Room
from space_scheduler.progress import ALONE_PPM, Occupancy, Rate, end_us


class Progress(NamedTuple):
    """A job that runs: what it holds, the work it had left at a time, and its rate since.

    The time may be to come: until then it does nothing, since what it holds has just been changed.
    """

    job: Job
    allocation: Allocation
    left: Rate
    as_of_us: int
    rate_ppm: Rate

    def left_at(self, now_us: int) -> Rate:
        """Work that is left then, if its rate stays."""
        return max(0, self.left - max(0, now_us - self.as_of_us) * self.rate_ppm)

    @property
    def end_us(self) -> int:
        """When it will be done at this rate."""
        return end_us(self.as_of_us, self.left, self.rate_ppm)


class LookAhead:
    """One future. ``room`` is what is free in it, and changes with it."""

    __slots__ = ("_ends", "_occupancy", "_running", "now_us", "room")

    def __init__(self, now_us: int, room: Room, occupancy: Occupancy) -> None:
        self.now_us = now_us
        self.room = room
        self._occupancy = occupancy
        self._running: dict[int, Progress] = {}
        self._ends: list[tuple[int, int]] = []  # a heap; an entry that is not the job's end any more is passed over

    @classmethod
    def of(cls, now_us: int, room: Room, occupancy: Occupancy, progress: Iterable[Progress]) -> "LookAhead":
        """The future of what runs now; arguments as in :class:`~space_scheduler.policy.interface.Nodes`."""
        made = cls(now_us, room.copy(), occupancy.copy())
        made._running = {each.job.id: each for each in progress}
        made._ends = [(progress.end_us, job_id) for job_id, progress in made._running.items()]
        heapify(made._ends)
        return made

    def copy(self) -> "LookAhead":
        """An independent copy."""
        other = LookAhead(self.now_us, self.room.copy(), self._occupancy.copy())
        other._running, other._ends = self._running.copy(), self._ends.copy()
        return other

    @property
    def running(self) -> Set[int]:
        """The jobs that still run."""
        return self._running.keys()

    def beside(self, allocation: Allocation) -> Set[int]:
        """The jobs whose rates may be others with a job there."""
        return self._occupancy.near(share.node for share in allocation.nodes)

    def ends_us(self, job: Job, allocation: Allocation) -> int:
        """When a job would end that starts now on nodes that nobody else is on."""
        occupancy = self._occupancy.anew()
        occupancy.nodes = {share.node: self._occupancy.nodes[share.node] for share in allocation.nodes}
        occupancy.enter(job, allocation)
        return end_us(self.now_us, job.alone_us * ALONE_PPM, occupancy.rates_ppm(occupancy.nodes)[job.id])

    def start(self, job: Job, allocation: Allocation) -> None:
        """Suppose that a job starts now."""
        self.room.take(job, allocation)
        self._occupancy.enter(job, allocation)
        self._running[job.id] = Progress(job, allocation, job.alone_us * ALONE_PPM, self.now_us, 0)
        self._repace(allocation)

    def next_us(self) -> int:
        """When the next job ends; FOREVER_US when none will."""
        while self._ends:
            at_us, job_id = self._ends[0]
            progress = self._running.get(job_id)
            if progress is not None and progress.end_us == at_us:
                return at_us
            heappop(self._ends)
        return FOREVER_US

    def advance(self) -> Allocation:
        """Go on to the next end (:meth:`next_us` must have found one); what comes free there."""
        at_us, job_id = heappop(self._ends)
        self.now_us = at_us
        progress = self._running.pop(job_id)
        self.room.give(progress.job, progress.allocation)
        self._occupancy.leave(job_id)
        self._repace(progress.allocation)
        return progress.allocation

    def _repace(self, allocation: Allocation) -> None:
        now_us = self.now_us
        for job_id, rate_ppm in self._occupancy.rates_ppm([share.node for share in allocation.nodes]).items():
            progress = self._running[job_id]
            if progress.rate_ppm != rate_ppm:
                progress = Progress(progress.job, progress.allocation, progress.left_at(now_us), now_us, rate_ppm)
                self._running[job_id] = progress
                heappush(self._ends, (progress.end_us, job_id))

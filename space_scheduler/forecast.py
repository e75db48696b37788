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
from space_scheduler.progress import ALONE_PPM, Floor, Rate, end_us


class Going(NamedTuple):
    """A job that runs: what it holds, the work it had left at a time, and its rate since."""

    job: Job
    allocation: Allocation
    left: Rate
    as_of_us: int
    rate_ppm: Rate

    def left_at(self, now_us: int) -> Rate:
        """Work that is left then, if its rate stays."""
        return max(0, self.left - (now_us - self.as_of_us) * self.rate_ppm)

    @property
    def end_us(self) -> int:
        """When it will be done at this rate."""
        return end_us(self.as_of_us, self.left, self.rate_ppm)


class Forecast:
    """One future. ``room`` is what is free in it, and changes with it."""

    __slots__ = ("_ends", "_floor", "_going", "now_us", "room")

    def __init__(self, now_us: int, room: Room, floor: Floor) -> None:
        self.now_us = now_us
        self.room = room
        self._floor = floor
        self._going: dict[int, Going] = {}
        self._ends: list[tuple[int, int]] = []  # a heap; an entry that is not the job's end any more is passed over

    @classmethod
    def of(cls, now_us: int, room: Room, floor: Floor, going: Iterable[Going]) -> "Forecast":
        """The future of what runs now; arguments as in :class:`~space_scheduler.policy.interface.Nodes`."""
        made = cls(now_us, room.copy(), floor.copy())
        made._going = {each.job.id: each for each in going}
        made._ends = [(going.end_us, job_id) for job_id, going in made._going.items()]
        heapify(made._ends)
        return made

    def copy(self) -> "Forecast":
        """An independent copy."""
        other = Forecast(self.now_us, self.room.copy(), self._floor.copy())
        other._going, other._ends = self._going.copy(), self._ends.copy()
        return other

    @property
    def going(self) -> Set[int]:
        """The jobs that still run."""
        return self._going.keys()

    def beside(self, allocation: Allocation) -> Set[int]:
        """The jobs whose rates may be others with a job there."""
        return self._floor.near(share.node for share in allocation.nodes)

    def ends_us(self, job: Job, allocation: Allocation) -> int:
        """When a job would end that starts now on nodes that nobody else is on."""
        floor = Floor(self._floor.sharing)
        floor.sites = {share.node: self._floor.sites[share.node] for share in allocation.nodes}
        floor.enter(job, allocation)
        return end_us(self.now_us, job.estimate_us * ALONE_PPM, floor.rates_ppm(floor.sites)[job.id])

    def start(self, job: Job, allocation: Allocation) -> None:
        """Suppose that a job starts now."""
        self.room.take(job, allocation)
        self._floor.enter(job, allocation)
        self._going[job.id] = Going(job, allocation, job.estimate_us * ALONE_PPM, self.now_us, 0)
        self._repace(allocation)

    def next_us(self) -> int:
        """When the next job ends; FOREVER_US when none will."""
        while self._ends:
            at_us, job_id = self._ends[0]
            going = self._going.get(job_id)
            if going is not None and going.end_us == at_us:
                return at_us
            heappop(self._ends)
        return FOREVER_US

    def advance(self) -> Allocation:
        """Go on to the next end (:meth:`next_us` must have found one); what comes free there."""
        at_us, job_id = heappop(self._ends)
        self.now_us = at_us
        going = self._going.pop(job_id)
        self.room.give(going.job, going.allocation)
        self._floor.leave(job_id)
        self._repace(going.allocation)
        return going.allocation

    def _repace(self, allocation: Allocation) -> None:
        now_us = self.now_us
        for job_id, rate_ppm in self._floor.rates_ppm([share.node for share in allocation.nodes]).items():
            going = self._going[job_id]
            if going.rate_ppm != rate_ppm:
                going = Going(going.job, going.allocation, going.left_at(now_us), now_us, rate_ppm)
                self._going[job_id] = going
                heappush(self._ends, (going.end_us, job_id))

"""Reserved jobs by *shape* (processors and estimate), and from when on a shape can have a place on counted processors.

Jobs of one shape ask the profile the same question. What is known of the answer is kept from pass to pass: no *hole*,
a stretch with the shape's processors free for its whole estimate, begins before ``from_us``. Reserving keeps that true;
giving back makes it earlier, only for shapes that fit into what is free then (:meth:`Shapes.reopen`).

All of this follows from the profile, the reserved starts and the queue. Whoever does not have it makes it anew.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from space_scheduler.policy.order import Key
from space_scheduler.policy.queue import JobQueue
from space_scheduler.profile import Profile


class Alike:
    """The reserved jobs of one shape: their numbers in queue order, and their starts, in µs; ``count``: how many.

    While a sweep is under way ``next`` is the first whose turn has not come.
    """

    __slots__ = ("_last_us", "count", "estimate_us", "from_us", "ids", "next", "procs", "starts_us")

    def __init__(self, procs: int, estimate_us: int, from_us: int) -> None:
        self.procs, self.estimate_us, self.from_us = procs, estimate_us, from_us
        self.count = self.next = 0
        self._last_us: int | None = None
        self.ids: list[int] = []
        self.starts_us: list[int] = []

    def sweep(self) -> None:
        """A sweep over all jobs begins."""
        self.next, self._last_us = 0, None

    def no_later_us(self) -> int:
        """None starts after this during a sweep, which moves starts to earlier times only."""
        if self._last_us is None:
            self._last_us = max(self.starts_us)
        return self._last_us

    def first_hole(self, profile: Profile, until_us: int = FOREVER_US) -> int:
        """When the first hole begins, in µs; ``until_us`` where none begins before."""
        from_us = max(self.from_us, profile.times[0])
        self.from_us = from_us = profile.earliest(self.procs, self.estimate_us, from_us, until_us)
        return from_us


class Run:
    """Jobs of one shape that follow each other in the queue's order, with nobody else's turn in between: how many."""

    __slots__ = ("alike", "count")

    def __init__(self, alike: Alike) -> None:
        self.alike, self.count = alike, 0


class Shapes:
    """The shapes of reserved jobs; those at FOREVER_US have no place and are not among them."""

    __slots__ = ("_by_shape", "_empty", "_last", "_order", "_runs", "_widths", "_within")

    def __init__(self) -> None:
        self._by_shape: dict[tuple[int, int], Alike] = {}
        self._widths: list[int] = []  # of the shapes, from the narrowest on
        self._within: dict[int, list[Alike]] = {}  # by width, from the shortest on
        self._order: dict[int, Run] | None = {}  # by job: the run that it is in; None: to be made
        self._runs: list[Run] = []  # in queue order
        self._empty = 0  # how many of them have nobody left
        self._last: Key | None = None  # no job in the order comes after this key

    @classmethod
    def of(cls, queue: JobQueue, starts_us: dict[int, int]) -> "Shapes":
        """The shapes of these reserved starts of jobs in the queue; of their holes nothing is known."""
        shapes = cls()
        for job in queue:
            if starts_us.get(job.id, FOREVER_US) != FOREVER_US:
                shapes._shape(job, 0).count += 1
        shapes._order = None
        return shapes

    def first_hole(self, profile: Profile, job: Job) -> int:
        """When the first hole for a job begins, in µs."""
        alike = self._by_shape.get((job.procs, job.estimate_us))
        if alike is None:
            return profile.earliest(job.procs, job.estimate_us, profile.times[0])
        return alike.first_hole(profile)

    def add(self, job: Job, start_us: int, key: Key) -> None:
        """A job is reserved at the first hole for its shape. ``key`` is its place in the queue."""
        alike = self._shape(job, start_us)
        alike.count += 1
        alike.from_us = start_us
        if self._order is None:
            return
        if self._last is not None and key < self._last:
            self._order = None
            return
        self._last = key
        self._append(self._order, alike, job.id, start_us)

    def remove(self, job: Job) -> None:
        """A reserved job has started, or waits no more."""
        alike = self._by_shape[job.procs, job.estimate_us]
        alike.count -= 1
        if self._order is not None:
            run = self._order.pop(job.id)
            run.count -= 1
            self._empty += not run.count
            if 2 * self._empty > len(self._runs):
                self._order = None
            index = alike.ids.index(job.id)
            del alike.ids[index], alike.starts_us[index]
        if not alike.count:
            del self._by_shape[job.procs, job.estimate_us]
            within = self._within[job.procs]
            within.remove(alike)
            if not within:
                del self._within[job.procs]
                del self._widths[bisect_left(self._widths, job.procs)]

    def in_order(self, queue: JobQueue, starts_us: dict[int, int]) -> Iterable[Run]:
        """The reserved jobs in queue order, by runs of one shape, each ready for a sweep; some runs are empty."""
        if self._order is None:
            self._arrange(queue, starts_us)
        for alike in self._by_shape.values():
            alike.sweep()
        return self._runs

    def reopen(self, profile: Profile, hole_us: int, until_us: int, procs: int) -> None:
        """Processors have been given back over [hole_us, until_us): which shapes may have a hole with them.

        Not one that had enough there before, nor one that has not now. The wider a shape, the shorter the stretch
        around these processors in which it finds enough of them.
        """
        times, free, widths = profile.times, profile.free, self._widths
        first, count = max(0, bisect_right(times, hole_us) - 1), len(times)
        last = bisect_left(times, until_us, first)
        if last - first == 1:
            least = most = free[first]
        else:
            here = free[first:last]
            least, most = min(here), max(here)
        fit = bisect_right(widths, most)
        if not fit or widths[fit - 1] <= least - procs:
            return
        left, right = first, last
        for width in reversed(widths[bisect_right(widths, least - procs, 0, fit) : fit]):
            for alike in self._within[width]:
                estimate_us = alike.estimate_us
                start_us = hole_us - estimate_us  # an earlier one would end before
                if alike.from_us <= start_us:
                    continue
                while left and times[left] > start_us and free[left - 1] >= width:
                    left -= 1
                if times[left] > start_us:
                    start_us = times[left]
                end_us = start_us + estimate_us
                while right < count and times[right] < end_us and free[right] >= width:
                    right += 1
                if right < count and times[right] < end_us:
                    break  # nor is there room for a longer one
                alike.from_us = min(alike.from_us, start_us)

    def _shape(self, job: Job, from_us: int) -> Alike:
        """Those of a job's shape; where there are none yet, no hole for it begins before ``from_us``."""
        procs, estimate_us = job.procs, job.estimate_us
        alike = self._by_shape.get((procs, estimate_us))
        if alike is None:
            alike = self._by_shape[procs, estimate_us] = Alike(procs, estimate_us, from_us)
            within = self._within.get(procs)
            if within is None:
                self._within[procs] = [alike]
                insort(self._widths, procs)
            else:
                insort(within, alike, key=_estimate_of)
        return alike

    def _arrange(self, queue: JobQueue, starts_us: dict[int, int]) -> None:
        for alike in self._by_shape.values():
            alike.ids, alike.starts_us = [], []
        self._order, self._last, self._runs, self._empty = {}, None, [], 0
        for key, job in queue.line():
            start_us = starts_us.get(job.id, FOREVER_US)
            if start_us != FOREVER_US:
                self._append(self._order, self._by_shape[job.procs, job.estimate_us], job.id, start_us)
                self._last = key

    def _append(self, order: dict[int, Run], alike: Alike, job_id: int, start_us: int) -> None:
        """A job that comes after all others."""
        run = self._runs[-1] if self._runs else None
        if run is None or run.alike is not alike or not run.count:
            run = Run(alike)
            self._runs.append(run)
        run.count += 1
        order[job_id] = run
        alike.ids.append(job_id)
        alike.starts_us.append(start_us)


def _estimate_of(alike: Alike) -> int:
    return alike.estimate_us

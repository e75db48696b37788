"""What will be free, with what this pass has started and reserved in it: counted processors, named nodes, shared ones.

All futures answer the same three questions: when could a job start at the earliest, may it start now without moving a
reservation, and (``reserve``) suppose that it does. A place is an allocation where nodes have names, else None.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from cosched.model.allocation import Allocation
from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from space_scheduler.forecast import Forecast
from space_scheduler.node_profile import NodeProfile
from space_scheduler.policy.interface import PlannedStart, Snapshot
from space_scheduler.profile import Profile
from space_scheduler.reasons import Reason

Slot = tuple[int, Allocation | None]
#: How many candidates of a pass may be looked ahead for: each costs a walk over predicted ends.
LOOKS: Final = 50


class CountedFuture:
    """Interchangeable processors: a reservation is a time and a number."""

    def __init__(self, snapshot: Snapshot, starts: Sequence[PlannedStart], free_procs: int) -> None:
        self.now_us = snapshot.now_us
        self.free_procs = free_procs
        self._profile = Profile.of_running(self.now_us, free_procs, ends_with(snapshot, starts))

    def earliest(self, job: Job) -> Slot | None:
        """The earliest start that no reservation stands against; None while too many nodes are out of service."""
        if job.procs > self._profile.free[-1]:
            return None
        return self._profile.earliest(job.procs, job.estimate_us, self.now_us), None

    def now(self, job: Job) -> Slot | None:
        """A start now that moves no reservation, or None."""
        slot = self.earliest(job)
        return slot if slot and slot[0] == self.now_us else None

    def reserve(self, job: Job, slot: Slot) -> None:
        """Set the processors aside."""
        self._profile.change(slot[0], slot[0] + job.estimate_us, -job.procs)

    def start(self, job: Job, slot: Slot, reason: Reason) -> PlannedStart:
        """Give a job its processors now."""
        self.reserve(job, slot)
        self.free_procs -= job.procs
        return PlannedStart(job, reason)


class NamedFuture:
    """Named nodes: a reservation has its nodes, until another start makes it take others at the same time."""

    def __init__(self, snapshot: Snapshot, starts: Sequence[PlannedStart], free_procs: int) -> None:
        assert snapshot.nodes is not None
        self.now_us = snapshot.now_us
        self.free_procs = free_procs
        self._started = NodeProfile.of_running(self.now_us, snapshot.nodes.room, snapshot.nodes.held)
        for start in starts:
            if start.allocation:
                self._started.take(start.job, self.now_us, start.allocation)
        self._reserved: list[tuple[Job, int]] = []
        self._all = self._started.copy()  # with the reservations
        self._moved: NodeProfile | None = None  # the reservations on other places, for the start just asked about

    def earliest(self, job: Job) -> Slot | None:
        """The earliest start that no reservation stands against; None while nodes that it needs are away."""
        self._moved = None
        return self._all.earliest(job, self.now_us)

    def now(self, job: Job) -> Slot | None:
        """A start now that moves no reservation, or None.

        Either beside the places that are reserved, or on some of them if every reservation finds others at its time.
        """
        self._moved = None
        if allocation := self._all.placed(job, self.now_us):
            return self.now_us, allocation
        if not self._reserved or not (allocation := self._started.placed(job, self.now_us)):
            return None
        self._moved = self._moved_aside(job, allocation)
        return (self.now_us, allocation) if self._moved else None

    def reserve(self, job: Job, slot: Slot) -> None:
        """Set the place aside."""
        start_us, allocation = slot
        assert allocation is not None
        self._reserved.append((job, start_us))
        self._all.take(job, start_us, allocation)

    def start(self, job: Job, slot: Slot, reason: Reason) -> PlannedStart:
        """Give a job its place now, which :meth:`earliest` or :meth:`now` has just found."""
        allocation = slot[1]
        assert allocation is not None
        self._started.take(job, self.now_us, allocation)
        if self._moved:
            self._all, self._moved = self._moved, None
        else:
            self._all.take(job, self.now_us, allocation)
        self.free_procs -= job.procs
        return PlannedStart(job, reason, allocation)

    def _moved_aside(self, job: Job, allocation: Allocation) -> NodeProfile | None:
        """The future with this start and every reservation at its time on another place, or None."""
        profile = self._started.copy()
        profile.take(job, self.now_us, allocation)
        for reserved, start_us in self._reserved:
            place = profile.placed(reserved, start_us)
            if place is None:
                return None
            profile.take(reserved, start_us, place)
        return profile


class SharedFuture:
    """Named nodes that jobs share: who is to be where decides how long everything takes.

    A reservation is the earliest predicted moment at which there is a place. A start keeps it if that moment comes no
    later with the newcomer there, and with the slowdown that it causes to the jobs that are waited for (3DBackfilling,
    Hanzich et al. 2005, section 3). At most one job has a reservation.

    Whom a newcomer does not slow down ends as predicted, so most answers need no look ahead. In one pass at most
    :data:`LOOKS` candidates get one; those behind wait for the next.
    """

    def __init__(self, snapshot: Snapshot, starts: Sequence[PlannedStart], free_procs: int) -> None:
        nodes = snapshot.nodes
        assert nodes is not None
        assert nodes.floor is not None
        self.now_us = snapshot.now_us
        self.free_procs = free_procs
        self._started = Forecast.of(self.now_us, nodes.room, nodes.floor, nodes.going)
        for start in starts:
            if start.allocation:
                self._started.start(start.job, start.allocation)
        self._reserved: tuple[Job, int] | None = None
        self._then: Forecast | None = None  # the future at the reserved moment
        self._looks = LOOKS

    def earliest(self, job: Job) -> Slot | None:
        """The earliest predicted moment with a place; None while nodes that it needs are away."""
        if allocation := self._started.room.placed(job):
            return self.now_us, allocation
        self._then = _with_a_place(self._started, job, FOREVER_US)
        return None if self._then is None else (self._then.now_us, None)

    def now(self, job: Job) -> Slot | None:
        """A start now with which the reservation holds, or None."""
        allocation = self._started.room.placed(job)
        if allocation is None or not (self._reserved is None or self._holds_with(job, allocation)):
            return None
        return self.now_us, allocation

    def _holds_with(self, job: Job, allocation: Allocation) -> bool:
        assert self._reserved is not None
        assert self._then is not None
        head, start_us = self._reserved
        beside = self._started.beside(allocation)
        if not beside and self._started.ends_us(job, allocation) <= start_us:
            return True  # all others end as before
        # who is waited for ends as before; whoever else ends by then only makes room, unless who is there matters
        if not beside or (beside <= self._then.going and not self._then.room.place.refuses):
            room = self._then.room.copy()
            room.take(job, allocation)
            if room.obstacle(head) is None:
                return True
            if not beside:
                return False
        if not self._looks:
            return False
        self._looks -= 1
        with_it = self._started.copy()
        with_it.start(job, allocation)
        return _with_a_place(with_it, head, start_us) is not None

    def reserve(self, job: Job, slot: Slot) -> None:
        """Keep the moment, which :meth:`earliest` has just found."""
        self._reserved = job, slot[0]

    def start(self, job: Job, slot: Slot, reason: Reason) -> PlannedStart:
        """Give a job its place now, which :meth:`earliest` or :meth:`now` has just found."""
        allocation = slot[1]
        assert allocation is not None
        self._started.start(job, allocation)
        if self._reserved:
            self._then = _with_a_place(self._started, *self._reserved)
        self.free_procs -= job.procs
        return PlannedStart(job, reason, allocation)


def _with_a_place(forecast: Forecast, job: Job, until_us: int) -> Forecast | None:
    """A future at the first end, ``until_us`` at the latest, after which a job has a place that has none now."""
    future = forecast.copy()
    tasks = future.room.tasks(job)
    fitting = sum(tasks)
    while (next_us := future.next_us()) <= until_us and next_us != FOREVER_US:
        while future.next_us() == next_us:
            for index, _ in future.room.indices(future.advance()):
                here = future.room.tasks_on(index, job, future.room.procs[index], future.room.memory_bytes[index])
                fitting += here - tasks[index]
                tasks[index] = here
        if fitting >= job.procs and future.room.obstacle(job) is None:
            return future
    return None


def ends_with(snapshot: Snapshot, starts: Iterable[PlannedStart]) -> list[tuple[int, int, int]]:
    """The predicted ends of what runs and of what this pass starts, in order of time."""
    new = [(snapshot.now_us + start.job.estimate_us, start.job.id, start.job.procs) for start in starts]
    return sorted([*snapshot.ends, *new])

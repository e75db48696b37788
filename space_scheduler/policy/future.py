"""What will be free, with what this pass has started and reserved in it: counted processors or named nodes.

Both futures answer the same three questions: when could a job start at the earliest, may it start now without moving a
reservation, and (``reserve``) suppose that it does. A place is an allocation where nodes have names, else None.
"""

from collections.abc import Iterable, Sequence

from cosched.model.allocation import Allocation
from cosched.model.job import Job
from space_scheduler.node_profile import NodeProfile
from space_scheduler.policy.interface import PlannedStart, Snapshot
from space_scheduler.profile import Profile
from space_scheduler.reasons import Reason

Slot = tuple[int, Allocation | None]


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


def ends_with(snapshot: Snapshot, starts: Iterable[PlannedStart]) -> list[tuple[int, int, int]]:
    """The predicted ends of what runs and of what this pass starts, in order of time."""
    new = [(snapshot.now_us + start.job.estimate_us, start.job.id, start.job.procs) for start in starts]
    return sorted([*snapshot.ends, *new])

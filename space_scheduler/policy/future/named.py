"""The future of named nodes: a reservation has its nodes, and a hole is one only if it stays on the same nodes for the
whole estimate, since tasks do not move. Jobs can therefore be promised later times than on counted processors.

A start now gives way to no place, but to times: it may take nodes that are reserved if every reservation finds others
at its time. The profile is made from what runs and what is reserved at every pass: named nodes are few.
"""

from collections.abc import Iterable

import msgspec

from cosched.model.allocation import Allocation
from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from space_scheduler.feasibility import Room
from space_scheduler.node_profile import NodeProfile
from space_scheduler.policy.future.protocol import found_no_place
from space_scheduler.policy.interface import Nodes, PlannedStart, Snapshot
from space_scheduler.reasons import Reason, Why


class Reserved(msgspec.Struct, frozen=True):
    """A start and its place; FOREVER_US and None while nodes that the job needs are away."""

    start_us: int
    allocation: Allocation | None


class Timetable(msgspec.Struct, frozen=True, tag=True):
    """Reservations that are kept: each queued job's, by its number."""

    reserved: dict[int, Reserved]
    wake_us: int

    @property
    def starts_us(self) -> dict[int, int]:
        """Each queued job's reserved start."""
        return {job_id: each.start_us for job_id, each in self.reserved.items()}


class NamedFuture:
    """Named nodes."""

    def __init__(self, snapshot: Snapshot) -> None:
        assert snapshot.nodes is not None
        self._nodes: Nodes = snapshot.nodes
        self.now_us = snapshot.now_us
        self._room = self._nodes.room  # shared with all who ask for it, so only read; from the first start on a copy
        self._untaken: list[PlannedStart] = []  # starts that are not taken away from it yet
        self.free_procs = self._room.free_procs
        self.by_company, self.by_cluster = self._room.place.by_company, self._room.clusters is not None
        self.starts_us: dict[int, int] = {}  # of reservations that will be kept
        self._begun: list[PlannedStart] = []  # starts of this pass, before there is a profile
        self._reserved: dict[int, tuple[Job, int]] = {}  # in the order in which they were made
        self._places: dict[int, Allocation] = {}  # of the reservations
        self._found: tuple[Job, Allocation] | None = None  # by the last question
        self._with_starts: NodeProfile | None = None
        self._with_all: NodeProfile | None = None  # and with the reservations
        self._moved: NodeProfile | None = None  # the reservations on other places, for the start just asked about

    @classmethod
    def anew(cls, snapshot: Snapshot, job_ids: Iterable[int]) -> "NamedFuture":
        """What runs; these jobs are to be placed."""
        future = cls(snapshot)
        future.starts_us = dict.fromkeys(job_ids, FOREVER_US)
        return future

    @classmethod
    def resumed(cls, snapshot: Snapshot, memory: Timetable) -> "NamedFuture":
        """What was kept of those who still wait, beside what runs now."""
        future = cls(snapshot)
        gone = {job.id for job in snapshot.changes.withdrawn}
        future.starts_us = {job_id: start_us for job_id, start_us in memory.starts_us.items() if job_id not in gone}
        for job_id, each in memory.reserved.items():
            if each.allocation is not None and job_id not in gone:
                future._take(snapshot.queue.job(job_id), each.start_us, each.allocation)
        return future

    def obstacle(self, job: Job) -> Why | None:
        """What keeps a job from starting now, whatever is reserved."""
        found = self._free().obstacle(job)
        return found.why if found else None

    def now(self, job: Job) -> bool:
        """Whether a start now moves no reservation to a later time.

        Either beside the places that are reserved, or on some of them if every reservation finds others at its time.
        Where company decides, a start beside them can take away theirs: they are asked, too. On several clusters a job
        goes where Worst Fit has it now, or waits: a reservation is for how much is free on each cluster.
        """
        self._moved = None
        if not self._reserved:
            return self._answer(job, self._free().placed(job))
        _, with_all = self._profiles()
        if not (self.by_company or self.by_cluster) and (allocation := with_all.placed(job, self.now_us)):
            return self._answer(job, allocation)
        allocation = self._free().placed(job)
        if allocation is not None:
            self._moved = self._moved_aside(job, allocation)
        return self._answer(job, allocation if self._moved else None)

    def earliest(self, job: Job) -> int:
        """The earliest start that stays on its nodes; FOREVER_US while nodes that it needs are away."""
        self._moved = None
        found = self._profiles()[1].earliest(job, self.now_us)
        if found is None:
            self._found = None
            return FOREVER_US
        self._found = job, found[1]
        return found[0]

    def reserve(self, job: Job, start_us: int) -> None:
        """Set the place aside that was just found."""
        if start_us != FOREVER_US:
            self._take(job, start_us, self._place_found(job))

    def lasts_us(self, job: Job) -> int:
        """Its estimate, and what the link between clusters costs it there."""
        assert self._found is not None
        return self._room.lasts_us(job, self._found[1])

    def start(self, job: Job, reason: Reason) -> PlannedStart:
        """Give a job its place now."""
        start = PlannedStart(job, reason, self._place_found(job))
        self.begin(start)
        return start

    def begin(self, start: PlannedStart) -> None:
        """Take away what a start holds."""
        assert start.allocation is not None
        self._untaken.append(start)
        self.free_procs -= start.job.procs
        if self._with_starts is None or self._with_all is None:
            self._begun.append(start)
            return
        self._with_starts.take(start.job, self.now_us, start.allocation)
        if self._moved:
            self._with_all, self._moved = self._moved, None
        else:
            self._with_all.take(start.job, self.now_us, start.allocation)

    def beside(self, shadow_us: int) -> Reason:
        """On other nodes, or on what is left of them."""
        return Reason(Why.BACKFILLED_BESIDE, {"shadow_us": shadow_us})

    # reservations that are kept

    def place(self, job: Job) -> None:
        """Reserve the earliest hole."""
        self.starts_us[job.id] = start_us = self.earliest(job)
        self.reserve(job, start_us)

    def compress(self, queue: Iterable[Job]) -> dict[int, int]:
        """Take each reservation out and place it again in the earliest hole, if that is earlier."""
        moved, starts_us = {}, self.starts_us
        for job in queue:
            start_us = starts_us.get(job.id, self.now_us)
            if self.now_us < start_us < FOREVER_US and (earlier_us := self._earlier(job, start_us)) != start_us:
                starts_us[job.id], moved[job.id] = earlier_us, start_us
        return moved

    def due(self) -> list[int]:
        """The jobs that are reserved from now on."""
        return [job_id for job_id, start_us in self.starts_us.items() if start_us <= self.now_us]

    def _earlier(self, job: Job, start_us: int) -> int:
        profile, allocation = self._profiles()[1], self._places[job.id]
        profile.give(job, start_us, allocation)
        found = profile.earliest(job, self.now_us)
        if found and found[0] < start_us:
            start_us, allocation = found
        self._take(job, start_us, allocation)
        return start_us

    def start_reserved(self, job: Job, reason: Reason) -> PlannedStart:
        """On the nodes that are set aside."""
        del self.starts_us[job.id]
        self.free_procs -= job.procs
        return PlannedStart(job, reason, self._places[job.id])

    def kept(self) -> tuple[Timetable, int]:
        """The starts and their places, and the next that falls due."""
        places, starts_us = self._places, self.starts_us
        wake_us = min(starts_us.values(), default=FOREVER_US)
        reserved = {job_id: Reserved(start_us, places.get(job_id)) for job_id, start_us in starts_us.items()}
        return Timetable(reserved, wake_us), wake_us

    @property
    def nodes_stayed_away(self) -> bool:
        """Whether a reservation is due on a node that was to be in service by now, and is not."""
        there = self._room.index
        return any(
            start_us <= self.now_us and any(share.node not in there for share in self._places[job_id].nodes)
            for job_id, start_us in self.starts_us.items()
            if job_id in self._places
        )

    @property
    def ends_moved(self) -> bool:
        """Whether predicted ends have moved to where reservations lie: possible where jobs share nodes alone."""
        return self._nodes.occupancy is not None and self.over_committed

    @property
    def over_committed(self) -> bool:
        """Whether more is reserved than what runs leaves."""
        with_starts, with_all = self._profiles()
        return with_all.over_committed(with_starts)

    def _take(self, job: Job, start_us: int, allocation: Allocation) -> None:
        self._reserved[job.id] = job, start_us
        self._places[job.id] = allocation
        self._profiles()[1].take(job, start_us, allocation)

    def _answer(self, job: Job, allocation: Allocation | None) -> bool:
        self._found = None if allocation is None else (job, allocation)
        return allocation is not None

    def _place_found(self, job: Job) -> Allocation:
        """What the last question has found for the job, or where it has a place now."""
        if self._found is not None and self._found[0] is job:
            allocation, self._found = self._found[1], None
            return allocation
        if self._reserved or (placed := self._free().placed(job)) is None:
            raise found_no_place(job, self._free().obstacle(job))
        return placed

    def _free(self) -> Room:
        """What is free now, beside the starts of this pass."""
        if self._untaken:
            if self._room is self._nodes.room:
                self._room = self._room.copy()
            for start in self._untaken:
                assert start.allocation is not None
                self._room.take(start.job, start.allocation)
            self._untaken.clear()
        return self._room

    def _profiles(self) -> tuple[NodeProfile, NodeProfile]:
        """What will be free beside what runs and starts now, and beside the reservations, too."""
        if self._with_starts is None or self._with_all is None:
            nodes = self._nodes
            self._with_starts = NodeProfile.of_running(self.now_us, nodes.ahead, nodes.held, nodes.opens)
            for start in self._begun:
                assert start.allocation is not None
                self._with_starts.take(start.job, self.now_us, start.allocation)
            self._with_all = self._with_starts.copy()
        return self._with_starts, self._with_all

    def _moved_aside(self, job: Job, allocation: Allocation) -> NodeProfile | None:
        """The future with this start and every reservation at its time on another place, or None."""
        profile = self._profiles()[0].copy()
        profile.take(job, self.now_us, allocation)
        for reserved, start_us in self._reserved.values():
            place = profile.placed(reserved, start_us)
            if place is None:
                return None
            profile.take(reserved, start_us, place)
        return profile


def contradiction(snapshot: Snapshot, memory: Timetable) -> str | None:
    """What is wrong with a memory: every reservation has its place beside what runs and the others.

    Where jobs slow each other down, predicted ends move after a pass, and the next one sees to it.
    """
    if snapshot.nodes is None or snapshot.nodes.occupancy is not None:
        return None
    ahead = memory.reserved.items()  # one that is past will be made anew in the pass that is late
    book = {job_id: each for job_id, each in ahead if each.start_us >= snapshot.now_us}
    over_committed = NamedFuture.resumed(snapshot, Timetable(book, memory.wake_us)).over_committed
    return f"over-committed: {book}" if over_committed else None

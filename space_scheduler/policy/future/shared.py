"""The future of named nodes that jobs share: who is to be where decides how long everything takes.

A reservation is the earliest predicted moment at which there is a place. A start keeps it if that moment comes no later
with the newcomer there, and with the slowdown that it causes to the jobs that are waited for (3DBackfilling, Hanzich et
al. 2005, section 3). At most one job has a reservation: predicted ends move with each start, so a second one could not
be told from a walk over them, and none can be kept for the next pass.

Whom a newcomer does not slow down ends as predicted, so most answers need no look ahead. In one scan at most
:data:`LOOKS` candidates get one; those behind wait for the next.
"""

from typing import Final

from cosched.model.allocation import Allocation
from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from space_scheduler.lookahead import LookAhead
from space_scheduler.policy.future.protocol import found_no_place
from space_scheduler.policy.interface import Nodes, PlannedStart, Snapshot
from space_scheduler.reasons import Reason, Why

#: How many candidates of a scan may be looked ahead for: each costs a walk over predicted ends.
LOOKS: Final = 50


class SharedFuture:
    """Shared nodes."""

    def __init__(self, snapshot: Snapshot) -> None:
        assert snapshot.nodes is not None
        self._nodes: Nodes = snapshot.nodes
        self.now_us = snapshot.now_us
        self._room = self._nodes.room.copy()
        self.free_procs = self._room.free_procs
        self.by_company, self.by_cluster = self._room.place.by_company, self._room.clusters is not None
        self._begun: list[PlannedStart] = []  # starts of this pass, before there is a look ahead
        self._found: tuple[Job, Allocation | None] | None = None  # by the last question
        self._ahead: LookAhead | None = None  # the future with what has started
        self._reserved: tuple[Job, int] | None = None
        self._then: LookAhead | None = None  # the future at the reserved moment
        self._looks = LOOKS

    def obstacle(self, job: Job) -> Why | None:
        """What keeps a job from starting now, whatever is reserved."""
        found = self._room.obstacle(job)
        return found.why if found else None

    def now(self, job: Job) -> bool:
        """Whether the reservation holds with a start now."""
        allocation = self._room.placed(job)
        if allocation is None or not (self._reserved is None or self._holds_with(job, allocation)):
            self._found = None
            return False
        self._found = job, allocation
        return True

    def earliest(self, job: Job) -> int:
        """The earliest predicted moment with a place; FOREVER_US while nodes that it needs are away."""
        if allocation := self._room.placed(job):
            self._found = job, allocation
            return self.now_us
        self._found = job, None
        self._then = _with_a_place(self._look_ahead(), job, FOREVER_US)
        return FOREVER_US if self._then is None else self._then.now_us

    def reserve(self, job: Job, start_us: int) -> None:
        """Keep the moment that was just found."""
        if start_us != FOREVER_US:
            self._reserved = job, start_us

    def lasts_us(self, job: Job) -> int:
        """Its estimate, and what the link between clusters costs it there."""
        assert self._found is not None
        assert self._found[1] is not None
        return self._room.lasts_us(job, self._found[1])

    def start(self, job: Job, reason: Reason) -> PlannedStart:
        """Give a job its place now."""
        start = PlannedStart(job, reason, self._place_found(job))
        self.begin(start)
        return start

    def begin(self, start: PlannedStart) -> None:
        """Take away what a start holds."""
        assert start.allocation is not None
        self.free_procs -= start.job.procs
        if self._ahead is None:
            self._room.take(start.job, start.allocation)
            self._begun.append(start)
            return
        self._ahead.start(start.job, start.allocation)
        if self._reserved:
            self._then = _with_a_place(self._ahead, *self._reserved)

    def beside(self, shadow_us: int) -> Reason:
        """On other nodes, or on what is left of them."""
        return Reason(Why.BACKFILLED_BESIDE, {"shadow_us": shadow_us})

    def _place_found(self, job: Job) -> Allocation:
        """What the last question has found for the job, or where it has a place now."""
        if self._found is not None and self._found[0] is job and self._found[1] is not None:
            allocation, self._found = self._found[1], None
            return allocation
        if self._reserved or (placed := self._room.placed(job)) is None:
            raise found_no_place(job, self._room.obstacle(job))
        return placed

    def _look_ahead(self) -> LookAhead:
        """The future with what has started in this pass; from then on the room is what is free in it."""
        if self._ahead is None:
            assert self._nodes.occupancy is not None
            self._ahead = LookAhead.of(self.now_us, self._nodes.room, self._nodes.occupancy, self._nodes.progress)
            for start in self._begun:
                assert start.allocation is not None
                self._ahead.start(start.job, start.allocation)
            self._room = self._ahead.room
        return self._ahead

    def _holds_with(self, job: Job, allocation: Allocation) -> bool:
        assert self._reserved is not None
        assert self._then is not None
        ahead, (head, start_us) = self._look_ahead(), self._reserved
        beside = ahead.beside(allocation)
        if not beside and ahead.ends_us(job, allocation) <= start_us:
            return True  # all others end as before
        # who is waited for ends as before; whoever else ends by then only makes room, unless who is there matters
        if not beside or (beside <= self._then.running and not self.by_company):
            room = self._then.room.copy()
            room.take(job, allocation)
            if room.obstacle(head) is None:
                return True
            if not beside:
                return False
        if not self._looks:
            return False
        self._looks -= 1
        with_it = ahead.copy()
        with_it.start(job, allocation)
        return _with_a_place(with_it, head, start_us) is not None


def _with_a_place(lookahead: LookAhead, job: Job, until_us: int) -> LookAhead | None:
    """A future at the first end, ``until_us`` at the latest, after which a job has a place that has none now."""
    future = lookahead.copy()
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

"""Backfilling with n reservations: backfill(n).

Start jobs in order while they fit. The first ``n`` of those that remain get reservations, recomputed in queue order at
each pass from the predicted ends of what runs; then the rest is scanned, in queue order or shortest estimate first, and
a job starts now if no reservation made in this pass moves.

* ``n = 0`` is greedy first fit over the whole queue;
* ``n = 1`` is EASY (Feitelson & Weil 1998, section 2.2, Fig. 5): one *shadow time*, for the head, and the *extra*
  processors left over then. Scanned shortest first it is EASY with shortest-first backfilling (SJBF, Tsafrir et al.
  2007);
* ``n > 1`` keeps the reservations in a profile. It is not conservative backfilling however large n is: these
  reservations are made anew at each pass and promise nothing.

Where nodes have names, every n keeps them in a profile of the nodes, at the earliest times at which there is a place;
a job starts now if it has a place beside them for its whole estimate, or if they find other places at their times.

Why most passes over counted processors are short: between two ends of jobs nothing gets easier, so after submissions
only the newcomers are asked, with the shadow time of the last full pass; and the scan asks each shape of job once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import msgspec

from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from space_scheduler.feasibility import obstacle
from space_scheduler.policy.future import CountedFuture, NamedFuture, SharedFuture, ends_with
from space_scheduler.policy.interface import Plan, PlannedStart, Snapshot
from space_scheduler.policy.order import Order, fcfs
from space_scheduler.policy.room import room_of
from space_scheduler.policy.select.jfirst import start_heads
from space_scheduler.reasons import Reason, Why


class Shadow(msgspec.Struct, frozen=True, tag=True):
    """The memory for n = 1 on counted processors: the blocked head's reservation, and the processors it leaves over."""

    head_id: int
    shadow_us: int
    extra_procs: int
    current: bool = True  # False: something ended since, but no queued job was narrow enough to care


class Promises(msgspec.Struct, frozen=True, tag=True):
    """The memory otherwise: what was promised to the first jobs of the queue, by number, in microseconds."""

    starts_us: dict[int, int] = {}


#: The shadow of a head that is promised nothing: under backfill(0).
NOBODY: Final = Shadow(-1, FOREVER_US, 0)
FIRST_FIT: Final = Reason(Why.FIRST_FIT)


def shadow_of(head: Job, free_procs: int, ends: Iterable[tuple[int, int, int]]) -> tuple[int, int]:
    """Shadow time and extra processors of a blocked head (Fig. 5, step 1).

    ``ends`` are (predicted end, job id, processors) in order of time. All that ends at the shadow time counts as extra.
    A head that will not fit (nodes are out of service) has its shadow at FOREVER: it is in nobody's way.
    """
    available = free_procs
    shadow_us = FOREVER_US
    for end_us, _, procs in ends:
        if end_us > shadow_us:
            break
        available += procs
        if shadow_us == FOREVER_US and available >= head.procs:
            shadow_us = end_us
    if shadow_us == FOREVER_US:
        return FOREVER_US, 0
    return shadow_us, available - head.procs


@dataclass(frozen=True)
class Backfill:
    """backfill(n): ``reservations`` is n; ``shortest_first`` scans by estimate instead of by queue order.

    ``place`` and ``mpl`` as for ``JustFirst``.
    """

    reservations: int
    shortest_first: bool = False
    order: Order = fcfs
    place: str = ""
    mpl: int | None = None
    memory_type: ClassVar = Shadow | Promises

    @property
    def shares(self) -> bool:
        """Whether it can be had where jobs share nodes: with one reservation at most."""
        return self.reservations <= 1

    def plan(self, snapshot: Snapshot) -> Plan:
        """Heads first, then whatever harms no reservation."""
        if snapshot.nodes is not None:
            return self._to_fixed_point(snapshot)
        if self.reservations == 0:
            room = room_of(snapshot)
            starts = start_heads(snapshot, room)
            return Plan(self._past_heads(snapshot, NOBODY, starts, room.free_procs)[0])
        if self.reservations == 1:
            return self._easy(snapshot)
        return self._in_profile(snapshot)

    def _easy(self, snapshot: Snapshot) -> Plan:
        changes, memory = snapshot.changes, snapshot.memory
        head = snapshot.queue.head()
        if head is None:
            return Plan()
        previous = memory if isinstance(memory, Shadow) and memory.head_id == head.id else None
        if head in changes.withdrawn:  # and back again: it is promised anew
            previous = None
        if (
            previous
            and previous.current
            and not (changes.vacated or changes.withdrawn or changes.released or changes.disturbed)
        ):
            return self._newcomers(snapshot, previous)
        room = room_of(snapshot)
        starts = start_heads(snapshot, room)
        free_procs = room.free_procs
        blocked = _after(snapshot, len(starts))
        if blocked is None:
            return Plan(starts)
        if previous and not starts and not changes.disturbed and snapshot.queue.narrowest() > free_procs:
            return Plan((), Shadow(head.id, previous.shadow_us, previous.extra_procs, current=False))
        ends = ends_with(snapshot, starts) if starts else snapshot.ends
        shadow = Shadow(blocked.id, *shadow_of(blocked, free_procs, ends))
        told = []
        if starts or not previous or previous.shadow_us != shadow.shadow_us:
            told.append((blocked.id, shadow.shadow_us, Reason(changes.disturbed or Why.RESERVED)))
        starts, shadow = self._past_heads(snapshot, shadow, starts, free_procs)
        promised = memory.head_id if isinstance(memory, Shadow) else blocked.id
        if promised != blocked.id and promised in snapshot.queue and all(start.job.id != promised for start in starts):
            told.append((promised, FOREVER_US, Reason(Why.OVERTAKEN)))
        return Plan(starts, shadow, told=told)

    def _newcomers(self, snapshot: Snapshot, memory: Shadow) -> Plan:
        """Only submissions happened: nothing that waited before can start now."""
        free_procs, now_us = snapshot.free_procs, snapshot.now_us
        starts: list[PlannedStart] = []
        newcomers = snapshot.changes.submitted
        if len(newcomers) > 1:
            key = snapshot.queue.key
            newcomers = sorted(newcomers, key=lambda job: (job.estimate_us * self.shortest_first, key(job.id)))
        extra_procs = memory.extra_procs
        for job in newcomers:
            if obstacle(job.procs, job.estimate_us, now_us, free_procs, memory.shadow_us, extra_procs) is None:
                extra_procs = _backfilled(starts, job, now_us, memory.shadow_us, extra_procs)
                free_procs -= job.procs
        if starts:
            memory = Shadow(memory.head_id, memory.shadow_us, extra_procs)
        return Plan(starts, memory)

    def _past_heads(
        self, snapshot: Snapshot, memory: Shadow, starts: list[PlannedStart], free_procs: int
    ) -> tuple[list[PlannedStart], Shadow]:
        """Scan the jobs behind the blocked head."""
        now_us, shadow_us, extra_procs = snapshot.now_us, memory.shadow_us, memory.extra_procs
        scan = snapshot.queue.scan(free_procs, shortest_first=self.shortest_first)
        taken = {start.job.id for start in starts}
        while (job := scan.peek()) is not None:
            if job.id in taken:
                scan.advance()
            elif obstacle(job.procs, job.estimate_us, now_us, free_procs, shadow_us, extra_procs):
                scan.drop()
            else:
                extra_procs = _backfilled(starts, job, now_us, shadow_us, extra_procs)
                free_procs -= job.procs
                scan.advance()
        return starts, Shadow(memory.head_id, shadow_us, extra_procs)

    def _to_fixed_point(self, snapshot: Snapshot) -> Plan:
        """Plan until nobody more starts.

        Where a job's company decides whether it has a place, a start can make one for a job ahead of it, so one scan
        is not enough. What was promised before the last start is not told.
        """
        plan = self._in_profile(snapshot)
        assert snapshot.nodes is not None
        more = bool(plan.starts) and snapshot.nodes.room.place.refuses
        while more:
            again = self._in_profile(snapshot, plan.starts)
            more = len(again.starts) > len(plan.starts)
            plan = again
        return plan

    def _in_profile(self, snapshot: Snapshot, begun: Sequence[PlannedStart] = ()) -> Plan:
        """Reservations in a profile, candidates tried against it. ``begun`` are starts of this pass already."""
        now_us, named = snapshot.now_us, snapshot.nodes is not None
        room = room_of(snapshot)
        starts = start_heads(snapshot, room, begun)
        future = _future(snapshot, starts, room.free_procs)
        gone = {job.id for job in snapshot.changes.withdrawn}  # who comes back is promised anew
        memory = snapshot.memory.starts_us if isinstance(snapshot.memory, Promises) else {}
        before = {job_id: at for job_id, at in memory.items() if job_id not in gone}
        promised: dict[int, int] = {}
        reserved = {start.job.id for start in starts}
        places = self.reservations
        for first in snapshot.queue:
            if first.id in reserved:
                continue
            if not places:
                break
            places -= 1
            reserved.add(first.id)
            slot = future.earliest(first)
            if slot is None:
                continue  # cannot be promised anything while nodes are out of service
            if slot[0] == now_us:
                starts.append(future.start(first, slot, _in_hole(future.free_procs)))
            else:
                future.reserve(first, slot)
                promised[first.id] = slot[0]
        shadow_us = min(promised.values(), default=FOREVER_US)
        scan = snapshot.queue.scan(future.free_procs, shortest_first=self.shortest_first)
        while (job := scan.peek()) is not None:
            if job.id in reserved:
                scan.advance()
            elif (slot := future.now(job)) is None:
                scan.drop()
            else:
                reason = self._beside(job, now_us, shadow_us, future.free_procs)
                starts.append(future.start(job, slot, reason))
                scan.advance()
        why = Reason(snapshot.changes.disturbed or Why.RESERVED)
        told = [(id_, at, why) for id_, at in promised.items() if before.get(id_) != at]
        if named:
            told += _taken_back(snapshot, before, promised, starts)
        return Plan(starts, Promises(promised), told=told)

    def _beside(self, job: Job, now_us: int, shadow_us: int, free_procs: int) -> Reason:
        """Why a job behind the reservations may start."""
        if shadow_us == FOREVER_US and self.reservations < 2:
            return FIRST_FIT
        if self.reservations > 1:
            return _in_hole(free_procs)
        in_time = now_us + job.estimate_us <= shadow_us
        why = Why.BACKFILLED_BEFORE_SHADOW if in_time else Why.BACKFILLED_BESIDE
        return Reason(why, {"shadow_us": shadow_us})


def _future(
    snapshot: Snapshot, starts: list[PlannedStart], free_procs: int
) -> CountedFuture | NamedFuture | SharedFuture:
    if snapshot.nodes is None:
        return CountedFuture(snapshot, starts, free_procs)
    if snapshot.nodes.floor is None:
        return NamedFuture(snapshot, starts, free_procs)
    return SharedFuture(snapshot, starts, free_procs)


def _in_hole(free_procs: int) -> Reason:
    return Reason(Why.BACKFILLED_IN_HOLE, {"free_procs": free_procs})


def _taken_back(
    snapshot: Snapshot, before: dict[int, int], promised: dict[int, int], starts: list[PlannedStart]
) -> list[tuple[int, int, Reason]]:
    """Promises that hold no more: their jobs wait behind others now, or nodes that they need are away."""
    started = {start.job.id for start in starts}
    why = Reason(snapshot.changes.disturbed or Why.OVERTAKEN)
    lost = [
        job_id for job_id in before if job_id in snapshot.queue and job_id not in started and job_id not in promised
    ]
    return [(job_id, FOREVER_US, why) for job_id in lost]


def _after(snapshot: Snapshot, started: int) -> Job | None:
    """The first job in order behind the ``started`` first ones."""
    for i, job in enumerate(snapshot.queue):
        if i == started:
            return job
    return None


def _backfilled(starts: list[PlannedStart], job: Job, now_us: int, shadow_us: int, extra_procs: int) -> int:
    """Note a start past the head; returns the extra processors that are left."""
    if shadow_us == FOREVER_US:
        starts.append(PlannedStart(job, FIRST_FIT))
        return extra_procs
    if now_us + job.estimate_us <= shadow_us:
        starts.append(PlannedStart(job, Reason(Why.BACKFILLED_BEFORE_SHADOW, {"shadow_us": shadow_us})))
        return extra_procs
    starts.append(PlannedStart(job, Reason(Why.BACKFILLED_ON_EXTRA, {"extra_procs": extra_procs})))
    return extra_procs - job.procs

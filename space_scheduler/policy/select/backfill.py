"""Backfilling with n reservations: backfill(n).

Start jobs in order while they fit. The first ``n`` of those that remain get reservations, recomputed in queue order at
each pass from the predicted ends of what runs; then the rest is scanned, in queue order or shortest estimate first, and
a job starts now if no reservation made in this pass moves to a later time.

* ``n = 0`` is greedy first fit over the whole queue;
* ``n = 1`` is EASY (Feitelson & Weil 1998, section 2.2, Fig. 5). Scanned shortest first it is EASY with shortest-first
  backfilling (SJBF, Tsafrir et al. 2007). Where jobs share nodes it is 3DBackfilling (Hanzich et al. 2005);
* ``n > 1`` is not conservative backfilling however large n is: these reservations are made anew at each pass and
  promise nothing.

What a reservation is, and when a start moves it, the future says (``policy.future``): a shadow time and extra
processors, a place on nodes, or a moment that is predicted. Where a start can make room for another job (company
decides, or several clusters), the pass begins again at the head after each start, with what has started (as in Fig. 5),
until nothing more starts: a second candidate does not take what a first one has given the head.

Why most passes of EASY over counted processors are short: between two ends of jobs nothing gets easier, so after
submissions only the newcomers are asked, with the shadow time of the last full pass; and the scan asks each shape of
job at its beginning, and walks those alone that may start: during a scan that only gets harder.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Final

import msgspec

from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from space_scheduler.policy.future import CountedFuture, Future, future_of
from space_scheduler.policy.interface import Plan, PlannedStart, Snapshot
from space_scheduler.policy.order import Order, fcfs
from space_scheduler.policy.queue import JobQueue
from space_scheduler.policy.select.scan import next_fitting, start_heads, walk
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


FIRST_FIT: Final = Reason(Why.FIRST_FIT)
_BEFORE_SHADOW: Final = Why.BACKFILLED_BEFORE_SHADOW  # as in ``feasibility``: slow to look up in its class
_RESERVED: Final = Why.RESERVED


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

    def __str__(self) -> str:
        return f"backfill({self.reservations}{',shortest' * self.shortest_first})"

    @property
    def shares(self) -> bool:
        """Whether it can be had where jobs share nodes: with one reservation, or where no two share a CPU."""
        return self.reservations <= 1 or self.mpl == 1

    @property
    def alone_because(self) -> str:
        """Why it cannot be had there otherwise."""
        return (
            f"its {self.reservations} reservations are made from predicted ends, and where tasks share a CPU each "
            "start moves those; one reservation can be had there, or one task on a CPU (a place with mpl=1)"
        )

    def plan(self, snapshot: Snapshot) -> Plan:
        """Heads first, then whatever harms no reservation; again where a start may have made room."""
        if snapshot.nodes is None and self.reservations == 1 and (plan := self._short_cut(snapshot)):
            return plan
        plan, more = self._pass(snapshot, ())
        while more and plan.changes:  # what was promised before the last start is not told
            before = len(plan.changes)
            plan, _ = self._pass(snapshot, plan.starts)
            more = len(plan.changes) > before
        return plan

    def _pass(self, snapshot: Snapshot, begun: Sequence[PlannedStart]) -> tuple[Plan, bool]:
        """One pass, and whether what it starts may make room. ``begun`` are starts of this pass already."""
        now_us = snapshot.now_us
        future = future_of(snapshot, self.reservations)
        starts = [*begun]
        for start in begun:
            future.begin(start)
        jobs = _behind(snapshot.queue, begun)
        blocked = start_heads(jobs, future, starts)
        promised: dict[int, int] = {}
        if blocked is None:
            return Plan(starts, self._memory(future, promised)), False
        taken = {start.job.id for start in starts}
        for first in (blocked, *islice(jobs, self.reservations - 1)) if self.reservations else ():
            taken.add(first.id)
            start_us = future.earliest(first)
            if start_us == now_us:
                starts.append(future.start(first, _in_hole(future)))
            elif start_us != FOREVER_US or self._has_shadow(future):
                future.reserve(first, start_us)
                promised[first.id] = start_us  # at FOREVER_US: nothing, while nodes are out of service
        shadow_us = min(promised.values()) if promised else FOREVER_US
        scan = walk(snapshot.queue, future, shortest_first=self.shortest_first)
        again = future.by_company or future.by_cluster
        one_scan = not future.by_cluster and snapshot.nodes is not None and snapshot.nodes.room.place.one_scan
        while (job := next_fitting(scan, future, taken)) is not None:
            starts.append(future.start(job, self._why(job, future, shadow_us)))
            if again and not one_scan:
                break
            scan.advance()
        plan = Plan(starts, self._memory(future, promised), told=_told(snapshot, promised, starts))
        return plan, again

    def _why(self, job: Job, future: Future, shadow_us: int) -> Reason:
        """Why a job behind the reservations may start."""
        if self.reservations > 1:
            return _in_hole(future)
        if shadow_us == FOREVER_US:
            return FIRST_FIT
        if future.now_us + future.lasts_us(job) <= shadow_us:
            return Reason(_BEFORE_SHADOW, {"shadow_us": shadow_us})
        return future.beside(shadow_us)

    def _memory(self, future: Future, promised: dict[int, int]) -> Shadow | Promises | None:
        """What was promised."""
        if not isinstance(future, CountedFuture) or self.reservations > 1:
            return Promises(promised)
        head_id = next(iter(promised), None)
        return None if head_id is None else Shadow(head_id, future.shadow_us, future.extra_procs)

    def _has_shadow(self, future: Future) -> bool:
        """Whether the one reservation is a shadow time: that of EASY on counted processors."""
        return self.reservations == 1 and isinstance(future, CountedFuture)

    # the short cut of EASY on counted processors

    def _short_cut(self, snapshot: Snapshot) -> Plan | None:
        """The plan of a pass in which nothing that waited before can start, or None."""
        changes, memory, head = snapshot.changes, snapshot.memory, snapshot.queue.head()
        if head is None:
            return Plan()
        if not isinstance(memory, Shadow) or memory.head_id != head.id or changes.disturbed:
            return None
        if changes.withdrawn and head in changes.withdrawn:  # and back again: it is promised anew
            return None
        if memory.current and not (changes.vacated or changes.withdrawn or changes.released):
            return self._newcomers(snapshot, memory)
        if snapshot.queue.narrowest() > snapshot.free_procs:
            return Plan((), Shadow(head.id, memory.shadow_us, memory.extra_procs, current=False))
        return None

    def _newcomers(self, snapshot: Snapshot, memory: Shadow) -> Plan:
        """Only submissions happened."""
        free_procs = snapshot.free_procs
        newcomers = [job for job in snapshot.changes.submitted if job.procs <= free_procs]
        if not newcomers:
            return Plan((), memory)
        if len(newcomers) > 1:
            key = snapshot.queue.key
            newcomers = sorted(newcomers, key=lambda job: (job.estimate_us * self.shortest_first, key(job.id)))
        future = CountedFuture(snapshot)
        future.suppose(memory.shadow_us, memory.extra_procs)
        starts = [future.start(job, self._why(job, future, memory.shadow_us)) for job in newcomers if future.now(job)]
        return Plan(starts, Shadow(memory.head_id, memory.shadow_us, future.extra_procs) if starts else memory)


def _behind(queue: JobQueue, begun: Sequence[PlannedStart]) -> Iterator[Job]:
    """The queued jobs in order, without those that have begun in this pass."""
    if not begun:
        return iter(queue)
    taken = {start.job.id for start in begun}
    return (job for job in queue if job.id not in taken)


def _in_hole(future: Future) -> Reason:
    return Reason(Why.BACKFILLED_IN_HOLE, {"free_procs": future.free_procs})


def _told(
    snapshot: Snapshot, promised: Mapping[int, int], starts: Sequence[PlannedStart]
) -> list[tuple[int, int, Reason]]:
    """Promises that are new, and those that hold no more: others come first now, or nodes that are needed are away."""
    memory, changes = snapshot.memory, snapshot.changes
    before: Mapping[int, int] = {}
    if isinstance(memory, Shadow):
        before = {memory.head_id: memory.shadow_us}
    elif isinstance(memory, Promises):
        before = memory.starts_us
    if before and changes.withdrawn:  # who comes back is promised anew
        gone = {job.id for job in changes.withdrawn}
        before = {job_id: at_us for job_id, at_us in before.items() if job_id not in gone}
    if before == promised:
        return []
    started, head = {start.job.id for start in starts}, snapshot.queue.head()
    if (
        head is not None
        and head.id not in started
        and before.get(head.id, FOREVER_US) < promised.get(head.id, FOREVER_US)
    ):
        why = broken_why = changes.moved(Why.CAPACITY_CHANGED)  # a node that was to open has not
    else:
        why, broken_why = changes.moved(_RESERVED), changes.moved(Why.OVERTAKEN)
    told = [(job_id, at_us, why) for job_id, at_us in promised.items() if before.get(job_id) != at_us]
    broken = [job_id for job_id in before if job_id not in promised and job_id in snapshot.queue]
    return told + [(job_id, FOREVER_US, broken_why) for job_id in broken if job_id not in started]

"""Backfilling with moldable jobs, and what becomes of a backfilled job that keeps the head waiting: BFA and BFM.

Utrera, Corbalán & Labarta, "Another approach to backfilled jobs: applying virtual malleability to expired windows", ICS
2005, sections 4 to 6. The head starts when one of its sizes is free. While it waits, jobs behind it that can be moulded
to what is free start, without estimates. The *window* has expired when every job that runs was backfilled: then room is
made for the head's smallest size, the oldest start first, by folding backfilled jobs to ⌈processes / 4⌉ processors
(BFM), or by ending them to begin anew later (BFA). Room is made wholly or not at all. Folded jobs get processors back
when nobody waits, oldest start first.

What the paper leaves open is a parameter, or stands in docs/design/shapes.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple

import msgspec

from cosched.model.allocation import Allocation, folded_to, suspended
from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from space_scheduler.policy.interface import (
    Plan,
    PlannedChange,
    PlannedRequeue,
    PlannedResize,
    PlannedStart,
    RunningJob,
    Snapshot,
)
from space_scheduler.policy.order import Key, Order, fcfs
from space_scheduler.policy.reshape import resident
from space_scheduler.policy.reshape.free import FreeProcs, done_us, shadow, sizes_down
from space_scheduler.policy.reshape.mold import FOLD, LARGEST, Fjt
from space_scheduler.progress import Rate
from space_scheduler.reasons import Reason, Why


class Expired(StrEnum):
    """What becomes of backfilled jobs whose window has expired (section 3 lists what others do)."""

    FOLD = "fold"
    ABORT = "abort"
    REMAIN = "remain"
    SUSPEND = "suspend"


class Window(StrEnum):
    """When a window expires: when all that run were backfilled; or that of a job which has done its estimated work.

    With ``estimates`` a job is backfilled only if it does not delay the head, by the predicted ends of what runs.
    """

    BACKFILLED = "backfilled"
    ESTIMATES = "estimates"


class Marks(msgspec.Struct, frozen=True, omit_defaults=True):
    """The memory: the jobs that were backfilled, when those that were suspended went on, and who was told a refusal.

    ``refused``: the head that was told that those before it are not folded.
    """

    backfilled: tuple[int, ...] = ()
    resumed_us: dict[int, int] = {}
    refused: int = -1


@dataclass(frozen=True)
class MoldableBackfill:
    """Moldable jobs in the order of the queue, with or without backfilling.

    ``expired`` and ``window`` as above; ``short_only``: only short jobs are backfilled; ``partial``: a job is folded no
    further than the head needs. ``busy_unfold``: folded jobs get processors also while somebody waits (FJT4, after all
    starts), not only when nobody does.
    """

    sizes: Fjt = LARGEST
    backfill: bool = True
    expired: Expired = Expired.FOLD
    window: Window = Window.BACKFILLED
    short_only: bool = False
    partial: bool = False
    busy_unfold: bool = False
    order: Order = fcfs
    place: str = ""
    mpl: int | None = 1
    memory_type: ClassVar = Marks
    shares: ClassVar = True  # one task on a CPU: what others do there does not make room
    reshapes: ClassVar = True

    def plan(self, snapshot: Snapshot) -> Plan:
        """Heads, then room for the first that waits or jobs behind it, then what is left for folded jobs."""
        return _Pass(self, snapshot).plan()

    def waits(self, snapshot: Snapshot, head: Job) -> Reason | None:
        """For which running job the head waits: one that was started in order, or one that is not folded for it."""
        by_windows = self.backfill and self.expired is not Expired.REMAIN and self.window is Window.BACKFILLED
        return _Pass(self, snapshot).waits(head) if by_windows else None


class _Waiting(NamedTuple):
    """A job that waits: in the queue, or suspended, at its place in the order."""

    key: Key
    job: Job
    suspended: RunningJob | None = None


class _Pass:
    """One pass: what is free, what each running job is to hold, and what has been decided so far."""

    def __init__(self, policy: MoldableBackfill, snapshot: Snapshot) -> None:
        self.policy, self.snapshot = policy, snapshot
        self.free = FreeProcs(snapshot)
        memory = snapshot.memory if isinstance(snapshot.memory, Marks) else Marks()
        resumed_us = memory.resumed_us
        self.present = present = snapshot.running()
        self.resumed_us = {each.job.id: at for each in present if (at := resumed_us.get(each.job.id)) is not None}
        self.running = sorted(
            (each for each in present if each.allocation.procs),
            key=lambda each: (self.resumed_us.get(each.job.id, each.started_us), each.rank),
        )
        self.suspended = [each for each in present if not each.allocation.procs]
        self.holds = {each.job.id: each.allocation for each in present}
        self.backfilled = {job_id for job_id in memory.backfilled if job_id in self.holds}
        self.refused = memory.refused
        self.why: dict[int, Reason] = {}  # of those that are changed
        self.aborted: list[RunningJob] = []
        self.starts: list[PlannedStart] = []
        self.heads: set[int] = set()  # those that started in this pass, and were not backfilled
        self.told: list[tuple[int, int, Reason]] = []
        self.long_waiting = sum(job.long for job in snapshot.queue) if policy.sizes.shared else 0

    def plan(self) -> Plan:
        """All of it."""
        waiting = self._waiting()
        waits: _Waiting | None = None
        for head in waiting:
            if not self._start(head, Why.FITS):
                if not (self.policy.backfill and self._expired() and self._make_room(head)):
                    waits = head
                    break
                started = self._start(head, Why.FITS)
                assert started, f"room was made for job {head.job.id}, and it does not fit"
                if self.aborted or self._newly_suspended():  # who waits now is looked at in the next pass, in its place
                    return self._planned()
        if waits is not None and self.policy.backfill and self.free.procs > 0:
            for each in waiting:  # those behind it
                self._start_behind(each, waits.job)
                if self.free.procs <= 0:
                    break
        if self.policy.busy_unfold or waits is None:
            self._unfold()
        return self._planned()

    def waits(self, head: Job) -> Reason | None:
        """Why the head waits, though windows expire."""
        lacking = self._lacking(_Waiting((0, 0), head), self.free)
        in_order = [each for each in self.running if each.job.id not in self.backfilled]
        if in_order:
            return Reason(Why.WINDOW_OPEN, {"blocking_job": in_order[0].job.id})
        for each in self.running:
            held = self.holds[each.job.id]
            new = self._reduced(held, lacking)
            if new is not None and new.procs >= held.procs:
                return Reason(Why.NOT_FOLDED_FURTHER, {"blocking_job": each.job.id})
            if each.resizable and not self._may_be_changed(each):
                return Reason(Why.NOT_FOLDABLE, {"blocking_job": each.job.id})
        return None

    def _waiting(self) -> Iterator[_Waiting]:
        """Who waits, in order; a queue of thousands costs nothing where only its first jobs are looked at."""
        queued = (_Waiting(key, job) for key, job in self.snapshot.queue.line())
        if not self.suspended:
            return queued
        order = self.policy.order
        suspended = (_Waiting(order(each.job, each.rank), each.job, each) for each in self.suspended)
        return iter(sorted([*queued, *suspended], key=lambda each: each.key))

    # starts

    def _start(self, waiting: _Waiting, why: Why) -> bool:
        """Start a job in the size that it gets, or have it go on, if that is free."""
        job = waiting.job
        if waiting.suspended is not None:
            new = self._resumed(waiting.suspended)
            if new is None:
                return False
            self._go_on(waiting.suspended, new)
        else:
            allocation = self._place(job, self.free)
            if allocation is None:
                return False
            self._begin(job, allocation, why)
        if why is Why.FITS:
            self.heads.add(job.id)
        return True

    def _place(self, job: Job, free: FreeProcs) -> Allocation | None:
        return self.policy.sizes.place(job, free, self.snapshot.procs_total, self.long_waiting - job.long)

    def _begin(self, job: Job, allocation: Allocation, why: Why) -> None:
        numbers = {"processes": allocation.processes, "procs": allocation.procs, "free_procs": self.free.procs}
        self.free.take(job, allocation)
        self.starts.append(PlannedStart(job, Reason(why, numbers), allocation))
        if self.policy.sizes.shared:
            self.long_waiting -= job.long

    def _start_behind(self, waiting: _Waiting, head: Job) -> None:
        """Start a job behind the head, if it may be backfilled."""
        job = waiting.job
        if self.policy.short_only and job.long:
            return
        if self.policy.window is Window.BACKFILLED or waiting.suspended is not None:
            started = self._start(waiting, Why.BACKFILLED_MOULDED)
        else:
            started = self._start_in_window(job, head)
        if started:
            self.backfilled.add(job.id)

    def _start_in_window(self, job: Job, head: Job) -> bool:
        """Start a job in its largest size with which it does not delay the head, by the predicted ends of what runs."""
        shadow_us, extra = self._reservation(head)
        least = self.policy.sizes.least(job, self.snapshot.procs_total)
        for size in sizes_down(job, self.free.procs):
            allocation = self.free.place(job, size) if size >= least else None
            if allocation is not None and (size <= extra or self._end_us(job, allocation, job.alone_us) <= shadow_us):
                self._begin(job, allocation, Why.BACKFILLED_MOULDED)
                return True
        return False

    def _reservation(self, head: Job) -> tuple[int, int]:
        """When the head's smallest size is free by the predicted ends of what runs, and how much is left over then."""
        least, free = self.policy.sizes.least(head, self.snapshot.procs_total), self.free.procs
        ends_us = {job_id: end_us for end_us, job_id, _ in self.snapshot.ends}
        ends = []
        for each in self.running:
            held, end_us = self.holds[each.job.id], ends_us.get(each.job.id, FOREVER_US)
            if held != each.allocation:
                end_us = self._end_us(each.job, held, each.left_us)
            ends.append((end_us, held.procs))
        for start in self.starts:
            assert start.allocation is not None
            ends.append((self._end_us(start.job, start.allocation, start.job.alone_us), start.allocation.procs))
        return shadow(ends, free, least)

    def _end_us(self, job: Job, allocation: Allocation, left_us: Rate) -> int:
        """When a job ends that has so much to do, with that allocation."""
        return done_us(self.snapshot.now_us, job, allocation, left_us)

    # windows

    def _expired(self) -> bool:
        """Whether the head may have room made for it now."""
        if self.policy.window is Window.ESTIMATES:
            return any(each.overran and each.job.id in self.backfilled for each in self.running)
        everybody = self.heads <= self.backfilled and all(each.job.id in self.backfilled for each in self.running)
        return everybody and bool(self.running)

    def _make_room(self, head: _Waiting) -> bool:
        """Fold, end or suspend backfilled jobs, oldest start first, until the head fits in some size; or nobody."""
        if self.policy.expired is Expired.REMAIN:
            return False
        free, changed, spared = self.free.copy(), dict[int, Allocation | None](), False
        for each in self.running:
            job_id = each.job.id
            if job_id not in self.backfilled or (self.policy.window is Window.ESTIMATES and not each.overran):
                continue
            held = self.holds[job_id]
            new = self._reduced(held, self._lacking(head, free))
            if new is not None and new.procs >= held.procs:
                continue
            if not self._may_be_changed(each):
                spared = True
                continue
            free.give(each.job, held)
            if new is not None:
                free.take(each.job, new)
            changed[job_id] = new
            if self._fits(head, free):
                self._change(changed, head.job)
                self.free = free
                return True
        if spared and self.refused != head.job.id and head.suspended is None:
            self.told.append((head.job.id, FOREVER_US, Reason(Why.NOT_FOLDABLE)))
            self.refused = head.job.id
        return False

    def _fits(self, head: _Waiting, free: FreeProcs) -> bool:
        """Whether the head can start, or go on, with what is free there."""
        if head.suspended is None:
            return self._place(head.job, free) is not None
        before, self.free = self.free, free
        fits = self._resumed(head.suspended) is not None
        self.free = before
        return fits

    def _lacking(self, head: _Waiting, free: FreeProcs) -> int:
        """How many processors the head lacks."""
        if head.suspended is not None:
            return self._needed(head.suspended) - free.procs
        least = self.policy.sizes.least(head.job, self.snapshot.procs_total)
        fold = self.policy.sizes.fold if head.job.long and head.job.may_be_folded else 1
        return -(-least // fold) - free.procs

    def _may_be_changed(self, each: RunningJob) -> bool:
        if not each.resizable or each.job.id in self.why:
            return False
        return self.policy.expired is not Expired.FOLD or (each.job.may_be_folded and not each.polls)

    def _reduced(self, held: Allocation, lacking: int) -> Allocation | None:
        """What a backfilled job keeps; None: nothing, it is ended."""
        if self.policy.expired is Expired.ABORT:
            return None
        if self.policy.expired is Expired.SUSPEND:
            return suspended(held)
        if self.policy.partial:
            for fold in range(2, FOLD):
                new = folded_to(held, fold)
                if held.procs - new.procs >= lacking:
                    return new
        return folded_to(held, FOLD)

    def _change(self, changed: Mapping[int, Allocation | None], head: Job) -> None:
        for each in self.running:
            job_id = each.job.id
            if job_id not in changed:
                continue
            if (new := changed[job_id]) is None:
                self.aborted.append(each)
                self.backfilled.discard(job_id)
                del self.holds[job_id]
            else:
                self.holds[job_id] = new
                why = Why.FOLDED if new.procs else Why.SUSPENDED
                self.why[job_id] = Reason(why, {"processes": new.processes, "procs": new.procs, "head": head.id})
        self.running = [each for each in self.running if (new := self.holds.get(each.job.id)) and new.procs]

    def _newly_suspended(self) -> bool:
        return any(reason.why is Why.SUSPENDED for reason in self.why.values())

    # suspended jobs, and what is left for folded ones

    def _needed(self, each: RunningJob) -> int:
        """How many processors a suspended job needs to go on: one for each process, or as a long job starts folded."""
        fold = self.policy.sizes.fold if each.job.long and each.job.may_be_folded else 1
        return -(-each.allocation.processes // fold)

    def _resumed(self, each: RunningJob) -> Allocation | None:
        """What a suspended job goes on with, or None where it has to wait."""
        new = self.free.widened(each.job, each.allocation, each.allocation.processes)
        return new if each.resizable and new.procs >= self._needed(each) else None

    def _go_on(self, each: RunningJob, new: Allocation) -> None:
        self._hold(each, new, Why.RESUMED)
        self.resumed_us[each.job.id] = self.snapshot.now_us
        self.backfilled.discard(each.job.id)

    def _unfold(self) -> None:
        """Folded jobs have what is free, oldest start first, up to a processor for each process."""
        for each in self.running:
            held = self.holds[each.job.id]
            if held.folded and each.resizable and self.free.procs > 0:
                if each.job.resident:
                    self._enable(each, held)
                elif (new := self.free.widened(each.job, held, self.free.procs)) != held:
                    self._hold(each, new, Why.UNFOLDED)

    def _enable(self, each: RunningJob, held: Allocation) -> None:
        """Have what is free enabled of a resident job: another policy has left processes of it asleep."""
        procs = min(held.processes, held.procs + self.free.procs)
        if (new := resident.widened(self.free, each.job, held, procs)) is not None:
            self._hold(each, new, Why.WIDENED)

    def _hold(self, each: RunningJob, new: Allocation, why: Why) -> None:
        job = each.job
        self.free.give(job, self.holds[job.id])
        self.free.take(job, new)
        self.holds[job.id] = new
        if new.procs < each.allocation.procs:  # folded in this pass: it has back what the head leaves over
            why = self.why[job.id].why
        self.why[job.id] = Reason(why, {"processes": new.processes, "procs": new.procs})

    def _planned(self) -> Plan:
        changes: list[PlannedChange] = [
            PlannedRequeue(each.job, Reason(Why.ABORTED, {"processes": each.allocation.processes}))
            for each in self.aborted
        ]
        for each in self.present:
            new = self.holds.get(each.job.id)
            if new is not None and new != each.allocation:
                changes.append(PlannedResize(each.job, self.why[each.job.id], new))
        started = {start.job.id for start in self.starts}
        told = [each for each in self.told if each[0] not in started]
        memory = Marks(tuple(sorted(self.backfilled)), self.resumed_us, self.refused)
        return Plan((*changes, *self.starts), memory, self._wake_us(), told)

    def _wake_us(self) -> int | None:
        """When a window may expire, or the head's reservation move: the next predicted end."""
        if self.policy.window is not Window.ESTIMATES:
            return None
        ends = [end_us for end_us, *_ in self.snapshot.ends]
        ends += [
            self._end_us(start.job, start.allocation, start.job.alone_us) for start in self.starts if start.allocation
        ]
        for each in self.running:
            if (held := self.holds[each.job.id]) != each.allocation:
                ends.append(self._end_us(each.job, held, each.left_us))
        return min((end_us for end_us in ends if self.snapshot.now_us < end_us < FOREVER_US), default=None)

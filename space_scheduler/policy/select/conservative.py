"""Conservative backfilling (Feitelson & Weil 1998, section 2.1): every job gets a reservation when it is submitted.

The reservation is the earliest hole that delays nobody ahead, and it is a guarantee: the job starts then or earlier.
The profile of running jobs and reservations persists from pass to pass. When a job ends, its unused tail is freed, and
one of the paper's choices follows:

* ``none``: do nothing; later submissions may use the hole;
* ``anew``: a new round of backfilling: all reservations are dropped and made again in queue order. It can break a
  guarantee (the paper's Fig. 4), which is why the paper rejects it;
* ``schedule``: compress in the order of the schedule: the profile is made anew from what runs, and the jobs are placed
  in the order of their reserved starts;
* ``arrival`` (the default): compress one by one: in queue order each reservation is taken out and placed again in the
  earliest hole while the others stay, one sweep for every pass in which a job ended.

Neither compression ever moves a start later. Guarantees hold as long as predicted ends are upper bounds and the machine
keeps its size; where one is *disturbed* (a job overruns, a launch is late, nodes go), the schedule is made again in its
own order, and every moved promise is told with that cause.

This is for counted processors; where nodes have names, :mod:`~space_scheduler.policy.select.timetable` plans.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from space_scheduler.feasibility import obstacle
from space_scheduler.policy.interface import Plan, PlannedStart, Snapshot
from space_scheduler.policy.order import Order, fcfs
from space_scheduler.policy.select import timetable
from space_scheduler.policy.select.early_end import EarlyEnd, moves_told
from space_scheduler.profile import Profile
from space_scheduler.reasons import Reason, Why


class Schedule(msgspec.Struct, frozen=True, tag=True):
    """The memory: the profile with everything in it, and each queued job's reserved start. Never changed once made."""

    profile: Profile
    starts_us: dict[int, int]
    wake_us: int


@dataclass(frozen=True)
class Conservative:
    """Conservative backfilling with one of the four choices at an early end."""

    early_end: EarlyEnd = EarlyEnd.ARRIVAL
    order: Order = fcfs
    memory_type: ClassVar = Schedule | timetable.Timetable

    def plan(self, snapshot: Snapshot) -> Plan:
        """Take in what changed, place the newcomers, start what is due."""
        if snapshot.nodes is not None:
            return timetable.plan(snapshot, self.early_end)
        changes, now_us = snapshot.changes, snapshot.now_us
        memory = snapshot.memory if isinstance(snapshot.memory, Schedule) else None
        before = memory.starts_us if memory else {}
        starts_us = before.copy()
        for job in changes.withdrawn:
            starts_us.pop(job.id, None)

        disturbed = changes.disturbed
        if memory and memory.wake_us < now_us:  # a live host can be late; a promise that should have been kept was not
            disturbed = disturbed or Why.LATE_LAUNCH
        if memory is None or disturbed:
            profile = _made_anew(snapshot, starts_us, _in_schedule_order(snapshot, starts_us))
        else:
            profile = memory.profile.copy()
            profile.advance(now_us)
            for until_us, procs in changes.vacated:
                profile.change(now_us, until_us, procs)
            for job in changes.withdrawn:
                if (start_us := before.get(job.id, FOREVER_US)) != FOREVER_US:
                    profile.change(max(now_us, start_us), start_us + job.estimate_us, job.procs)
            if starts_us and (changes.vacated or changes.withdrawn):
                profile = self._after_early_end(snapshot, profile, starts_us)
        if changes.withdrawn:  # who comes back is promised anew
            gone = {job.id for job in changes.withdrawn}
            before = {job_id: start_us for job_id, start_us in before.items() if job_id not in gone}
        newcomers = changes.submitted
        if len(newcomers) > 1:
            newcomers = sorted(newcomers, key=lambda job: snapshot.queue.key(job.id))
        for job in newcomers:
            _place(profile, starts_us, job, now_us)
        return _start_due(snapshot, profile, before, starts_us, disturbed or Why.RESCHEDULED)

    def validate(self, snapshot: Snapshot) -> None:
        """The profile is what runs and what is reserved, and never over-committed."""
        if snapshot.nodes is not None:
            timetable.validate(snapshot)
        memory = snapshot.memory
        if not isinstance(memory, Schedule):
            return
        expected = Profile.of_running(snapshot.now_us, snapshot.free_procs, snapshot.ends)
        for job_id, start_us in memory.starts_us.items():
            if job_id in snapshot.queue and start_us != FOREVER_US:
                job = snapshot.queue.job(job_id)
                expected.change(max(start_us, snapshot.now_us), start_us + job.estimate_us, -job.procs)
        actual = memory.profile.copy()
        actual.advance(snapshot.now_us)
        assert actual.normal() == expected.normal(), f"profile {actual.normal()}, expected {expected.normal()}"
        assert actual.lowest() >= min(0, snapshot.free_procs), f"over-committed: {actual.normal()}"

    def _after_early_end(self, snapshot: Snapshot, profile: Profile, starts_us: dict[int, int]) -> Profile:
        """Carry out the choice; ``starts_us`` is updated, the profile to go on with is returned."""
        now_us = snapshot.now_us
        if self.early_end is EarlyEnd.ANEW:
            waiting = [job for job in snapshot.queue if job.id in starts_us]
            waiting.sort(key=lambda job: starts_us[job.id] > now_us)  # what is due now is as good as started
            return _made_anew(snapshot, starts_us, waiting)
        if self.early_end is EarlyEnd.SCHEDULE:
            return _made_anew(snapshot, starts_us, _in_schedule_order(snapshot, starts_us))
        if self.early_end is EarlyEnd.ARRIVAL:
            _sweep(snapshot.queue, now_us, profile, starts_us)
        return profile


def _sweep(queue: Iterable[Job], now_us: int, profile: Profile, starts_us: dict[int, int]) -> None:
    """Compress one by one, in queue order: take each reservation out and place it again in the earliest hole.

    Jobs of one shape are alike: where one found no place, another of a later start finds none either, until some
    reservation moves and leaves a hole. (One of an earlier start may: it can stand on its own processors earlier.)
    ``searched`` remembers for each shape the start of the job that searched last, how far it searched in vain, and how
    many holes had been left by then.
    """
    searched: dict[tuple[int, int], tuple[int, int, int]] = {}
    holes: list[tuple[int, int]] = []  # (how many before it, start), starts rising: later lower ones replace earlier
    left = 0
    for job in queue:
        start_us = starts_us.get(job.id, now_us)
        if start_us <= now_us or start_us == FOREVER_US:
            continue
        shape = (job.procs, job.estimate_us)
        of_us, from_us, seen = searched.get(shape, (0, now_us, 0))
        if start_us < of_us:
            from_us = now_us
        elif seen < left:
            lowest_us = holes[bisect_left(holes, (seen,))][1]
            from_us = max(now_us, min(from_us, lowest_us - job.estimate_us))  # of use to what reaches into it
        earlier_us = profile.earlier(job.procs, job.estimate_us, start_us, from_us)
        searched[shape] = (start_us, earlier_us, left)
        if earlier_us != start_us:
            profile.change(start_us, start_us + job.estimate_us, job.procs)
            profile.change(earlier_us, earlier_us + job.estimate_us, -job.procs)
            starts_us[job.id] = earlier_us
            while holes and holes[-1][1] >= start_us:
                holes.pop()
            holes.append((left, start_us))
            left += 1


def _start_due(
    snapshot: Snapshot, profile: Profile, before: dict[int, int], starts_us: dict[int, int], moved: Why
) -> Plan:
    """Start what is due, and tell of every promise made or moved (``moved`` is why it might be later than before)."""
    now_us, free_procs, queue = snapshot.now_us, snapshot.free_procs, snapshot.queue
    starts: list[PlannedStart] = []
    due = [job_id for job_id, start_us in starts_us.items() if start_us <= now_us]
    due.sort(key=queue.key)
    for job in map(queue.job, due):
        if obstacle(job.procs, job.estimate_us, now_us, free_procs) is None:
            promised_us = before.get(job.id, now_us)
            starts.append(PlannedStart(job, Reason(Why.RESERVATION_DUE, {"promised_us": promised_us})))
            free_procs -= job.procs
            del starts_us[job.id]
    told = moves_told(before, starts_us, moved)
    wake_us = min(starts_us.values(), default=FOREVER_US)
    return Plan(starts, Schedule(profile, starts_us, wake_us), wake_us if wake_us != FOREVER_US else None, told)


def _place(profile: Profile, starts_us: dict[int, int], job: Job, now_us: int) -> None:
    """Reserve the earliest hole; a job wider than what is in service gets none until nodes come back."""
    if job.procs > profile.free[-1]:
        starts_us[job.id] = FOREVER_US
        return
    start_us = profile.earliest(job.procs, job.estimate_us, now_us)
    profile.change(start_us, start_us + job.estimate_us, -job.procs)
    starts_us[job.id] = start_us


def _in_schedule_order(snapshot: Snapshot, starts_us: dict[int, int]) -> list[Job]:
    """The jobs that have a reservation, by reserved start, ties in queue order."""
    return sorted((job for job in snapshot.queue if job.id in starts_us), key=lambda job: starts_us[job.id])


def _made_anew(snapshot: Snapshot, starts_us: dict[int, int], jobs: list[Job]) -> Profile:
    """A profile made from what runs, with the jobs placed in it in the order given."""
    profile = Profile.of_running(snapshot.now_us, snapshot.free_procs, snapshot.ends)
    for job in jobs:
        _place(profile, starts_us, job, snapshot.now_us)
    return profile

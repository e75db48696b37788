"""Conservative backfilling where nodes have names: every job gets a time and nodes when it is submitted.

As ``conservative``, of which it is the other half, with the same choices at an early end; but a reservation names its
nodes, so a hole is one only if it stays on the same nodes for the whole estimate. Jobs can therefore be promised later
times than on counted processors. The profile is made from what runs and what is reserved at every pass: named nodes are
few.

No choice but ``anew`` moves a start later. ``schedule`` could, since a job that moves earlier may take the very nodes
that another needs later: then it is carried out one by one instead, each reservation out and in again while the others
stay.
"""

from collections.abc import Iterable

import msgspec

from cosched.model.allocation import Allocation
from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from space_scheduler.node_profile import NodeProfile
from space_scheduler.policy.interface import Plan, PlannedStart, Snapshot
from space_scheduler.policy.select.early_end import EarlyEnd, moves_told
from space_scheduler.reasons import Reason, Why


class Reserved(msgspec.Struct, frozen=True):
    """A start and its place; FOREVER_US and None while nodes that the job needs are away."""

    start_us: int
    allocation: Allocation | None


class Timetable(msgspec.Struct, frozen=True, tag=True):
    """The memory: each queued job's reservation, by number. Never changed once made."""

    reserved: dict[int, Reserved]
    wake_us: int


NEVER = Reserved(FOREVER_US, None)
Book = dict[int, Reserved]


def plan(snapshot: Snapshot, early_end: EarlyEnd) -> Plan:
    """Take in what changed, place the newcomers, start what is due."""
    changes, now_us = snapshot.changes, snapshot.now_us
    memory = snapshot.memory if isinstance(snapshot.memory, Timetable) else None
    book = dict(memory.reserved) if memory else {}
    for job in changes.withdrawn:  # who comes back is promised anew
        book.pop(job.id, None)
    before = {job_id: each.start_us for job_id, each in book.items()}
    waiting = [job for job in snapshot.queue if job.id in book]
    disturbed = changes.disturbed
    if memory and memory.wake_us < now_us:  # a live host can be late; a promise that should have been kept was not
        disturbed = disturbed or Why.LATE_LAUNCH
    if memory is None or disturbed:
        newcomers = [job for job in snapshot.queue if job.id not in book]
        book, profile = _made_anew(snapshot, sorted(waiting, key=lambda job: before[job.id]))
    else:
        newcomers = sorted(changes.submitted, key=lambda job: snapshot.queue.key(job.id))
        profile = _booked(snapshot, book)
        if book and (changes.vacated or changes.withdrawn):
            book, profile = _after_early_end(snapshot, early_end, waiting, book, profile)
    for job in newcomers:
        book[job.id] = _placed(profile, job, now_us)
    starts: list[PlannedStart] = []
    due = sorted((job_id for job_id, each in book.items() if each.start_us <= now_us), key=snapshot.queue.key)
    for job in map(snapshot.queue.job, due):
        reason = Reason(Why.RESERVATION_DUE, {"promised_us": before.get(job.id, now_us)})
        starts.append(PlannedStart(job, reason, book.pop(job.id).allocation))
    starts_us = {job_id: each.start_us for job_id, each in book.items()}
    wake_us = min(starts_us.values(), default=FOREVER_US)
    told = moves_told(before, starts_us, disturbed or Why.RESCHEDULED)
    return Plan(starts, Timetable(book, wake_us), wake_us if wake_us != FOREVER_US else None, told)


def validate(snapshot: Snapshot) -> None:
    """Every reservation has its place beside what runs and the others."""
    if isinstance(snapshot.memory, Timetable) and snapshot.nodes is not None:
        ahead = snapshot.memory.reserved.items()  # one that is past will be made anew in the pass that is late
        book = {job_id: each for job_id, each in ahead if each.start_us >= snapshot.now_us}
        assert not _booked(snapshot, book).over_committed(_booked(snapshot, {})), f"over-committed: {book}"


def _after_early_end(
    snapshot: Snapshot, early_end: EarlyEnd, waiting: list[Job], book: Book, profile: NodeProfile
) -> tuple[Book, NodeProfile]:
    """Carry out the choice; returns the reservations and the profile with them in it."""
    now_us = snapshot.now_us
    in_schedule_order = sorted(waiting, key=lambda job: book[job.id].start_us)
    if early_end is EarlyEnd.ANEW:  # what is due now is as good as started
        return _made_anew(snapshot, sorted(waiting, key=lambda job: book[job.id].start_us > now_us))
    if early_end is EarlyEnd.SCHEDULE:
        anew, profile_anew = _made_anew(snapshot, in_schedule_order)
        if all(anew[job_id].start_us <= each.start_us for job_id, each in book.items()):
            return anew, profile_anew
        return _one_by_one(in_schedule_order, now_us, book, profile)
    if early_end is EarlyEnd.ARRIVAL:
        return _one_by_one(waiting, now_us, book, profile)
    return book, profile


def _one_by_one(jobs: list[Job], now_us: int, book: Book, profile: NodeProfile) -> tuple[Book, NodeProfile]:
    """Take each reservation out and place it again in the earliest hole, while the others stay."""
    book = book.copy()
    for job in jobs:
        start_us, allocation = book[job.id].start_us, book[job.id].allocation
        if allocation is None or start_us <= now_us:
            continue
        profile.give(job, start_us, allocation)
        found = profile.earliest(job, now_us)
        if found and found[0] < start_us:
            start_us, allocation = found
            book[job.id] = Reserved(start_us, allocation)
        profile.take(job, start_us, allocation)
    return book, profile


def _made_anew(snapshot: Snapshot, jobs: Iterable[Job]) -> tuple[Book, NodeProfile]:
    """A profile made from what runs, with the jobs placed in it in the order given."""
    profile = _booked(snapshot, {})
    return {job.id: _placed(profile, job, snapshot.now_us) for job in jobs}, profile


def _booked(snapshot: Snapshot, book: Book) -> NodeProfile:
    """What runs and what is reserved."""
    assert snapshot.nodes is not None
    profile = NodeProfile.of_running(snapshot.now_us, snapshot.nodes.room, snapshot.nodes.held)
    for job_id, each in book.items():
        if each.allocation is not None:
            profile.take(snapshot.queue.job(job_id), each.start_us, each.allocation)
    return profile


def _placed(profile: NodeProfile, job: Job, now_us: int) -> Reserved:
    """Reserve the earliest hole; a job that needs nodes that are away gets none until they come back."""
    found = profile.earliest(job, now_us)
    if found is None:
        return NEVER
    profile.take(job, *found)
    return Reserved(*found)

"""The whole machine at one moment, as plain values that msgspec encodes and decodes, and a machine of them again.

Nothing stands in them that follows from rules, nodes and what jobs hold: a machine is restored by entering its nodes
under the rules of now and having each job take what it holds (``capacity``). So it may be restored under other rules
than those that it was saved under.
"""

from fractions import Fraction
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from cosched.model.allocation import Allocation
from cosched.model.job import QUEUED, WAITING, Job, JobState
from space_scheduler.eligibility.chain import SavedWaiting
from space_scheduler.eligibility.set_aside import SetAside
from space_scheduler.machine.capacity import CountedCapacity
from space_scheduler.machine.events import AnyEvent
from space_scheduler.machine.holding import (
    NOTHING,
    Deferred,
    Ending,
    Holding,
    Occupying,
    Released,
    Requeuing,
    Resizing,
    Starting,
)
from space_scheduler.machine.machine import Machine
from space_scheduler.machine.nodes import SavedNode
from space_scheduler.machine.record import Record
from space_scheduler.machine.turns import SavedTurns
from space_scheduler.policy.interface import Changes
from space_scheduler.progress import ALONE_PPM, whole
from space_scheduler.reasons import ACCEPTED, Reason


class SavedChange(msgspec.Struct, frozen=True, gc=False):
    """A job that holds ``old`` (None: nothing) is to hold something else; ``sent``: the host has been told."""

    old: Allocation | None
    sent: bool


class SavedJob(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A live job: the fields of :class:`~space_scheduler.machine.record.Record`.

    ``allocation``, ``released``, ``change`` and ``requeues`` are its ``holding``, as version 0.1 kept it.
    """

    job: Job
    rank: int
    state: JobState
    story: tuple[tuple[int, JobState], ...]
    started_us: int | None = None
    end_us: int = 0
    allocation: Allocation | None = None
    released: bool = False
    promise_us: int | None = None
    first_promise_us: int | None = None
    overruns: int | None = None
    failed_launches: int = 0
    reason: Reason = ACCEPTED
    decided_us: int = 0
    cause: AnyEvent | None = None
    left: int = 0
    rate_ppm: int = ALONE_PPM
    as_of_us: int = 0
    left_per: int = 1  # these two: left / left_per and rate_ppm / rate_per are meant
    rate_per: int = 1
    change: SavedChange | None = None
    requeues: bool = False
    asks: tuple[int, ...] = ()
    asked_us: int = 0
    given: int = 0
    retry_us: int = 0
    waits: bool = False
    overdue_us: int | None = None


class SavedState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that :meth:`~space_scheduler.machine.state.SchedulerState.restore` needs, but policy and rules."""

    now_us: int
    passes: int
    ranks: int
    procs_installed: int = 0  # these two of counted processors; of nodes they follow
    procs_total: int = 0
    timer_us: int | None = None
    jobs: tuple[SavedJob, ...] = ()
    nodes: tuple[SavedNode, ...] | None = None  # None: counted processors
    changes: Changes = msgspec.field(default_factory=Changes)  # since the last pass
    changing: tuple[int, ...] = ()
    turns: SavedTurns = SavedTurns()
    programs: tuple[tuple[str, str, int], ...] = ()
    trigger: AnyEvent | None = None
    memory: Any = None
    forgotten: bool = False
    aside: tuple[SetAside, ...] = ()
    aside_changes: int = 0
    waiting: SavedWaiting | None = None


#: What a record and a saved job both have, and have alike.
_AS_IT_IS: Final = (
    *("state", "story", "started_us", "end_us", "promise_us", "first_promise_us", "failed_launches", "reason"),
    *("as_of_us", "asks", "asked_us", "given", "waits", "retry_us", "overdue_us"),
)


def encode(machine: Machine, passes: int, memory: Any, forgotten: bool) -> SavedState:
    """A machine after so many passes, with the memory that its policy has."""
    nodes = machine.nodes
    return SavedState(
        now_us=machine.now_us,
        passes=passes,
        ranks=machine.jobs.ranks,
        procs_installed=machine.capacity.procs_installed if nodes is None else 0,
        procs_total=machine.capacity.procs_total if nodes is None else 0,
        timer_us=machine.timer_us,
        jobs=tuple(_saved_job(record) for record in machine.jobs.records.values()),
        nodes=None if nodes is None else tuple(each.said() for each in nodes),
        changes=_copied(machine.changes),
        changing=tuple(machine.jobs.changing),
        turns=SavedTurns() if machine.turns is None else machine.turns.saved(),
        programs=machine.programs.saved(),
        trigger=machine.trigger,  # type: ignore[arg-type]
        memory=memory,
        forgotten=forgotten,
        aside=tuple(machine.jobs.aside),
        aside_changes=machine.jobs.aside.changes,
        waiting=machine.jobs.chain.saved(),
    )


def decode(saved: SavedState, machine: Machine) -> None:
    """Make a new machine into the one that was saved."""
    machine.now_us, machine.timer_us, machine.trigger = saved.now_us, saved.timer_us, saved.trigger
    machine.changes = _copied(saved.changes)
    if saved.nodes is None:
        machine.capacity = counted = CountedCapacity(saved.procs_total)
        counted.procs_installed = saved.procs_installed
    else:
        nodes = machine.name_nodes()
        for each in saved.nodes:
            nodes.add(each)
        machine.jobs.queue.tell_apart(nodes.bans)
        machine.see(nodes.members)  # what a job goes at depends on the clusters of its nodes
    machine.jobs.ranks = saved.ranks
    jobs, waiting = _read_anew(saved) if saved.waiting is None else (saved.jobs, saved.waiting)
    machine.jobs.chain.restore(waiting, saved.aside, saved.aside_changes)
    machine.programs.restore(saved.programs)
    for job in jobs:
        record = _record(job)
        machine.jobs.restore(record)
        if record.holding.counted:
            machine.hold_again(record)
    machine.jobs.changing.update((job_id, machine.jobs[job_id]) for job_id in saved.changing)
    if saved.nodes is not None:
        nodes.settle()
        if machine.turns is not None:
            machine.turns.restore(saved.turns)
        machine.see(nodes.members)


def _read_anew(saved: SavedState) -> tuple[tuple[SavedJob, ...], SavedWaiting]:
    """The jobs of a snapshot of version 0.1, and which rules keep them back.

    Only held jobs were kept apart from those that are queued then; a job that was set aside was one of these.
    """
    held = tuple(each.job.id for each in saved.jobs if each.state is WAITING)
    aside = {each.job_id: each for each in saved.aside}
    jobs = tuple(
        each
        if each.state is not QUEUED or (found := aside.get(each.job.id)) is None
        else replace(each, state=WAITING, story=(*each.story, (found.since_us, WAITING)), reason=found.reason)
        for each in saved.jobs
    )
    return jobs, SavedWaiting(held)


def _copied(changes: Changes) -> Changes:
    """The same, independent of what the machine adds to it."""
    lists = {"submitted": [*changes.submitted], "vacated": [*changes.vacated], "withdrawn": [*changes.withdrawn]}
    return replace(changes, **lists)


def _saved_job(record: Record) -> SavedJob:
    holding = record.holding
    return SavedJob(
        record.job,
        record.rank,
        record.state,
        record.story,
        record.started_us,
        record.end_us,
        None if holding is NOTHING else holding.allocation,
        isinstance(holding, Ending | Released),
        record.promise_us,
        record.first_promise_us,
        record.overruns or None,
        record.failed_launches,
        record.reason,
        record.decided_us,
        record.cause,  # type: ignore[arg-type]
        record.left.numerator,
        ALONE_PPM if record.rate_ppm == ALONE_PPM else record.rate_ppm.numerator,  # msgspec omits this very object
        record.as_of_us,
        record.left.denominator,
        record.rate_ppm.denominator,
        SavedChange(holding.held, not holding.awaits) if holding.changing else None,
        isinstance(holding, Requeuing),
        record.asks,
        record.asked_us,
        record.given,
        record.retry_us,
        record.waits,
        record.overdue_us,
    )


def _record(saved: SavedJob) -> Record:
    record = Record(saved.job, saved.rank, saved.decided_us, saved.cause)
    for name in _AS_IT_IS:
        setattr(record, name, getattr(saved, name))
    record.holding = _holding(saved)
    record.overruns = saved.overruns or 0
    record.left = whole(Fraction(saved.left, saved.left_per))
    record.rate_ppm = whole(Fraction(saved.rate_ppm, saved.rate_per))
    return record


def _holding(saved: SavedJob) -> Holding:
    allocation, change = saved.allocation, saved.change
    if allocation is None:
        return NOTHING
    if change is None:
        return Released(allocation) if saved.released else Occupying(allocation)
    if saved.released:
        return Requeuing(allocation) if saved.requeues else Ending(allocation)
    if change.old is None:
        return Starting(allocation)
    return Resizing(allocation, change.old) if change.sent else Deferred(allocation, change.old)

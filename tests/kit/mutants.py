"""Deliberately bad policies, machines and hosts: each is caught by a property that is named where it is used."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from msgspec import structs

from cosched.model.allocation import Allocation, Share
from cosched.model.job import Job, JobState
from cosched.model.time import FOREVER_US
from space_scheduler import feasibility
from space_scheduler.machine import lifecycle, node_events
from space_scheduler.machine.capacity import CountedCapacity
from space_scheduler.machine.events import AnyEvent, Event, JobEnded, JobLaunched, JobReleased, JobSubmitted, NodesLost
from space_scheduler.machine.instructions import Instruction, Start
from space_scheduler.machine.machine import Machine
from space_scheduler.machine.state import SchedulerState
from space_scheduler.policy.future import CountedFuture, KeptFuture, counted
from space_scheduler.policy.interface import (
    Plan,
    PlannedResize,
    PlannedStart,
    Policy,
    SelfChecking,
    Snapshot,
    traits_of,
)
from space_scheduler.policy.order import Order, fcfs
from space_scheduler.policy.queue import JobQueue
from space_scheduler.policy.reshape import resident
from space_scheduler.policy.select import conservative
from space_scheduler.policy.select.backfill import Backfill
from space_scheduler.reasons import Reason, Why
from space_scheduler.simulator import host
from space_scheduler.simulator.world import Run

FITS = Reason(Why.FITS)
Patch = AbstractContextManager[object]

# --- policies ---------------------------------------------------------------------------------------------------------


class Mutant:
    order: Order = staticmethod(fcfs)


class DoubleBooker(Mutant):
    """Starts everybody at once."""

    def plan(self, snapshot: Snapshot) -> Plan:
        return Plan([PlannedStart(job, FITS) for job in snapshot.queue])


class Forgetter(Mutant):
    """First come, first served, but for every third job, which it never sees."""

    def plan(self, snapshot: Snapshot) -> Plan:
        starts: list[PlannedStart] = []
        free_procs = snapshot.free_procs
        for job in snapshot.queue:
            if job.id % 3 != 2 and job.procs <= free_procs:
                free_procs -= job.procs
                starts.append(PlannedStart(job, FITS))
        return Plan(starts)


class Starver(Mutant):
    """Narrowest first: while narrow jobs keep coming, a wide one never starts."""

    def plan(self, snapshot: Snapshot) -> Plan:
        starts: list[PlannedStart] = []
        free_procs = snapshot.free_procs
        for job in sorted(snapshot.queue, key=lambda job: job.procs):
            if job.procs <= free_procs:
                free_procs -= job.procs
                starts.append(PlannedStart(job, FITS))
        return Plan(starts)


class Idler(Mutant):
    """EASY that sleeps through every other pass."""

    def __init__(self) -> None:
        self.easy = Backfill(1)

    def plan(self, snapshot: Snapshot) -> Plan:
        count, memory = snapshot.memory or (0, None)
        if count % 2 and snapshot.ends:  # on an idle machine it is awake, or nothing would ever happen again
            return Plan(memory=(count + 1, None))
        plan = self.easy.plan(replace(snapshot, memory=memory))
        return Plan(plan.changes, (count + 1, None), plan.wake_us, plan.told)


class OneReservation(Mutant):
    """EASY under the name of backfill(n): no reservation but the first counts."""

    def plan(self, snapshot: Snapshot) -> Plan:
        return Backfill(1).plan(snapshot)


class Rememberer(Mutant):
    """Keeps count across runs outside of its memory, and decides by it."""

    passes = 0

    def plan(self, snapshot: Snapshot) -> Plan:
        type(self).passes += 1
        jobs = sorted(snapshot.queue, key=lambda job: (job.id + self.passes) % 3)
        starts: list[PlannedStart] = []
        free_procs = snapshot.free_procs
        for job in jobs:
            if job.procs <= free_procs:
                free_procs -= job.procs
                starts.append(PlannedStart(job, FITS))
        return Plan(starts)


@dataclass
class Told(Mutant):
    """Answers every pass with the plan it was given."""

    answer: Plan

    def plan(self, snapshot: Snapshot) -> Plan:
        return self.answer


class FailsFor:
    """Another policy that fails for the jobs of which ``bad`` says so, while the queue, or what runs, has one, ``when``
    the snapshot is such.

    ``how``: it ``raises`` without the name of a job, ``names`` it, ``misplaces`` it (as a place that refuses what was
    planned), or ``resizes`` one that runs to what it has already. ``plans`` counts what was asked of it, ``jobs`` how
    many jobs waited then.
    """

    def __init__(
        self,
        policy: Policy,
        bad: Callable[[Job], bool],
        how: str = "raises",
        when: Callable[[Snapshot], bool] = lambda snapshot: True,
    ) -> None:
        self.policy, self.bad, self.how, self.when = policy, bad, how, when
        self.order = policy.order
        self.shares, self.place, self.mpl, self.memory_type, self.alone_because, self.reshapes = traits_of(policy)
        self.plans = self.jobs = 0

    def plan(self, snapshot: Snapshot) -> Plan:
        self.plans += 1
        self.jobs += len(snapshot.queue)
        if not self.when(snapshot):
            return self.policy.plan(snapshot)
        bad = next(filter(self.bad, snapshot.queue), None)
        if bad is not None and self.how in ("raises", "names"):
            error = ZeroDivisionError("division by zero")
            if self.how == "names":
                error.job_id = bad.id  # type: ignore[attr-defined]
            raise error
        plan = self.policy.plan(snapshot)
        if self.how == "misplaces" and bad is not None:
            changes = [change for change in plan.changes if change.job.id != bad.id]
            nowhere = Allocation(1 << 20, (Share("nowhere", 1 << 20),) if snapshot.nodes else ())
            return structs.replace(plan, changes=[*changes, PlannedStart(bad, FITS, nowhere)])
        if self.how == "resizes":
            kept = [each for each in snapshot.running() if self.bad(each.job) and each.resizable]
            same = [PlannedResize(each.job, FITS, each.allocation) for each in kept]
            return structs.replace(plan, changes=[*plan.changes, *same])
        return plan

    def validate(self, snapshot: Snapshot) -> None:
        if isinstance(self.policy, SelfChecking):
            self.policy.validate(snapshot)


# --- single lines of the backfilling policies -------------------------------------------------------------------------


def shadow_off_by_one() -> Patch:
    """A job that ends one microsecond after the shadow time passes for one that ends in time."""

    def obstacle(procs: int, estimate_us: int, *rest: int) -> Why | None:
        return feasibility.obstacle(procs, estimate_us - 1, *rest)

    return patch.object(counted, "obstacle", obstacle)


def shadow_ignored() -> Patch:
    """Greedy first fit that promises the head its reservation all the same."""

    def obstacle(procs: int, estimate_us: int, now_us: int, free_procs: int, *_: int) -> Why | None:
        return feasibility.obstacle(procs, estimate_us, now_us, free_procs)

    return patch.object(counted, "obstacle", obstacle)


def extra_not_decremented() -> Patch:
    """The extra processors are given away again and again."""
    return patch.object(CountedFuture, "_spend_extra", lambda *_: None)


def sleepers_anywhere() -> Patch:
    """Equipartition places what cannot be: sleeping processes of a job on nodes of any cluster. (It was so.)"""
    return patch.object(resident, "started", resident._started)


def one_extra_too_many() -> Patch:
    """The head's own processors are counted short by one."""
    honest = counted.shadow_of

    def shadow_of(*arguments: Any) -> tuple[int, int]:
        shadow_us, extra_procs = honest(*arguments)
        return shadow_us, extra_procs + (shadow_us != FOREVER_US)

    return patch.object(counted, "shadow_of", shadow_of)


def compression_moves_later() -> Patch:
    """Each reservation is taken out and placed again behind all others."""

    def later(future: KeptFuture, queue: Iterable[Job]) -> dict[int, int]:
        table, before = future._table, future.starts_us.copy()
        waiting = [job for job in queue if future.now_us < before.get(job.id, future.now_us) < FOREVER_US]
        for job in waiting:
            start_us = max(before[job.id], table.profile.times[-1])
            table.profile.move_up(start_us, before[job.id], job.estimate_us, -job.procs)
            table.note([job.id], start_us)
        table.shapes = None
        return before

    return patch.object(KeptFuture, "compress", later)


def schedule_order_reversed() -> Patch:
    """Compression in the order of the schedule, begun at the wrong end."""
    honest = conservative._in_schedule_order

    def reversed_(snapshot: Snapshot, starts_us: dict[int, int]) -> list[Job]:
        jobs = honest(snapshot, starts_us)
        due = [job for job in jobs if starts_us[job.id] <= snapshot.now_us]
        return due + [job for job in reversed(jobs) if job not in due]

    return patch.object(conservative, "_in_schedule_order", reversed_)


# --- machines ---------------------------------------------------------------------------------------------------------


def handling(event: type[Event]) -> Callable[[Callable[..., Any]], type[SchedulerState]]:
    """Makes of a function a machine that handles events of that kind by it."""

    def made(function: Callable[..., Any]) -> type[SchedulerState]:
        return type(function.__name__, (SchedulerState,), {"handlers": {**SchedulerState.handlers, event: function}})

    return made


class Gullible(SchedulerState):
    """Applies what it is told, unchecked."""

    def _check(self, plan: Plan, queue: JobQueue) -> None:
        pass


class HalfApplier(SchedulerState):
    """Checks start by start, when some are already applied."""

    def _check(self, plan: Plan, queue: JobQueue) -> None:
        pass

    def _apply(self, plan: Plan, event: AnyEvent) -> list[Instruction]:
        done: list[Instruction] = []
        for start in plan.changes:
            one = Plan([start], plan.memory)
            super()._check(one, self.queue)
            done += super()._apply(one, event)
        rest = Plan((), plan.memory, plan.wake_us, plan.told)
        super()._check(rest, self.queue)
        return done + super()._apply(rest, event)


def giving_back(name: str, more: Callable[[Allocation], int]) -> type[SchedulerState]:
    """A machine that counts so many processors more than a job has held when it ends."""

    class Capacity(CountedCapacity):
        def give(self, job: Job, allocation: Allocation) -> None:
            super().give(job, allocation)
            self.free_procs += more(allocation)

    class Giving(SchedulerState):
        def __init__(self, *how: Any) -> None:
            super().__init__(*how)
            self.machine.capacity = Capacity()

    Giving.__name__ = name
    return Giving


#: Counts the processors of an ended job twice.
Generous = giving_back("Generous", lambda allocation: allocation.procs)
#: Keeps a processor of every job that ends.
Leaker = giving_back("Leaker", lambda allocation: -1)


@handling(JobSubmitted)
def amnesiac(machine: Machine, event: JobSubmitted) -> None:
    """Loses every job that comes while another runs, without a trace."""
    lifecycle.submitted(machine, event)
    if machine.jobs.ends:
        machine.jobs.queue.remove(event.job)
        machine.changes.submitted.remove(event.job)
        del machine.jobs.records[event.job.id]


# --- hosts ------------------------------------------------------------------------------------------------------------


class EarlyStarter(Run):
    """Starts a job a microsecond before it was asked to."""

    def start(self, start: Start, now_us: int) -> None:
        super().start(start, now_us)
        self.starts_us[start.job.id] -= 1
        self.ends_us[start.job.id] -= 1


class Dropper(Run):
    """Never reports the end of job 1."""

    def enter(self, at_us: int, event: Event) -> None:
        if not (isinstance(event, JobEnded) and event.job_id == 1):
            super().enter(at_us, event)


class Stammerer(Run):
    """Reports every end twice."""

    def enter(self, at_us: int, event: Event) -> None:
        super().enter(at_us, event)
        if isinstance(event, JobEnded):
            super().enter(at_us, event)


def machine(mutant: type[SchedulerState]) -> Patch:
    """The simulator with another machine."""
    return patch.object(host, "SchedulerState", mutant)


def simulator(mutant: type[Run]) -> Patch:
    """The core with another simulator."""
    return patch.object(host, "Run", mutant)


@handling(NodesLost)
def loses_one_by_one(machine: Machine, event: NodesLost) -> list[Instruction]:
    """Ends the jobs of a lost node before it knows that the last of them exists."""
    for job_id in event.job_ids:
        lifecycle.ended(machine, JobEnded(job_id, JobState.NODE_LOST))
    return node_events.resized(machine, event)


class SilentMover(SchedulerState):
    """Gives every moved promise the reason of a first one."""

    def _apply(self, plan: Plan, event: AnyEvent) -> list[Instruction]:
        told = [(job_id, promised_us, Reason(Why.RESERVED)) for job_id, promised_us, _ in plan.told]
        return super()._apply(Plan(plan.changes, plan.memory, plan.wake_us, told), event)


@handling(JobLaunched)
def deaf_to_launches(machine: Machine, event: JobLaunched) -> list[Instruction]:
    """Keeps the predicted end of a job that was launched late."""
    machine.jobs.become(machine.jobs[event.job_id], JobState.RUNNING, machine.now_us)
    return []


@handling(JobReleased)
def forgets_the_released(machine: Machine, event: JobReleased) -> None:
    """A released job is queued again, and nobody is told."""
    lifecycle.released(machine, event)
    machine.changes.submitted.pop()

"""Deliberately bad policies, machines and hosts: each is caught by a property that is named where it is used."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from cosched.model.job import Job, JobState
from cosched.model.time import FOREVER_US
from space_scheduler import feasibility
from space_scheduler.machine.events import Event, JobEnded, JobLaunched, JobReleased, JobSubmitted, NodesLost
from space_scheduler.machine.instructions import Instruction, Start
from space_scheduler.machine.record import Record
from space_scheduler.machine.state import SchedulerState
from space_scheduler.policy.future import CountedFuture, counted
from space_scheduler.policy.interface import Plan, PlannedStart, Snapshot
from space_scheduler.policy.order import Order, fcfs
from space_scheduler.policy.select import conservative
from space_scheduler.policy.select.backfill import Backfill
from space_scheduler.profile import Profile
from space_scheduler.reasons import Reason, Why
from space_scheduler.simulator import host

FITS = Reason(Why.FITS)

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
        return Plan(plan.starts, (count + 1, None), plan.wake_us, plan.told)


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


# --- single lines of the backfilling policies -------------------------------------------------------------------------


@contextmanager
def shadow_off_by_one() -> Iterator[None]:
    """A job that ends one microsecond after the shadow time passes for one that ends in time."""

    def obstacle(procs: int, estimate_us: int, *rest: int) -> Why | None:
        return feasibility.obstacle(procs, estimate_us - 1, *rest)

    with patch.object(counted, "obstacle", obstacle):
        yield


@contextmanager
def shadow_ignored() -> Iterator[None]:
    """Greedy first fit that promises the head its reservation all the same."""

    def obstacle(procs: int, estimate_us: int, now_us: int, free_procs: int, *_: int) -> Why | None:
        return feasibility.obstacle(procs, estimate_us, now_us, free_procs)

    with patch.object(counted, "obstacle", obstacle):
        yield


@contextmanager
def extra_not_decremented() -> Iterator[None]:
    """The extra processors are given away again and again."""
    with patch.object(CountedFuture, "_spend_extra", lambda *_: None):
        yield


@contextmanager
def one_extra_too_many() -> Iterator[None]:
    """The head's own processors are counted short by one."""
    honest = counted.shadow_of

    def shadow_of(*arguments: Any) -> tuple[int, int]:
        shadow_us, extra_procs = honest(*arguments)
        return shadow_us, extra_procs + (shadow_us != FOREVER_US)

    with patch.object(counted, "shadow_of", shadow_of):
        yield


@contextmanager
def compression_moves_later() -> Iterator[None]:
    """Each reservation is taken out and placed again behind all others."""

    def later(profile: Profile, procs: int, duration_us: int, start_us: int, *_: int) -> int:
        return max(start_us, profile.times[-1])

    with patch.object(Profile, "earlier", later):
        yield


@contextmanager
def schedule_order_reversed() -> Iterator[None]:
    """Compression in the order of the schedule, begun at the wrong end."""
    honest = conservative._in_schedule_order

    def reversed_(snapshot: Snapshot, starts_us: dict[int, int]) -> list[Job]:
        jobs = honest(snapshot, starts_us)
        due = [job for job in jobs if starts_us[job.id] <= snapshot.now_us]
        return due + [job for job in reversed(jobs) if job not in due]

    with patch.object(conservative, "_in_schedule_order", reversed_):
        yield


# --- machines ---------------------------------------------------------------------------------------------------------


class Gullible(SchedulerState):
    """Applies what it is told, unchecked."""

    def _check(self, plan: Plan) -> None:
        pass


class HalfApplier(SchedulerState):
    """Checks start by start, when some are already applied."""

    def _apply(self, plan: Plan, event: Event) -> list[Instruction]:
        done: list[Instruction] = []
        for start in plan.starts:
            done += super()._apply(Plan([start], plan.memory), event)
        return done + super()._apply(Plan((), plan.memory, plan.wake_us, plan.told), event)


class Generous(SchedulerState):
    """Counts the processors of an ended job twice."""

    def _vacate(self, record: Record) -> None:
        super()._vacate(record)
        self.capacity.free_procs += record.job.procs


class Leaker(SchedulerState):
    """Keeps a processor of every job that ends."""

    def _vacate(self, record: Record) -> None:
        super()._vacate(record)
        self.capacity.free_procs -= 1


class Amnesiac(SchedulerState):
    """Loses every job that comes while another runs, without a trace."""

    def _submitted(self, event: JobSubmitted) -> list[Instruction]:
        instructions = super()._submitted(event)
        if self._ends:
            self.queue.remove(event.job)
            self._changes.submitted.remove(event.job)
            del self.records[event.job.id]
        return instructions


# --- hosts ------------------------------------------------------------------------------------------------------------


class EarlyStarter(host.Run):
    """Starts a job a microsecond before it was asked to."""

    def start(self, start: Start, now_us: int) -> None:
        super().start(start, now_us)
        self.starts_us[start.job.id] -= 1
        self.ends_us[start.job.id] -= 1


class Dropper(host.Run):
    """Never reports the end of job 1."""

    def enter(self, at_us: int, event: Event) -> None:
        if not (isinstance(event, JobEnded) and event.job_id == 1):
            super().enter(at_us, event)


class Stammerer(host.Run):
    """Reports every end twice."""

    def enter(self, at_us: int, event: Event) -> None:
        super().enter(at_us, event)
        if isinstance(event, JobEnded):
            super().enter(at_us, event)


@contextmanager
def machine(mutant: type[SchedulerState]) -> Iterator[None]:
    """The simulator with another machine."""
    with patch.object(host, "SchedulerState", mutant):
        yield


@contextmanager
def simulator(mutant: type[host.Run]) -> Iterator[None]:
    """The core with another simulator."""
    with patch.object(host, "Run", mutant):
        yield


class LosesOneByOne(SchedulerState):
    """Ends the jobs of a lost node before it knows that the last of them exists."""

    def _lost(self, event: NodesLost) -> list[Instruction]:
        for job_id in event.job_ids:
            self._ended(JobEnded(job_id, JobState.NODE_LOST))
        return self._resize(-event.procs, event)


class SilentMover(SchedulerState):
    """Gives every moved promise the reason of a first one."""

    def _apply(self, plan: Plan, event: Event) -> list[Instruction]:
        told = [(job_id, promised_us, Reason(Why.RESERVED)) for job_id, promised_us, _ in plan.told]
        return super()._apply(Plan(plan.starts, plan.memory, plan.wake_us, told), event)


class DeafToLaunches(SchedulerState):
    """Keeps the predicted end of a job that was launched late."""

    def _launched(self, event: JobLaunched) -> list[Instruction]:
        self._record(event.job_id).become(JobState.RUNNING, self.now_us)
        return []


class ForgetsTheReleased(SchedulerState):
    """A released job is queued again, and nobody is told."""

    def _released(self, event: JobReleased) -> list[Instruction]:
        instructions = super()._released(event)
        self._changes.submitted.pop()
        return instructions

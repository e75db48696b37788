"""The scheduler's state machine: ``handle(event, now_us) -> [Instruction]`` (design, section 3).

Events change the state; the :class:`Boundary` that closes a batch runs one pass: the policy plans on a snapshot, the
plan is checked with the function that planned it, and applied at once or not at all. No pass is run when nothing
changed.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from cosched.errors import Failed
from cosched.model.allocation import Allocation
from cosched.model.job import TERMINAL, TRANSITIONS, Job, JobState
from cosched.model.time import FOREVER_US, US_PER_S
from space_scheduler.feasibility import obstacle
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Instruction, Kill, SetTimer, Start, Tell
from space_scheduler.machine.record import Infeasible, Record, UnknownJob
from space_scheduler.policy.interface import Changes, Plan, Policy, SelfChecking, Snapshot
from space_scheduler.policy.queue import JobQueue
from space_scheduler.reasons import CANCELLED, Reason, Why

#: By how much the predicted end of an overrunning job moves, one step after the other: the corrections of Tsafrir,
#: Etsion & Feitelson, "Backfilling using system-generated predictions rather than user runtime estimates", IEEE TPDS
#: 18(6), 2007.
OVERRUN_STEPS_US: Final = tuple(
    step_s * US_PER_S for step_s in (60, 300, 900, 1800, 3600, 7200, 18_000, 36_000, 72_000, 180_000, 360_000)
)


class MachineRules(msgspec.Struct, frozen=True):
    """What holds on this machine.

    ``kill_at_limit``: a job ends at its estimate at the latest (the nodes see to it). ``release_at_limit``: at that
    very instant its processors count as free, even before its end is handled (half-open intervals, sequential ties).
    """

    kill_at_limit: bool = True
    release_at_limit: bool = False


class BadPlan(Failed):
    """A policy planned what cannot be: nothing of the plan was applied."""


class SchedulerState:
    """Jobs and processors of one machine of interchangeable processors, and the policy that schedules it."""

    def __init__(self, policy: Policy, rules: MachineRules | None = None) -> None:
        self.policy = policy
        self.rules = rules or MachineRules()
        self.now_us = 0
        self.procs_installed = 0  # the most that were ever in service: what could come back
        self.procs_total = 0  # in service
        self.free_procs = 0  # negative while drained processors are still held by jobs
        self.queue = JobQueue(policy.order)
        self.records: dict[int, Record] = {}  # live jobs
        self.passes = 0
        self._ends: list[tuple[int, int, int]] = []  # (predicted end, job id, processors) of what holds processors
        self._ranks = 0
        self._changes = Changes()
        self._memory: Any = None
        self._timer_us: int | None = None
        self._overruns: dict[int, int] = {}
        self._handlers: dict[type[ev.Event], Callable[[Any], list[Instruction]]] = {
            ev.JobSubmitted: self._submitted,
            ev.JobHeld: self._held,
            ev.JobReleased: self._released,
            ev.JobCancelled: self._cancelled,
            ev.JobLaunched: self._launched,
            ev.JobEnded: self._ended,
            ev.NodesJoined: self._joined,
            ev.NodesDrained: self._drained,
            ev.NodesLost: self._lost,
            ev.TimerDue: self._timer_due,
            ev.Boundary: self._boundary,
        }

    def handle(self, event: ev.Event, now_us: int) -> list[Instruction]:
        """Take in one event. ``now_us`` never goes back.

        Raises :class:`Infeasible` for a job that could never start, :class:`UnknownJob` and ``IllegalTransition`` for
        events that do not fit the state; the state is then as before.
        """
        if now_us < self.now_us:
            raise ValueError(f"time went back: {now_us} µs after {self.now_us} µs, with {event}")
        self.now_us = now_us
        return self._handlers[type(event)](event)

    # what users and operators do

    def refusal(self, job: Job) -> Reason | None:
        """Why a job could never start here, or None. Needs nothing but the machine: ask before accepting."""
        if job.procs > self.procs_installed:
            return Reason(Why.WIDER_THAN_MACHINE, {"procs": job.procs, "machine_procs": self.procs_installed})
        return None

    def _submitted(self, event: ev.JobSubmitted) -> list[Instruction]:
        job = event.job
        if job.id in self.records:
            raise ValueError(f"job {job.id} was submitted before and is still alive")
        if job.procs < 1 or job.estimate_us < 1:
            raise ValueError(
                f"job {job.id} asks for {job.procs} processors for {job.estimate_us} µs: at least 1 of each"
            )
        if refused := self.refusal(job):
            raise Infeasible(f"job {job.id}: {refused}")
        self.records[job.id] = Record(job, self._ranks, self.now_us)
        self.queue.add(job, self._ranks)
        self._ranks += 1
        self._changes.submitted.append(job)
        return []

    def _held(self, event: ev.JobHeld) -> list[Instruction]:
        record = self._record(event.job_id)
        record.become(JobState.HELD, self.now_us)
        self._withdraw(record)
        return []

    def _released(self, event: ev.JobReleased) -> list[Instruction]:
        record = self._record(event.job_id)
        record.become(JobState.QUEUED, self.now_us)
        self.queue.add(record.job, record.rank)
        self._changes.submitted.append(record.job)
        return []

    def _cancelled(self, event: ev.JobCancelled) -> list[Instruction]:
        record = self._record(event.job_id)
        if record.allocation is None:
            was_queued = record.state is JobState.QUEUED
            record.become(JobState.CANCELLED, self.now_us)
            if was_queued:
                self._withdraw(record)
            del self.records[event.job_id]
            return []
        record.become(JobState.ENDING, self.now_us)
        return [Kill(event.job_id, event, CANCELLED)]

    def _withdraw(self, record: Record) -> None:
        """Take a job out of the queue, and out of what the policy is told."""
        job = record.job
        self.queue.remove(job)
        record.promise_us = None
        if job in self._changes.submitted:
            self._changes.submitted.remove(job)
        else:
            self._changes.withdrawn.append(job)

    # what nodes report

    def _launched(self, event: ev.JobLaunched) -> list[Instruction]:
        record = self._record(event.job_id)
        if record.state is JobState.ENDING:
            return []  # cancelled while it was being launched
        record.become(JobState.RUNNING, self.now_us)
        if record.started_us != self.now_us and not record.released:
            self._predict(record, self.now_us + record.job.estimate_us)
            self._changes.disturbed = self._changes.disturbed or Why.LATE_LAUNCH
        return []

    def _ended(self, event: ev.JobEnded) -> list[Instruction]:
        record = self._record(event.job_id)
        if event.outcome not in TERMINAL:
            raise ValueError(f"job {event.job_id} cannot end as {event.outcome}: not a terminal state")
        if record.allocation is None:  # what waits does not end: it is cancelled
            raise record.illegal(event.outcome, self.now_us)
        record.become(event.outcome, self.now_us)
        self._vacate(record)
        del self.records[event.job_id]
        return []

    def _vacate(self, record: Record) -> None:
        self._changes.vacated.append((record.end_us, record.job.procs))
        self._overruns.pop(record.job.id, None)
        if not record.released:
            self._forget_end(record)
            self.free_procs += record.job.procs

    def _joined(self, event: ev.NodesJoined) -> list[Instruction]:
        return self._resize(event.procs, event)

    def _drained(self, event: ev.NodesDrained) -> list[Instruction]:
        return self._resize(-event.procs, event)

    def _lost(self, event: ev.NodesLost) -> list[Instruction]:
        for job_id in event.job_ids:
            record = self._record(job_id)
            if JobState.NODE_LOST not in TRANSITIONS[record.state] or record.allocation is None:
                raise record.illegal(JobState.NODE_LOST, self.now_us)
        if len(set(event.job_ids)) != len(event.job_ids):
            raise ValueError(f"a job is named twice among the lost: {event.job_ids}")
        instructions = self._resize(-event.procs, event)
        for job_id in event.job_ids:
            self._ended(ev.JobEnded(job_id, JobState.NODE_LOST))
        return instructions

    def _resize(self, procs: int, event: ev.NodesJoined | ev.NodesDrained | ev.NodesLost) -> list[Instruction]:
        if event.procs < 0:
            raise ValueError(f"a number of processors cannot be negative: {event}")
        if self.procs_total + procs < 0:
            raise ValueError(f"{-procs} processors cannot go: {self.procs_total} are in service")
        self.procs_total += procs
        self.procs_installed = max(self.procs_installed, self.procs_total)
        self.free_procs += procs
        self._changes.disturbed = self._changes.disturbed or Why.CAPACITY_CHANGED
        return []

    def _timer_due(self, _event: ev.TimerDue) -> list[Instruction]:
        self._timer_us = None
        self._changes.due = True
        return []

    # the pass

    def _boundary(self, event: ev.Boundary) -> list[Instruction]:
        if self._ends and self._ends[0][0] <= self.now_us:
            self._past_their_end()
        changes = self._changes
        if not changes:
            return []
        self.passes += 1
        instructions = self._apply(self.policy.plan(self._snapshot(changes)), event)
        self._changes = Changes()  # not before: a pass that failed leaves what changed to the next one
        return instructions

    def _snapshot(self, changes: Changes) -> Snapshot:
        return Snapshot(self.now_us, self.procs_total, self.free_procs, self.queue, self._ends, changes, self._memory)

    def _past_their_end(self) -> None:
        """Jobs whose predicted end has come and that are still here: release them by rule, or predict anew."""
        while self._ends[0][0] <= self.now_us:
            record = self.records[self._ends[0][1]]
            if self.rules.release_at_limit:
                self._forget_end(record)
                record.released = True
                self.free_procs += record.job.procs
                self._changes.released = True
                if not self._ends:
                    return
            else:
                step = self._overruns.get(record.job.id, 0)
                self._overruns[record.job.id] = step + 1
                self._predict(record, self.now_us + OVERRUN_STEPS_US[min(step, len(OVERRUN_STEPS_US) - 1)])
                self._changes.disturbed = self._changes.disturbed or Why.OVERRUN

    def _apply(self, plan: Plan, event: ev.Event) -> list[Instruction]:
        self._check(plan)
        self._memory = plan.memory
        now_us, limits = self.now_us, self.rules.kill_at_limit
        instructions: list[Instruction] = []
        for start in plan.starts:
            job = start.job
            record = self.records[job.id]
            record.become(JobState.STARTING, now_us)
            self.queue.remove(job)
            self.free_procs -= job.procs
            record.allocation = allocation = Allocation(job.procs)
            record.started_us = now_us
            record.end_us = end_us = now_us + job.estimate_us
            insort(self._ends, (end_us, job.id, job.procs))
            instructions.append(Start(job, allocation, job.estimate_us if limits else None, event, start.reason))
        for job_id, promised_us, reason in plan.told:
            record = self.records[job_id]
            record.promise_us = promised_us
            if record.first_promise_us is None:
                record.first_promise_us = promised_us
            instructions.append(Tell(job_id, promised_us, event, reason))
        if plan.wake_us is not None and plan.wake_us != self._timer_us:
            self._timer_us = plan.wake_us
            instructions.append(SetTimer(plan.wake_us, event, Reason(Why.WAKE)))
        return instructions

    def _check(self, plan: Plan) -> None:
        """The plan against the state, with the feasibility function that planned it."""
        free_procs = self.free_procs
        starting: set[int] = set()
        for start in plan.starts:
            job = start.job
            problem: str | None = obstacle(job.procs, job.estimate_us, self.now_us, free_procs)
            if job.id not in self.queue or job.id in starting:
                problem = "it is not in the queue"
            elif job != self.queue.job(job.id):
                problem = "the queue has another job of this number"
            if problem:
                raise BadPlan(f"job {job.id} ({job.procs} processors) cannot start with {free_procs} free: {problem}")
            starting.add(job.id)
            free_procs -= job.procs
        for job_id, promised_us, _ in plan.told:
            if job_id not in self.queue or job_id in starting:
                raise BadPlan(f"job {job_id} is told a start at {promised_us} µs, and does not wait")
            if promised_us < self.now_us:
                raise BadPlan(f"job {job_id} is told a start at {promised_us} µs, before now, {self.now_us} µs")
        if plan.wake_us is not None and plan.wake_us <= self.now_us:
            raise BadPlan(f"a wake-up at {plan.wake_us} µs is not after now, {self.now_us} µs")

    # looking at it

    def explain(self, job_id: int) -> Reason:
        """Why a live job is not running yet, or why not more can be said."""
        record = self._record(job_id)
        job = record.job
        if record.state is JobState.HELD:
            return Reason(Why.HELD)
        if record.state is not JobState.QUEUED:
            return Reason(Why.FITS, {"started_us": record.started_us or 0})
        promise = {} if record.promise_us in (None, FOREVER_US) else {"promised_us": record.promise_us or 0}
        blocked = obstacle(job.procs, job.estimate_us, self.now_us, self.free_procs)
        if blocked:
            return Reason(blocked, {"procs": job.procs, "free_procs": self.free_procs, **promise})
        if promise:
            return Reason(Why.RESERVED_LATER, promise)
        head = self.queue.head()
        if head is None or head.id == job_id:
            return Reason(Why.NOT_CHOSEN, {"free_procs": self.free_procs})
        return Reason(Why.BEHIND_HEAD, {"head": head.id})

    def running(self) -> Iterator[Record]:
        """The jobs that hold processors."""
        return (record for record in self.records.values() if record.holds_processors)

    def validate(self) -> None:
        """Walk every invariant; AssertionError names the one that is broken.

        A policy is asked about its memory only when it has seen all that happened: between an event and the pass that
        follows it, the memory is of the past.
        """
        held = sum(record.job.procs for record in self.running())
        assert self.free_procs + held == self.procs_total, (self.free_procs, held, self.procs_total)
        queued = [job.id for job in self.queue]
        keys = [self.queue.key(job_id) for job_id in queued]
        assert keys == sorted(set(keys)), "the queue is out of order"
        assert len(queued) == len(self.queue)
        assert set(queued) == {i for i, record in self.records.items() if record.state is JobState.QUEUED}
        ends = sorted((record.end_us, record.job.id, record.job.procs) for record in self.running())
        assert ends == self._ends, "the predicted ends differ from the records"
        for job_id, record in self.records.items():
            assert record.job.id == job_id
            assert record.state not in TERMINAL, f"job {job_id} has ended and is still here"
            waits = record.state in (JobState.QUEUED, JobState.HELD)
            assert (record.allocation is None) == waits, f"job {job_id} is {record.state} with {record.allocation}"
            assert record.allocation is None or record.allocation.procs == record.job.procs
            assert record.story[-1][1] is record.state
        seen_all = not self._changes and not (self._ends and self._ends[0][0] <= self.now_us)
        if seen_all and isinstance(self.policy, SelfChecking):
            self.policy.validate(self._snapshot(Changes()))

    def _record(self, job_id: int) -> Record:
        record = self.records.get(job_id)
        if record is None:
            raise UnknownJob(job_id)
        return record

    def _predict(self, record: Record, end_us: int) -> None:
        """Move the predicted end of a job that holds processors."""
        self._forget_end(record)
        record.end_us = end_us
        insort(self._ends, (end_us, record.job.id, record.job.procs))

    def _forget_end(self, record: Record) -> None:
        del self._ends[bisect_left(self._ends, (record.end_us, record.job.id, record.job.procs))]

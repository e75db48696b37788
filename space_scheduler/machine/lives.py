"""The part of the state machine that jobs live in: what users and operators do, and what nodes report."""

from bisect import bisect_left, insort

from cosched.model.job import TERMINAL, Job, JobState
from space_scheduler.machine import events as ev
from space_scheduler.machine import explain
from space_scheduler.machine.capacity import PooledCapacity
from space_scheduler.machine.instructions import Instruction
from space_scheduler.machine.on_procs import OnProcs
from space_scheduler.machine.record import Infeasible, Record, UnknownJob, avoiding
from space_scheduler.policy.queue import JobQueue
from space_scheduler.progress import end_us
from space_scheduler.reasons import CANCELLED, HELD, RELEASED, Reason, Why


class Lives(OnProcs):
    """What :class:`~space_scheduler.machine.state.SchedulerState` does about jobs, but for starting them."""

    queue: JobQueue
    _ends: list[tuple[int, int, int]]  # (predicted end, job id, processors) of what holds processors
    _ranks: int
    _overruns: dict[int, int]

    # what users and operators do

    def refusal(self, job: Job) -> Reason | None:
        """Why a job could never start here, or None. Needs nothing but the machine: ask before accepting."""
        counted = isinstance(self.capacity, PooledCapacity)
        if counted and (job.procs <= self.capacity.procs_installed or self.rules.awaits_nodes):
            return None
        return explain.refusal(self, job)

    def _submitted(self, event: ev.JobSubmitted) -> list[Instruction]:
        job = event.job
        if job.id in self.records:
            raise ValueError(f"job {job.id} was submitted before and is still alive")
        if job.procs < 1 or job.estimate_us < 1:
            raise ValueError(
                f"job {job.id} asks for {job.procs} processors for {job.estimate_us} µs: at least 1 of each"
            )
        if refused := self.refusal(job):
            raise Infeasible(job.id, refused)
        self._trigger = event
        self.records[job.id] = Record(job, self._ranks, self.now_us, event)
        self.queue.add(job, self._ranks)
        self._ranks += 1
        self._changes.submitted.append(job)
        return []

    def _held(self, event: ev.JobHeld) -> list[Instruction]:
        record = self._record(event.job_id)
        record.become(JobState.HELD, self.now_us)
        record.decided(HELD, self.now_us, event)
        self._trigger = event
        self._withdraw(record)
        return []

    def _released(self, event: ev.JobReleased) -> list[Instruction]:
        record = self._record(event.job_id)
        if record.state is not JobState.HELD:  # what starts waits again for another reason
            raise record.illegal(JobState.QUEUED, self.now_us)
        record.become(JobState.QUEUED, self.now_us)
        record.decided(RELEASED, self.now_us, event)
        self._trigger = event
        self.queue.add(record.job, record.rank)
        self._changes.submitted.append(record.job)
        return []

    def _cancelled(self, event: ev.JobCancelled) -> list[Instruction]:
        record = self._record(event.job_id)
        if record.allocation is None:
            was_queued = record.state is JobState.QUEUED
            record.become(JobState.CANCELLED, self.now_us)
            if was_queued:
                self._trigger = event
                self._withdraw(record)
            del self.records[event.job_id]
            return []
        return [self._kill(record, CANCELLED, event)]

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
            record.begin_work(record.job.estimate_us, self.now_us)
            self._predict(record, end_us(self.now_us, record.left, record.rate_ppm))
            self._trigger = event
            self._changes.disturbed = self._changes.disturbed or Why.LATE_LAUNCH
        return []

    def _launch_failed(self, event: ev.LaunchFailed) -> list[Instruction]:
        record = self._record(event.job_id)
        again = avoiding(record.job, event.nodes)
        tried_enough = record.failed_launches >= self.rules.launch_retries
        if record.state is JobState.ENDING and record.reason == CANCELLED:
            return self._ended(ev.JobEnded(event.job_id, JobState.CANCELLED))
        if record.state is not JobState.STARTING or tried_enough or not self._ever_fits(again):
            return self._ended(ev.JobEnded(event.job_id, JobState.LAUNCH_FAILED))
        record.failed_launches += 1
        numbers = {"failed_launches": record.failed_launches, "launch_retries": self.rules.launch_retries}
        self._wait_again(record, again, Reason(Why.LAUNCH_RETRIED, numbers, ", ".join(event.nodes)), event)
        return []

    def _wait_again(self, record: Record, job: Job, reason: Reason, event: ev.Event) -> None:
        record.become(JobState.QUEUED, self.now_us)
        self._vacate(record)
        record.wait_again(job)
        record.decided(reason, self.now_us, event)
        self._trigger = event
        self.queue.add(job, record.rank)
        self._changes.submitted.append(job)

    def _ended(self, event: ev.JobEnded) -> list[Instruction]:
        record = self._record(event.job_id)
        if event.outcome not in TERMINAL:
            raise ValueError(f"job {event.job_id} cannot end as {event.outcome}: not a terminal state")
        if record.allocation is None:  # what waits does not end: it is cancelled
            raise record.illegal(event.outcome, self.now_us)
        if event.outcome is JobState.NODE_LOST and record.job.requeue and record.state is not JobState.STARTING:
            self._wait_again(record, record.job, Reason(Why.REQUEUED), event)
            return []
        record.become(event.outcome, self.now_us)
        self._trigger = event
        self._vacate(record)
        del self.records[event.job_id]
        return []

    def _vacate(self, record: Record) -> None:
        self._changes.vacated.append((record.end_us, record.job.procs))
        self._overruns.pop(record.job.id, None)
        if record.allocation is None or record.released:
            return
        self._forget_end(record)
        self.capacity.give(record.job, record.allocation)
        if self.paces is not None and record.allocation.nodes:
            self.paces.end(record)
            self._see_all(record.allocation)

    # their records

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

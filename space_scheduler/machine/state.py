"""The scheduler's state machine: ``handle(event, now_us) -> [Instruction]`` (design, section 3).

Events change the state; the :class:`Boundary` that closes a batch runs one pass: the policy plans on a snapshot, the
plan is checked with the function that planned it, and applied at once or not at all. No pass is run when nothing
changed. :meth:`SchedulerState.replay` takes the recorded decision instead, and asks nobody.

Processors are counted, or nodes have names: the first event about nodes decides which.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import Any, Final

from cosched.model.allocation import Allocation
from cosched.model.job import TERMINAL, TRANSITIONS, Job, JobState
from cosched.model.time import US_PER_S
from space_scheduler.machine import check, explain, invariants, paper
from space_scheduler.machine import events as ev
from space_scheduler.machine.cluster import Cluster
from space_scheduler.machine.instructions import Instruction, SetTimer, Start, Tell
from space_scheduler.machine.on_nodes import OnNodes
from space_scheduler.machine.record import Infeasible, Record, UnknownJob, avoiding
from space_scheduler.machine.rules import BadPlan, MachineRules
from space_scheduler.machine.saved import Decision, SavedState
from space_scheduler.policy.interface import Changes, Nodes, Plan, Policy, Snapshot
from space_scheduler.policy.queue import JobQueue
from space_scheduler.reasons import CANCELLED, HELD, RELEASED, Reason, Why

__all__ = ["BadPlan", "MachineRules", "SchedulerState"]

#: By how much the predicted end of an overrunning job moves, one step after the other: the corrections of Tsafrir,
#: Etsion & Feitelson, "Backfilling using system-generated predictions rather than user runtime estimates", IEEE TPDS
#: 18(6), 2007.
OVERRUN_STEPS_US: Final = tuple(
    step_s * US_PER_S for step_s in (60, 300, 900, 1800, 3600, 7200, 18_000, 36_000, 72_000, 180_000, 360_000)
)


class SchedulerState(OnNodes):
    """Jobs and processors of one machine, and the policy that schedules it."""

    def __init__(self, policy: Policy, rules: MachineRules | None = None) -> None:
        self.policy = policy
        self.rules = rules or MachineRules()
        self.now_us = 0
        self.procs_installed = 0  # the most that were ever in service: what could come back
        self.procs_total = 0  # in service
        self.free_procs = 0  # negative while drained processors are still held by jobs
        self.queue = JobQueue(policy.order)
        self.records: dict[int, Record] = {}  # live jobs
        self.cluster: Cluster | None = None  # None: counted processors
        self.passes = 0
        self._ends: list[tuple[int, int, int]] = []  # (predicted end, job id, processors) of what holds processors
        self._ranks = 0
        self._changes = Changes()
        self._memory: Any = None
        self._timer_us: int | None = None
        self._overruns: dict[int, int] = {}
        self._trigger: ev.Event | None = None  # the last event before the coming pass
        self._applied: Plan | None = None
        self._handlers: dict[type[ev.Event], Callable[[Any], list[Instruction]]] = {
            ev.JobSubmitted: self._submitted,
            ev.JobHeld: self._held,
            ev.JobReleased: self._released,
            ev.JobCancelled: self._cancelled,
            ev.JobLaunched: self._launched,
            ev.LaunchFailed: self._launch_failed,
            ev.JobEnded: self._ended,
            ev.NodesJoined: self._joined,
            ev.NodesDrained: self._drained,
            ev.NodesLost: self._lost,
            ev.NodeJoined: self._node_joined,
            ev.NodeDrained: self._node_drained,
            ev.NodeResumed: self._node_resumed,
            ev.NodeLost: self._node_lost,
            ev.TimerDue: self._timer_due,
            ev.Boundary: self._boundary,
        }

    def handle(self, event: ev.Event, now_us: int) -> list[Instruction]:
        """Take in one event. ``now_us`` never goes back.

        Raises :class:`Infeasible` for a job that could never start, :class:`UnknownJob`, ``UnknownNode`` and
        ``IllegalTransition`` for events that do not fit the state; the state is then as before.
        """
        if now_us < self.now_us:
            raise ValueError(f"time went back: {now_us} µs after {self.now_us} µs, with {event}")
        self.now_us = now_us
        return self._handlers[type(event)](event)

    # recovery

    def replay(self, event: ev.Event, now_us: int, decided: Decision | None) -> list[Instruction]:
        """Take in one recorded event, at a Boundary with the decision that was applied then. Never asks the policy.

        ``decided`` None: that Boundary ran no pass. Gives the instructions of then. Raises as :meth:`handle` does, and
        :class:`BadPlan` for a decision that does not fit the state: then the record is not this machine's.
        """
        if type(event) is not ev.Boundary:
            return self.handle(event, now_us)
        if now_us < self.now_us:
            raise ValueError(f"time went back: {now_us} µs after {self.now_us} µs, with {event}")
        self.now_us = now_us
        self._applied = None
        if self._ends and self._ends[0][0] <= now_us:
            self._past_their_end()
        if decided is None:
            return []
        plan, forgotten = paper.plan_of(decided, self)
        instructions = self._carry_out(plan, event)
        if forgotten:
            self._changes.disturbed = Why.RESTARTED
        return instructions

    def decision(self) -> Decision | None:
        """The plan that the last Boundary applied, as a record; None if it ran no pass."""
        return None if self._applied is None else paper.decision_of(self._applied, self.policy)

    def snapshot(self) -> SavedState:
        """Everything there is, as plain values."""
        return paper.saved(self)

    @classmethod
    def restore(cls, policy: Policy, rules: MachineRules | None, saved: SavedState) -> "SchedulerState":
        """The machine of a snapshot. It goes on as the other would have, if the policy is the same.

        A policy that finds a memory of another type, or that has declared none, begins with None and is told that
        everything is disturbed, at the next Boundary.
        """
        state = cls(policy, rules)
        paper.restore(state, saved)
        return state

    # what users and operators do

    def refusal(self, job: Job) -> Reason | None:
        """Why a job could never start here, or None. Needs nothing but the machine: ask before accepting."""
        fits_a_pool = self.cluster is None and job.procs <= self.procs_installed
        if fits_a_pool or (self.cluster is None and self.rules.awaits_nodes):
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
            self._predict(record, self.now_us + record.job.estimate_us)
            self._trigger = event
            self._changes.disturbed = self._changes.disturbed or Why.LATE_LAUNCH
        return []

    def _launch_failed(self, event: ev.LaunchFailed) -> list[Instruction]:
        record = self._record(event.job_id)
        again = avoiding(record.job, event.nodes)
        tried_enough = record.failed_launches >= self.rules.launch_retries
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
        if self.cluster is not None and record.allocation is not None:
            self._forget_end(record)
            self.cluster.give_back(record.job, record.allocation)
            self.free_procs = self._room().free_procs
        elif not record.released:
            self._forget_end(record)
            self.free_procs += record.job.procs

    # counted processors

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
        if self.cluster is not None:
            self._mixed(event)
        if event.procs < 0:
            raise ValueError(f"a number of processors cannot be negative: {event}")
        if self.procs_total + procs < 0:
            raise ValueError(f"{-procs} processors cannot go: {self.procs_total} are in service")
        self.procs_total += procs
        self.procs_installed = max(self.procs_installed, self.procs_total)
        self.free_procs += procs
        self._trigger = event
        self._changes.disturbed = self._changes.disturbed or Why.CAPACITY_CHANGED
        return []

    def _timer_due(self, event: ev.TimerDue) -> list[Instruction]:
        self._timer_us = None
        self._trigger = event
        self._changes.due = True
        return []

    # the pass

    def _boundary(self, event: ev.Boundary) -> list[Instruction]:
        self._applied = None
        if self._ends and self._ends[0][0] <= self.now_us:
            self._past_their_end()
        changes = self._changes
        if not changes:
            return []
        return self._carry_out(self.policy.plan(self._view(changes)), event)

    def _carry_out(self, plan: Plan, event: ev.Boundary) -> list[Instruction]:
        if self.cluster is not None:
            plan = check.placed(self, plan)
        instructions = self._apply(plan, event)
        self.passes += 1
        self._applied = plan
        self._trigger = None
        self._changes = Changes()  # not before: a pass that failed leaves what changed to the next one
        return instructions

    def _view(self, changes: Changes) -> Snapshot:
        nodes = None
        if self.cluster is not None:
            held = [(end_us, self.records[job_id]) for end_us, job_id, _ in self._ends]
            nodes = Nodes(self._room(), [(at, each.job, each.allocation) for at, each in held if each.allocation])
        return Snapshot(
            self.now_us, self.procs_total, self.free_procs, self.queue, self._ends, changes, self._memory, nodes
        )

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

    def _apply(self, plan: Plan, event: ev.AnyEvent) -> list[Instruction]:
        self._check(plan)
        self._memory = plan.memory
        now_us, limits, cluster = self.now_us, self.rules.kill_at_limit, self.cluster
        cause = self._trigger or event
        instructions: list[Instruction] = []
        for start in plan.starts:
            job = start.job
            record = self.records[job.id]
            record.become(JobState.STARTING, now_us)
            self.queue.remove(job)
            if cluster is None or start.allocation is None:
                self.free_procs -= job.procs
                allocation = Allocation(job.procs)
            else:
                allocation = start.allocation
                cluster.hold(job, allocation)
            record.allocation = allocation
            record.started_us = now_us
            record.reason, record.decided_us, record.cause = start.reason, now_us, cause
            record.end_us = end_us = now_us + job.estimate_us
            insort(self._ends, (end_us, job.id, job.procs))
            instructions.append(Start(job, allocation, job.estimate_us if limits else None, event, start.reason))
        for job_id, promised_us, reason in plan.told:
            record = self.records[job_id]
            record.promise_us = promised_us
            if record.first_promise_us is None:
                record.first_promise_us = promised_us
            record.decided(reason, now_us, cause)
            instructions.append(Tell(job_id, promised_us, event, reason))
        if plan.wake_us is not None and plan.wake_us != self._timer_us:
            self._timer_us = plan.wake_us
            instructions.append(SetTimer(plan.wake_us, event, Reason(Why.WAKE)))
        if cluster is not None:
            self.free_procs = self._room().free_procs
        return instructions

    def _check(self, plan: Plan) -> None:
        """The plan against the state, with the feasibility function that planned it."""
        if plan.starts or plan.told or plan.wake_us is not None:
            check.check(self, plan)

    # looking at it

    def explain(self, job_id: int) -> Reason:
        """Why a live job is in the state it is in: the decision's own reason, or why it does not start now."""
        return explain.explain(self, self._record(job_id))

    def running(self) -> Iterator[Record]:
        """The jobs that hold processors."""
        return (record for record in self.records.values() if record.holds_processors)

    def holding(self) -> Iterator[Record]:
        """The same jobs, by their predicted ends; costs nothing for those that wait."""
        return (self.records[job_id] for _, job_id, _ in self._ends)

    def validate(self) -> None:
        """Walk every invariant; AssertionError names the one that is broken."""
        invariants.walk(self)

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

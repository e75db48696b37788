"""The scheduler's state machine: ``handle(event, now_us) -> [Instruction]`` (design, section 3).

Events change the state; the :class:`Boundary` that closes a batch runs one pass: the policy plans on a snapshot, the
plan is checked with the function that planned it, and applied at once or not at all. No pass is run when nothing
changed. :meth:`SchedulerState.replay` takes the recorded decision instead, and asks nobody.

Processors are counted, or nodes have names: the first event about nodes decides which.
"""

from bisect import insort
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from cosched.errors import BadInput
from cosched.model.allocation import Allocation
from cosched.model.job import JobState
from cosched.model.time import US_PER_S
from space_scheduler.feasibility import FIELDS
from space_scheduler.machine import check, explain, invariants, paper
from space_scheduler.machine import events as ev
from space_scheduler.machine.capacity import Capacity, PooledCapacity
from space_scheduler.machine.instructions import Instruction, Pace, SetTimer, Start, Tell
from space_scheduler.machine.lives import Lives
from space_scheduler.machine.named_capacity import NamedCapacity
from space_scheduler.machine.paces import Paces
from space_scheduler.machine.record import Record
from space_scheduler.machine.rules import BadPlan, MachineRules
from space_scheduler.machine.saved import Decision, SavedState
from space_scheduler.policy.interface import Changes, Nodes, Plan, Policy, Snapshot, traits_of
from space_scheduler.policy.queue import JobQueue
from space_scheduler.progress import ALONE_PPM, end_us
from space_scheduler.reasons import Reason, Why

__all__ = ["BadPlan", "MachineRules", "SchedulerState"]

#: By how much the predicted end of an overrunning job moves, one step after the other: the corrections of Tsafrir,
#: Etsion & Feitelson, "Backfilling using system-generated predictions rather than user runtime estimates", IEEE TPDS
#: 18(6), 2007.
OVERRUN_STEPS_US: Final = tuple(
    step_s * US_PER_S for step_s in (60, 300, 900, 1800, 3600, 7200, 18_000, 36_000, 72_000, 180_000, 360_000)
)


def _paces(policy: Policy, rules: MachineRules) -> Paces | None:
    """Rates are kept where the rules say how nodes are shared."""
    if rules.sharing is None:
        return None
    traits = traits_of(policy)
    if not traits.shares:
        found = f"{policy} cannot be had there: {traits.alone_because}"
        raise BadInput("policy, where jobs share nodes", found, "one with shares = True, such as 3dbf-light")
    return Paces(rules.sharing)


class SchedulerState(Lives):
    """Jobs and processors of one machine, and the policy that schedules it."""

    def __init__(self, policy: Policy, rules: MachineRules | None = None) -> None:
        self.policy = policy
        self.rules = rules or MachineRules()
        self.now_us = 0
        self.queue = JobQueue(policy.order, self.place.alike_in if self.rules.sharing is None else FIELDS)
        self.records: dict[int, Record] = {}  # live jobs
        self.capacity: Capacity = PooledCapacity()  # until the first node with a name has joined
        self.paces = _paces(policy, self.rules)  # None: jobs are as if alone
        self.passes = 0
        self._ends: list[tuple[int, int, int]] = []  # (predicted end, job id, processors) of what holds processors
        self._ranks = 0
        self._changes = Changes()
        self._memory: Any = None
        #: What was kept of a memory that this policy does not understand, until its first pass: another one may.
        self._unread: tuple[Any, bool] | None = None
        self._timer_us: int | None = None
        self._overruns: dict[int, int] = {}
        self._trigger: ev.Event | None = None  # the last event before the coming pass
        self._paced: list[Instruction] = []  # of the pass that is being made
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
            ev.OwnerCame: self._owner_came,
            ev.OwnerLeft: self._owner_left,
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
        self._repace(event)
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

    def rules_changed(self) -> None:
        """It was restored under other rules than those of its past: the next pass tells of promises that move so."""
        self._changes.disturbed = Why.RULES_CHANGED

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
        changes = self._happened()
        if not changes:
            return []
        self._repace(event)
        return self._carry_out(self.policy.plan(self._view(changes)), event)

    def _happened(self) -> Changes:
        """What the coming pass is told of."""
        if self._unread is None:
            return self._changes
        return replace(self._changes, disturbed=self._changes.disturbed or Why.RESTARTED)

    def _repace(self, event: ev.Boundary) -> None:
        """Predict anew the ends of jobs that go at another rate from now on."""
        if self.paces is None:
            return
        for record in self.paces.changed(self.records, self.now_us):
            self._predict(record, end_us(self.now_us, record.left, record.rate_ppm))
            reason = Reason(Why.PACE, {"rate_ppm": record.rate_ppm})
            self._paced.append(Pace(record.job.id, record.rate_ppm, event, reason))

    def _carry_out(self, plan: Plan, event: ev.Boundary) -> list[Instruction]:
        if isinstance(self.capacity, NamedCapacity):
            plan = check.placed(self, plan)
        started = self._apply(plan, event)
        self._repace(event)
        instructions, self._paced = [*started, *self._paced], []
        self.passes += 1
        self._applied = plan
        self._trigger = self._unread = None
        self._changes = Changes()  # not before: a pass that failed leaves what changed to the next one
        return instructions

    def _view(self, changes: Changes) -> Snapshot:
        nodes, capacity = None, self.capacity
        if isinstance(capacity, NamedCapacity):
            held = [(end_us, self.records[job_id]) for end_us, job_id, _ in self._ends]
            nodes = Nodes(capacity.room(), [(at, each.job, each.allocation) for at, each in held if each.allocation])
            if self.paces is not None:
                nodes.floor = self.paces.floor
                nodes.going = [each.going() for _, each in held]
        return Snapshot(
            self.now_us, capacity.procs_total, capacity.free_procs, self.queue, self._ends, changes, self._memory, nodes
        )

    def _past_their_end(self) -> None:
        """Jobs whose predicted end has come and that are still here: release them by rule, or predict anew."""
        while self._ends[0][0] <= self.now_us:
            record = self.records[self._ends[0][1]]
            if self.rules.release_at_limit:
                self._forget_end(record)
                record.released = True
                assert record.allocation is not None
                self.capacity.give(record.job, record.allocation)
                self._changes.released = True
                if not self._ends:
                    return
            else:
                step = self._overruns.get(record.job.id, 0)
                self._overruns[record.job.id] = step + 1
                record.begin_work(OVERRUN_STEPS_US[min(step, len(OVERRUN_STEPS_US) - 1)], self.now_us)
                self._predict(record, end_us(self.now_us, record.left, record.rate_ppm))
                self._changes.disturbed = self._changes.disturbed or Why.OVERRUN

    def _apply(self, plan: Plan, event: ev.AnyEvent) -> list[Instruction]:
        self._check(plan)
        self._memory = plan.memory
        now_us, limits, capacity = self.now_us, self.rules.kill_at_limit, self.capacity
        named = isinstance(capacity, NamedCapacity)
        cause = self._trigger or event
        instructions: list[Instruction] = []
        for start in plan.starts:
            job = start.job
            record = self.records[job.id]
            record.become(JobState.STARTING, now_us)
            self.queue.remove(job)
            allocation = start.allocation if named and start.allocation else Allocation(job.procs)
            capacity.take(job, allocation)
            record.allocation = allocation
            record.started_us = now_us
            record.reason, record.decided_us, record.cause = start.reason, now_us, cause
            record.end_us = predicted_us = now_us + job.estimate_us
            insort(self._ends, (predicted_us, job.id, job.procs))
            if self.paces is not None and named:
                record.rate_ppm = ALONE_PPM
                self.paces.begin(record, now_us)
                self._see_all(allocation)
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
        return instructions

    def _check(self, plan: Plan) -> None:
        """The plan against the state, with the feasibility function that planned it."""
        if plan.starts or plan.told or plan.wake_us is not None:
            check.check(self, plan)

    # looking at it

    @property
    def procs_installed(self) -> int:
        """Processors that were ever in service: what could come back."""
        return self.capacity.procs_installed

    @property
    def procs_total(self) -> int:
        """Processors in service."""
        return self.capacity.procs_total

    @property
    def free_procs(self) -> int:
        """Processors that nobody holds; negative while drained ones that are counted are still held."""
        return self.capacity.free_procs

    def explain_nodes(self, job_id: int) -> list[explain.OnNode]:
        """What each node is for a job that waits; nothing for one that does not."""
        record = self._record(job_id)
        return explain.on_nodes(self, record.job) if record.state is JobState.QUEUED else []

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

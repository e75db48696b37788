"""The scheduler's state machine: ``handle(event, now_us) -> [Instruction]`` (design, section 3).

Events change the machine, by tables of functions (``lifecycle``, ``node_events``); the :class:`Boundary` that closes a
batch runs one pass:

1. Jobs whose predicted end has come and that are still here are predicted anew, or released by rule. Rules are asked
   whether jobs that come to the queue may be queued yet (``eligibility``).
2. Is nothing different since the last pass, there is none.
3. The rates of jobs that share nodes follow what has changed; their ends move.
4. The policy plans on a snapshot, and the plan is checked with the function that planned it. Where either fails, both
   are done again without the jobs that make it fail (``blame``): those are set aside (``aside``). Some of those that
   were set aside before are tried again.
5. The plan is applied at once or not at all.
6. The rates follow the starts.

:meth:`SchedulerState.replay` takes the recorded decision in place of step 4, and asks nobody.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

from msgspec.structs import replace

from cosched.errors import BadInput
from cosched.model.allocation import Allocation
from cosched.model.coscheduling import Receives
from cosched.model.job import RUNNING, WAITING, Job, JobState
from cosched.model.time import FOREVER_US
from space_scheduler.eligibility.rule import Moment, Rule
from space_scheduler.lookahead import Progress
from space_scheduler.machine import blame, check, explain, holdings, invariants, snapshot
from space_scheduler.machine import events as ev
from space_scheduler.machine.decision import (
    DecidedAside,
    DecidedStart,
    DecidedWait,
    Decision,
    decision_of,
    memory_found,
    memory_kept,
    plan_of,
)
from space_scheduler.machine.events import Boundary, RulesChanged
from space_scheduler.machine.holding import NOTHING, Occupying
from space_scheduler.machine.instructions import Instruction, SetAside, SetTimer, Tell
from space_scheduler.machine.lifecycle import JOB_EVENTS, Handler, past_their_ends
from space_scheduler.machine.machine import Machine
from space_scheduler.machine.named_capacity import NamedCapacity
from space_scheduler.machine.node_events import NODE_EVENTS
from space_scheduler.machine.nodes import NodeStatus
from space_scheduler.machine.rates import Rates
from space_scheduler.machine.record import Record
from space_scheduler.machine.rules import EDITION, MachineRules
from space_scheduler.machine.snapshot import SavedState
from space_scheduler.policy.interface import (
    Changes,
    Explaining,
    Held,
    Nodes,
    Plan,
    PlannedAnswer,
    PlannedResize,
    PlannedStart,
    Policy,
    RunningJob,
    SelfChecking,
    Snapshot,
    traits_of,
)
from space_scheduler.policy.place import place_of
from space_scheduler.policy.queue import JobQueue
from space_scheduler.progress import ALONE_PPM, end_us
from space_scheduler.reasons import ELIGIBLE, Reason, Why


def timer_due(machine: Machine, event: ev.TimerDue) -> None:
    """The policy has asked for a pass now."""
    machine.timer_us = None
    machine.trigger = event
    machine.changes.due = True


class _Moves(NamedTuple):
    """Which jobs a pass sets aside, or tried again in vain, which of those that were are back, what rules have said."""

    aside: tuple[DecidedAside, ...] = ()
    back: tuple[int, ...] = ()
    gates: tuple[DecidedWait, ...] = ()


_NONE: Final = _Moves()
_TRIED_AGAIN: Final = Reason(Why.TRIED_AGAIN)
#: What the head of the queue may lack: a policy may say more.
_LACKING: Final = frozenset({Why.NOT_ENOUGH_FREE, Why.NOT_FOLDABLE, Why.NOT_CHOSEN})


class SchedulerState:
    """One machine, and the policy that schedules it: its memory, and how many passes there were."""

    handlers: ClassVar[Mapping[type[ev.Event], Handler]] = {**JOB_EVENTS, **NODE_EVENTS, ev.TimerDue: timer_due}

    def __init__(
        self, policy: Policy, rules: MachineRules | None = None, eligibility: Sequence[Rule] | None = None
    ) -> None:
        """``eligibility``: rules that are asked before a job is queued (None: those of the past keep their jobs).

        Raises :class:`BadInput` for a policy that does not go with how jobs share nodes there.
        """
        rules, traits = rules or MachineRules(), traits_of(policy)
        if rules.sharing is not None and not traits.shares:
            found = f"{policy} cannot be had there: {traits.alone_because}"
            raise BadInput("policy, where jobs share nodes", found, "one with shares = True, such as 3dbf-light")
        self.policy = policy
        # checked once: Python compares each method of a protocol
        self._explaining = policy if isinstance(policy, Explaining) else None
        self._self_checking = policy if isinstance(policy, SelfChecking) else None
        place = place_of(traits.place or rules.place, earlier=rules.edition < EDITION)
        self.machine = Machine(policy.order, rules, place, eligibility)
        self.queue, self.records = self.machine.jobs.queue, self.machine.jobs.records
        self.passes = 0
        self.memory: Any = None
        #: What was kept of a memory that this policy does not understand, until its first pass: another one may.
        self.unread: tuple[Any, bool] | None = None
        self._rated: list[Instruction] = []  # of the pass that is being made
        self._applied: Plan | None = None
        self._moves = _NONE  # of the pass that was applied

    def handle(self, event: ev.Event, now_us: int) -> list[Instruction]:
        """Take in one event. ``now_us`` never goes back.

        Raises :class:`Infeasible` for a job that could never start, :class:`UnknownJob`, ``UnknownNode`` and
        ``IllegalTransition`` for events that do not fit the state; the state is then as before.
        """
        machine = self.machine
        if now_us < machine.now_us:
            raise ValueError(f"time went back: {now_us} µs after {machine.now_us} µs, with {event}")
        machine.now_us = now_us
        kind = type(event)
        if kind is Boundary:
            return self._boundary(event)  # type: ignore[arg-type]
        instructions = self.handlers[kind](machine, event) or []
        if kind is RulesChanged:  # the host has restored this state under them
            self.memory = self.unread = None
        if machine.jobs.changing:  # what was deferred may be possible now
            instructions = instructions + holdings.send_due(machine, event)  # type: ignore[arg-type]
        if machine.turns is not None and machine.nodes is not None:
            instructions = [*instructions, *machine.turns.follow(machine.jobs, machine.nodes, event)]
        return instructions

    # recovery

    def replay(self, event: ev.Event, now_us: int, decided: Decision | None) -> list[Instruction]:
        """Take in one recorded event, at a Boundary with the decision that was applied then. Never asks the policy.

        ``decided`` None: that Boundary ran no pass. Gives the instructions of then. Raises as :meth:`handle` does, and
        :class:`BadPlan` for a decision that does not fit the state: then the record is not this machine's.
        """
        if type(event) is not Boundary:
            return self.handle(event, now_us)
        machine = self.machine
        if now_us < machine.now_us:
            raise ValueError(f"time went back: {now_us} µs after {machine.now_us} µs, with {event}")
        machine.now_us = now_us
        self._applied = None
        past_their_ends(machine)
        if decided is None:
            return []
        self._follow_gates(decided.gates, event)
        if machine.rates is not None:
            self._follow_rates(event, machine.rates)
        self._note_changes()
        moves = _Moves(decided.aside, decided.back, decided.gates)
        starts = [each.job_id for each in decided.changes if isinstance(each, DecidedStart)]
        moved = self._move(moves, starts, event, changes=bool(decided.changes))
        plan, forgotten = plan_of(decided, self.machine.jobs, self.policy)
        instructions = moved + self._carry_out(self._prepared(plan, machine.jobs.queue, self._kept()), event, moves)
        if forgotten:
            machine.changes.disturbed = Why.RESTARTED
        return instructions

    def decision(self) -> Decision | None:
        """The plan that the last Boundary applied, as a record; None if it ran no pass."""
        return None if self._applied is None else decision_of(self._applied, self.policy, *self._moves)

    def snapshot(self) -> SavedState:
        """Everything there is, as plain values."""
        memory, forgotten = self.unread or memory_kept(self.memory, self.policy)
        return snapshot.encode(self.machine, self.passes, memory, forgotten)

    @classmethod
    def restore(
        cls,
        policy: Policy,
        rules: MachineRules | None,
        saved: SavedState,
        eligibility: Sequence[Rule] | None = None,
    ) -> "SchedulerState":
        """The machine of a snapshot. It goes on as the other would have, if the policy is the same.

        A policy that finds a memory of another type, or that has declared none, begins with None and is told that
        everything is disturbed, at the next Boundary.
        """
        state = cls(policy, rules, eligibility)
        snapshot.decode(saved, state.machine)
        state.passes = saved.passes
        state.memory, forgotten = memory_found(saved.memory, saved.forgotten, policy)
        state.unread = (saved.memory, saved.forgotten) if forgotten else None
        return state

    def rules_changed(self) -> None:
        """It was restored under other rules than those of its past: the next pass tells of promises that move so."""
        self.machine.changes.disturbed = Why.RULES_CHANGED

    # the pass

    def _boundary(self, event: Boundary) -> list[Instruction]:
        self._applied = None
        machine, error = self.machine, None
        jobs = machine.jobs
        ends, asks = jobs.ends, jobs.gates.active
        if ends and ends[0][0] <= machine.now_us:  # 1. ends
            past_their_ends(machine, name_overdue=event.name_overdue)
        gates = self._ask_rules(event) if asks else ()
        changes = machine.changes if self.unread is None else self.happened()
        if not (changes.submitted or changes.vacated or changes):  # 2. is there a pass? These two first: they are quick
            if not gates:
                return []
            return self._carry_out(self._trying_again(Plan((), self.memory)), event, _Moves(gates=gates))
        if machine.rates is not None:  # 3. rates
            self._follow_rates(event, machine.rates)
        if not (asks or jobs.aside.jobs):
            try:
                plan = self.policy.plan(self.view(changes))  # 4. plan and check
                if self.unread is not None:
                    plan = _withdrawing(plan, machine, jobs.queue)
                plan = self._prepared(plan, jobs.queue)
            except Exception as failed:  # a policy may raise anything
                error = failed
            else:
                return self._carry_out(plan, event, _NONE)
        self._note_changes()
        plan, moves = self._planned(changes, error)
        moves = moves._replace(gates=gates)
        moved = self._move(moves, [start.job.id for start in plan.starts], event, changes=bool(plan.changes))
        return moved + self._carry_out(self._trying_again(plan), event, moves)

    def _planned(self, changes: Changes, error: Exception | None) -> tuple[Plan, _Moves]:
        """A plan that can be applied, and the jobs that it was made without. Raises where no plan can be.

        ``error``: how the plan failed in which all jobs take part that are not set aside (None: it was not made).
        """
        jobs = self.machine.jobs
        due = jobs.aside.due(self.machine.now_us)
        if error is None:
            try:
                plan = self._attempt(changes)
            except Exception as failed:
                error = failed
            if error is None and not due:
                return plan, _NONE
        came = {job.id for job in changes.submitted}
        queued = [job.id for job in jobs.queue]
        known = [record.job.id for record in jobs.holding() if record.job.id not in jobs.aside]
        known += [job_id for job_id in queued if job_id not in came]
        new = [job_id for job_id in queued if job_id in came]
        attempt = partial(self._attempt, changes)
        if error is None:
            found = blame.Found(plan, [*known, *new], {})
        else:
            found = blame.without_culprits(attempt, known, new, error)
        if due:
            found = blame.with_those_that_can(attempt, found, due)
        aside = tuple(DecidedAside(job_id, *why) for job_id, why in sorted(found.blamed.items()))
        return found.plan, _Moves(aside, tuple(sorted({*due}.intersection(found.part))))

    def _attempt(self, changes: Changes, part: Collection[int] | None = None) -> Plan:
        """The policy's plan, checked, with these jobs taking part (None: all but those that are set aside)."""
        queue, kept = self.machine.jobs.queue, self._kept()
        if part is not None:
            queue, changes, kept = self._only(changes, {*part})
        plan = self.policy.plan(self.view(changes, queue, kept))
        if self.unread is not None:
            plan = _withdrawing(plan, self.machine, queue)
        return self._prepared(plan, queue, kept)

    def _only(self, changes: Changes, part: set[int]) -> tuple[JobQueue, Changes, set[int]]:
        """The queue of these jobs, what has changed in it, and the running jobs that are none of them."""
        jobs = self.machine.jobs
        kept = {record.job.id for record in jobs.holding()} - part
        again = [jobs.records[each] for each in jobs.aside.jobs if each in part]
        back = _in_order(record for record in again if record.holding is NOTHING)
        queue = jobs.queue.only(part, ((record.job, record.rank) for record in back))
        came = {job.id for job in changes.submitted}
        gone = [job for job in jobs.queue if job.id not in part and job.id not in came]
        submitted = [job for job in changes.submitted if job.id in part] + [record.job for record in back]
        found = replace(changes, submitted=submitted, withdrawn=[*changes.withdrawn, *gone])
        return queue, found if found else replace(found, due=True), kept

    def _kept(self) -> set[int]:
        """The running jobs that are set aside: they keep what they hold."""
        jobs = self.machine.jobs
        return {each for each in jobs.aside.jobs if jobs.records[each].holding is not NOTHING}

    def _note_changes(self) -> None:
        """Jobs that are set aside are tried again for what has happened."""
        changes, aside = self.machine.changes, self.machine.jobs.aside
        if aside.jobs and (changes.vacated or changes.released or changes.resized or changes.disturbed):
            aside.changes += 1

    def _move(self, moves: _Moves, starts: Collection[int], event: Boundary, *, changes: bool) -> list[Instruction]:
        """Set jobs aside and take others back; ``starts`` are jobs that the plan starts, ``changes``: it has any."""
        machine, jobs = self.machine, self.machine.jobs
        cause, now_us = machine.trigger or event, machine.now_us
        instructions: list[Instruction] = []
        for job_id in moves.back:
            record = jobs.records[job_id]
            jobs.aside.drop(job_id)
            if record.state is WAITING:
                jobs.follow_rules(record, now_us, _TRIED_AGAIN, cause)
                if job_id not in starts:
                    instructions.append(Tell(job_id, FOREVER_US, event, record.reason))
        for each in moves.aside:
            record, is_new = jobs.records[each.job_id], each.job_id not in jobs.aside
            reason = jobs.aside.put(each.job_id, each.problem, now_us, tried=each.tried).reason
            if not is_new:
                continue
            if record.state is JobState.QUEUED:
                record.promise_us = None
                jobs.follow_rules(record, now_us, reason, cause)
            instructions.append(SetAside(each.job_id, each.problem, event, reason))
        if changes and jobs.aside.jobs:
            jobs.aside.changes += 1
        return instructions

    def _ask_rules(self, event: Boundary) -> tuple[DecidedWait, ...]:
        """Ask rules about the jobs that come to the queue, and those that wait for what has happened; follow them."""
        machine, jobs = self.machine, self.machine.jobs
        records, gates = jobs.records, jobs.gates
        again = {job_id for job_id in gates.asked(machine.now_us) if job_id in records}
        asked = again.union(job.id for job in machine.changes.submitted)
        if not asked:
            return ()
        moment = Moment(
            machine.now_us,
            lambda job_id: records[job_id].state if job_id in records else None,
            lambda: ((record.job, record.state) for record in records.values()),
            gates.ended,
        )
        found = []
        for job_id in sorted(asked, key=lambda job_id: records[job_id].rank):
            gate = gates.judge(records[job_id].job, moment)
            if gate != gates.waits.get(job_id):
                found.append(DecidedWait(job_id, gate))
        self._follow_gates(decided := tuple(found), event)
        return decided

    def _follow_gates(self, decided: Sequence[DecidedWait], event: Boundary) -> None:
        """Have jobs wait, or come to the queue, as rules have decided."""
        if not decided:
            return
        machine, jobs, changes = self.machine, self.machine.jobs, self.machine.changes
        cause, now_us = machine.trigger or event, machine.now_us
        passed: list[Record] = []
        kept_back = set()
        for job_id, gate in ((each.job_id, each.gate) for each in decided):
            record = jobs.records[job_id]
            if gate is None:
                jobs.gates.drop(job_id)
                if jobs.chain.reason(job_id) is None:
                    passed.append(record)
            else:
                jobs.gates.put(job_id, gate)
                kept_back.add(job_id)
        changes.submitted = [job for job in changes.submitted if job.id not in kept_back]
        came = [jobs.records[job.id] for job in changes.submitted]
        if passed:
            jobs.take_last_places(passed, [each for each in came if each.story == ((now_us, JobState.QUEUED),)])
        for each in decided:
            jobs.follow_rules(jobs.records[each.job_id], now_us, ELIGIBLE, cause)
        changes.submitted[:0] = [record.job for record in passed]

    def _trying_again(self, plan: Plan) -> Plan:
        """The plan, with a wake-up when a job is tried again, or a rule asked again, at the latest."""
        machine = self.machine
        coming = [each for each in (machine.jobs.aside.next_us(), machine.jobs.gates.next_us()) if each is not None]
        if not coming:
            return plan
        next_us = min(coming)
        pending = machine.timer_us if machine.timer_us is not None and machine.timer_us > machine.now_us else next_us
        wakes_us = pending if plan.wake_us is None else plan.wake_us
        return Plan(plan.changes, plan.memory, max(min(wakes_us, next_us), machine.now_us + 1), plan.told)

    def _prepared(self, plan: Plan, queue: JobQueue, kept: Collection[int] = ()) -> Plan:
        """The plan of a policy for this queue as it will be applied. Raises :class:`BadPlan` where it cannot be.

        What it says of jobs that are ``kept`` as they are is passed over.
        """
        machine = self.machine
        if kept:
            changes = [change for change in plan.changes if change.job.id not in kept]
            plan = Plan(changes, plan.memory, plan.wake_us, plan.told)
        if plan.changes:
            plan = check.in_order(plan, machine.jobs.records)
            if machine.nodes is not None:
                plan = check.placed(machine, machine.nodes, plan)
        if machine.changes.asked or machine.changes.resized:
            plan = _answered(plan, machine)
        if machine.rules.resize_retry_us:
            plan = _waking(plan, machine)
        if plan.changes or plan.told or plan.wake_us is not None:
            self._check(plan, queue)
        return plan

    def _carry_out(self, plan: Plan, event: Boundary, moves: _Moves) -> list[Instruction]:
        machine = self.machine
        instructions: list[Instruction] = []
        if plan.changes or plan.told or plan.wake_us is not None:
            instructions = self._apply(plan, event)  # 5. apply
        if machine.rates is not None:  # 6. rates of those who share nodes with what starts
            self._follow_rates(event, machine.rates)
            instructions += self._rated
            self._rated = []
        if machine.turns is not None and machine.nodes is not None:
            instructions += machine.turns.follow(machine.jobs, machine.nodes, event)
        self.passes += 1
        self.memory = plan.memory
        self._applied, self._moves = plan, moves
        machine.trigger = self.unread = None
        if machine.jobs.gates.ended:
            machine.jobs.gates.ended.clear()
        machine.changes = Changes()  # not before: a pass that failed leaves what changed to the next one
        return instructions

    def _check(self, plan: Plan, queue: JobQueue) -> None:
        """The plan against the machine, with the feasibility function that planned it."""
        check.check(self.machine, plan, queue)

    def _apply(self, plan: Plan, event: ev.AnyEvent) -> list[Instruction]:
        machine = self.machine
        records, now_us = machine.jobs.records, machine.now_us
        cause = machine.trigger or event
        instructions: list[Instruction] = []
        for change in plan.changes:
            record = records[change.job.id]
            record.reason, record.decided_us, record.cause = change.reason, now_us, cause
            if isinstance(change, PlannedStart):
                allocation = change.allocation or Allocation(change.job.procs)
                instructions += holdings.start(machine, record, allocation, event)
            elif isinstance(change, PlannedResize):
                instructions += holdings.resize(machine, record, change.allocation, event)
            elif isinstance(change, PlannedAnswer):
                instructions += holdings.answer(machine, record, change.given, change.left, event)
            else:
                instructions += holdings.requeue(machine, record, event)
        for job_id, promised_us, reason in plan.told:
            record = records[job_id]
            record.promise_us = promised_us
            if record.first_promise_us is None:
                record.first_promise_us = promised_us
            record.reason, record.decided_us, record.cause = reason, now_us, cause  # thousands: without a call
        instructions += [Tell(job_id, promised_us, event, reason) for job_id, promised_us, reason in plan.told]
        if plan.wake_us is not None and plan.wake_us != machine.timer_us:
            machine.timer_us = plan.wake_us
            aside = machine.jobs.aside
            again = bool(aside.jobs) and plan.wake_us == aside.next_us() and aside.seen_all
            instructions.append(SetTimer(plan.wake_us, event, Reason(Why.TRY_AGAIN if again else Why.WAKE)))
        return instructions

    def _follow_rates(self, event: Boundary, rates: Rates) -> None:
        """Predict anew the ends of jobs that go at another rate from now on."""
        machine = self.machine
        for record in rates.changed(self.records, machine.now_us):
            machine.jobs.predict(record, end_us(record.as_of_us, record.left, record.rate_ppm))
            reason = Reason(Why.PACE, {"rate_ppm": round(record.rate_ppm)})
            self._rated.append(holdings.paced(record, event, reason))

    def happened(self) -> Changes:
        """What the coming pass is told of."""
        changes = self.machine.changes
        return changes if self.unread is None else replace(changes, disturbed=changes.disturbed or Why.RESTARTED)

    def view(self, changes: Changes, queue: JobQueue | None = None, kept: Collection[int] = ()) -> Snapshot:
        """The machine as the policy sees it, with its queue or another; jobs that are ``kept`` cannot be resized."""
        machine = self.machine
        capacity, jobs = machine.capacity, machine.jobs
        nodes = None if machine.nodes is None else nodes_of(machine, machine.nodes)
        return Snapshot(
            machine.now_us,
            capacity.procs_total,
            capacity.free_procs,
            jobs.queue if queue is None else queue,
            jobs.ends,
            changes,
            self.memory,
            nodes,
            partial(self._running, kept) if kept else self._running,
        )

    def _running(self, kept: Collection[int] = ()) -> list[RunningJob]:
        machine = self.machine
        receives = {} if machine.turns is None else machine.turns.receives
        return [
            _running_job(
                record,
                machine.now_us,
                polls=Receives.POLLS in receives.get(record.job.id, ()),
                kept=record.job.id in kept,
            )
            for record in _in_order(machine.jobs.holding())
        ]

    # looking at it

    @property
    def now_us(self) -> int:
        """The time of the last event."""
        return self.machine.now_us

    @property
    def rules(self) -> MachineRules:
        """What holds on this machine."""
        return self.machine.rules

    def nodes(self) -> list[NodeStatus]:
        """The named nodes in their order, with what is used of them and by whom."""
        return [] if self.machine.nodes is None else [each.status() for each in self.machine.nodes]

    def refusal(self, job: Job) -> Reason | None:
        """Why a job could never start here, or None. Needs nothing but the machine: ask before accepting."""
        return explain.refusal(self.machine, job)

    def explain_nodes(self, job_id: int, *, owners: bool = True) -> list[explain.OnNode]:
        """What each node is for a job that waits, with its owner's use or without; nothing for one that does not."""
        record = self.machine.jobs[job_id]
        return explain.on_nodes(self.machine, record.job, owners=owners) if record.state is JobState.QUEUED else []

    def explain(self, job_id: int, now_us: int | None = None) -> Reason:
        """Why a live job is in the state it is in: the decision's own reason, or why it does not start now.

        ``now_us``: when that is asked; None: at the last event.
        """
        record = self.machine.jobs[job_id]
        found = explain.explain(self.machine, record, self.now_us if now_us is None else now_us)
        head = self.queue.head()
        if head is None or self._explaining is None:
            return found
        if record.job is head and found.why in _LACKING:
            told = self._explaining.waits(self.view(Changes()), head)
            return found if told is None else Reason(told.why, {**told.numbers, **found.numbers}, found.node)
        if record.state is RUNNING and "waiting_job" not in found.numbers:
            told = self._explaining.waits(self.view(Changes()), head)
            if told is not None and told.numbers.get("blocking_job") == job_id:
                return explain.with_numbers(found, {"waiting_job": head.id})
        return found

    def overdue_at_us(self, after_us: int) -> int:
        """When a job that holds processors becomes overdue, or is to be predicted anew because it is.

        That is ``after_us`` after its first predicted end, for a job that ends at its limit needs a moment to end.
        FOREVER_US where no job waits for processors.
        """
        at_us, records = FOREVER_US, self.records
        for first_us, job_id, _ in self.machine.jobs.ends if self.queue.head() is not None else ():
            if first_us >= at_us:
                break
            at_us = min(at_us, first_us + (after_us if records[job_id].overdue_us is None else 0))
        return at_us

    def running(self) -> Iterator[Record]:
        """The jobs that hold processors."""
        return self.machine.jobs.running()

    def progress(self, record: Record) -> Progress:
        """How far such a job is now."""
        now_us = self.machine.now_us
        return record.progress()._replace(left=holdings.work_left(record, now_us), as_of_us=now_us)

    def validate(self) -> None:
        """Walk every invariant; AssertionError names the one that is broken.

        A policy is asked about its memory only when it has seen all that happened: between an event and the pass that
        follows it, the memory is of the past.
        """
        machine = self.machine
        invariants.walk(machine)
        ends = machine.jobs.ends
        seen_all = not self.happened() and not (ends and ends[0][0] <= machine.now_us)
        if seen_all and self._self_checking is not None:
            self._self_checking.validate(self.view(Changes()))


def _answered(plan: Plan, machine: Machine) -> Plan:
    """The plan, with a refusal for each request of a job that it does not answer."""
    answered = {change.job.id for change in plan.changes if isinstance(change, PlannedAnswer)}
    refusals = [
        PlannedAnswer(record.job, Reason(Why.ASK_REFUSED, {"asked_procs": sum(record.asks)}))
        for record in _in_order(each for each in machine.jobs.holding() if each.asks)
        if not record.waits and isinstance(record.holding, Occupying) and record.job.id not in answered
    ]
    return Plan((*plan.changes, *refusals), plan.memory, plan.wake_us, plan.told) if refusals else plan


def _withdrawing(plan: Plan, machine: Machine, queue: JobQueue) -> Plan:
    """The plan of a policy that does not know what was promised: what it does not promise anew is not promised now."""
    spoken_of = {job_id for job_id, _, _ in plan.told} | {change.job.id for change in plan.changes}
    why = Reason(Why.RESTARTED)
    withdrawn = [
        (record.job.id, FOREVER_US, why)
        for record in machine.jobs.records.values()
        if record.promise_us not in (None, FOREVER_US) and record.job.id in queue and record.job.id not in spoken_of
    ]
    return Plan(plan.changes, plan.memory, plan.wake_us, (*plan.told, *withdrawn)) if withdrawn else plan


def _waking(plan: Plan, machine: Machine) -> Plan:
    """The plan, with a wake-up where a job may be changed again at the latest."""
    later = [record.retry_us for record in machine.jobs.running() if record.retry_us > machine.now_us]
    if not later:
        return plan
    wakes = later if plan.wake_us is None else [*later, plan.wake_us]
    return Plan(plan.changes, plan.memory, min(wakes), plan.told)


def _in_order(records: Iterable[Record]) -> list[Record]:
    """The records in the order in which their jobs came."""
    return sorted(records, key=lambda record: record.rank)


def _running_job(record: Record, now_us: int, *, polls: bool, kept: bool) -> RunningJob:
    holding = record.holding
    left_us = Fraction(holdings.work_left(record, now_us)) / ALONE_PPM
    able = record.state is JobState.RUNNING and isinstance(holding, Occupying)
    return RunningJob(
        record.job,
        holding.allocation,
        record.started_us or 0,
        left_us,
        record.rate_ppm,
        able and record.retry_us <= now_us and not kept,
        record.rank,
        record.asks,
        record.asked_us,
        record.given,
        record.waits,
        record.overruns > 0,
        polls,
    )


def nodes_of(machine: Machine, capacity: NamedCapacity) -> Nodes:
    """The nodes as a policy sees them."""
    nodes = Nodes(capacity.room, lambda: _held(machine))
    if capacity.openings:
        nodes.opens, nodes.make_ahead = capacity.opens(machine.now_us), lambda: capacity.room_ahead(machine.now_us)
    if machine.rates is not None:
        nodes.occupancy = machine.rates.occupancy
        nodes.progress = [each.progress() for each in machine.jobs.holding()]
    return nodes


def _held(machine: Machine) -> list[Held]:
    found = zip(machine.jobs.ends, machine.jobs.holding(), strict=True)
    return [(end[0], each.job, each.allocation) for end, each in found]

"""The machine to paper and back: decisions and whole states as the plain values of ``machine.saved``."""

from bisect import insort
from typing import TYPE_CHECKING, Any

import msgspec

from cosched.model.allocation import Allocation
from cosched.model.job import JobState
from space_scheduler.machine.capacity import PooledCapacity
from space_scheduler.machine.named_capacity import NamedCapacity
from space_scheduler.machine.record import Record
from space_scheduler.machine.rules import BadPlan
from space_scheduler.machine.saved import DecidedStart, Decision, SavedChanges, SavedJob, SavedNode, SavedState
from space_scheduler.policy.interface import Changes, Plan, PlannedStart, Policy, traits_of
from space_scheduler.policy.memory import packed, unpacked

if TYPE_CHECKING:
    from space_scheduler.machine.state import SchedulerState


def decision_of(plan: Plan, policy: Policy) -> Decision:
    """A plan that was applied, on paper."""
    starts = tuple(
        DecidedStart(start.job.id, start.allocation or Allocation(start.job.procs), start.reason)
        for start in plan.starts
    )
    memory, forgotten = _kept(plan.memory, policy)
    return Decision(starts, memory, plan.wake_us, tuple(plan.told), forgotten)


def plan_of(decided: Decision, state: "SchedulerState") -> tuple[Plan, bool]:
    """The plan of a decision, and whether the policy's memory could not be kept."""
    for start in decided.starts:
        if start.job_id not in state.queue:
            raise BadPlan(f"a recorded decision starts job {start.job_id}, which is not in the queue")
    starts = [PlannedStart(state.queue.job(each.job_id), each.reason, each.allocation) for each in decided.starts]
    memory, forgotten = _found(decided.memory, decided.forgotten, state.policy)
    return Plan(starts, memory, decided.wake_us, decided.told), forgotten


def saved(state: "SchedulerState") -> SavedState:
    """The whole state on paper."""
    changes, (memory, forgotten) = state._changes, state._unread or _kept(state._memory, state.policy)
    capacity = state.capacity
    installed, in_service, _ = (0, 0, 0) if isinstance(capacity, NamedCapacity) else capacity.totals()
    return SavedState(
        now_us=state.now_us,
        passes=state.passes,
        ranks=state._ranks,
        procs_installed=installed,
        procs_total=in_service,
        timer_us=state._timer_us,
        jobs=tuple(_saved_job(record, state._overruns.get(job_id)) for job_id, record in state.records.items()),
        nodes=_saved_nodes(capacity) if isinstance(capacity, NamedCapacity) else None,
        changes=SavedChanges(
            tuple(changes.submitted),
            tuple(changes.vacated),
            tuple(changes.withdrawn),
            changes.released,
            changes.due,
            changes.disturbed,
        ),
        trigger=state._trigger,  # type: ignore[arg-type]
        memory=memory,
        forgotten=forgotten,
    )


def restore(state: "SchedulerState", paper: SavedState) -> None:
    """Make a new machine into the one on paper."""
    state.now_us = paper.now_us
    state.passes = paper.passes
    state._ranks = paper.ranks
    state._timer_us = paper.timer_us
    state._trigger = paper.trigger
    if paper.nodes is None:
        capacity = state.capacity = PooledCapacity(paper.procs_total)
        capacity.procs_installed = paper.procs_installed
    else:
        state.capacity = NamedCapacity(state.rules, state.place)  # rules of now: perhaps others than those of then
        for node in paper.nodes:
            state.capacity.add(node.node, node.lost, node.drained, node.reason, node.owner)
    for job in paper.jobs:
        _restore_job(state, job)
    if isinstance(state.capacity, NamedCapacity):
        state.capacity.settle()
        for member in state.capacity:
            state._see(member)
    changes = paper.changes
    state._changes = Changes(
        list(changes.submitted),
        list(changes.vacated),
        list(changes.withdrawn),
        changes.released,
        changes.due,
        changes.disturbed,
    )
    state._memory, forgotten = _found(paper.memory, paper.forgotten, state.policy)
    if forgotten:
        state._unread = paper.memory, paper.forgotten


def _kept(memory: object, policy: Policy) -> tuple[Any, bool]:
    if memory is None:
        return None, False
    if traits_of(policy).memory_type is None:
        return None, True
    try:
        return packed(memory), False
    except (TypeError, AttributeError, ValueError):  # not of the type that was declared: as good as none
        return None, True


def _found(memory: object, forgotten: bool, policy: Policy) -> tuple[Any, bool]:
    if forgotten or memory is None:
        return None, forgotten
    try:
        return unpacked(memory, policy), False
    except msgspec.ValidationError:  # another policy's
        return None, True


def _saved_job(record: Record, overruns: int | None) -> SavedJob:
    return SavedJob(
        record.job,
        record.rank,
        record.state,
        record.story,
        record.started_us,
        record.end_us,
        record.allocation,
        record.released,
        record.promise_us,
        record.first_promise_us,
        overruns,
        record.failed_launches,
        record.reason,
        record.decided_us,
        record.cause,  # type: ignore[arg-type]
        record.left,
        record.rate_ppm,
        record.as_of_us,
    )


def _restore_job(state: "SchedulerState", paper: SavedJob) -> None:
    record = Record(paper.job, paper.rank, paper.decided_us, paper.cause)
    record.state = paper.state
    record.story = paper.story
    record.started_us = paper.started_us
    record.end_us = paper.end_us
    record.allocation = paper.allocation
    record.released = paper.released
    record.promise_us = paper.promise_us
    record.first_promise_us = paper.first_promise_us
    record.failed_launches = paper.failed_launches
    record.reason = paper.reason
    record.left, record.rate_ppm, record.as_of_us = paper.left, paper.rate_ppm, paper.as_of_us
    job = paper.job
    state.records[job.id] = record
    if paper.overruns is not None:
        state._overruns[job.id] = paper.overruns
    if paper.state is JobState.QUEUED:
        state.queue.add(job, paper.rank)
    if record.holds_processors:
        insort(state._ends, (record.end_us, job.id, job.procs))
        if paper.allocation is not None:
            state.capacity.take(job, paper.allocation)
            if state.paces is not None and paper.allocation.nodes:
                state.paces.again(record, state.now_us)


def _saved_nodes(capacity: NamedCapacity) -> tuple[SavedNode, ...]:
    return tuple(SavedNode(each.node, each.lost, each.drained, each.reason, each.owner) for each in capacity)

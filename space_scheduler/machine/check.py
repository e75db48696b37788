"""A plan against the state, with the feasibility function that planned it, before anything of it is applied."""

from collections.abc import Mapping

from cosched.model.allocation import Allocation
from cosched.model.job import Job, JobState
from cosched.model.width import Range
from space_scheduler.machine.capacity import Free
from space_scheduler.machine.holding import Occupying
from space_scheduler.machine.machine import Machine
from space_scheduler.machine.named_capacity import NamedCapacity
from space_scheduler.machine.record import Record
from space_scheduler.machine.rules import BadPlan
from space_scheduler.policy.interface import (
    Plan,
    PlannedAnswer,
    PlannedChange,
    PlannedRequeue,
    PlannedResize,
    PlannedStart,
)
from space_scheduler.policy.queue import JobQueue

Records = Mapping[int, Record]


def in_order(plan: Plan, records: Records) -> Plan:
    """The plan with its changes as they happen: jobs are ended, then shrunk, then all else in the plan's order."""
    for change in plan.changes:
        if type(change) is not PlannedStart:
            break
    else:
        return plan

    def turn(change: PlannedChange) -> int:
        if isinstance(change, PlannedStart):
            return 2
        if isinstance(change, PlannedResize):
            return (
                1 if (record := records.get(change.job.id)) and change.allocation.procs < record.allocation.procs else 2
            )
        return 0 if isinstance(change, PlannedRequeue) else 3

    return Plan(sorted(plan.changes, key=turn), plan.memory, plan.wake_us, plan.told)


def placed(machine: Machine, nodes: NamedCapacity, plan: Plan) -> Plan:
    """The plan, in order, with a place on named nodes for every start: a policy that counts processors names none."""
    if all(change.allocation for change in plan.changes if isinstance(change, PlannedStart)):
        return plan
    records, room = machine.jobs.records, nodes.room()
    changes: list[PlannedChange] = []
    for change in plan.changes:
        if not isinstance(change, PlannedStart):
            if not isinstance(change, PlannedAnswer) and not _problem(change, records.get(change.job.id)):
                _take(room, change, records)
            changes.append(change)
            continue
        allocation = change.allocation or room.placed(change.job)
        if allocation is None:
            raise BadPlan(f"job {change.job.id} has no place on the nodes: {room.obstacle(change.job)}", change.job.id)
        room.take(change.job, allocation)
        changes.append(PlannedStart(change.job, change.reason, allocation))
    return Plan(changes, plan.memory, plan.wake_us, plan.told)


def check(machine: Machine, plan: Plan, queue: JobQueue) -> None:
    """Raise :class:`BadPlan` unless all of the plan can be applied, which was made with this queue."""
    changed = _check_changes(machine, plan, queue) if plan.changes else ()
    now_us, waiting = machine.now_us, queue.ids()
    for job_id, promised_us, _ in plan.told:
        if job_id not in waiting or job_id in changed:
            raise BadPlan(f"job {job_id} is told a start at {promised_us} µs, and does not wait", job_id)
        if promised_us < now_us:
            raise BadPlan(f"job {job_id} is told a start at {promised_us} µs, before now, {now_us} µs", job_id)
    if plan.wake_us is not None and plan.wake_us <= now_us:
        raise BadPlan(f"a wake-up at {plan.wake_us} µs is not after now, {now_us} µs")


def _check_changes(machine: Machine, plan: Plan, queue: JobQueue) -> set[int]:
    """Check them one after the other, on what is left by those before; the jobs that are changed."""
    records, room = machine.jobs.records, machine.capacity.room()
    free_procs = room.free_procs
    changed: set[int] = set()
    answered: set[int] = set()
    last = plan.changes[-1]
    for change in plan.changes:
        job = change.job
        if isinstance(change, PlannedAnswer):
            _check_answer(change, records.get(job.id), answered)
            continue
        if isinstance(change, PlannedStart):
            allocation = change.allocation or Allocation(job.procs)
            if allocation.procs == job.procs and not allocation.folded:
                problem = room.misfit(job, allocation)
            else:
                problem = _width(job, allocation) or room.misfit(job.at(allocation.processes), allocation)
            if change is not last:
                room.take(job, allocation)
            if job.id in changed or not queue.has(job):
                waits = job.id in queue and job.id not in changed
                problem = "the queue has another job of this number" if waits else "it is not in the queue"
            if problem:
                raise BadPlan(
                    f"job {job.id} ({allocation.procs} processors) cannot start with {free_procs} free: {problem}",
                    job.id,
                )
            free_procs -= allocation.procs
        else:
            _check_running(room, change, records, changed)
            free_procs = room.free_procs
        changed.add(job.id)
    return changed


def _check_answer(change: PlannedAnswer, record: Record | None, answered: set[int]) -> None:
    """Raise :class:`BadPlan` unless a running job asked for what it is given."""
    job_id, shape = change.job.id, change.job.shape
    problem = "the plan answers it twice" if job_id in answered else None
    if record is None or record.job != change.job or not record.holding.counted:
        problem = "it is not here"
    elif not record.asks or change.left not in {record.asks[at:] for at in range(len(record.asks) + 1)}:
        problem = f"it asked for {record.asks}"
    elif not isinstance(shape, Range) or not -shape.ask_fewer <= record.given + change.given <= shape.ask_more:
        problem = f"it cannot be given {change.given} more: {shape}"
    elif (
        shape.resident
        and change.given > 0
        and shape.least + record.given + change.given > (present := record.allocation.processes)
    ):
        problem = f"it cannot be given {change.given} more: {present} processes are there"
    answered.add(job_id)
    if problem:
        raise BadPlan(f"job {job_id} cannot be answered: {problem}", job_id)


def _check_running(room: Free, change: PlannedResize | PlannedRequeue, records: Records, changed: set[int]) -> None:
    """Have a running job hold what the change says, or raise :class:`BadPlan`."""
    job_id = change.job.id
    problem = "the plan changes it twice" if job_id in changed else _problem(change, records.get(job_id))
    if problem is None:
        problem = _take(room, change, records)
    if problem:
        what = "be resized" if isinstance(change, PlannedResize) else "be queued again"
        raise BadPlan(f"job {job_id} cannot {what}: {problem}", job_id)


def _width(job: Job, allocation: Allocation) -> str | None:
    """What is wrong with so many processes on so many processors for a job, in words, or None."""
    processes, procs = allocation.processes, allocation.procs
    if not job.width.allows(processes):
        return f"it cannot have {processes} processors: {job.width}"
    if not allocation.folded:
        return None
    if job.resident:
        enabled = procs < processes and (not procs or job.width.allows(procs))
        return None if enabled else f"{procs} of its {processes} processes cannot be enabled: {job.width}"
    if procs >= processes or (procs and not job.may_be_folded):
        return f"its {processes} processes cannot be folded to {procs} processors"
    return None


def _whole(allocation: Allocation) -> bool:
    """Whether the shares of nodes are the whole allocation, each with a process and a processor at least."""
    shares = allocation.nodes
    both = sum(share.tasks for share in shares), sum(share.procs for share in shares)
    return both == (allocation.processes, allocation.procs) and all(
        0 <= each.procs <= each.tasks >= 1 for each in shares
    )


def _moved(job: Job, old: Allocation, new: Allocation) -> str | None:
    """What is wrong with a change by which processes that stay where they are would go elsewhere, or None."""
    if job.resident:
        if _processes(new) == _processes(old) and [at.node for at in new.nodes] == [at.node for at in old.nodes]:
            return None
        return f"its {old.processes} processes stay where they are, also those that sleep"
    if (new.folded or old.folded) and _processes(new) != _processes(old):
        return f"it is folded: its {old.processes} processes stay where they are"
    return None


def _processes(allocation: Allocation) -> object:
    return {share.node: share.tasks for share in allocation.nodes} or allocation.processes


def _problem(change: PlannedResize | PlannedRequeue, record: Record | None) -> str | None:
    """Why a job cannot be changed, whatever is free, or None."""
    if record is None or record.job != change.job:
        return "it is not here"
    if record.state is not JobState.RUNNING or not record.holding.counted:
        return f"it is {record.state}"
    return None if isinstance(record.holding, Occupying) else "a change of it is under way"


def _take(room: Free, change: PlannedResize | PlannedRequeue, records: Records) -> str | None:
    """Have a running job hold what the change says; what is wrong with it, in words, or None."""
    job, old = change.job, records[change.job.id].allocation
    if not isinstance(change, PlannedResize):
        room.give(job, old)
        return None
    new, shares = change.allocation, change.allocation.nodes
    if new == old:
        return "it holds that already"
    if bool(shares) != bool(old.nodes) or (shares and not _whole(new)):
        return f"{new} is nothing that it can hold"
    problem = _moved(job, old, new) or _width(job, new)
    if problem is None and new.beyond(old).procs:
        problem = room.misfit_wider(job, old, new)
    if problem is None:
        room.give(job, old)
        room.take(job, new)
    return problem

"""A plan against the state, with the feasibility function that planned it, before anything of it is applied."""

from cosched.model.allocation import Allocation
from space_scheduler.machine.rules import BadPlan
from space_scheduler.machine.view import MachineView
from space_scheduler.policy.interface import Plan, PlannedStart


def placed(machine: MachineView, plan: Plan) -> Plan:
    """The plan with a place on named nodes for every start: a policy that counts processors names none."""
    if all(start.allocation for start in plan.changes):
        return plan
    room = machine.capacity.room()
    starts: list[PlannedStart] = []
    for start in plan.changes:
        allocation = start.allocation or room.placed(start.job)
        if allocation is None:
            raise BadPlan(f"job {start.job.id} has no place on the nodes: {room.obstacle(start.job)}")
        room.take(start.job, allocation)
        starts.append(PlannedStart(start.job, start.reason, allocation))
    return Plan(starts, plan.memory, plan.wake_us, plan.told)


def check(machine: MachineView, plan: Plan) -> None:
    """Raise :class:`BadPlan` unless all of the plan can be applied."""
    now_us, queue, room = machine.now_us, machine.jobs.queue, machine.capacity.room()
    free_procs = room.free_procs
    starting: set[int] = set()
    for start in plan.changes:
        job = start.job
        allocation = start.allocation or Allocation(job.procs)
        problem = room.misfit(job, allocation)
        room.take(job, allocation)
        if job.id not in queue or job.id in starting:
            problem = "it is not in the queue"
        elif job != queue.job(job.id):
            problem = "the queue has another job of this number"
        if problem:
            raise BadPlan(f"job {job.id} ({job.procs} processors) cannot start with {free_procs} free: {problem}")
        starting.add(job.id)
        free_procs -= job.procs
    for job_id, promised_us, _ in plan.told:
        if job_id not in queue or job_id in starting:
            raise BadPlan(f"job {job_id} is told a start at {promised_us} µs, and does not wait")
        if promised_us < now_us:
            raise BadPlan(f"job {job_id} is told a start at {promised_us} µs, before now, {now_us} µs")
    if plan.wake_us is not None and plan.wake_us <= now_us:
        raise BadPlan(f"a wake-up at {plan.wake_us} µs is not after now, {now_us} µs")

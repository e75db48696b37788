"""The job lifecycle: what users and operators do to jobs, what nodes report of them, and what their limits do.

A function for each event, in the table :data:`JOB_EVENTS`. Starting is not here: a pass decides it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from cosched.model.job import ENDING, NODE_LOST, RUNNING, TERMINAL, JobState
from cosched.model.time import FOREVER_US, US_PER_S
from cosched.model.width import Range
from space_scheduler.machine import events as ev
from space_scheduler.machine import explain, holdings
from space_scheduler.machine.holding import NOTHING, Ending, Nothing, Occupying, Released, Requeuing, Resizing, Starting
from space_scheduler.machine.instructions import Instruction, Tell
from space_scheduler.machine.machine import Machine
from space_scheduler.machine.programs import Orientation
from space_scheduler.machine.record import Infeasible, Record, avoiding
from space_scheduler.reasons import CANCELLED, HELD, RELEASED, Reason, Why

#: Takes an event in; gives what the host is to do at once, or None where that is nothing.
Handler = Callable[[Machine, Any], list[Instruction] | None]

#: By how much the predicted end of an overrunning job moves, one step after the other: the corrections of Tsafrir,
#: Etsion & Feitelson, "Backfilling using system-generated predictions rather than user runtime estimates", IEEE TPDS
#: 18(6), 2007.
OVERRUN_STEPS_US: Final = tuple(
    step_s * US_PER_S for step_s in (60, 300, 900, 1800, 3600, 7200, 18_000, 36_000, 72_000, 180_000, 360_000)
)

# what users and operators do


def submitted(machine: Machine, event: ev.JobSubmitted) -> None:
    """A job waits, if it could ever start; what it does not say of itself is as its program was measured."""
    job = machine.programs.known(event.job)
    if job.id in machine.jobs.records:
        raise ValueError(f"job {job.id} was submitted before and is still alive")
    if job.procs < 1 or job.estimate_us < 1:
        raise ValueError(f"job {job.id} asks for {job.procs} processors for {job.estimate_us} µs: at least 1 of each")
    if job.shape is not None and (job.shape.trouble() or not job.shape.allows(job.procs)):
        trouble = job.shape.trouble() or "its own width is none of these"
        raise ValueError(f"job {job.id} of {job.procs} processors cannot have the shape {job.shape}: {trouble}")
    if refused := explain.refusal(machine, job):
        raise Infeasible(job.id, refused)
    machine.trigger = event
    machine.jobs.enter(job, machine.now_us, event)
    machine.changes.submitted.append(job)


def held(machine: Machine, event: ev.JobHeld) -> None:
    """A job leaves the queue until it is released."""
    jobs, record = machine.jobs, machine.jobs[event.job_id]
    was_queued = record.state is JobState.QUEUED
    if event.job_id in jobs.chain.hold.jobs or not (was_queued or record.state is JobState.WAITING):
        raise record.illegal(JobState.WAITING, machine.now_us)
    jobs.chain.put_on_hold(event.job_id)
    jobs.follow_rules(record, machine.now_us, HELD, event)
    if was_queued:
        _withdrawn(machine, record, event)


def released(machine: Machine, event: ev.JobReleased) -> None:
    """A held job is back at its place in the queue, unless another rule keeps it back."""
    jobs, record = machine.jobs, machine.jobs[event.job_id]
    if event.job_id not in jobs.chain.hold.jobs:
        raise record.illegal(JobState.QUEUED, machine.now_us)
    if jobs.chain.release(event.job_id):  # the pass had set it aside
        machine.changes.due = True
    jobs.follow_rules(record, machine.now_us, RELEASED, event)
    machine.trigger = event
    if record.state is JobState.QUEUED:
        machine.changes.submitted.append(record.job)


def cancelled(machine: Machine, event: ev.JobCancelled) -> list[Instruction]:
    """A job that waits is gone; one that holds something is to be ended."""
    record = machine.jobs[event.job_id]
    holding = record.holding
    if isinstance(holding, Requeuing):  # it is being ended already
        record.decided(CANCELLED, machine.now_us, event)
        machine.jobs.hold(record, Ending(holding.allocation), machine.now_us)
    elif isinstance(holding, Starting):
        machine.jobs.become(record, JobState.CANCELLED, machine.now_us)
        machine.vacate(record)
        machine.trigger = event
    elif holding is not NOTHING:
        told = holdings.drop(machine, record, event) if holding.awaits else []
        return [*told, machine.kill(record, CANCELLED, event)]
    else:
        was_queued = record.state is JobState.QUEUED
        machine.jobs.become(record, JobState.CANCELLED, machine.now_us)
        if was_queued:
            _withdrawn(machine, record, event)
    return []


def _withdrawn(machine: Machine, record: Record, event: ev.Event) -> None:
    """A job has left the queue without a start: the policy is told of it only if it was told that the job came."""
    machine.trigger = event
    record.promise_us = None
    changes, job = machine.changes, record.job
    if job in changes.submitted:
        changes.submitted.remove(job)
    else:
        changes.withdrawn.append(job)


# what nodes report


def launched(machine: Machine, event: ev.JobLaunched) -> None:
    """A job's last task is up: from now on it works, and its limit counts."""
    record = machine.jobs[event.job_id]
    if record.state is ENDING:
        return  # cancelled while it was being launched
    if type(record.holding) is Starting:
        raise record.illegal(JobState.RUNNING, machine.now_us)
    machine.jobs.become(record, RUNNING, machine.now_us)
    if record.started_us != machine.now_us and record.holding.counted:
        machine.work_anew(record, record.job.alone_us)
        machine.disturbed(Why.LATE_LAUNCH, event)


def launch_failed(machine: Machine, event: ev.LaunchFailed) -> None:
    """A job waits again, for other nodes, or has ended as one that could not be launched.

    One that is being ended already ends for the reason of that: it was cancelled, or has lost a node.
    """
    record, rules = machine.jobs[event.job_id], machine.rules
    again = avoiding(record.job, event.nodes)
    if isinstance(record.holding, Starting):
        raise record.illegal(JobState.LAUNCH_FAILED, machine.now_us)
    tried_enough = record.failed_launches >= rules.launch_retries and not event.passing
    if event.passing and not explain.ever_fits(machine, again):
        again = msgspec.structs.replace(record.job, avoid=())
    if record.state is JobState.ENDING and record.reason == CANCELLED:
        return ended(machine, ev.JobEnded(event.job_id, JobState.CANCELLED))
    if record.state is JobState.ENDING and record.reason is not None and record.reason.why is Why.NODE_LOST:
        return ended(machine, ev.JobEnded(event.job_id, NODE_LOST))
    if record.state is not JobState.STARTING or tried_enough or not explain.ever_fits(machine, again):
        return ended(machine, ev.JobEnded(event.job_id, JobState.LAUNCH_FAILED))
    record.failed_launches += not event.passing
    numbers = {"failed_launches": record.failed_launches, "launch_retries": rules.launch_retries}
    machine.wait_again(record, again, Reason(Why.LAUNCH_RETRIED, numbers, ", ".join(event.nodes)), event)


def ended(machine: Machine, event: ev.JobEnded, *, alone: bool = False) -> None:
    """A job holds nothing any more: it is gone, or it has lost a node and wanted to wait again then.

    ``alone``: it could start on no other nodes than those that it has lost.
    """
    record = machine.jobs[event.job_id]
    outcome = event.outcome
    if outcome not in TERMINAL:
        raise ValueError(f"job {event.job_id} cannot end as {outcome}: not a terminal state")
    kind = type(record.holding)
    if kind is Nothing or kind is Starting:  # it is cancelled, it does not end
        raise record.illegal(outcome, machine.now_us)
    if kind is Requeuing and outcome not in (JobState.COMPLETED, NODE_LOST):  # a plan wanted it so
        machine.wait_again(record, record.job, record.reason, event)
    # what may still run on a node that was lost runs twice by its user's word alone
    elif outcome is NODE_LOST and record.job.requeue and not alone and record.state is not JobState.STARTING:
        machine.wait_again(record, record.job, Reason(Why.REQUEUED), event)
    else:
        machine.jobs.become(record, outcome, machine.now_us)
        machine.trigger = event
        machine.vacate(record)


def sent_away(machine: Machine, event: ev.JobSentAway) -> None:
    """A node's owner wants a job no more: it is gone, or waits again, where it could ever start on other nodes."""
    record = machine.jobs[event.job_id]
    again = avoiding(record.job, (event.node,))
    holds, requeues = record.holding.held is not None, isinstance(record.holding, Requeuing)
    begun = holds and record.state is not JobState.STARTING
    if begun and (requeues or record.job.requeue) and explain.ever_fits(machine, again):
        reason = record.reason if requeues else Reason(Why.SENT_AWAY, node=event.node)
        machine.wait_again(record, again, reason, event)
    else:
        if holds:
            record.decided(Reason(Why.ENDED_BY_OWNER, node=event.node), machine.now_us, event)
        ended(machine, ev.JobEnded(event.job_id, NODE_LOST), alone=True)


def cannot_end(machine: Machine, event: ev.JobCannotEnd) -> list[Instruction]:
    """A job is ending; its host ends it already, and knows why."""
    record = machine.jobs[event.job_id]
    if record.state is not JobState.RUNNING or not record.holding.counted:
        return []  # it was cancelled meanwhile, or is not held any more
    told = holdings.drop(machine, record, event) if record.holding.awaits else []
    machine.jobs.become(record, JobState.ENDING, machine.now_us, Reason(Why.CANNOT_END, node=event.node), event)
    return told


def resized(machine: Machine, event: ev.JobResized) -> None:
    """A job holds what it was to hold."""
    holdings.carried_out(machine, _resizing(machine, event))
    machine.trigger = event


def resize_failed(machine: Machine, event: ev.ResizeFailed) -> list[Instruction]:
    """A job holds what it held."""
    return holdings.refused(machine, _resizing(machine, event), event)


def _resizing(machine: Machine, event: ev.JobResized | ev.ResizeFailed) -> Record:
    record = machine.jobs[event.job_id]
    if not isinstance(record.holding, Resizing):
        raise ValueError(f"job {event.job_id} was not to be resized")
    return record


def resize_asked(machine: Machine, event: ev.ResizeAsked) -> None:
    """A running job wants another number of processes: the policy decides in the coming pass."""
    record, procs = machine.jobs[event.job_id], event.procs
    shape = record.job.shape
    wanted = record.given + sum(record.asks) + procs
    if not isinstance(shape, Range) or not -shape.ask_fewer <= wanted <= shape.ask_more:
        raise ValueError(f"job {event.job_id} of width {record.job.width} cannot ask for {procs} processes more")
    if record.state is RUNNING and record.holding.counted:  # else it asked just before it was ended
        if not record.asks:
            record.asked_us = machine.now_us
        record.asks = (*record.asks, procs)
        machine.trigger = event
        machine.changes.asked = True


def progressed(machine: Machine, event: ev.JobProgress) -> None:
    """A job is not as far as was predicted, or further: its end is predicted anew, by the rate that it has."""
    record = machine.jobs[event.job_id]
    if event.done_us < 0:
        raise ValueError(f"job {event.job_id} cannot have done less than nothing: {event}")
    if record.state is RUNNING and record.holding.counted:  # else the report was on its way when the job was ended
        machine.work_anew(record, max(1, record.job.estimate_us - event.done_us))
        machine.disturbed(Why.PROGRESS, event)


def receives_seen(machine: Machine, event: ev.ReceivesSeen) -> None:
    """A job waits for messages in another way: it may want turns, or none."""
    if machine.jobs[event.job_id].holding.counted and machine.turns is not None:
        machine.turns.seen(event.job_id, event.receives)


def measured(machine: Machine, event: ev.ProgramMeasured) -> None:
    """What was measured of a job is remembered of its program."""
    known = Orientation(event.kind, event.cpu_permille)
    if trouble := known.trouble():
        raise ValueError(f"a program cannot be {trouble}")
    machine.programs.learn(event.program, known)


def rules_changed(machine: Machine, event: ev.RulesChanged) -> list[Instruction]:
    """What the policy before has promised is not promised any more: the next pass tells what is."""
    reason = Reason(Why.POLICY_CHANGED)
    told: list[Instruction] = []
    for record in machine.jobs.records.values():
        if record.state is JobState.QUEUED and record.promise_us is not None:
            record.promise_us = None
            record.decided(reason, machine.now_us, event)
            told.append(Tell(record.job.id, FOREVER_US, event, reason))
    machine.timer_us = None
    machine.disturbed(Why.POLICY_CHANGED, event)
    return told


JOB_EVENTS: Final[Mapping[type[ev.Event], Handler]] = {
    ev.JobSubmitted: submitted,
    ev.JobHeld: held,
    ev.JobReleased: released,
    ev.JobCancelled: cancelled,
    ev.JobLaunched: launched,
    ev.LaunchFailed: launch_failed,
    ev.JobEnded: ended,
    ev.JobSentAway: sent_away,
    ev.JobCannotEnd: cannot_end,
    ev.JobResized: resized,
    ev.ResizeFailed: resize_failed,
    ev.JobProgress: progressed,
    ev.ReceivesSeen: receives_seen,
    ev.ResizeAsked: resize_asked,
    ev.ProgramMeasured: measured,
    ev.RulesChanged: rules_changed,
}

# what their limits do


def past_their_ends(machine: Machine, *, name_overdue: bool = False) -> None:
    """Jobs whose predicted end has come and that are still here: release them by rule, or predict anew.

    ``name_overdue``: the coming pass is told of the first of them, and since when it is overdue.
    """
    jobs, now_us = machine.jobs, machine.now_us
    while jobs.ends and jobs.ends[0][0] <= now_us:
        record = jobs.records[jobs.ends[0][1]]
        if machine.rules.release_at_limit and isinstance(record.holding, Occupying):
            machine.capacity.give(record.job, record.allocation)
            jobs.hold(record, Released(record.allocation), now_us)
            machine.changes.released = True
        else:
            step_us = OVERRUN_STEPS_US[min(record.overruns, len(OVERRUN_STEPS_US) - 1)]
            record.overruns += 1
            since_us = record.end_us if record.overdue_us is None else record.overdue_us
            machine.work_anew(record, step_us)
            record.overdue_us = since_us
            machine.disturbed(Why.OVERRUN)
            if name_overdue and machine.changes.disturbed is Why.OVERRUN and not machine.changes.overdue:
                machine.changes.overdue = explain.overdue_numbers(record.job.id, since_us)

"""How what jobs hold changes while they live: started, resized, queued again by a plan; carried out, or refused.

Plans count what each job is *to hold*; a job that gives processors back *holds* them until the host says that it has.
So a change that needs what another job still holds is planned and deferred: its instruction is sent when everything
that it needs is free indeed. No processor is ever two jobs' at once, and nobody else can be planned onto it meanwhile.
A change that is refused takes with it those that were deferred: they are planned anew in the next pass.
"""

from fractions import Fraction

from cosched.model.allocation import Allocation
from cosched.model.job import STARTING, Job
from cosched.model.time import FOREVER_US
from space_scheduler.clusters import slowed
from space_scheduler.machine import explain
from space_scheduler.machine.capacity import Free
from space_scheduler.machine.events import AnyEvent
from space_scheduler.machine.holding import (
    EMPTY,
    Deferred,
    Holding,
    Occupying,
    Requeuing,
    Resizing,
    Starting,
)
from space_scheduler.machine.instructions import Answer, Instruction, RateChanged, Resize, Start, Tell
from space_scheduler.machine.machine import Machine
from space_scheduler.machine.record import Record
from space_scheduler.progress import ALONE_PPM, Rate, end_us, moves_data, speed_up, whole
from space_scheduler.reasons import Reason, Why

# what plans do; the reason and the cause have been noted


def start(machine: Machine, record: Record, allocation: Allocation, event: AnyEvent) -> list[Instruction]:
    """A queued job is given processors."""
    job, jobs, now_us = record.job, machine.jobs, machine.now_us
    record.started_us = now_us
    record.end_us = now_us + job.estimate_us
    jobs.become(record, STARTING, now_us)
    jobs.hold(record, Starting(allocation) if jobs.changing else Occupying(allocation), now_us)
    machine.capacity.take(job, allocation)
    if machine.rates is not None:
        machine.rates.begin(record, now_us)
        machine.see(share.node for share in allocation.nodes)
    elif allocation.procs != job.procs or allocation.folded or _cost_ppm(machine, record):
        _follow_width(machine, record)
    if not record.holding.awaits:
        return _started(machine, record, event)
    if sent := _send(machine, record, event):
        return sent
    return [Tell(job.id, now_us, event, explain.awaits(record))]


def resize(machine: Machine, record: Record, new: Allocation, event: AnyEvent) -> list[Instruction]:
    """A running job is given other processors."""
    _hold(machine, record, Deferred(new, record.allocation))
    return _send(machine, record, event)


def requeue(machine: Machine, record: Record, event: AnyEvent) -> list[Instruction]:
    """A running job is ended, and waits again in its old place: it begins anew."""
    kill = machine.kill(record, record.reason, event)
    machine.vacate(record)
    machine.jobs.hold(record, Requeuing(record.allocation), machine.now_us)
    record.end_us = machine.now_us
    return [kill]


def answer(machine: Machine, record: Record, given: int, left: tuple[int, ...], event: AnyEvent) -> list[Instruction]:
    """A running job has an answer to what it asked for; with some of it left it waits, and does nothing."""
    waited, record.waits = record.waits, bool(left)
    record.asks, record.given = left, record.given + given
    told: list[Instruction] = []
    if given or not left or not waited:
        told = [Answer(record.job.id, given, record.waits, event, record.reason)]
    if waited == record.waits:
        return told
    if machine.rates is not None:
        machine.rates.answered(record)
        return told
    return [*told, paced(record, event, record.reason)] if _follow_width(machine, record) else told


def _hold(machine: Machine, record: Record, holding: Holding) -> None:
    """Plans count the new from now on."""
    old, new = record.allocation, holding.allocation
    machine.capacity.change(record.job, old, new)
    machine.jobs.hold(record, holding, machine.now_us)
    machine.see({share.node for share in (*old.nodes, *new.nodes)})


# what the host is told


def _send(machine: Machine, record: Record, event: AnyEvent) -> list[Instruction]:
    """Tell the host of a change that was deferred, if all that it needs is free; else nothing."""
    holding, new = record.holding, record.allocation
    if lacks(machine, record.job, new.beyond(holding.held or EMPTY)):
        return []
    if isinstance(holding, Deferred):
        old = holding.old
        machine.jobs.hold(record, Resizing(new, old), machine.now_us)
        resized = Resize(record.job.id, old, new, event, record.reason)
        if machine.rules.resize_cost_us and moves_data(record.job.shape, old, new):
            return [resized, *_moved(machine, record, old, event, machine.rules.resize_cost_us)]
        return [resized, *_moved(machine, record, old, event)]
    machine.jobs.hold(record, Occupying(new), machine.now_us)
    return _started(machine, record, event)


def _started(machine: Machine, record: Record, event: AnyEvent) -> list[Instruction]:
    job, allocation = record.job, record.holding.allocation
    limit_us = job.estimate_us if machine.rules.kill_at_limit else None
    started = Start(job, allocation, limit_us, event, record.reason)
    if machine.rates is None and record.rate_ppm != ALONE_PPM:
        return [started, paced(record, event, record.reason)]
    return [started]


def _moved(machine: Machine, record: Record, old: Allocation, event: AnyEvent, still_us: int = 0) -> list[Instruction]:
    """From now on a job goes as fast as what it is to hold lets it, after it has stood still for so long."""
    if machine.rates is not None:
        machine.rates.move(record, old)
        if still_us:
            _stand_still(machine, record, still_us)
        return []  # its rate follows with those of everybody else
    return [paced(record, event, record.reason)] if _follow_width(machine, record, still_us) else []


def _follow_width(machine: Machine, record: Record, still_us: int = 0) -> bool:
    """The rate and the end of a job of another width where no rates are kept; whether the rate is another."""
    _count_work(machine, record)
    speed = 0 if record.waits else speed_up(record.job, record.holding.told, machine.rules.fold_cost_ppm)
    rate = whole(Fraction(ALONE_PPM * slowed(speed, _cost_ppm(machine, record))))
    if still_us:
        _stand_still(machine, record, still_us)
    if rate == record.rate_ppm:
        return False
    record.rate_ppm = rate
    machine.jobs.predict(record, end_us(record.as_of_us, record.left, rate))
    return True


def _cost_ppm(machine: Machine, record: Record) -> int:
    """By how many millionths of its time communication between clusters has a job take longer."""
    return 0 if machine.nodes is None else machine.nodes.cost_ppm(record.job, record.holding.told)


def _count_work(machine: Machine, record: Record) -> None:
    """What a job has left to do is known from now on, where no rates are kept."""
    if record.state is STARTING:
        record.begin_work(record.job.alone_us, machine.now_us)
    else:
        record.left = work_left(record, machine.now_us)
        record.as_of_us = max(machine.now_us, record.as_of_us)


def work_left(record: Record, now_us: int) -> Rate:
    """What a job has left to do then, in millionths of a microsecond alone in its own width."""
    if record.left:
        return record.progress().left_at(now_us)
    # until its first change no work was kept: its start says how much is left, or its end where that was moved
    job = record.job
    assert record.started_us is not None
    if job.work_us and now_us < record.end_us == record.started_us + job.estimate_us:
        return (job.alone_us - (now_us - record.started_us)) * ALONE_PPM  # not rounded up
    return (record.end_us - now_us) * record.rate_ppm


def _stand_still(machine: Machine, record: Record, still_us: int) -> None:
    """A job does nothing for so long, counted from its latest change."""
    record.settle(machine.now_us)
    record.as_of_us = machine.now_us + still_us
    machine.jobs.predict(record, end_us(record.as_of_us, record.left, record.rate_ppm))


def paced(record: Record, event: AnyEvent, reason: Reason) -> RateChanged:
    """Tell the host of a job's rate."""
    rate = record.rate_ppm
    return RateChanged(record.job.id, rate.numerator, event, reason, rate.denominator)


# what becomes of it


def carried_out(machine: Machine, record: Record) -> None:
    """A job holds what it was to hold."""
    machine.jobs.hold(record, Occupying(record.allocation), machine.now_us)
    machine.changes.resized = True


def refused(machine: Machine, record: Record, event: AnyEvent) -> list[Instruction]:
    """A job holds what it held: plans count that again, and nobody waits for its processors any longer."""
    record.retry_us = machine.now_us + machine.rules.resize_retry_us
    return put_back(machine, event) + drop(machine, record, event)


def send_due(machine: Machine, event: AnyEvent) -> list[Instruction]:
    """Send what was deferred and is free now."""
    told: list[Instruction] = []
    for record in _awaiting(machine):
        if isinstance(record.holding, Starting):
            if record.started_us != machine.now_us:  # it ends later than what was promised to others counts on
                machine.disturbed(Why.LATE_LAUNCH)
            record.started_us = machine.now_us
            machine.work_anew(record, record.job.alone_us)
        told += _send(machine, record, event)
    return told


def put_back(machine: Machine, event: AnyEvent) -> list[Instruction]:
    """Nothing is deferred any more: who was to start waits again, who was to grow stays as it is."""
    told: list[Instruction] = []
    for record in _awaiting(machine):
        told += drop(machine, record, event)
    return told


def drop(machine: Machine, record: Record, event: AnyEvent) -> list[Instruction]:
    """Plans count what a job holds, as before its change; who was to start waits again."""
    holding, new = record.holding, record.allocation
    reason = Reason(Why.RESIZE_REFUSED)
    machine.disturbed(Why.RESIZE_REFUSED, event)
    old = holding.held
    if old is None:
        machine.wait_again(record, record.job, reason, event)
        return [Tell(record.job.id, FOREVER_US, event, reason)]
    _hold(machine, record, Occupying(old))
    if machine.nodes is not None:
        machine.nodes.still_held(old)
    record.decided(reason, machine.now_us, event)
    return [] if holding.awaits else _moved(machine, record, new, event)


def _awaiting(machine: Machine) -> list[Record]:
    return [record for record in machine.jobs.changing.values() if record.holding.awaits]


# what is free indeed


def present(machine: Machine) -> Free:
    """What nobody holds at this moment; plans count what will be free when all changes are carried out."""
    room = machine.capacity.room()
    for record in machine.jobs.changing.values():
        holding, held = record.holding, record.holding.held or EMPTY
        if holding.counted:
            room.give(record.job, holding.allocation)
        room.take(record.job, held.with_all_of(holding.allocation) if isinstance(holding, Resizing) else held)
    return room


def not_yet_gone(machine: Machine, name: str) -> list[int]:
    """The jobs that are to give a node back, and have not said yet that they have."""
    changing = [(job_id, record.holding.held) for job_id, record in machine.jobs.changing.items()]
    return [job_id for job_id, held in changing if held and any(share.node == name for share in held.nodes)]


def lacks(machine: Machine, job: Job, more: Allocation) -> bool:
    """Whether a job cannot hold so much more at this moment."""
    return more.procs > 0 and present(machine).lacks(job, more)

"""Why a job could never start, and why one is in the state it is in: with the function that plans (``feasibility``)."""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from cosched.model.job import Job, JobState
from cosched.model.time import FOREVER_US
from space_scheduler.feasibility import Room
from space_scheduler.machine.holding import Starting
from space_scheduler.machine.machine import Machine
from space_scheduler.machine.named_capacity import NamedCapacity, asked_of
from space_scheduler.machine.record import Record
from space_scheduler.on_nodes import Limit
from space_scheduler.policy import uniform
from space_scheduler.reasons import Reason, Why

#: What has no place on empty nodes never will.
_NEVER: Final = {
    Why.SPREAD_OUT: Why.SPANS_NODES,
    Why.NO_UNIFORM_SET: Why.NEVER_UNIFORM,
    Why.NOT_ENOUGH_CPU: Why.MORE_CPU_THAN_ADMITTED,
}


def refusal(machine: Machine, job: Job) -> Reason | None:
    """Why a job could never start here with all nodes empty that ever joined: the limit and its numbers, or None."""
    capacity = machine.capacity
    if job.procs > capacity.procs_installed and (machine.nodes is not None or not machine.rules.awaits_nodes):
        return Reason(Why.WIDER_THAN_MACHINE, {"procs": job.procs, "machine_procs": capacity.procs_installed})
    if machine.nodes is None or machine.nodes.ever_fits(job):
        return None
    room = machine.nodes.empty(installed=True)
    found = room.obstacle(job)
    return None if found is None else _never_fits(room, job, found)


def _never_fits(room: Room, job: Job, found: Reason) -> Reason:
    """By which limit a job has no place on empty nodes, where it has ``found`` none."""
    largest_bytes = max(room.memory_bytes, default=0)
    if job.memory_bytes > largest_bytes:
        numbers = {"task_memory_bytes": job.memory_bytes, "largest_node_bytes": largest_bytes}
        return Reason(Why.TASK_TOO_LARGE, numbers)
    if found.why is Why.NO_CLUSTERS:
        wider = found.numbers["widest_procs"] > found.numbers["freest_procs"]
        return Reason(Why.WIDER_THAN_CLUSTER if wider else Why.MORE_THAN_CLUSTERS, found.numbers)
    if never := _NEVER.get(found.why):
        return Reason(never, found.numbers)
    numbers = {name: found.numbers[name] for name in ("procs", "fitting_procs", "task_memory_bytes")}
    return Reason(Why.MORE_MEMORY_THAN_MACHINE, numbers)


def ever_fits(machine: Machine, job: Job) -> bool:
    """Whether a job could start with all nodes empty that ever joined."""
    return machine.nodes is None or machine.nodes.ever_fits(job)


def awaits(record: Record) -> Reason:
    """Why a job whose start is planned has not been launched yet; ``record.reason`` is why it was planned."""
    return Reason(Why.AWAITS_PROCESSORS, record.reason.numbers, record.reason.node)


def holding_back(machine: Machine, record: Record) -> list[int]:
    """The jobs that are to give back what this one is to start with or to be given, and have not done so yet."""
    nodes = {share.node for share in record.allocation.nodes}
    return [job_id for job_id, each in machine.jobs.changing.items() if each is not record and _gives_back(each, nodes)]


def _gives_back(record: Record, nodes: Collection[str] = ()) -> bool:
    """Whether a job holds more than it is to hold; on some of these nodes, where any are named."""
    given = record.holding.given_back
    return given.procs > 0 and (not nodes or any(share.node in nodes for share in given.nodes))


def awaited_by(machine: Machine, record: Record) -> int | None:
    """The first job that waits for what this one has been told to give back; None: it gives nothing back."""
    if not _gives_back(record):
        return None
    waiting = (each for each in machine.jobs.changing.values() if each.holding.awaits)
    return next((each.job.id for each in waiting if record.job.id in holding_back(machine, each)), None)


def with_numbers(reason: Reason, numbers: Mapping[str, int]) -> Reason:
    """The same reason with more numbers, before its own."""
    return Reason(reason.why, {**numbers, **reason.numbers}, reason.node)


def promise_to_come(promise_us: int | None, now_us: int) -> int | None:
    """A promised start as it may be shown then: None where there is none, or its time has passed."""
    return promise_us if promise_us is not None and now_us < promise_us < FOREVER_US else None


def overdue_numbers(job_id: int, since_us: int) -> dict[str, int]:
    """A job whose predicted end has passed, and that end, as numbers of a reason."""
    return {"overdue_job": job_id, "since_us": since_us}


def _promise(machine: Machine, record: Record, now_us: int) -> dict[str, int]:
    """The numbers of a promise: its time, unless that has passed, and the job that is overdue for the longest time."""
    if record.promise_us in (None, FOREVER_US):
        return {}
    to_come_us = promise_to_come(record.promise_us, now_us)
    numbers = {} if to_come_us is None else {"promised_us": to_come_us}
    overdue = [
        (each.end_us if each.overdue_us is None else each.overdue_us, each.job.id)
        for each in machine.jobs.holding()
        if each.overdue_us is not None or each.end_us <= now_us
    ]
    if overdue:
        since_us, job_id = min(overdue)
        numbers |= overdue_numbers(job_id, since_us)
    return numbers


def explain(machine: Machine, record: Record, now_us: int) -> Reason:
    """Why a live job is where it is: what was decided; for a job that waits, what keeps it from starting now."""
    if record.job.id in machine.jobs.aside:
        found = machine.jobs.chain.reason(record.job.id)
        assert found is not None
        return found
    if record.state is not JobState.QUEUED:
        if isinstance(record.holding, Starting):
            blocking = holding_back(machine, record)
            return with_numbers(awaits(record), {"blocking_job": blocking[0]} if blocking else {})
        waiting = awaited_by(machine, record)
        return record.reason if waiting is None else with_numbers(record.reason, {"waiting_job": waiting})
    return _waits(machine, record, now_us)


def _waits(machine: Machine, record: Record, now_us: int) -> Reason:
    """What keeps a job that is in the queue from starting now."""
    job = record.job
    promise = _promise(machine, record, now_us)
    if blocked := _no_place_on_empty(machine, job, now_us) or machine.capacity.room().obstacle(job):
        told = record.reason.why is Why.NOT_FOLDABLE and blocked.why is Why.NOT_ENOUGH_FREE
        return Reason(Why.NOT_FOLDABLE if told else blocked.why, {**blocked.numbers, **promise}, blocked.node)
    if "promised_us" in promise:
        return Reason(Why.RESERVED_LATER, promise)
    head = machine.jobs.queue.head()
    if head is None or head is job:
        return Reason(Why.NOT_CHOSEN, {"free_procs": machine.capacity.free_procs})
    promised_us = machine.jobs.records[head.id].promise_us
    longest_us = job.estimate_us if machine.nodes is None else machine.nodes.room().longest_us(job)
    if promised_us is not None and machine.now_us + longest_us > promised_us:
        heads = _promise(machine, machine.jobs.records[head.id], now_us)
        return Reason(Why.WOULD_DELAY_RESERVATION, {"head": head.id, **heads})
    return Reason(Why.BEHIND_HEAD, {"head": head.id})


class OnNode(NamedTuple):
    """A node for a job that waits: how many of its tasks it takes, or by which limit none; what is used of it.

    ``rank``: its place in Normal's order, by memory, tasks and CPU; 0 where it takes none.
    """

    node: str
    tasks: int
    limit: Limit | None
    rank: int
    used_memory_bytes: int
    used_tasks: int
    used_cpu_permille: int


def on_nodes(machine: Machine, job: Job, *, owners: bool = True) -> list[OnNode]:
    """Each node in service for a job, in the nodes' order; none where processors are counted.

    Uniform's rule of kinds is a limit where Uniform-Hard chooses. Without ``owners``: as if nobody were at any desk, so
    that it says of the jobs what they use and of persons nothing.
    """
    if machine.nodes is None:
        return []
    room = machine.nodes.room() if owners else machine.nodes.room_without_owners()
    takes = uniform.of_the_kind(room, job) if room.place.refuses else room.tasks(job)
    used = [uniform.load(*each) for each in zip(room.residents, room.owners, strict=True)]
    ranked = sorted((used[index], index) for index, tasks in enumerate(takes) if tasks)
    ranks = {index: rank for rank, (_, index) in enumerate(ranked, 1)}
    found = []
    for index, name in enumerate(room.names):
        limit = room.limit(index, job) or (None if takes[index] else Limit.KIND)
        found.append(OnNode(name, 0 if limit else takes[index], limit, ranks.get(index, 0), *used[index]))
    return found


def without_place(machine: Machine, now_us: int, most: int) -> dict[int, Reason]:
    """Of the first ``most`` jobs of the queue, by number, why the nodes in service, all empty, have no place for them.

    What is found is kept by the capacity until nodes or their owners change.
    """
    nodes, first = machine.nodes, machine.jobs.queue.line()[:most]
    kept = {} if nodes is None else nodes.without_place
    if nodes is not None and kept and nodes.without_place_in[0] == first:
        return nodes.without_place_in[1]
    line = [(job.id, (asked_of(job), job.user), job) for _, job in first]
    new = {asked: job for _, asked, job in line if asked not in kept}
    empty = nodes.empty() if new and nodes is not None else None
    kept |= {asked: _no_place_on_empty(machine, job, now_us, empty) for asked, job in new.items()}
    found = {job_id: reason for job_id, asked, _ in line if (reason := kept[asked]) is not None}
    if nodes is not None:
        nodes.without_place_in = first, found
    return found


def _no_place_on_empty(machine: Machine, job: Job, now_us: int, empty: Room | None = None) -> Reason | None:
    """Why the nodes in service have no place for a job even while no job is there (``empty``), or None."""
    if machine.nodes is None:
        away = {"procs": job.procs, "procs_in_service": 0, "machine_procs": 0}
        return Reason(Why.NODES_AWAY, away) if machine.rules.awaits_nodes else None
    found = (empty or machine.nodes.empty()).obstacle(job)
    if found is None or found.why in (Why.AVOIDS_NODES, Why.NOT_TAKEN):
        return found
    if machine.nodes.empty(owners=False).obstacle(job) is None:
        return Reason(Why.OWNERS_THERE, found.numbers)
    return _away(machine.nodes, job, found, now_us)


def _away(nodes: NamedCapacity, job: Job, obstacle: Reason, now_us: int) -> Reason:
    """What keeps a job from the nodes in service even while they are empty, and nobody at them."""
    installed, in_service = nodes.procs_installed, nodes.procs_total
    held = sum(each.held_places for each in nodes if each.in_service)
    numbers = {"procs": job.procs, "procs_in_service": in_service, "machine_procs": installed}
    if held and in_service + held == installed:
        return Reason(Why.PROCS_HELD, {**numbers, "held_procs": held})
    if (opens_us := nodes.opens_for(job, now_us)) is not None:
        return Reason(Why.NODES_CLOSED, {**numbers, "opens_us": opens_us})
    fitting = obstacle.numbers.get("fitting_procs")
    return Reason(Why.NODES_AWAY, numbers if fitting is None else {**numbers, "fitting_procs": fitting})

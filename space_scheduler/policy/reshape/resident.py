"""Resident jobs (``Range.resident``): where all of their processes are, and which of them are enabled.

Their processes stay where they were started, so they are placed for the most that the job can ever have. At the start
the place's rule lays those that are enabled; the others go to the same nodes, at most one for each of a node's
processors, free or not, and then to those with most room. They may be fewer where memory or the number of nodes does
not do for all. Of several clusters they lie on one, as all tasks of a component do: the one that the place's rule
chooses, or one with room for more of them. What is enabled later is enabled on the first of the nodes first, and taken
from the last ones first.
"""

from collections.abc import Collection, Sequence

from cosched.model.allocation import Allocation, on_nodes, partition
from cosched.model.job import Job
from cosched.model.width import Range
from space_scheduler.feasibility import Room
from space_scheduler.policy.reshape.free import FreeProcs, smallest


def started(free: FreeProcs, job: Job, share: int) -> Allocation | None:
    """A place for a resident job with up to so many processes enabled, not fewer than its minimum; or None."""
    if free.room is None or free.room.clusters is None:
        return _started(free, job, share)
    enabled, wanted = free.largest(job, share), _shape(job).present()
    if enabled is None:
        return None
    best, of = None, free.room.clusters.of
    first = of[free.room.index[enabled.nodes[0].node]]
    for cluster in sorted({*of}, key=lambda each: (each != first, each)):
        found = _started(_only(free, {index for index, each in enumerate(of) if each == cluster}), job, share)
        if found is not None and (best is None or found.processes > best.processes):
            best = found
        if best is not None and best.processes == wanted:
            break
    return best


def _started(free: FreeProcs, job: Job, share: int) -> Allocation | None:
    """The same where all nodes are of one cluster."""
    enabled = free.largest(job, share)
    if enabled is None:
        return None
    shape = _shape(job)
    wanted = shape.present()
    assert wanted is not None
    if free.room is None:
        return partition(wanted, enabled.procs)
    found = _with_all(free.room, job, enabled, wanted)
    if found.processes < wanted and free.room.most_nodes < len(free.room.names):
        roomier = _on_roomier(free, job, share, wanted)
        if roomier is not None and roomier.processes > found.processes:
            return roomier
    return found


def widened(free: FreeProcs, job: Job, held: Allocation, procs: int) -> Allocation | None:
    """What a resident job holds with up to so many processes enabled on its nodes; None: no more than now.

    Counted processors are free for all of them, or for none.
    """
    new = free.widened(job, held, procs - held.procs)
    if free.room is None and new.procs < procs:
        return None
    if (shape := _shape(job)).sizes and (size := shape.largest(new.procs)) is not None:
        new = free.widened(job, held, size - held.procs)
    return new if new.procs > held.procs else None


def shrunk(held: Allocation, procs: int) -> Allocation:
    """What a resident job holds with so many processes enabled, fewer than now: the last nodes give first."""
    if not held.nodes:
        return partition(held.processes, procs)
    kept, left = [], procs
    for share in held.nodes:
        here = min(share.procs, left)
        kept.append((share.node, share.tasks, here))
        left -= here
    return on_nodes(kept)


def _shape(job: Job) -> Range:
    assert isinstance(job.shape, Range)
    return job.shape


def _capacities(room: Room, job: Job) -> list[int]:
    """How many processes of a job each node has room for, whether processors are free for them or not.

    None where more is held than the node has.
    """
    return [
        room.tasks_on(index, job, places, memory_bytes) if procs >= 0 else 0
        for index, (procs, places, memory_bytes) in enumerate(
            zip(room.procs, room.places, room.memory_bytes, strict=True)
        )
    ]


def _with_all(room: Room, job: Job, enabled: Allocation, wanted: int) -> Allocation:
    """The enabled processes, and so many altogether on these nodes and on others; fewer where they have no room."""
    capacities = _capacities(room, job)
    procs = {room.index[share.node]: share.procs for share in enabled.nodes}
    others = sorted(
        (index for index in range(len(capacities)) if index not in procs), key=lambda i: (-capacities[i], i)
    )
    nodes = [*procs, *others][: max(room.most_nodes, len(procs))]
    there = _shape(job).present(min(wanted, sum(capacities[index] for index in nodes)))
    assert there is not None, f"{enabled.procs} of {job} are enabled"
    left = there - enabled.procs
    shares = []
    for index in nodes:
        here = procs.get(index, 0)
        asleep = min(left, capacities[index] - here)
        left -= asleep
        if here + asleep:
            shares.append((room.names[index], here + asleep, here))
    return on_nodes(shares)


def _on_roomier(free: FreeProcs, job: Job, share: int, wanted: int) -> Allocation | None:
    """The job on as many nodes as it may use, some chosen because most is free there and some because most has room.

    As many of the first kind as leave room for all of its processes, or for most of them; None: nowhere its minimum.
    """
    room = free.room
    assert room is not None
    able, capacities = room.tasks(job), _capacities(room, job)
    usable = [index for index, most in enumerate(capacities) if most]
    freest = sorted(usable, key=lambda i: (-able[i], -capacities[i], i))
    roomiest = sorted(usable, key=lambda i: (-capacities[i], -able[i], i))
    best: list[int] = []
    most, least = 0, smallest(job)
    for number in range(min(room.most_nodes, len(usable)), -1, -1):
        chosen = freest[:number]
        chosen += [index for index in roomiest if index not in chosen][: room.most_nodes - number]
        there = min(wanted, sum(capacities[index] for index in chosen))
        if there > most and sum(able[index] for index in chosen) >= least:
            best, most = chosen, there
        if most == wanted:
            break
    return _placed_on(free, job, share, wanted, best) if best else None


def _placed_on(free: FreeProcs, job: Job, share: int, wanted: int, nodes: Sequence[int]) -> Allocation | None:
    """The job on these nodes alone, or None."""
    only = _only(free, {*nodes})
    assert only.room is not None
    enabled = only.largest(job, share)
    return None if enabled is None else _with_all(only.room, job, enabled, wanted)


def _only(free: FreeProcs, nodes: Collection[int]) -> FreeProcs:
    """What is free on the nodes of these indices, as on one cluster: of others, nothing."""
    room = free.room
    assert room is not None
    only = free.copy()
    only.room = room.with_free(
        [procs if index in nodes else 0 for index, procs in enumerate(room.procs)],
        [each if index in nodes else 0 for index, each in enumerate(room.memory_bytes)],
    )
    only.room.places = [each if index in nodes else 0 for index, each in enumerate(room.places)]
    only.room.clusters = None
    only.procs = only.room.free_procs
    return only

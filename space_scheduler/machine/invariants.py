"""What always holds in a machine: walked after every step of a test."""

from cosched.model.allocation import Allocation, Share
from cosched.model.job import TERMINAL, Job, JobState
from space_scheduler.feasibility import Room
from space_scheduler.machine.capacity import Free
from space_scheduler.machine.holding import KINDS, NOTHING
from space_scheduler.machine.machine import Machine
from space_scheduler.machine.named_capacity import NamedCapacity
from space_scheduler.machine.rates import Rates


def walk(machine: Machine) -> None:
    """Walk every invariant; AssertionError names the one that is broken."""
    if machine.nodes is not None:
        assert machine.nodes is machine.capacity
        _walk_nodes(machine, machine.nodes)
    if machine.rates is not None:
        _walk_rates(machine, machine.rates)
    derived = machine.capacity.anew()
    for record in machine.jobs.running():
        derived.take(record.job, record.allocation)
    kept, follow = ((each.procs_installed, each.procs_total, each.free_procs) for each in (machine.capacity, derived))
    assert kept == follow, f"{kept} are kept, and {follow} follow from what jobs hold"
    assert _figures(machine.capacity.room()) == _figures(derived.room())
    queued = [job.id for job in machine.jobs.queue]
    keys = [machine.jobs.queue.key(job_id) for job_id in queued]
    assert keys == sorted(set(keys)), "the queue is out of order"
    assert len(queued) == len(machine.jobs.queue)
    aside, chain, records = machine.jobs.aside, machine.jobs.chain, machine.jobs.records
    assert set(queued) == {job_id for job_id, record in records.items() if record.state is JobState.QUEUED}
    for job_id, record in records.items():
        if record.holding is NOTHING:
            kept_back = chain.reason(job_id)
            assert (kept_back is not None) == (record.state is JobState.WAITING), f"job {job_id} is {record.state}"
            assert kept_back is None or record.reason.why is kept_back.why, f"job {job_id}: {record.reason}"
            assert kept_back is None or record.promise_us is None, f"job {job_id} waits and is promised a start"
    by_rules = {*chain.hold.jobs, *chain.gates.waits}
    assert all(records[job_id].state is JobState.WAITING for job_id in by_rules), f"of {by_rules} not all wait"
    for each in aside:
        assert each.job_id in records, f"{each} is not here"
        assert (each.job_id in aside.held) == (each.job_id in chain.hold.jobs), f"{each}"
        assert each.since_us <= each.tried_us <= machine.now_us, f"{each} at {machine.now_us} µs"
    ends = sorted((record.end_us, record.job.id, record.allocation.procs) for record in machine.jobs.running())
    assert ends == machine.jobs.ends, "the predicted ends differ from the records"
    changing = machine.jobs.changing
    deferred = [each for each in changing.values() if each.holding.awaits]
    assert not deferred or len(deferred) < len(changing), f"no job gives back what {deferred[0].job} awaits"
    for job_id, record in machine.jobs.records.items():
        assert record.job.id == job_id
        assert record.state not in TERMINAL, f"job {job_id} has ended and is still here"
        holding, held = record.holding, record.allocation
        assert type(holding) in KINDS[record.state], f"job {job_id} is {record.state} with {holding}"
        assert holding is NOTHING or record.job.width.allows(held.processes), f"{held}"
        assert holding is NOTHING or not record.job.resident or _sleeps(record.job, held), f"job {job_id}: {held}"
        assert holding.changing == (job_id in changing), f"job {job_id}: {holding}"
        assert record.story[-1][1] is record.state


def _sleeps(job: Job, held: Allocation) -> bool:
    """Whether a resident job has a width that it can have, all of its processes being there; none: it is suspended."""
    return held.procs <= held.processes and (not held.procs or job.width.allows(held.procs))


def _walk_rates(machine: Machine, rates: Rates) -> None:
    """Rates follow from what jobs hold, or have been told that they are to hold: so they do in a restored machine."""
    kept = rates.occupancy
    follow = kept.anew()
    follow.nodes = kept.nodes
    for record in machine.jobs.running():
        follow.enter(record.job, record.holding.told)
    assert kept.jobs == follow.jobs, f"{kept.jobs} go, and {follow.jobs} follow from what they hold"


def _walk_nodes(machine: Machine, capacity: NamedCapacity) -> None:
    """What the nodes' books say is what the jobs hold; no node in service is over-committed unless it has shrunk."""
    used: dict[str, list[tuple[int, Share, int]]] = {}
    most = machine.rules.max_nodes_per_job
    for record in machine.jobs.running():
        shares, job = record.allocation.nodes, record.job
        both = sum(share.tasks for share in shares), sum(share.procs for share in shares)
        assert both == (record.allocation.processes, record.allocation.procs), f"job {job.id}: {record.allocation}"
        assert len({share.node for share in shares}) == len(shares), f"job {job.id} has a node twice"
        assert most is None or len(shares) <= max(most, capacity.widest), (
            f"job {job.id} lies on {len(shares)} nodes, {most} may be used"
        )
        for share in shares:
            assert 0 <= share.procs <= share.tasks >= 1, f"job {job.id}: {share}"
            used.setdefault(share.node, []).append((job.id, share, share.tasks * job.memory_bytes))
            if capacity[share.node].lost and not capacity.within_one_cluster(share.node for share in shares):
                assert record.state is JobState.ENDING, f"job {job.id} is {record.state} on the lost {share.node}"
    for member in capacity:
        name, jobs = member.node.name, used.pop(member.node.name, [])
        assert member.tasks == {job_id: share.tasks for job_id, share, _ in jobs}, f"{name} has other jobs than it says"
        assert member.used_procs == sum(share.procs for _, share, _ in jobs), (
            f"{name}: {member.used_procs} used, {jobs}"
        )
        assert member.used_memory_bytes == sum(held for *_, held in jobs), f"{name}: {member.used_memory_bytes}, {jobs}"
        assert member.used_procs <= member.most_procs, f"{name} is over-committed: {member}"
        assert member.used_memory_bytes <= member.most_memory_bytes, f"{name} has too little memory: {member}"
    assert not used, f"jobs hold nodes that never joined: {used}"


def _figures(room: Free) -> object:
    """What is free, as plain values; who is where, in any order."""
    if isinstance(room, Room):
        residents = [set(here) for here in room.residents]
        counted = room.free_procs, dict(room.nodes_of)
        return room.names, room.procs, room.memory_bytes, [*room.owners], residents, counted
    return room.free_procs

"""What happens to nodes, and who comes to their desks: counted processors, and nodes by name.

A function for each event, in the table :data:`NODE_EVENTS`.
"""

from collections.abc import Mapping
from typing import Final

from cosched.model.job import TRANSITIONS, JobState
from space_scheduler.machine import events as ev
from space_scheduler.machine import holdings
from space_scheduler.machine.holding import Occupying
from space_scheduler.machine.instructions import Instruction
from space_scheduler.machine.lifecycle import Handler, ended
from space_scheduler.machine.machine import Machine
from space_scheduler.machine.record import Record
from space_scheduler.reasons import Reason, Why

# processors without names


def resized(machine: Machine, event: ev.NodesJoined | ev.NodesDrained | ev.NodesLost) -> list[Instruction]:
    """So many processors more, or less: those that are held are given back by and by."""
    capacity, joined = machine.counted(event), isinstance(event, ev.NodesJoined)
    if event.procs < 0:
        raise ValueError(f"a number of processors cannot be negative: {event}")
    capacity.resize(event.procs if joined else -event.procs)
    machine.disturbed(Why.CAPACITY_CHANGED, event)
    return [] if joined else holdings.put_back(machine, event)


def procs_lost(machine: Machine, event: ev.NodesLost) -> list[Instruction]:
    """So many processors less, and the jobs that had tasks there have ended."""
    for job_id in event.job_ids:
        record = machine.jobs[job_id]
        if JobState.NODE_LOST not in TRANSITIONS[record.state] or record.holding.held is None:
            raise record.illegal(JobState.NODE_LOST, machine.now_us)
    if len(set(event.job_ids)) != len(event.job_ids):
        raise ValueError(f"a job is named twice among the lost: {event.job_ids}")
    instructions = resized(machine, event)
    for job_id in event.job_ids:
        ended(machine, ev.JobEnded(job_id, JobState.NODE_LOST))
    return instructions


# nodes by name


def node_joined(machine: Machine, event: ev.NodeJoined) -> list[Instruction]:
    """A node is new, back, or of another size."""
    if event.node.procs < 0 or event.node.memory_bytes < 0:
        raise ValueError(f"a node cannot have less than nothing: {event.node}")
    capacity, name = machine.joinable(event), event.node.name
    before = capacity.members.get(name)
    cluster = None if before is None else before.node.cluster
    came = before is None or (before.lost and not before.drained)
    if capacity.join(event.node):
        if came:
            capacity[name].since_us = machine.now_us
        machine.jobs.queue.tell_apart(capacity.bans)
        machine.see([name])
        if cluster not in (None, event.node.cluster) and machine.rates is not None:
            for record in machine.jobs.running():
                if any(share.node == name for share in record.holding.told.nodes):
                    machine.rates.move(record, record.holding.told)
        machine.disturbed(Why.CAPACITY_CHANGED, event)
        return holdings.put_back(machine, event)
    return []


def node_drained(machine: Machine, event: ev.NodeDrained) -> list[Instruction]:
    """Nothing more is started there."""
    capacity, opens_us = machine.named(event), None
    if event.opens_in_us is not None:
        if event.opens_in_us < 0:
            raise ValueError(f"a node opens in the future: {event}")
        opens_us = machine.now_us + event.opens_in_us
    was_drained = capacity[event.name].drained
    if capacity.drain(event.name, event.reason, opens_us):
        if not was_drained:
            capacity[event.name].since_us = machine.now_us
        machine.disturbed(Why.CAPACITY_CHANGED, event)
        return holdings.put_back(machine, event)
    return []


def node_resumed(machine: Machine, event: ev.NodeResumed) -> None:
    """It may be used again."""
    capacity = machine.named(event)
    if capacity.resume(event.name):
        capacity[event.name].since_us = machine.now_us
        machine.disturbed(Why.CAPACITY_CHANGED, event)


def node_lost(machine: Machine, event: ev.NodeLost | ev.NodeCutOff) -> list[Instruction]:
    """Whoever has tasks there is to be ended on its other nodes too, but for who is cut off with all of its nodes."""
    capacity = machine.named(event)
    if not capacity.lose(event.name):
        return []
    if not capacity[event.name].drained:
        capacity[event.name].since_us = machine.now_us
    if machine.turns is not None:
        machine.turns.clock(event.name, keeps_time=False)
    machine.disturbed(Why.CAPACITY_CHANGED, event)
    told = holdings.put_back(machine, event)
    there = {*capacity[event.name].residents, *holdings.not_yet_gone(machine, event.name)}
    records = [machine.jobs[job_id] for job_id in sorted(there)]
    return told + [
        machine.kill(record, Reason(Why.NODE_LOST, node=event.name), event)
        for record in records
        if record.state is not JobState.ENDING and not (isinstance(event, ev.NodeCutOff) and _inside(machine, record))
    ]


def _inside(machine: Machine, record: Record) -> bool:
    """Whether a job runs, changes nothing, and all of its nodes are of one cluster of several."""
    if record.state is not JobState.RUNNING or not isinstance(record.holding, Occupying):
        return False
    assert machine.nodes is not None
    return machine.nodes.within_one_cluster(share.node for share in record.allocation.nodes)


def clock_seen(machine: Machine, event: ev.ClockSeen) -> None:
    """Its jobs may take turns, or may not any more."""
    _ = machine.named(event)[event.name]
    if machine.turns is not None:
        machine.turns.clock(event.name, keeps_time=event.keeps_time)


# who is at their desks


def owned(machine: Machine, event: ev.OwnerCame | ev.OwnerLeft) -> list[Instruction]:
    """Somebody is there, or uses another part of the node; or nobody is there."""
    owner = event.owner if isinstance(event, ev.OwnerCame) else None
    if owner is not None and (owner.cpu_permille < 0 or owner.memory_bytes < 0):
        raise ValueError(f"an owner cannot use less than nothing: {owner}")
    if machine.named(event).own(event.name, owner):
        machine.see([event.name])
        machine.disturbed(Why.OWNER_CHANGED, event)
        return holdings.put_back(machine, event)
    return []


NODE_EVENTS: Final[Mapping[type[ev.Event], Handler]] = {
    ev.NodesJoined: resized,
    ev.NodesDrained: resized,
    ev.NodesLost: procs_lost,
    ev.NodeJoined: node_joined,
    ev.NodeDrained: node_drained,
    ev.NodeResumed: node_resumed,
    ev.NodeLost: node_lost,
    ev.NodeCutOff: node_lost,
    ev.ClockSeen: clock_seen,
    ev.OwnerCame: owned,
    ev.OwnerLeft: owned,
}

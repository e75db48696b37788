"""What always holds in a machine: walked after every step of a test."""

from typing import TYPE_CHECKING

from cosched.model.job import TERMINAL, JobState
from space_scheduler.policy.interface import Changes, SelfChecking

if TYPE_CHECKING:
    from space_scheduler.machine.state import SchedulerState


def walk(state: "SchedulerState") -> None:
    """Walk every invariant; AssertionError names the one that is broken.

    A policy is asked about its memory only when it has seen all that happened: between an event and the pass that
    follows it, the memory is of the past.
    """
    if state.cluster is None:
        held = sum(record.job.procs for record in state.running())
        assert state.free_procs + held == state.procs_total, (state.free_procs, held, state.procs_total)
    else:
        _walk_nodes(state)
    queued = [job.id for job in state.queue]
    keys = [state.queue.key(job_id) for job_id in queued]
    assert keys == sorted(set(keys)), "the queue is out of order"
    assert len(queued) == len(state.queue)
    assert set(queued) == {i for i, record in state.records.items() if record.state is JobState.QUEUED}
    ends = sorted((record.end_us, record.job.id, record.job.procs) for record in state.running())
    assert ends == state._ends, "the predicted ends differ from the records"
    for job_id, record in state.records.items():
        assert record.job.id == job_id
        assert record.state not in TERMINAL, f"job {job_id} has ended and is still here"
        waits = record.state in (JobState.QUEUED, JobState.HELD)
        assert (record.allocation is None) == waits, f"job {job_id} is {record.state} with {record.allocation}"
        assert record.allocation is None or record.allocation.procs == record.job.procs
        assert record.story[-1][1] is record.state
    seen_all = not state._happened() and not (state._ends and state._ends[0][0] <= state.now_us)
    if seen_all and isinstance(state.policy, SelfChecking):
        state.policy.validate(state._view(Changes()))


def _walk_nodes(state: "SchedulerState") -> None:
    """What the nodes' books say is what the jobs hold; no node in service is over-committed unless it has shrunk."""
    assert state.cluster is not None
    used: dict[str, list[tuple[int, int, int]]] = {}
    most = state.rules.max_nodes_per_job
    for record in state.running():
        assert record.allocation is not None
        shares, job = record.allocation.nodes, record.job
        assert sum(share.tasks for share in shares) == job.procs, f"job {job.id} holds {shares} for {job.procs} tasks"
        assert len({share.node for share in shares}) == len(shares), f"job {job.id} has a node twice"
        assert most is None or len(shares) <= max(most, state.widest_before), (
            f"job {job.id} lies on {len(shares)} nodes, {most} may be used"
        )
        for share in shares:
            assert share.tasks >= 1
            used.setdefault(share.node, []).append((job.id, share.tasks, share.tasks * job.memory_bytes))
            if state.cluster[share.node].lost:
                assert record.state is JobState.ENDING, f"job {job.id} is {record.state} on the lost {share.node}"
    for status in state.nodes():
        name, jobs = status.node.name, used.pop(status.node.name, [])
        assert status.tasks == {job_id: tasks for job_id, tasks, _ in jobs}, f"{name} has other jobs than it says"
        assert status.used_procs == sum(tasks for _, tasks, _ in jobs), f"{name}: {status.used_procs} used, {jobs}"
        assert status.used_memory_bytes == sum(held for *_, held in jobs), f"{name}: {status.used_memory_bytes}, {jobs}"
        assert status.used_procs <= status.most_procs, f"{name} is over-committed: {status}"
        assert status.used_memory_bytes <= status.most_memory_bytes, f"{name} has too little memory: {status}"
    assert not used, f"jobs hold nodes that never joined: {used}"
    kept = state._room()
    state.cluster.changed()
    anew = state._room()
    assert (kept.names, kept.procs, kept.memory_bytes) == (anew.names, anew.procs, anew.memory_bytes)
    assert [set(here) for here in kept.residents] == [set(here) for here in anew.residents]
    in_service = [status for status in state.nodes() if status.in_service]
    places = state.cluster.places
    assert state.procs_total == sum(places(status.node) for status in in_service)
    assert state.procs_installed == sum(places(status.node) for status in state.nodes())
    assert state.free_procs == sum(max(0, places(status.node) - status.used_procs) for status in in_service)

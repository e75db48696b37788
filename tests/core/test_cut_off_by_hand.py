"""A cluster that is cut off: who lies wholly on it goes on, who has a component elsewhere does not."""

import msgspec
from kit.drive import happen

from cosched.model.job import Job, JobState
from cosched.model.node import Node
from cosched.model.width import Components
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Instruction, Kill, Start
from space_scheduler.machine.state import SchedulerState
from space_scheduler.plugins import resolve
from space_scheduler.reasons import Why

S = 1_000_000


def two_labs() -> SchedulerState:
    """Nodes of two processors: n1 and n2 in lab a, n3 and n4 in lab b; job 1 lies on all of b, 2 on a, 3 over both."""
    state = SchedulerState(resolve("easy"))
    labs = (("n1", "a"), ("n2", "a"), ("n3", "b"), ("n4", "b"))
    happen(state, 0, *(ev.NodeJoined(Node(name, 2, 1 << 30, 2, cluster=lab)) for name, lab in labs))
    shapes = {1: Components((3,)), 2: None, 3: Components((1, 1))}
    for job_id, shape in shapes.items():
        job = Job(job_id, sum(shape.procs) if shape else 3, 100 * S, 0, shape=shape)
        happen(state, 0, ev.JobSubmitted(job))
    assert [len(state.records[job_id].allocation.nodes) for job_id in (1, 2, 3)] == [2, 2, 2]
    return state


def killed(told: list[Instruction]) -> list[tuple[int, Why]]:
    return [(each.job_id, each.reason.why) for each in told if isinstance(each, Kill)]


def test_what_lies_wholly_on_it_goes_on_and_nothing_is_started_there() -> None:
    state = two_labs()
    there = {share.node for share in state.records[1].allocation.nodes}
    cluster = {"n1": "a", "n2": "a", "n3": "b", "n4": "b"}
    off = [name for name, lab in cluster.items() if lab == cluster[min(there)]]
    told = happen(state, 10, *map(ev.NodeCutOff, off))
    assert killed(told) == [(3, Why.NODE_LOST)]
    assert [state.records[job_id].state for job_id in (1, 2, 3)] == [
        JobState.RUNNING, JobState.RUNNING, JobState.ENDING
    ]  # fmt: skip
    happen(state, 11, ev.JobEnded(3, JobState.NODE_LOST))
    told = happen(state, 12, ev.JobSubmitted(Job(4, 2, 10 * S, 12 * S)))
    assert not any(isinstance(each, Start) for each in told)
    assert state.machine.capacity.procs_total == 4
    # what it holds is its own when the nodes are back, also after a restart
    restored = SchedulerState.restore(resolve("easy"), None, state.snapshot())
    happen(restored, 20, *(ev.NodeJoined(Node(name, 2, 1 << 30, 2, cluster=cluster[name])) for name in off))
    assert restored.records[1].state is JobState.RUNNING
    happen(restored, 30, ev.JobEnded(1))
    assert {job_id: each.state for job_id, each in restored.records.items()} == {
        **{2: JobState.RUNNING, 4: JobState.RUNNING}  # those that have ended are not kept
    }


def test_a_node_that_is_lost_alone_takes_its_jobs_with_it() -> None:
    state = two_labs()
    share = state.records[1].allocation.nodes[0]
    assert (1, Why.NODE_LOST) in killed(happen(state, 10, ev.NodeLost(share.node)))


def test_who_starts_there_is_ended() -> None:
    state = SchedulerState(resolve("easy"))
    nodes = [Node(name, 1, 1 << 30, 1, cluster=name) for name in ("a", "b")]
    happen(state, 0, *map(ev.NodeJoined, nodes))
    state.handle(ev.JobSubmitted(Job(1, 1, 10 * S, 0)), 0)
    (start,) = state.handle(ev.Boundary(), 0)
    assert isinstance(start, Start)
    told = happen(state, 1, ev.NodeCutOff(start.allocation.nodes[0].node))
    assert killed(told) == [(1, Why.NODE_LOST)]


def test_its_text_in_journals() -> None:
    assert msgspec.json.encode(ev.NodeCutOff("n3")) == b'{"type":"NodeCutOff","name":"n3"}'

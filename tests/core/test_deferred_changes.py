"""A change that is planned and cannot be sent yet: until it is, a job goes with what it holds."""

import pytest
from kit.drive import happen

from cosched.model.job import Job
from cosched.model.node import Node
from cosched.model.width import Range
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Answer, Instruction, RateChanged, Resize, Start
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.state import SchedulerState
from space_scheduler.plugins import resolve
from space_scheduler.progress import Sharing

S = 1_000_000
POLICY = resolve("equipartition(wait)")


def malleable(number: int, most: int, *, ask_more: int = 0, resident: bool = False) -> Job:
    """A job that asks for two processors, from one up to so many."""
    return Job(number, 2, 100 * S, 0, shape=Range(1, most, malleable=True, ask_more=ask_more, resident=resident))


def rates(told: list[Instruction]) -> dict[int, int]:
    """The last rate that each job is told to have, in thousandths."""
    return {each.job_id: each.rate_ppm // 1000 for each in told if isinstance(each, RateChanged)}


def resizes(told: list[Instruction]) -> list[tuple[int, int, int]]:
    return [(each.job_id, each.old.procs, each.new.procs) for each in told if isinstance(each, Resize)]


def starts(told: list[Instruction]) -> list[tuple[int, str]]:
    return [(each.job.id, each.allocation.nodes[0].node) for each in told if isinstance(each, Start)]


@pytest.mark.parametrize("resident", [False, True], ids=["plain", "resident"])
@pytest.mark.parametrize("machine", ["counted", "named", "shared"])
def test_a_job_that_is_answered_goes_with_what_it_holds_until_it_is_given_more(machine: str, resident: bool) -> None:
    rules = MachineRules(sharing=Sharing() if machine == "shared" else None, mpl=1)
    state = SchedulerState(POLICY, rules)
    evolving = malleable(2, 2, ask_more=2, resident=resident)
    joined = ev.NodesJoined(4) if machine == "counted" else ev.NodeJoined(Node("a", 4, 100))
    jobs = [malleable(1, 4, resident=resident), evolving, Job(3, 1, 100 * S, 0)]
    happen(state, 0, joined, *map(ev.JobSubmitted, jobs))
    assert [state.records[number].allocation.procs for number in (1, 2, 3)] == [2, 1, 1]
    assert rates(happen(state, 10, ev.ResizeAsked(2, 2))) == {2: 0}, "three beside the two minima are more than four"
    told = happen(state, 20, ev.JobEnded(3))
    assert [each.given for each in told if isinstance(each, Answer)] == [2]
    assert resizes(told) == [(1, 2, 1)], "it is given a third processor when job 1 has given it back"
    assert rates(told) == {1: 500, 2: 500}, "it has one for each half of its width, still"
    restored = SchedulerState.restore(POLICY, rules, state.snapshot())
    later = happen(state, 30, ev.JobResized(1))
    assert resizes(later) == [(2, 1, 3)]
    assert rates(later) == {2: 1500}
    assert happen(restored, 30, ev.JobResized(1)) == later
    assert restored.snapshot() == state.snapshot()


@pytest.mark.parametrize("machine", ["counted", "named", "shared"])
def test_a_job_that_was_answered_and_is_given_nothing_goes_as_before(machine: str) -> None:
    rules = MachineRules(sharing=Sharing() if machine == "shared" else None, mpl=1)
    state = SchedulerState(POLICY, rules)
    joined = ev.NodesJoined(4) if machine == "counted" else ev.NodeJoined(Node("a", 4, 100))
    happen(
        state, 0, joined, *map(ev.JobSubmitted, [malleable(1, 4), malleable(2, 2, ask_more=2), Job(3, 1, 100 * S, 0)])
    )
    happen(state, 10, ev.ResizeAsked(2, 2))
    happen(state, 20, ev.JobEnded(3))
    state.handle(ev.ResizeFailed(1, "a test"), 30 * S)
    state.validate()
    assert state.records[2].allocation.procs == 1
    assert state.records[2].rate_ppm == S // 2


def test_a_job_without_memory_is_not_kept_from_starting_by_memory_that_others_hold() -> None:
    """A node that has come back with less memory than is held takes it, so it does while others are resized."""
    state = SchedulerState(resolve("equipartition"), MachineRules())
    holder = Job(1, 1, 100 * S, 0, memory_bytes=8)
    nodes = [ev.NodeJoined(Node("a", 2, 8)), ev.NodeJoined(Node("b", 2, 8))]
    happen(state, 0, *nodes, *map(ev.JobSubmitted, (holder, malleable(2, 3))))
    rest = [Job(number, 1, 100 * S, 0) for number in (3, 4)]
    told = happen(state, 10, ev.NodeJoined(Node("a", 3, 4)), *map(ev.JobSubmitted, rest))
    assert resizes(told) == [(2, 3, 2)]
    assert starts(told) == [(3, "a")], "the other one is to have what job 2 gives back"
    assert starts(happen(state, 20, ev.JobResized(2))) == [(4, "b")]

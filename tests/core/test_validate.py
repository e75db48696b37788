"""``validate`` walks every invariant: it is silent whatever happens, and finds each thing that is broken on purpose."""

from collections.abc import Callable
from typing import Any

import pytest
from kit.drive import Drive

from cosched.model.allocation import Allocation, Share
from cosched.model.job import Job, JobState
from cosched.model.node import Node
from space_scheduler.machine.holding import NOTHING, Occupying
from space_scheduler.machine.named_capacity import NamedCapacity
from space_scheduler.machine.nodes import Member, UnknownNode
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.state import SchedulerState
from space_scheduler.on_nodes import resident
from space_scheduler.policy.future.named import Reserved, Timetable


def busy_machine() -> Drive:
    """Four processors: job 1 runs on three till 100 s, jobs 2 (on four) and 4 (on two) follow, job 3 is held."""
    drive = Drive("conservative", procs=4).with_jobs((3, 100), (4, 10), (1, 10))
    drive.hold(3)
    drive.submit(4, procs=2, estimate_s=10)
    drive.decide_and_launch()
    return drive


def test_a_policys_memory_is_not_asked_between_an_event_and_its_pass() -> None:
    drive = busy_machine().at(40)
    drive.ended(1)  # validates: the profile does not know yet
    assert drive.decide() == [
        "start 2 on 4 (limit 10 s): RESERVATION_DUE, promised 100 s",
        "tell 4 50 s: MOVED_EARLIER, before 110 s",
        "timer 50 s: WAKE",
    ]


def test_a_policys_memory_is_not_asked_before_the_pass_that_is_overdue() -> None:
    drive = busy_machine()
    assert drive.at(130).cancel(1) == ["kill 1: CANCELLED"]  # it should have ended at 100 s, and no pass has noticed
    assert drive.decide() == [
        "tell 2 190 s: OVERRUN, before 100 s",
        "tell 4 200 s: OVERRUN, before 110 s",
        "timer 190 s: WAKE",
    ]


def _swap_last_two(entries: list[Any]) -> None:
    entries[-2:] = entries[:-3:-1]


BREAKS: dict[str, Callable[[SchedulerState], object]] = {
    "a processor is lost": lambda state: setattr(state.machine.capacity, "free_procs", 0),
    "a processor is counted twice": lambda state: setattr(state.machine.capacity, "free_procs", 2),
    "a queued job is forgotten": lambda state: state.records.pop(2),
    "a running job is forgotten": lambda state: state.records.pop(1),
    "a job waits that nobody submitted": lambda state: state.queue.add(Job(9, 1, 1, 0), 9),
    "the queue is out of order": lambda state: _swap_last_two(state.queue._sorted),
    "a held job is queued": lambda state: state.queue.add(state.records[3].job, 2),
    "a predicted end is lost": lambda state: state.machine.jobs.ends.clear(),
    "a predicted end is another": lambda state: setattr(state.records[1], "end_us", 1),
    "a queued job holds processors": lambda state: setattr(state.records[2], "holding", state.records[1].holding),
    "a running job holds none": lambda state: setattr(state.records[1], "holding", NOTHING),
    "an ended job is still here": lambda state: setattr(state.records[3], "state", JobState.CANCELLED),
    "a state without a story": lambda state: setattr(state.records[1], "state", JobState.ENDING),
    "a record under another's number": lambda state: state.records.__setitem__(3, state.records[1]),
    "the policy forgets a reservation": lambda state: state.memory.starts_us.clear(),
    "the policy's profile is another": lambda state: state.memory.profile.change(0, 5_000_000, 1),
}


@pytest.mark.parametrize("what", BREAKS)
def test_what_is_broken_is_found(what: str) -> None:
    drive = busy_machine()
    drive.state.validate()
    BREAKS[what](drive.state)
    with pytest.raises(AssertionError):
        drive.state.validate()


# --- named nodes ------------------------------------------------------------------------------------------------------


def busy_nodes() -> Drive:
    """Job 1 runs on n1 and half of n2, with memory; n3 is drained, n4 lost; job 2 waits for all that is left."""
    drive = Drive("conservative", nodes={"n1": (2, 8), "n2": (2, 8), "n3": (2, 8), "n4": (2, 8)})
    drive.submit(1, procs=3, estimate_s=100, memory=2)
    drive.decide_and_launch()
    drive.drain_node("n3")
    drive.lose_node("n4")
    drive.submit(2, procs=4, estimate_s=10, memory=4)
    drive.decide_and_launch()
    return drive


def nodes(state: SchedulerState) -> NamedCapacity:
    assert isinstance(state.machine.capacity, NamedCapacity)
    return state.machine.capacity


def member(state: SchedulerState, name: str) -> Member:
    return nodes(state)[name]


NODE_BREAKS: dict[str, Callable[[SchedulerState], object]] = {
    "a processor is lost": lambda state: setattr(member(state, "n1"), "used_procs", 1),
    "memory is lost": lambda state: setattr(member(state, "n1"), "used_memory_bytes", 0),
    "a node holds a stranger": lambda state: member(state, "n2").residents.update({9: resident(Job(9, 1, 1, 0), 1)}),
    "a node forgets a job": lambda state: member(state, "n2").residents.clear(),
    "a node is smaller than what it holds": lambda state: setattr(member(state, "n1"), "node", Node("n1", 1, 8)),
    "a node has less memory than it holds": lambda state: setattr(member(state, "n1"), "node", Node("n1", 2, 1)),
    "a running job lies on a lost node": lambda state: setattr(member(state, "n1"), "lost", True),
    "a node is gone": lambda state: nodes(state).members.pop("n2"),
    "a drained node counts": lambda state: setattr(member(state, "n3"), "drained", False),
    "free processors are miscounted": lambda state: setattr(state.machine.capacity, "free_procs", 2),
    "processors in service are miscounted": lambda state: setattr(state.machine.capacity, "procs_total", 8),
    "installed processors are miscounted": lambda state: setattr(state.machine.capacity, "procs_installed", 4),
    "a job has fewer places than tasks": lambda state: place(state, Share("n1", 2)),
    "a job has a node twice": lambda state: place(state, Share("n1", 1), Share("n1", 1), Share("n2", 1)),
    "a job lies on a node that never joined": lambda state: place(state, Share("n1", 2), Share("n9", 1)),
    "a job lies on more nodes than it may": lambda state: setattr(
        state.machine, "rules", MachineRules(max_nodes_per_job=1)
    ),
    "two jobs are promised one place": lambda state: promise(state, 0),
}


def place(state: SchedulerState, *shares: Share) -> None:
    state.records[1].holding = Occupying(Allocation(3, shares))


def promise(state: SchedulerState, start_us: int) -> None:
    reserved = Reserved(start_us + state.now_us, Allocation(4, (Share("n1", 2), Share("n2", 2))))
    state.memory = Timetable({2: reserved}, reserved.start_us)


@pytest.mark.parametrize("what", NODE_BREAKS)
def test_what_is_broken_about_nodes_is_found(what: str) -> None:
    drive = busy_nodes()
    drive.state.validate()
    NODE_BREAKS[what](drive.state)
    with pytest.raises((AssertionError, UnknownNode)):
        drive.state.validate()

"""Nodes join, are drained and are lost: who is told what, and who ends with them. Times in seconds."""

import pytest
from kit.drive import Drive
from kit.dump import dump

from cosched.model.job import JobState
from space_scheduler.machine import events as ev
from space_scheduler.machine.record import IllegalTransition, UnknownJob


def test_nodes_that_join_are_used_at_once() -> None:
    drive = Drive("fcfs", procs=2).with_jobs(2, 2).planned()
    drive.at(5).join(2)
    assert drive.decide() == ["start 2 on 2 (limit 60 s): FITS, free_procs 2"]


def test_draining_more_than_is_free_takes_processors_as_their_jobs_end() -> None:
    drive = Drive("fcfs", procs=4).with_jobs(3, 1).planned()
    drive.submit(3, procs=1, estimate_s=60)
    drive.at(5).drain(3)
    assert drive.state.machine.capacity.free_procs == -3
    assert drive.decide() == []
    drive.at(10).ended(2)
    assert drive.decide() == []
    drive.at(20).ended(1)
    assert drive.decide() == ["start 3 on 1 (limit 60 s): FITS, free_procs 1"]


@pytest.mark.parametrize(
    ("policy", "moved", "back"),
    [
        ("easy", ["tell 2 nothing promised: CAPACITY_CHANGED"], ["tell 2 60 s: CAPACITY_CHANGED"]),
        (
            "conservative",
            ["tell 2 nothing promised: CAPACITY_CHANGED, before 60 s"],
            ["tell 2 60 s: CAPACITY_CHANGED"],
        ),
    ],
)
def test_a_promise_that_drained_nodes_break_is_taken_back_and_made_again(
    policy: str, moved: list[str], back: list[str]
) -> None:
    drive = Drive(policy, procs=4).with_jobs(2, 4).planned()
    drive.at(5).drain(1)
    assert drive.decide() == moved
    drive.at(20).join(1)
    assert drive.decide() == back


def test_while_the_head_cannot_be_promised_anything_it_is_in_nobodys_way() -> None:
    drive = Drive("easy", procs=4).with_jobs(2, 4, (1, 999)).planned()
    drive.at(5).drain(1)
    assert drive.decide() == [
        "start 3 on 1 (limit 999 s): FIRST_FIT",
        "tell 2 nothing promised: CAPACITY_CHANGED",
    ]


def test_a_lost_node_ends_the_whole_gang_that_had_a_task_there() -> None:
    """One of four processors is lost, and with it job 1, which ran on three: two are free for job 3."""
    drive = Drive("fcfs", procs=4).with_jobs(3, 1).planned()
    drive.submit(3, procs=2, estimate_s=60)
    assert drive.at(5).lose(1, 1) == []
    assert 1 not in drive.state.records
    assert drive.decide() == ["start 3 on 2 (limit 60 s): FITS, free_procs 2"]
    assert drive.state.machine.capacity.procs_total == 3


def test_a_job_that_was_starting_or_being_killed_is_lost_as_well() -> None:
    drive = Drive("fcfs", procs=4).with_jobs(2, 2)
    drive.decide()
    drive.cancel(2)
    drive.lose(4, 1, 2)
    assert drive.state.records == {}
    assert (drive.state.machine.capacity.free_procs, drive.state.machine.capacity.procs_total) == (0, 0)


def test_conservative_tells_every_promise_that_a_lost_node_moves_with_the_cause() -> None:
    """Four processors, job 1 on two until 60. Job 2 (two) starts beside it; 3 and 4 follow. Then one idle node goes."""
    drive = Drive("conservative", procs=4).with_jobs(2, 3, 1, (4, 10))
    assert drive.decide_and_launch() == [
        "start 1 on 2 (limit 60 s): RESERVATION_DUE, promised 0 s",
        "start 3 on 1 (limit 60 s): RESERVATION_DUE, promised 0 s",
        "tell 2 60 s: RESERVED",
        "tell 4 120 s: RESERVED",
        "timer 60 s: WAKE",
    ]
    drive.at(5).lose(1)
    assert drive.decide() == ["tell 4 nothing promised: CAPACITY_CHANGED, before 120 s"]
    drive.at(6).lose(1, 3)
    assert drive.decide() == ["tell 2 nothing promised: CAPACITY_CHANGED, before 60 s"]


@pytest.mark.parametrize(
    ("procs", "lost", "error"),
    [
        (1, (1, 99), UnknownJob),  # the second is not alive here
        (1, (1, 3), IllegalTransition),  # the second waits
        (1, (1, 1), ValueError),
        (9, (1,), ValueError),  # more than there are
    ],
)
def test_a_loss_that_cannot_be_changes_nothing(procs: int, lost: tuple[int, ...], error: type[Exception]) -> None:
    drive = Drive("conservative", procs=4).with_jobs(2, 2, 2).planned()
    before = dump(drive.state)
    with pytest.raises(error):
        drive.lose(procs, *lost)
    assert dump(drive.state) == before
    assert drive.job_state(1) is JobState.RUNNING


def test_more_than_is_in_service_cannot_be_drained() -> None:
    drive = Drive("fcfs", procs=4)
    with pytest.raises(ValueError, match="5 processors cannot go: 4 are in service"):
        drive.drain(5)
    assert drive.state.machine.capacity.procs_total == 4


@pytest.mark.parametrize("event", [ev.NodesJoined(-1), ev.NodesDrained(-1), ev.NodesLost(-1)])
def test_a_negative_number_of_processors_is_refused(event: ev.Event) -> None:
    drive = Drive("fcfs", procs=4)
    with pytest.raises(ValueError, match="cannot be negative"):
        drive.handle(event)
    assert drive.state.machine.capacity.procs_total == 4

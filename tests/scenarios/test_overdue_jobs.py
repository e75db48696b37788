"""A job is overdue once its predicted end has passed: what was promised moves step by step, and the job is named."""

import msgspec
import pytest
from kit.drive import Drive, policy_named
from kit.loads import SECOND

from cosched.model.time import FOREVER_US
from space_scheduler.machine import events as ev
from space_scheduler.machine.snapshot import SavedState
from space_scheduler.machine.state import SchedulerState

NAMING = ev.Boundary(name_overdue=True)


def blocked(policy: str = "easy", **machine: object) -> Drive:
    """Job 1 holds everything and should end at 60 s; job 2 waits for it."""
    drive = Drive(policy, **(machine or {"procs": 4}))  # type: ignore[arg-type]
    drive.submit(1, procs=4, estimate_s=60)
    drive.submit(2, procs=4, estimate_s=60)
    drive.decide_and_launch()
    assert drive.promise_s(2) == 60
    return drive


@pytest.mark.parametrize("machine", [{"procs": 4}, {"nodes": {"a": (2,), "b": (2,)}}])
@pytest.mark.parametrize("policy", ["easy", "sjbf", "conservative"])
def test_promise_moves_step_by_step_and_names_the_overdue_job(policy: str, machine: dict[str, object]) -> None:
    drive = blocked(policy, **machine)
    for now_s, promised_s in ((63, 123), (123, 423), (423, 1323), (1323, 3123), (3123, 6723), (6723, 13923)):
        told = [line for line in drive.at(now_s).say(NAMING) if line.startswith("tell 2")]
        (line,) = told
        assert line.startswith(f"tell 2 {promised_s} s: OVERRUN")
        assert "overdue_job 1" in line
        assert "since 60 s" in line
    drive.ended(1)
    assert any(line.startswith("start 2") for line in drive.decide())


def test_promise_that_has_passed_is_explained_by_the_overdue_job() -> None:
    drive = blocked()
    assert drive.state.explain(2, 59 * SECOND).numbers == {"procs": 4, "free_procs": 0, "promised_us": 60 * SECOND}
    overdue = {"procs": 4, "free_procs": 0, "overdue_job": 1, "since_us": 60 * SECOND}
    assert drive.state.explain(2, 60 * SECOND).numbers == overdue
    drive.at(63).say(NAMING)
    assert drive.state.explain(2).numbers == {**overdue, "promised_us": 123 * SECOND}


def test_job_that_would_delay_a_passed_promise_is_given_no_past_time() -> None:
    drive = Drive("easy", procs=4).with_jobs(3, 4).planned()
    drive.submit(3, procs=1, estimate_s=600)
    drive.decide()
    assert drive.state.explain(3).numbers == {"head": 2, "promised_us": 60 * SECOND}
    assert drive.state.explain(3, 61 * SECOND).numbers == {"head": 2, "overdue_job": 1, "since_us": 60 * SECOND}


def test_job_that_is_launched_or_has_progressed_is_not_overdue() -> None:
    drive = Drive("easy", procs=4).with_jobs(4, 4)
    drive.decide()
    drive.at(63).say(NAMING)  # its launch takes longer than its estimate
    assert drive.state.records[1].overdue_us == 60 * SECOND
    drive.at(70).launched(1)
    drive.decide()
    assert [drive.state.records[1].overdue_us, drive.promise_s(2)] == [None, 130]
    drive.at(133).say(NAMING)
    assert drive.state.records[1].overdue_us == 130 * SECOND
    drive.say(ev.JobProgress(1, 40 * SECOND))
    drive.decide()
    assert [drive.state.records[1].overdue_us, drive.promise_s(2)] == [None, 153]


def test_pass_is_due_a_moment_after_the_first_predicted_end() -> None:
    drive = Drive("easy", procs=4).with_jobs(4).planned()
    assert drive.state.overdue_at_us(3 * SECOND) == FOREVER_US  # nothing waits for it
    drive.submit(2, procs=4, estimate_s=60)
    assert drive.state.overdue_at_us(3 * SECOND) == 63 * SECOND
    drive.at(63).say(NAMING)
    assert drive.state.overdue_at_us(3 * SECOND) == 123 * SECOND


def test_snapshot_keeps_since_when_a_job_is_overdue() -> None:
    drive = blocked()
    drive.at(63).say(NAMING)
    kept = msgspec.json.decode(msgspec.json.encode(drive.state.snapshot()), type=SavedState)
    again = SchedulerState.restore(drive.state.policy, drive.state.rules, kept)
    assert again.records[1].overdue_us == 60 * SECOND


def test_promise_of_a_policy_that_is_gone_is_withdrawn_at_the_first_pass() -> None:
    drive = blocked("easy")
    drive.state = SchedulerState.restore(policy_named("fcfs"), drive.state.rules, drive.state.snapshot())
    assert drive.at(10).decide() == ["tell 2 nothing promised: RESTARTED"]
    assert drive.at(11).decide() == []

"""What can become of one job: each scenario gives the events and the exact instructions, times in seconds."""

import pytest
from kit.drive import Drive
from kit.dump import dump

from cosched.model.job import JobState
from space_scheduler.machine import events as ev
from space_scheduler.machine.record import IllegalTransition, Infeasible, UnknownJob
from space_scheduler.machine.rules import MachineRules
from space_scheduler.reasons import Why

# --- the ordinary life ------------------------------------------------------------------------------------------------


def test_a_job_is_queued_started_launched_and_ends() -> None:
    drive = Drive("easy", procs=4)
    assert drive.at(5).submit(1, procs=3, estimate_s=60) == []
    assert drive.decide() == ["start 1 on 3 (limit 60 s): FITS, free_procs 4"]
    assert drive.job_state(1) is JobState.STARTING
    assert drive.launched(1) == []
    assert drive.job_state(1) is JobState.RUNNING
    assert drive.at(40).ended(1) == []
    assert drive.decide() == []
    assert drive.state.records == {}
    assert drive.state.machine.capacity.free_procs == 4


def test_jobs_that_are_not_killed_get_no_limit() -> None:
    drive = Drive("easy", procs=4, rules=MachineRules(kill_at_limit=False)).with_jobs(1)
    assert drive.decide() == ["start 1 on 1 (no limit): FITS, free_procs 4"]


@pytest.mark.parametrize(
    "outcome", [JobState.COMPLETED, JobState.FAILED, JobState.TIMED_OUT, JobState.CANCELLED, JobState.NODE_LOST]
)
def test_each_way_of_ending_frees_the_processors_for_the_next(outcome: JobState) -> None:
    drive = Drive("fcfs", procs=4).with_jobs(4, 4).planned()
    drive.at(10).ended(1, outcome)
    assert drive.decide() == ["start 2 on 4 (limit 60 s): FITS, free_procs 4"]


def test_a_launch_that_fails_frees_the_processors() -> None:
    drive = Drive("fcfs", procs=4).with_jobs(4, 1)
    drive.decide()
    drive.at(3).ended(1, JobState.LAUNCH_FAILED)
    assert drive.decide() == ["start 2 on 1 (limit 60 s): FITS, free_procs 4"]


# --- refused ----------------------------------------------------------------------------------------------------------


def test_a_job_wider_than_the_machine_is_refused_with_the_reason() -> None:
    drive = Drive("easy", procs=4)
    before = dump(drive.state)
    with pytest.raises(
        Infeasible, match=r"job 1: needs more processors than the machine has \(procs=5, machine_procs=4"
    ):
        drive.submit(1, procs=5, estimate_s=60)
    assert dump(drive.state) == before


def test_a_job_wider_than_what_is_in_service_now_waits_for_nodes_to_come_back() -> None:
    drive = Drive("easy", procs=4)
    drive.drain(2)
    drive.submit(1, procs=3, estimate_s=60)
    assert drive.decide() == ["tell 1 nothing promised: CAPACITY_CHANGED"]
    drive.at(100).join(2)
    assert drive.decide() == ["start 1 on 3 (limit 60 s): FITS, free_procs 4"]


def test_a_number_that_is_alive_is_not_taken_twice() -> None:
    drive = Drive("easy", procs=4).with_jobs(1)
    with pytest.raises(ValueError, match="job 1 was submitted before and is still alive"):
        drive.submit(1, procs=2, estimate_s=10)
    assert drive.queued() == [1]


# --- held and released ------------------------------------------------------------------------------------------------


def test_a_held_job_is_passed_and_a_released_one_is_back_at_its_place() -> None:
    drive = Drive("fcfs", procs=4).with_jobs(4).planned()
    for job_id in (2, 3, 4):
        drive.submit(job_id, procs=4, estimate_s=60)
    drive.hold(2)
    assert drive.queued() == [3, 4]
    assert drive.state.explain(2).why is Why.HELD
    drive.at(60).ended(1)
    assert drive.decide_and_launch() == ["start 3 on 4 (limit 60 s): FITS, free_procs 4"]
    drive.release(2)
    assert drive.queued() == [2, 4]  # ahead of job 4, which came later
    drive.at(120).ended(3)
    assert drive.decide() == ["start 2 on 4 (limit 60 s): FITS, free_procs 4"]


def test_holding_the_head_gives_the_reservation_to_the_next() -> None:
    drive = Drive("easy", procs=4).with_jobs(3, 4, 2)
    assert drive.decide_and_launch() == ["start 1 on 3 (limit 60 s): FITS, free_procs 4", "tell 2 60 s: RESERVED"]
    drive.hold(2)
    assert drive.promise_s(2) is None
    assert drive.decide() == ["tell 3 60 s: RESERVED"]


def test_a_released_job_takes_the_head_and_the_promise_with_it() -> None:
    """Job 2 is held, job 3 is promised its place; when 2 is back ahead of it, that promise is taken back, with why."""
    drive = Drive("easy", procs=4).with_jobs(3, 4, 4).planned()
    drive.hold(2)
    assert drive.decide() == ["tell 3 60 s: RESERVED"]
    drive.release(2)
    assert drive.decide() == ["tell 2 60 s: RESERVED", "tell 3 nothing promised: OVERTAKEN"]


@pytest.mark.parametrize(("procs", "estimate_s"), [(0, 60), (-1, 60), (2, 0)])
def test_a_job_asks_for_at_least_one_processor_and_some_time(procs: int, estimate_s: float) -> None:
    drive = Drive("easy", procs=4)
    with pytest.raises(ValueError, match="at least 1 of each"):
        drive.submit(1, procs=procs, estimate_s=estimate_s)
    assert not drive.state.records


def test_conservative_gives_the_hole_of_a_held_job_to_others_and_promises_it_anew_when_it_is_back() -> None:
    drive = Drive("conservative", procs=4).with_jobs(4, 4, 4).planned()
    drive.hold(2)
    assert drive.decide() == ["tell 3 60 s: MOVED_EARLIER, before 120 s", "timer 60 s: WAKE"][:1]
    drive.release(2)
    assert drive.decide() == ["tell 2 120 s: RESERVED"]


@pytest.mark.parametrize("policy", ["easy", "backfill(2)", "conservative"])
def test_who_is_held_and_released_between_two_passes_is_promised_anew(policy: str) -> None:
    drive = Drive(policy, procs=4).with_jobs(4, 4)
    assert "tell 2 60 s: RESERVED" in drive.decide_and_launch()
    drive.at(10).hold(2)
    drive.release(2)
    assert drive.promise_s(2) is None
    assert drive.decide() == ["tell 2 60 s: RESERVED"]
    assert drive.promise_s(2) == 60


# --- cancelled --------------------------------------------------------------------------------------------------------


def test_cancelling_a_queued_job_ends_it_there() -> None:
    drive = Drive("easy", procs=4).with_jobs(3, 4, (1, 90)).planned()
    assert drive.cancel(2) == []
    assert 2 not in drive.state.records
    assert drive.decide() == ["start 3 on 1 (limit 90 s): FITS, free_procs 1"]


def test_cancelling_a_held_job_ends_it_there() -> None:
    drive = Drive("easy", procs=4).with_jobs(3)
    drive.hold(1)
    assert drive.cancel(1) == []
    assert drive.state.records == {}
    assert drive.decide() == []


@pytest.mark.parametrize("launched", [False, True], ids=["while starting", "while running"])
def test_cancelling_a_job_that_holds_processors_kills_it_and_waits_for_its_end(launched: bool) -> None:
    drive = Drive("fcfs", procs=4).with_jobs(4, 4)
    drive.decide()
    if launched:
        drive.launched(1)
    assert drive.at(7).cancel(1) == ["kill 1: CANCELLED"]
    assert drive.job_state(1) is JobState.ENDING
    assert drive.decide() == []  # its processors are not free before it has ended
    drive.at(9).ended(1, JobState.CANCELLED)
    assert drive.decide() == ["start 2 on 4 (limit 60 s): FITS, free_procs 4"]


def test_a_job_cancelled_while_it_was_launched_stays_ending_when_its_tasks_come_up() -> None:
    drive = Drive("fcfs", procs=4).with_jobs(4)
    drive.decide()
    drive.cancel(1)
    assert drive.launched(1) == []
    assert drive.job_state(1) is JobState.ENDING


def test_job_that_cannot_be_ended_is_ending_and_holds_what_it_holds() -> None:
    drive = Drive("easy", procs=4).with_jobs(4).planned()
    drive.submit(2, procs=1, estimate_s=60)
    drive.decide()
    assert drive.at(60).say(ev.JobCannotEnd(1, "n1")) == []
    assert drive.job_state(1) is JobState.ENDING
    assert drive.why(1) == "CANNOT_END, node n1"
    assert drive.state.machine.capacity.free_procs == 0
    assert drive.say(ev.JobCannotEnd(1, "n1")) == []
    drive.at(90).ended(1, JobState.TIMED_OUT)
    assert drive.decide() == ["start 2 on 1 (limit 60 s): FITS, free_procs 4"]


@pytest.mark.parametrize("cancelled", [False, True])
def test_job_that_is_not_running_cannot_be_one_that_cannot_end(cancelled: bool) -> None:
    drive = Drive("easy", procs=4).with_jobs(4)
    if cancelled:
        drive.decide_and_launch()
        drive.cancel(1)
    state, why = drive.job_state(1), drive.why(1)
    assert drive.say(ev.JobCannotEnd(1, "n1")) == []
    assert (drive.job_state(1), drive.why(1)) == (state, why)


def test_a_job_may_complete_although_it_was_cancelled() -> None:
    """The last task ended before the order came."""
    drive = Drive("fcfs", procs=4).with_jobs(4).planned()
    drive.cancel(1)
    drive.ended(1, JobState.COMPLETED)
    assert drive.state.records == {}


# --- late -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "moved"),
    [
        ("easy", ["tell 2 70 s: LATE_LAUNCH"]),
        ("conservative", ["tell 2 70 s: LATE_LAUNCH, before 60 s", "timer 70 s: WAKE"]),
    ],
)
def test_a_launch_acknowledged_late_moves_what_follows_and_says_why(policy: str, moved: list[str]) -> None:
    drive = Drive(policy, procs=4).with_jobs(4, 4)
    assert "tell 2 60 s: RESERVED" in drive.decide()
    assert drive.at(10).launched(1) == []
    assert drive.decide() == moved


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_an_overrunning_job_is_predicted_anew_each_time_it_is_looked_at(policy: str) -> None:
    """Job 1 should end at 60 and does not: first a minute more, then five (Tsafrir et al. 2007)."""
    drive = Drive(policy, procs=4, rules=MachineRules(kill_at_limit=False)).with_jobs(4, 4).planned()
    told = []
    for now_s in (60, 120):
        drive.at(now_s).submit(now_s, procs=1, estimate_s=1)
        told += [line.partition(",")[0] for line in drive.decide() if line.startswith("tell 2")]
    assert told == ["tell 2 120 s: OVERRUN", "tell 2 420 s: OVERRUN"]


def test_at_the_limit_processors_count_as_free_where_the_rule_says_so() -> None:
    """One pass per event: the submission at 60 is handled before the end at 60, and the interval is half-open."""
    drive = Drive("easy", procs=4, rules=MachineRules(release_at_limit=True)).with_jobs(4).planned()
    drive.at(60).submit(2, procs=4, estimate_s=10)
    assert drive.decide_and_launch() == ["start 2 on 4 (limit 10 s): FITS, free_procs 4"]
    drive.ended(1)
    assert drive.decide() == []
    drive.at(65).ended(2)
    assert drive.state.machine.capacity.free_procs == 4


# --- timers -----------------------------------------------------------------------------------------------------------


def test_a_reservation_that_nothing_else_wakes_is_started_by_the_timer() -> None:
    """Job 1 ends early at 30, nothing is done with the hole; job 2's start at 60 has no event of its own."""
    drive = Drive("conservative(none)", procs=4).with_jobs(4, 4)
    assert drive.decide_and_launch()[1:] == ["tell 2 60 s: RESERVED", "timer 60 s: WAKE"]
    drive.at(30).ended(1)
    assert drive.decide() == []
    assert drive.at(60).timer() == []
    assert drive.decide() == ["start 2 on 4 (limit 60 s): RESERVATION_DUE, promised 60 s"]


def test_the_timer_is_set_again_only_when_its_time_changes() -> None:
    drive = Drive("conservative", procs=4).with_jobs(4, 4)
    assert drive.decide_and_launch()[-1] == "timer 60 s: WAKE"
    drive.submit(3, procs=4, estimate_s=60)
    assert drive.decide() == ["tell 3 120 s: RESERVED"]
    drive.at(20).ended(1)
    assert drive.decide_and_launch() == [
        "start 2 on 4 (limit 60 s): RESERVATION_DUE, promised 60 s",
        "tell 3 80 s: MOVED_EARLIER, before 120 s",
        "timer 80 s: WAKE",
    ]


def test_a_timer_nobody_needs_any_more_does_no_harm() -> None:
    drive = Drive("conservative", procs=4).with_jobs(4, 4).planned()
    drive.cancel(2)
    drive.decide()
    drive.at(60).timer()
    assert drive.decide() == []


def test_a_timer_that_comes_late_moves_what_could_not_be_kept() -> None:
    """The host slept from 60 to 75: job 2 starts then, and job 3 behind it is told."""
    drive = Drive("conservative(none)", procs=4).with_jobs(4, 4, 4).planned()
    drive.at(30).ended(1)
    drive.decide()
    drive.at(75).timer()
    assert drive.decide() == [
        "start 2 on 4 (limit 60 s): RESERVATION_DUE, promised 60 s",
        "tell 3 135 s: LATE_LAUNCH, before 120 s",
        "timer 135 s: WAKE",
    ]


# --- what a life does not have ----------------------------------------------------------------------------------------


def test_an_illegal_change_tells_the_jobs_story() -> None:
    drive = Drive("fcfs", procs=4)
    drive.at(5).submit(1, procs=4, estimate_s=60)
    drive.at(6).hold(1)
    drive.at(8.5).release(1)
    drive.decide()
    drive.at(9).launched(1)
    with pytest.raises(IllegalTransition) as caught:
        drive.at(10).launched(1)
    assert str(caught.value) == (
        "job 1 cannot go from running to running at 10 s; its story: "
        "queued at 5 s, waiting at 6 s, queued at 8.5 s, starting at 8.5 s, running at 9 s"
    )


@pytest.mark.parametrize("outcome", [JobState.COMPLETED, JobState.CANCELLED, JobState.NODE_LOST])
def test_a_job_that_waits_cannot_end(outcome: JobState) -> None:
    drive = Drive("fcfs", procs=4).with_jobs(4)
    before = dump(drive.state)
    with pytest.raises(IllegalTransition, match=f"job 1 cannot go from queued to {outcome}"):
        drive.ended(1, outcome)
    assert dump(drive.state) == before


def test_a_job_does_not_end_in_a_state_that_is_no_end() -> None:
    drive = Drive("fcfs", procs=4).with_jobs(4).planned()
    with pytest.raises(ValueError, match="job 1 cannot end as running: not a terminal state"):
        drive.ended(1, JobState.RUNNING)


def test_whoever_is_not_alive_here_is_unknown() -> None:
    drive = Drive("fcfs", procs=4).with_jobs(4).planned()
    drive.ended(1)
    for event in (ev.JobEnded(1), ev.JobLaunched(1), ev.JobHeld(1), ev.JobReleased(1), ev.JobCancelled(1)):
        with pytest.raises(UnknownJob, match="job 1 is not queued, starting or running here"):
            drive.handle(event)


def test_time_does_not_go_back() -> None:
    drive = Drive("fcfs", procs=4)
    drive.at(10).decide()
    with pytest.raises(ValueError, match="time went back: 9000000 µs after 10000000 µs"):
        drive.at(9).decide()


# --- explained --------------------------------------------------------------------------------------------------------


def test_why_a_job_waits() -> None:
    drive = Drive("easy", procs=4).with_jobs(3, 4, (1, 90)).planned()
    why = {job_id: drive.state.explain(job_id).why for job_id in (1, 2, 3)}
    assert why == {1: Why.FITS, 2: Why.NOT_ENOUGH_FREE, 3: Why.WOULD_DELAY_RESERVATION}
    assert drive.state.explain(2).numbers == {"procs": 4, "free_procs": 1, "promised_us": 60_000_000}
    assert drive.state.explain(3).numbers == {"head": 2, "promised_us": 60_000_000}

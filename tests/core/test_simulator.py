"""The simulator host: a virtual clock, the limit it enforces, launches that take time, and what it reports."""

import pytest
from kit.checks import processors_are_not_over_committed, run
from kit.drive import policy_named
from kit.loads import SECOND, J, workload

from cosched.model.job import JobState
from cosched.model.time import FOREVER_US
from cosched.workload.rules import AtLimit
from space_scheduler.machine.events import Boundary, JobEnded, JobLaunched, JobSubmitted
from space_scheduler.simulator.host import Ties, begin, simulate


@pytest.mark.parametrize("ties", Ties)
def test_a_job_that_would_run_past_its_limit_is_killed_at_it(ties: Ties) -> None:
    done = run(workload(4, [J(0, 4, 10, 25), J(0, 4, 10, 3)]), "easy", ties)
    assert (done.outcome.start_us / SECOND).tolist() == [0, 10]
    assert (done.outcome.end_us / SECOND).tolist() == [10, 13]
    processors_are_not_over_committed(done.outcome)
    ends = [event for _, event, _ in done.seen if isinstance(event, JobEnded)]
    assert [event.outcome for event in ends] == [JobState.TIMED_OUT, JobState.COMPLETED]


def test_where_jobs_may_run_on_it_runs_to_its_end() -> None:
    outcome = run(workload(4, [J(0, 4, 10, 25), J(0, 4, 10, 3)]), "easy", at_limit=AtLimit.RUN).outcome
    assert (outcome.end_us / SECOND).tolist() == [25, 28]


def test_a_launch_takes_its_time_and_the_limit_counts_from_its_end() -> None:
    done = run(workload(4, [J(0, 4, 10, 25), J(0, 4, 10, 3)]), "easy", launch_delay_us=2 * SECOND)
    assert (done.outcome.start_us / SECOND).tolist() == [2, 14]
    assert (done.outcome.end_us / SECOND).tolist() == [12, 17]
    launches = [now for now, event, _ in done.seen if isinstance(event, JobLaunched)]
    assert launches == [2 * SECOND, 14 * SECOND]


def test_at_one_instant_submissions_come_before_ends() -> None:
    """At 10 job 0 ends, ten seconds early, and jobs 1 (all four processors) and 2 (one, for 8 s) come.

    In one pass for all of it, job 1 starts. With a pass for each event, submissions first, job 0 is still there when
    they come: job 1 is promised 20, job 2 ends before that and starts, and job 1 has to wait for it.
    """
    jobs = [J(0, 2, 20, 10), J(10, 4, 5), J(10, 1, 8)]
    assert (run(workload(4, jobs), "easy", Ties.BATCH).outcome.start_us / SECOND).tolist() == [0, 10, 15]
    done = run(workload(4, jobs), "easy", Ties.SEQUENTIAL)
    assert (done.outcome.start_us / SECOND).tolist() == [0, 18, 10]
    at_10 = [type(event) for now, event, _ in done.seen if now == 10 * SECOND]
    assert at_10 == [JobSubmitted, Boundary, JobSubmitted, Boundary, JobLaunched, JobEnded, Boundary]


@pytest.mark.parametrize("ties", Ties)
def test_a_simulation_is_carried_on_to_the_end_of_an_instant_and_stays_there(ties: Ties) -> None:
    """At 10 job 0 ends and jobs 1 and 2 come: whoever asks for two jobs has all that happens then, once."""
    jobs = [J(0, 4, 10), J(10, 4, 5), J(10, 4, 5), J(100, 4, 5)]
    running = begin(workload(4, jobs), policy_named("fcfs"), ties=ties)
    for wanted in (2, 2, 3):
        found = running.until(wanted)
        waits = float(FOREVER_US) / SECOND
        assert (found.start_us / SECOND).tolist() == [0, 10, waits]
        assert (found.end_us / SECOND).tolist() == [10, 15, waits]
        assert found.passes == (first := running.until(2)).passes
        assert first.reasons == {"fits": 2}
    whole, alone = running.finish(), simulate(workload(4, jobs), policy_named("fcfs"), ties=ties)
    assert (whole.start_us / SECOND).tolist() == (alone.start_us / SECOND).tolist() == [0, 10, 15, 100]
    assert (whole.passes, whole.reasons) == (alone.passes, alone.reasons)


@pytest.mark.parametrize("ties", Ties)
def test_it_is_what_a_simulation_of_these_jobs_alone_would_have(ties: Ties) -> None:
    jobs = [J(5 * (number // 3), 1 + number % 4, 7, 5 + number % 3) for number in range(60)]
    running = begin(workload(4, jobs), policy_named("easy"), ties=ties)
    for wanted in (0, 1, 10, 11, 30, 59, 60):
        found = running.until(wanted)
        alone = begin(workload(4, jobs[: len(found.start_us)]), policy_named("easy"), ties=ties).until(wanted)
        assert found.start_us.tolist() == alone.start_us.tolist()
        assert found.end_us.tolist() == alone.end_us.tolist()
        assert (found.passes, found.reasons) == (alone.passes, alone.reasons)
        assert len(found.start_us) == max(3, -(-wanted // 3) * 3)


def test_the_outcome_counts_starts_by_reason_and_passes() -> None:
    outcome = run(workload(4, [J(0, 3, 10), J(0, 4, 10), J(0, 1, 10)]), "easy").outcome
    assert outcome.reasons == {"backfilled_before_shadow": 1, "fits": 2}
    assert outcome.passes == 4  # when the machine was built, at 0, 10 and 20
    assert outcome.promised_us.tolist() == [-1, 10 * SECOND, -1]


def test_progress_is_told_every_few_thousand_jobs() -> None:
    told: list[int] = []
    simulate(workload(4, [J(i, 1, 1) for i in range(9_000)]), policy_named("easy"), progress=told.append)
    assert told == sorted(set(told))
    assert len(told) == 2
    assert all(0 < jobs <= 9_000 for jobs in told)

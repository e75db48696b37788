"""Nobody starves: a wide job behind a stream of narrow ones starts in a time that does not depend on the stream."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import mutants
from kit.checks import Broken, fails, hold, run, telling
from kit.drive import policy_named
from kit.loads import SECOND, J, loads, story, workload

from cosched.workload.rules import Workload
from space_scheduler.policy.interface import Policy
from space_scheduler.simulator.host import Outcome, Ties


def wide_job_starts_s(policy: Policy, stream: int) -> float:
    """Four processors, two busy until 10; at 1 comes a job of four, and from 2 on every 5 s one of two for 10 s."""
    jobs = [J(0, 2, 10), J(1, 4, 10), *(J(2 + 5 * i, 2, 10) for i in range(stream))]
    return float(run(workload(4, jobs), policy).outcome.start_us[1] / SECOND)


@pytest.mark.parametrize(
    ("policy", "start_s"),
    [
        ("fcfs", 10),
        ("easy", 10),
        ("sjbf", 10),
        ("backfill(3)", 10),
        ("conservative(none)", 10),
        ("conservative(anew)", 10),
        ("conservative(schedule)", 10),
        ("conservative(arrival)", 10),
        ("fpfs(0)", 10),
        ("fpfs(1)", 12),  # one of the stream passes at 2, nobody after it
        ("fpfs(3)", 22),
        ("fpfs(10)", 60),
    ],
)
def test_a_wide_job_behind_a_stream_of_narrow_ones(policy: str, start_s: float) -> None:
    for stream in (15, 40, 160):
        assert wide_job_starts_s(policy_named(policy), stream) == start_s


@pytest.mark.parametrize("policy", [policy_named("firstfit"), policy_named("bestfit"), mutants.Starver()])
def test_it_waits_for_the_end_of_the_stream_where_nothing_is_reserved(policy: Policy) -> None:
    for stream in (15, 40, 160):
        assert wide_job_starts_s(policy, stream) > 5 * stream


def waits_are_bounded_by_rank(outcome: Outcome) -> None:
    """Section 2.2: with a limit on run times, the wait is at most that limit times the rank in the queue."""
    load = outcome.workload
    limit_us = int(load.estimate_us.max())
    for job, submit_us in enumerate(load.submit_us):
        rank = 1 + int(np.count_nonzero(outcome.start_us[:job] >= submit_us))
        wait_us = outcome.start_us[job] - submit_us
        hold(wait_us <= rank * limit_us, f"job {job} of rank {rank} waits {wait_us} µs; {story(load)}")


@pytest.mark.parametrize("policy", ["fcfs", "easy", "sjbf", "backfill(3)", "conservative(none)", "conservative"])
@telling(ties=Ties.BATCH)
@given(load=loads(), ties=st.sampled_from(Ties))
def test_the_wait_is_at_most_the_limit_times_the_rank(policy: str, load: Workload, ties: Ties) -> None:
    waits_are_bounded_by_rank(run(load, policy, ties).outcome)


@pytest.mark.parametrize("policy", [policy_named("firstfit"), mutants.Starver()])
def test_the_bound_catches_who_reserves_nothing(policy: Policy) -> None:
    fails(lambda load: waits_are_bounded_by_rank(run(load, policy).outcome))


def test_a_policy_that_starts_nobody_is_reported_with_whom_it_concerns() -> None:
    with pytest.raises(Broken, match=r"1 jobs wait and nothing can happen any more at 20 s; job 2"):
        run(workload(4, [J(0, 4, 10), J(0, 4, 10), J(0, 4, 10)]), mutants.Forgetter())

"""Every event in any order (``kit.whatever_happens``) breaks no invariant, and catches those who break one."""

from typing import Any

import pytest
from hypothesis import Phase
from kit import mutants
from kit.whatever_happens import (
    CAUSES,
    FURTHER,
    SITES,
    WITH_PROMISES,
    WITHOUT,
    WhateverIsMeasured,
    explore,
    explore_all,
)

from space_scheduler.machine.record import IllegalTransition, UnknownJob
from space_scheduler.machine.state import SchedulerState

#: Of the policies, those that --quick looks at: one of each way to hold to a promise, or to none.
QUICK = {"easy", "firstfit", "conservative(none)"}
_POLICIES = [
    pytest.param(policy, marks=() if policy in QUICK else pytest.mark.slow) for policy in (*WITHOUT, *WITH_PROMISES)
]


@pytest.mark.slow
@pytest.mark.parametrize("policy", _POLICIES)
def test_whatever_happens(policy: str) -> None:
    """All events have to occur under two of the policies."""
    if policy not in ("easy", "conservative(none)"):
        explore(policy)
        return
    sites = set(SITES)
    if policy in WITH_PROMISES:
        sites |= {f"moved later: {cause.name}" for cause in CAUSES}
    if policy.startswith("conservative"):
        sites |= {"timer late"}
    explore_all(policy, sites)


@pytest.mark.slow
def test_whatever_happens_where_jobs_may_run_on() -> None:
    explore("easy", kill_at_limit=False)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["easy", "conservative(none)"])
def test_whatever_is_measured_of_running_jobs(policy: str) -> None:
    explore_all(policy, {"measured progress", "moved later: PROGRESS"}, WhateverIsMeasured)


@pytest.mark.parametrize("policy", ["easy", "conservative(arrival)"])
@pytest.mark.parametrize(
    "mutant", [mutants.Leaker, mutants.Generous, mutants.LosesOneByOne, mutants.SilentMover, mutants.DeafToLaunches]
)
def test_it_catches(mutant: type[SchedulerState], policy: str) -> None:
    caught(mutant, policy)


def test_it_catches_one_who_forgets_the_released() -> None:
    caught(mutants.ForgetsTheReleased, "conservative(arrival)")


def caught(mutant: type[SchedulerState], policy: str) -> None:
    once: Any = {"phases": [Phase.generate], "derandomize": True, "database": None, "report_multiple_bugs": False}
    with pytest.raises((AssertionError, IllegalTransition, UnknownJob)):
        explore(policy, mutant, max_examples=FURTHER, **once)

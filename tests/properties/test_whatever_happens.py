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
from space_scheduler.reasons import Why

#: Policies under which all events have to occur, with seeds that show them.
MEASURED = {"easy": 2, "conservative(none)": 3}


@pytest.mark.slow
@pytest.mark.parametrize("policy", [*WITHOUT, *WITH_PROMISES])
def test_whatever_happens(policy: str) -> None:
    """All events have to occur under two of the policies, where it is measured as well how far jobs are."""
    if policy not in MEASURED:
        explore(policy)
        return
    sites = set(SITES)
    sites |= {"measured progress", *(f"moved later: {cause.name}" for cause in (*CAUSES, Why.PROGRESS))}
    if policy.startswith("conservative"):
        sites |= {"timer late"}
    explore_all(policy, sites, WhateverIsMeasured, first=MEASURED[policy])


@pytest.mark.slow
def test_whatever_happens_where_jobs_may_run_on() -> None:
    explore("easy", kill_at_limit=False)


@pytest.mark.parametrize("policy", ["easy", "conservative(arrival)"])
@pytest.mark.parametrize(
    "mutant",
    [mutants.Leaker, mutants.Generous, mutants.loses_one_by_one, mutants.SilentMover, mutants.deaf_to_launches],
)
def test_it_catches(mutant: type[SchedulerState], policy: str) -> None:
    caught(mutant, policy)


def test_it_catches_one_who_forgets_the_released() -> None:
    caught(mutants.forgets_the_released, "conservative(arrival)")


def caught(mutant: type[SchedulerState], policy: str) -> None:
    once: Any = {"phases": [Phase.generate], "derandomize": True, "database": None, "report_multiple_bugs": False}
    with pytest.raises((AssertionError, IllegalTransition, UnknownJob)):
        explore(policy, mutant, of=WhateverIsMeasured, max_examples=FURTHER, **once)

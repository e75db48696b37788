"""The short version of ``./run campaign faults``: every site once, in the phases where it is there for certain."""

import pytest
from campaigns import faults
from campaigns.faults import Round, campaign

from cosched.apps.lab import tiers

pytestmark = pytest.mark.xdist_group("faults")


@pytest.mark.slow
def test_whoever_is_killed_every_job_ends_once_and_nothing_is_left() -> None:
    need_tier_1()
    tried = [
        Round("scheduler", "launch", 0, 7),
        Round("agent", "run", 1, 7),
        Round("guard", "launch", 2, 7),
        Round("supervisor", "run", 3, 7),
        Round("script", "launch", 4, 7),
        Round("rank", "run", 5, 7),
        Round("agent", "launch", 6, 7),
        Round("scheduler", "end", 7, 7),
    ]
    hit = campaign(tried)
    assert sum(hit.values()) == len(tried)


@pytest.mark.slow
def test_who_is_looked_for_late_is_still_met_in_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a busy machine: after three seconds, of a program that usually computes for one."""
    need_tier_1()
    monkeypatch.setitem(faults._MOMENTS_S, "run", (3.0, 3.0))
    hit = campaign([Round("script", "run", 1, 7), Round("rank", "run", 2, 7)])
    assert set(hit.elements()) == {("script", "run"), ("rank", "run")}


def need_tier_1() -> None:
    if (possible := tiers.best(1)).tier != 1:
        pytest.skip(f"needs a lab of tier 1, with control groups: {possible.why}")

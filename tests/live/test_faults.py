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
    ]
    hit = campaign(tried)
    assert sum(hit.values()) == len(tried)


def test_program_that_is_to_be_killed_while_it_runs_outlasts_a_late_kill() -> None:
    """As on a busy machine: the process is looked for after many seconds, and a program usually computes for one."""
    met = {(site, phase) for site in faults.SITES for phase in faults.PHASES if Round(site, phase, 1, 7).is_met}
    assert met == {("script", "run"), ("rank", "run")}
    assert 10 * faults._MOMENTS_S["run"][1] <= faults._LONG_S


def need_tier_1() -> None:
    if (possible := tiers.best(1)).tier != 1:
        pytest.skip(f"needs a lab of tier 1, with control groups: {possible.why}")

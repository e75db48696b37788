"""The short version of ``./run campaign folds``: a running MPI job is folded for the head, and unfolded."""

import pytest
from campaigns.faults import Round
from campaigns.folds import PHASE, campaign

from cosched.apps.lab import tiers

pytestmark = pytest.mark.xdist_group("faults")


def test_a_job_is_folded_for_the_head_and_gets_its_processors_back_whoever_is_killed() -> None:
    if (possible := tiers.best(1)).tier != 1:
        pytest.skip(f"needs a lab of tier 1, with control groups: {possible.why}")
    came = campaign([Round(site, PHASE, 0, 7) for site in ("none", "guard")])
    assert came["completed"] == 6
    assert came["folded"] >= 1
    assert came["guard killed"] == 1

"""The short versions of ``./run campaign folds`` and ``resizes``: running MPI jobs are folded, shrunk and widened."""

import pytest
from campaigns import folds, resizes
from campaigns.faults import Round

from cosched.apps.lab import tiers

pytestmark = pytest.mark.xdist_group("demos and folds")


@pytest.mark.slow
def test_a_job_is_folded_for_the_head_and_gets_its_processors_back_whoever_is_killed() -> None:
    if (possible := tiers.best(1)).tier != 1:
        pytest.skip(f"needs a lab of tier 1, with control groups: {possible.why}")
    came = folds.campaign([Round(site, folds.PHASE, 0, 7) for site in ("none", "guard")])
    assert came["completed"] == 6
    assert came["folded"] >= 1
    assert came["guard met"] == 1


@pytest.mark.slow
def test_a_malleable_job_gives_up_processors_and_gets_them_back_whoever_is_killed() -> None:
    if (possible := tiers.best(1)).tier != 1:
        pytest.skip(f"needs a lab of tier 1, with control groups: {possible.why}")
    came = resizes.campaign([Round(site, resizes.PHASE, 0, 7) for site in ("rank", "liar", "early")])
    assert came["A shrank"] >= 2
    assert came["B completed"] == 3
    assert came["liar met"] == 1

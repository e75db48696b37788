"""The short version of ``./run bench faults``: every site once, in the phases where it is there for certain."""

import pytest

from benchmarks.faults import Round, campaign
from cosched.lab import tiers

pytestmark = pytest.mark.xdist_group("faults")


def test_whoever_is_killed_every_job_ends_once_and_nothing_is_left() -> None:
    if (possible := tiers.best(1)).tier != 1:
        pytest.skip(f"needs a lab of tier 1, with control groups: {possible.why}")
    faults = [
        Round("scheduler", "launch", 0, 7),
        Round("agent", "run", 1, 7),
        Round("guard", "launch", 2, 7),
        Round("supervisor", "run", 3, 7),
        Round("script", "launch", 4, 7),
        Round("rank", "run", 5, 7),
        Round("agent", "launch", 6, 7),
        Round("scheduler", "end", 7, 7),
    ]
    hit = campaign(faults)
    assert sum(hit.values()) == len(faults)

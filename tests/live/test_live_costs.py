"""The comparison of live costs finds a figure for each of them, of this checkout, whatever they are."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.live_costs import COSTS
from cosched.apps.lab import tiers

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.xdist_group("labs of their own")
def test_one_round_of_one_checkout_finds_every_cost() -> None:
    if (possible := tiers.best(1)).tier != 1:
        pytest.skip(f"needs a lab of tier 1, with control groups: {possible.why}")
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.live_costs", "--once", "2", "0.5"],
        cwd=ROOT, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found.keys() == COSTS.keys()
    assert all(cost > 0 for cost in found.values()), found

"""The measurement of the service runs, and measures what it says: with few jobs and agents, whatever the figures."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def test_it_measures_submissions_recovery_and_the_storm() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.service", "1", "50", "3"],
        cwd=ROOT, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert ended.returncode in (0, 1), ended.stderr[-2000:]
    rows = [line.split("|")[1].strip() for line in ended.stdout.splitlines() if line.startswith("| ")]
    assert len(rows) == 9, ended.stdout
    assert rows[-2].startswith("recovery with ")
    assert rows[-1] == "all 3 agents back after the kill, s (promised 10)"

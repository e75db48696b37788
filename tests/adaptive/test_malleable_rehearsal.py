"""The guide's examples by hand and under the rehearsal, as a reader would try them."""

import subprocess
import sys
from pathlib import Path

import pytest
from kit.command import Ended
from kit.mpi import WHEEL, job_here
from kit.waiting import BOUND_S

pytest.importorskip("mpi4py")

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
RIGID, MALLEABLE = EXAMPLES / "heat_rigid.py", EXAMPLES / "heat_malleable.py"
STEPS = "200"


def run(directory: Path, *words: str | Path, ranks: int) -> Ended:
    if not WHEEL.exists():
        pytest.skip("needs the extra `lab`")
    environment = job_here(directory, ranks)
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=BOUND_S, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


@pytest.mark.slow
def test_the_example_has_the_same_answer_whatever_the_rehearsal_draws(tmp_path: Path) -> None:
    rigid = run(tmp_path, WHEEL, "-n", "2", sys.executable, RIGID, STEPS, ranks=2)
    assert rigid.status == 0, rigid.err
    rehearsal = [sys.executable, "-m", "cosched.adaptive", "--every", "0.02", "--seed", "1", "--"]
    found = run(tmp_path, *rehearsal, WHEEL, "-n", "4", sys.executable, MALLEABLE, STEPS, ranks=4)
    assert (found.status, found.out) == (0, rigid.out), found.err
    assert "cosched.adaptive: adopted map 1 n0=" in found.err


def test_the_example_is_malleable_in_under_twenty_lines() -> None:
    """Its lines that the rigid one does not have, indentation apart."""
    rigid = {line.strip() for line in RIGID.read_text().splitlines()}
    new = [line for line in MALLEABLE.read_text().splitlines() if line.strip() not in rigid]
    assert 0 < len(new) < 20, new


def test_the_rehearsals_status_is_the_programs(tmp_path: Path) -> None:
    ended = run(tmp_path, sys.executable, "-m", "cosched.adaptive", "--", "sh", "-c", "exit 7", ranks=1)
    assert ended.status == 7

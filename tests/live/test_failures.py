"""``cosched show`` of a failure names rank, node and last lines of the error output, whatever launched the ranks."""

import os
import subprocess
import sys
from dataclasses import dataclass

import pytest
from kit.waiting import BOUND_S
from live.conftest import Jobs

from cosched.apps.lab.lab import Lab

pytestmark = pytest.mark.xdist_group("live")


@dataclass(frozen=True)
class Launched:
    """A way to start four ranks: the command before a rank's, the PATH it is found with, a rank's own number."""

    command: str
    rank: str
    path: str | None = None


LAUNCHERS = [
    pytest.param(Launched("mpirun", "$OMPI_COMM_WORLD_RANK"), id="open-mpi-5"),
    pytest.param(
        Launched("mpirun", "$OMPI_COMM_WORLD_RANK", "/usr/bin:/bin"),
        id="open-mpi-4",
        marks=pytest.mark.system("openmpi-bin"),
    ),
]
#: How what goes wrong ends -> what is said of it.
ENDS = {"exit 3": "status 3", "kill -SEGV $$": "signal 11", "kill -9 $$": "signal 9"}


def shown(lab: Lab, job_id: int) -> list[str]:
    """What ``cosched show`` prints."""
    command = [sys.executable, "-m", "cosched.apps.cli.main", "show", str(job_id)]
    environment = {**os.environ, "COSCHED_LAB": lab.name, "COLUMNS": "200"}
    ended = subprocess.run(
        command, env=environment, cwd="/", capture_output=True, text=True, timeout=BOUND_S, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("end", ["kill -9 $$"])  # other ends: tests/launch/test_open_mpi.py, test_diagnosis.py
@pytest.mark.parametrize("launched", LAUNCHERS)
def test_a_rank_that_ends_badly(lab: Lab, jobs: Jobs, launched: Launched, end: str) -> None:
    if lab.tier == 3:
        pytest.skip(f"needs a lab whose jobs may span nodes: {lab.why}")
    words = "for n in 1 2 3 4 5 6 7 8 9; do echo out of my depth $n >&2; done"
    rank = f"if [ {launched.rank} = 2 ]; then {words}; {end}; fi; sleep 30"
    environment = {"PATH": launched.path} if launched.path else {}
    job = jobs.ended(jobs.submit(f"{launched.command} sh -c '{rank}'", environment=environment))
    assert job.state == "failed"
    assert job.failure is not None
    assert job.failure.rank == 2
    assert job.failure.node == job.nodes[2].name
    assert ENDS[end] in job.failure.message
    assert any("out of my depth 9" in line for line in job.failure.tail)
    first, failure, heading, *tail = shown(lab, job.job_id)
    assert first.startswith(f"job {job.job_id} of ")
    assert "failed" in first
    assert failure.split() == ["failure", *f"rank 2 on {job.nodes[2].name}: {job.failure.message}".split()]
    assert heading == "  last lines of its error output:"
    assert any(line.startswith("    | ") and line.endswith("out of my depth 9") for line in tail)
    ends = [step.state for step in job.history if step.state in ("completed", "failed", "cancelled", "timed out")]
    assert ends == ["failed"]


@pytest.mark.parametrize("end", ENDS)
def test_a_script_without_a_launcher_that_ends_badly(lab: Lab, jobs: Jobs, end: str) -> None:
    job = jobs.ended(jobs.submit(f"echo no such input >&2; {end}", tasks=1))
    assert job.state == "failed"
    assert job.failure is not None
    assert job.failure.node == job.nodes[0].name
    assert ENDS[end] in job.failure.message
    assert (job.exit_status == 3) if end == "exit 3" else (job.signal == int(ENDS[end].split()[1]))
    assert job.failure.tail[-1] == "no such input"
    _, failure, _, last, *_ = shown(lab, job.job_id)
    assert job.nodes[0].name in failure
    assert job.failure.message in failure
    assert last == "    | no such input"

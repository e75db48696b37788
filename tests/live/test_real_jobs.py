"""Real MPI jobs on a real lab, and every way to end. Answers, launchers and control groups: ``test_launchers``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit.waiting import BOUND_S
from live.conftest import Jobs, carrying

from cosched.apps.lab.lab import Lab
from space_scheduler.replay import replay

pytestmark = pytest.mark.xdist_group("live")


@pytest.fixture(autouse=True)
def _several_nodes(lab: Lab) -> None:
    if lab.tier == 3:
        pytest.skip(f"needs a lab whose jobs may span nodes: {lab.why}")


def in_lab(pid: int, lab: Lab) -> bool:
    """Whether a process is of this lab: another one may have a job of the same number."""
    try:
        return f"/cosched-lab/{lab.name}/" in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False


def test_the_limit_ends_a_job_that_would_go_on(lab: Lab, jobs: Jobs) -> None:
    job = jobs.ended(jobs.submit("trap '' TERM; mpirun sleep 60; sleep 60", time_limit_s=1.5))
    assert job.state == "timed out"
    assert not {pid for pid in carrying(job.job_id) if in_lab(pid, lab)}


def test_a_script_that_succeeds_with_ranks_left_behind_leaves_none(lab: Lab, jobs: Jobs) -> None:
    job = jobs.ended(jobs.submit("setsid sh -c 'trap \"\" TERM HUP; sleep 300' & exit 0", tasks=2))
    assert job.state == "completed"
    assert not {pid for pid in carrying(job.job_id) if in_lab(pid, lab)}


def test_ranks_share_a_private_tmp_on_their_node_and_nobody_else_sees_it(lab: Lab, jobs: Jobs) -> None:
    if lab.tier > 1:
        pytest.skip(f"needs a lab of tier 1, whose guards may mount a /tmp of the job's own: {lab.why}")
    script = "echo mine > /tmp/secret-$COSCHED_JOB_ID; ls /tmp; mpirun -n 1 sh -c 'cat /tmp/secret-*'"
    job = jobs.ended(jobs.submit(script, tasks=2))
    assert job.state == "completed", jobs.error(job.job_id)
    assert "mine" in jobs.output(job.job_id)
    for node in lab.nodes:
        assert b"secret" not in lab.run(node, ["ls", "/tmp"]).stdout


def test_a_gang_that_cannot_be_launched_everywhere_is_not_launched(lab: Lab, jobs: Jobs) -> None:
    with_room = lab.run(lab.nodes[0], ["mkdir", "/var/tmp/only-here"])
    assert with_room.returncode == 0
    job = jobs.ended(jobs.submit("echo ran > /dev/stdout", directory="/var/tmp/only-here"))
    assert job.state == "launch failed"
    assert job.failure is not None
    assert job.failure.node in lab.nodes[1:]
    assert "only-here" in job.failure.message


def test_explain_tells_the_decision_that_was_recorded(jobs: Jobs) -> None:
    first = jobs.submit("sleep 30", tasks=4)
    jobs.becomes(first, "running")
    second = jobs.submit("true", tasks=2)
    assert jobs.client.explain(first).reason.why == "fits"
    waiting = jobs.client.explain(second)
    assert waiting.reason.why == "not_enough_free"
    assert waiting.reason.numbers["free_procs"] == 0
    jobs.client.cancel(first)
    assert jobs.ended(first).state == "cancelled"
    assert jobs.ended(second).state == "completed"


def test_the_journal_decided_again_gives_the_same_instructions(lab: Lab, jobs: Jobs) -> None:
    running = [jobs.submit(f"sleep 0.{n}", tasks=1 + n % 4, time_limit_s=5.0 + n) for n in range(8)]
    jobs.client.cancel(running[-1])
    for job_id in running:
        jobs.ended(job_id)
    again = replay(lab.journal)
    assert again.difference is None, str(again.difference)
    assert again.instructions >= len(running)
    assert again.passes >= 2


def test_a_job_has_the_umask_of_its_submitter_on_all_its_nodes(lab: Lab, jobs: Jobs, programs: Path) -> None:
    if lab.tier == 3:
        pytest.skip(f"needs a lab whose jobs may span nodes: {lab.why}")
    programs.chmod(0o755)
    output = programs / "of-a-private-user"
    submit = ("submit", "-n", "4", "--time", "1min", "--output", str(output), "-")
    command = [sys.executable, "-m", "cosched.apps.cli.main", *submit]
    environment = {**os.environ, "COSCHED_LAB": lab.name, "PATH": jobs.environment["PATH"]}
    said = subprocess.run(
        command, input="#!/bin/sh\nmpirun sh -c umask\n", env=environment, cwd="/", umask=0o077, capture_output=True,
        text=True, timeout=BOUND_S, check=True,
    ).stdout  # fmt: skip
    job = jobs.ended(int(said.split()[1]))
    assert job.state == "completed", jobs.error(job.job_id)
    assert output.read_text().split() == ["0077"] * 4
    assert output.stat().st_mode & 0o777 == 0o600

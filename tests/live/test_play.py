"""A workload of real MPI jobs of fixed work, played on a lab: killed and gone on with, interrupted; rows as in show."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from kit.waiting import BOUND_S, wait_for
from live.conftest import ENDED, carrying

from cosched.apps.lab import tiers
from cosched.apps.lab.lab import Lab
from cosched.client.client import Client

pytestmark = pytest.mark.xdist_group("live")

MAP = f"""\
programs:
  cg:
    run: exec mpirun '{sys.executable}' -m cosched.programs cg --class S --iterations $PLAY_WORK --json
    rate: [[1, 1], [2, 2], [4, 3]]
    kind: comm
  bt:
    run: exec '{sys.executable}' -m cosched.programs bt --class S --iterations $PLAY_WORK --json --ranks 1
    rate: 5
  sit: {{run: exec sleep 1000}}
jobs:
  - {{executable: 1, program: cg}}
  - {{executable: 2, program: bt}}
  - {{executable: 3, program: sit}}
"""
#: Executable and tasks of each job; they come ten seconds after each other.
JOBS = [(1, 2), (2, 1), (1, 4), (2, 1), (1, 1)]
#: What they do in their second, by the map.
WORK = {(1, 1): 1, (1, 2): 2, (1, 4): 3, (2, 1): 5}
SITTING = [(3, 1)] * 4


def written(tmp_path: Path, jobs: list[tuple[int, int]], limit_s: int, gap_s: int = 0) -> None:
    """``gap_s``: the fifth comes so much later."""
    lines = [
        f"{at} {10 * at + gap_s * (at > 4)} -1 20 {tasks} -1 -1 {tasks} {limit_s} -1 1 1 1 {program} -1 -1 -1 -1"
        for at, (program, tasks) in enumerate(jobs, 1)
    ]
    (tmp_path / "log.swf").write_text("\n".join(["; MaxProcs: 4", *lines, ""]))
    (tmp_path / "map.yaml").write_text(MAP)


Begin = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def begin(lab: Lab, client: Client, tmp_path: Path) -> Begin:
    """Begin to play what was written, twenty times as fast; a submission each half of a second."""
    if lab.tier == 3:
        pytest.skip(f"needs a lab whose jobs may span nodes: {lab.why}")

    def begun(*options: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "cosched.apps.cli.main", "workload", "play", "log.swf", "--map", "map.yaml"]
        argv += ["--scale", "0.05", "--output", "out.parquet", "--directory", "/", "--margin", "10min", "--json"]
        return subprocess.Popen(
            [*argv, *options], cwd=tmp_path, env={**os.environ, "COSCHED_SERVER": client.server},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    return begun


def record(tmp_path: Path) -> list[dict[str, Any]]:
    path = tmp_path / "out.play.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def submitted(tmp_path: Path) -> list[dict[str, Any]]:
    return [each for each in record(tmp_path) if each["type"] == "submitted"]


def rows(tmp_path: Path) -> list[dict[str, Any]]:
    return pq.read_table(tmp_path / "out.parquet").to_pylist()  # type: ignore[no-any-return]


@pytest.mark.slow
def test_a_play_of_real_jobs_that_was_killed_goes_on_and_all_of_their_work_is_done(
    begin: Begin, client: Client, tmp_path: Path
) -> None:
    written(tmp_path, JOBS, 40, gap_s=200)  # ten seconds, in which it is killed
    with begin() as playing:
        wait_for(lambda: len(submitted(tmp_path)) >= 4, "four jobs to be submitted")
        playing.kill()
    with begin("--resume", "--predict", "easy") as playing:
        told = json.loads(playing.communicate(timeout=4 * BOUND_S)[0])
    assert playing.returncode == 0
    assert told["states"] == {"completed": len(JOBS)}
    assert told["prediction"]["jobs"] == len(JOBS)
    found = rows(tmp_path)
    assert [(row["program"], row["tasks"]) for row in found] == [
        ("cg" if program == 1 else "bt", tasks) for program, tasks in JOBS
    ]
    assert [row["work"] for row in found] == [WORK[job] for job in JOBS]
    assert {row["part"] for row in found} == {1, 2}
    for row in found:
        job = client.job(row["number"])
        assert (row["state"], row["exit_status"], row["tasks"]) == (job.state, job.exit_status, job.tasks)
        assert (row["submit_time"], row["start_time"], row["end_time"]) == (
            job.submit_time,
            job.start_time,
            job.end_time,
        )
        assert (row["wait_s"], row["run_s"], row["cpu_s"]) == (job.wait_s, job.run_s, job.cpu_s)
        assert row["nodes"] == ",".join(f"{share.name}:{share.tasks}" for share in job.nodes)
        assert (row["held_processes"], row["held_cpus"]) == ([row["tasks"]], [row["tasks"]])
        done = json.loads(client.output(job.job_id, "stdout").data.decode().splitlines()[-1])
        assert (done["iterations"], done["ranks"], done["verified"]) == (row["work"], row["tasks"], True)
    tag = record(tmp_path)[0]["tag"]
    numbers = [job.job_id for job in client.history() if tag in job.name]
    assert sorted(numbers) == sorted(row["number"] for row in found)


def test_an_interrupt_ends_the_real_processes_of_its_jobs_and_of_no_other(
    begin: Begin, client: Client, jobs: Any, tmp_path: Path
) -> None:
    written(tmp_path, SITTING, 10_000)
    other = jobs.submit("exec sleep 1000", tasks=1, time_limit_s=600.0)
    try:
        with begin() as playing:
            wait_for(lambda: len(submitted(tmp_path)) == len(SITTING), "all to be submitted")
            numbers = [each["job_id"] for each in submitted(tmp_path)]
            wait_for(lambda: any(carrying(each) for each in numbers), "a job to run")
            playing.send_signal(signal.SIGINT)
            told = json.loads(playing.communicate(timeout=BOUND_S)[0])
        assert playing.returncode == 130
        assert told["interrupted"] is True
        assert told["states"] == {"cancelled": len(SITTING)}
        assert [client.job(each).state for each in numbers] == ["cancelled"] * len(SITTING)
        assert not [each for each in numbers if carrying(each)]
        assert client.job(other).state not in ENDED
    finally:
        client.cancel(other)
        jobs.ended(other)


FOLDED = """\
; MaxProcs: 4
1 0 -1 1 2 -1 -1 2 -1 -1 1 1 1 1 -1 -1 -1 -1
2 1 -1 1 3 -1 -1 3 -1 -1 1 1 1 1 -1 -1 -1 -1
3 2 -1 2 2 -1 -1 2 -1 -1 1 1 1 1 -1 -1 -1 -1
"""
#: Computes for as long as the plan says, and waits until there is what it is told to wait for.
SPIN = """\
import os, pathlib, sys, time
here = pathlib.Path(sys.argv[1])
(here / ("runs." + os.environ["PLAY_JOB"])).touch()
until = {"1": here / "runs.3", "3": here / "unfolded"}.get(os.environ["PLAY_JOB"], here)
while time.process_time() < float(os.environ["PLAY_SECONDS"]):
    pass
while not until.exists():
    time.sleep(0.05)
"""


@pytest.mark.slow
def test_what_a_job_held_over_time_is_in_its_row(tmp_path: Path) -> None:
    """The third, backfilled beside the first, is folded for the second, and has its CPUs again when that has ended."""
    if (possible := tiers.best(1)).tier != 1:
        pytest.skip(f"needs a lab of tier 1, with control groups: {possible.why}")
    (tmp_path / "log.swf").write_text(FOLDED)
    (tmp_path / "spin.py").write_text(SPIN)
    run = f"exec mpirun --oversubscribe -n $COSCHED_TASKS {sys.executable} {tmp_path}/spin.py {tmp_path}"
    (tmp_path / "map.yaml").write_text(json.dumps({"programs": {"spin": {"run": run}}, "jobs": [{"program": "spin"}]}))
    argv = [sys.executable, "-m", "cosched.apps.cli.main", "workload", "play", "log.swf", "--map", "map.yaml"]
    argv += ["--output", "out.parquet", "--directory", "/", "--margin", "5min", "--predict", "fjt1+bfm", "--json"]
    with (
        Lab.up(nodes=1, cpus=4, name=f"play-{os.getpid()}", policy="fjt1+bfm", keep=[tmp_path]) as lab,
        lab.client() as connected,
        subprocess.Popen(
            argv,
            cwd=tmp_path,
            env={**os.environ, "COSCHED_SERVER": connected.server},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as playing,
    ):

        def unfolded() -> bool:
            return playing.poll() is not None or any(len(job.changes) == 2 for job in connected.jobs())

        try:
            wait_for(unfolded, "the third job to have its CPUs again")
            (tmp_path / "unfolded").touch()
            told, complaints = playing.communicate(timeout=BOUND_S)
        finally:
            playing.kill()
    assert playing.returncode == 0, complaints
    first, second, third = rows(tmp_path)
    assert {row["state"] for row in (first, second, third)} == {"completed"}
    assert (first["held_cpus"], second["held_cpus"]) == ([2], [3])
    assert third["held_processes"] == [2, 2, 2]
    assert third["held_cpus"] == [2, 1, 2]
    assert third["held_why"][1:] == ["folded", "unfolded"]
    assert first["end_s"] - 1 < third["held_s"][1] < second["end_s"] - 1 < third["held_s"][2] < third["end_s"]
    assert json.loads(told)["prediction"]["jobs"] == 3

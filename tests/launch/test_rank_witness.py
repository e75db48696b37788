"""What starts a rank, with launchers that are scripts: who ended badly is said, who is stuck is killed, nobody else."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from kit.mpi import rank_program
from kit.waiting import BOUND_S, wait_for

from node_agent.programs import rank_witness


@pytest.fixture
def cosched_rank(tmp_path: Path) -> Path:
    return rank_program(tmp_path / "bin")


@contextmanager
def launched(tmp_path: Path, name: str, script: str, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """A launcher of that name, which has a script as its program."""
    launcher = tmp_path / name
    launcher.write_text(f"#!/bin/sh\n{script}\n")
    launcher.chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "PMIX_RANK": "3"}
    with subprocess.Popen(
        [launcher, *words], env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):  # all of them have ended
                os.killpg(process.pid, signal.SIGKILL)


def pid_in(file: Path) -> int:
    wait_for(lambda: file.exists() and file.read_text().endswith("\n"), "the rank")
    return int(file.read_text())


@pytest.mark.parametrize(
    ("end", "status"), [("exit 3", "3"), ("kill -9 $$", "137"), ("kill -SEGV $$", "139"), ("exit 0", "")]
)
def test_a_rank_that_ends_badly_is_said_and_is_the_launchers_own_child(
    tmp_path: Path, cosched_rank: Path, end: str, status: str
) -> None:
    rank = f"echo $PPID >{tmp_path}/parent; {end}"
    with launched(tmp_path, "launcher", f"{cosched_rank} sh -c '{rank}'; exit 0") as launcher:
        _, error = launcher.communicate(timeout=BOUND_S)
        assert pid_in(tmp_path / "parent") == launcher.pid
    said = [line for line in error.splitlines() if line.startswith("cosched:")]
    assert said == ([f"cosched: rank 3 ended with status {status}"] if status else [])


def test_a_program_has_no_child_that_it_did_not_start(tmp_path: Path, cosched_rank: Path) -> None:
    rank = f"cat /proc/$$/task/$$/children >{tmp_path}/children"
    with launched(tmp_path, "launcher", f"{cosched_rank} bash -c '{rank}; :'") as launcher:
        launcher.wait(BOUND_S)
        children = (tmp_path / "children").read_text().split()
    assert len(children) <= 1, "cat itself, and nobody else"


@pytest.mark.slow
def test_mpirun_that_sleeps_on_although_a_rank_is_gone_is_killed_and_the_rank_named(
    tmp_path: Path, cosched_rank: Path
) -> None:
    rank = f"echo $$ >{tmp_path}/rank; exec sleep 600"
    with launched(tmp_path, "prterun", f"{cosched_rank} sh -c '{rank}' &\nsleep 600") as launcher:
        os.kill(pid_in(tmp_path / "rank"), signal.SIGKILL)
        assert launcher.wait(BOUND_S) == -signal.SIGKILL
        assert launcher.stderr
        said = {launcher.stderr.readline(), launcher.stderr.readline()}
    assert said == {"cosched: rank 3 ended with status 137\n"}, "once for mpirun to hand on, and once in its place"


@pytest.mark.parametrize(
    ("switches", "expected"),
    [(["--enable-recovery"], True), (["--with-ft", "mpi"], True), (["--continuous"], True), ([], False)],
)
def test_job_goes_on_without_a_rank_by_the_switches_of_mpirun(
    tmp_path: Path, switches: list[str], expected: bool
) -> None:
    with launched(tmp_path, "prterun", "sleep 60", *switches) as launcher:
        wait_for(lambda: rank_witness.is_stuck(launcher.pid, ("prterun",)), "mpirun asleep")
        assert rank_witness.goes_on(launcher.pid) == expected

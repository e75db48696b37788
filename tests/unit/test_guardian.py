"""What tests make ends with their run, however that ends."""

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from kit.guardian import kill, marked
from kit.waiting import BOUND_S, wait_for

TESTS = Path(__file__).resolve().parents[1]
_CONFTEST = """
from kit import guardian

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        guardian.watch()
"""
#: A test that starts a process in a session of its own, says so, and stays.
_STAYS = """
import os, subprocess, time
from pathlib import Path

def test_stays():
    left = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    part = Path("told.part")
    part.write_text(f"{left.pid} {os.environ['COSCHED_TESTS_RUN']}")
    part.rename("told")
    time.sleep(3600)

if __name__ == "__main__":
    test_stays()
"""
_PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_stays.py")
#: As ``./run bench`` and ``./run campaign`` start their programs.
_GUARDED = (f"{TESTS}/kit/guarded.py", "test_stays")


def test_this_run_is_watched() -> None:
    assert "COSCHED_TESTS_RUN" in os.environ


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "command"),
    [(signal.SIGKILL, _PYTEST), (signal.SIGINT, (*_PYTEST, "-n", "1")), (signal.SIGTERM, _GUARDED)],
    ids=["tests", "workers", "program"],
)
def test_processes_that_a_run_has_left_are_ended(
    tmp_path: Path, number: signal.Signals, command: tuple[str, ...]
) -> None:
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    (tmp_path / "test_stays.py").write_text(_STAYS)
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{tmp_path}", "PYTEST_DEBUG_TEMPROOT": str(tmp_path)}
    with subprocess.Popen([sys.executable, *command], cwd=tmp_path, env=environment, **quiet) as run:
        wait_for((tmp_path / "told").exists, "the test's process")
        left, mark = (tmp_path / "told").read_text().split()
        assert int(left) in set(marked(mark))
        run.send_signal(number)
    wait_for(lambda: not set(marked(mark)), "the end of all that the run has left")


def test_frozen_process_is_ended() -> None:
    """Version 1's freezer keeps a process that was killed until it is thawed."""
    freezer = Path("/sys/fs/cgroup/freezer")
    if os.geteuid() or not freezer.is_dir():
        pytest.skip("needs root, and version 1's freezer")
    group = freezer / f"cosched-test-{uuid.uuid4().hex[:12]}"
    group.mkdir()
    try:
        with subprocess.Popen(["sleep", "3600"]) as frozen:
            (group / "cgroup.procs").write_text(str(frozen.pid))
            (group / "freezer.state").write_text("FROZEN")
            wait_for(lambda: (group / "freezer.state").read_text() == "FROZEN\n", "the process to stand still")
            kill({frozen.pid})
            assert frozen.wait(BOUND_S) == -signal.SIGKILL
    finally:
        (group / "freezer.state").write_text("THAWED")
        wait_for(lambda: not (group / "cgroup.procs").read_text(), "the group to be empty")
        group.rmdir()

"""The second chance of failed tests: small projects whose tests fail the first time, the second, or both."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from kit.second_chance import second_run
from kit.waiting import BOUND_S, wait_for

pytestmark = pytest.mark.slow  # each starts a pytest of its own

TESTS = Path(__file__).resolve().parents[1]

#: ``first_time()`` is true once for each test; ``here`` is the project's folder.
HEAD = """
import os, re, time
from pathlib import Path
import pytest

here = Path(__file__).parent

def first_time():
    name = re.search(r"::(\\w+)", os.environ["PYTEST_CURRENT_TEST"])[1]
    try:
        (here / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
"""
STEADY = "\ndef test_steady_{0}():\n    pass\n"
UNSTEADY = '\ndef test_unsteady_{0}():\n    assert not first_time(), "shaken {0}"\n'
BROKEN = '\ndef test_broken():\n    first_time()\n    assert False, "broken"\n'


class Run(NamedTuple):
    """How a run of the project ended."""

    status: int
    out: str

    @property
    def closing(self) -> str:
        """The last line, without its time."""
        return re.sub(r" in [\d.]+s.*", "", self.out.splitlines()[-1])


class Project:
    """A small project of tests, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pytest.ini").write_text("[pytest]\naddopts = -q --strict-markers -p no:cacheprovider\n")

    def start(self, text: str, *options: str) -> "subprocess.Popen[str]":
        (self.folder / "test_it.py").write_text(HEAD + text)
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "pytest", "-p", "kit.second_chance", "-p", "kit.crashed_workers"),
                *(options or ("--second-chance=9",)),
            ],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_DEBUG_TEMPROOT": str(self.folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, text: str, *options: str) -> Run:
        process = self.start(text, *options)
        out, _ = process.communicate(timeout=BOUND_S)
        return Run(process.returncode, out)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def _all(text: str, count: int) -> str:
    return "".join(text.format(number) for number in range(count))


def test_failure_stays_a_failure_without_the_option(project: Project) -> None:
    ended = project.run(_all(UNSTEADY, 1), "-v")
    assert (ended.status, "1 failed" in ended.closing) == (1, True)


def test_two_unsteady_tests_pass_and_are_named_with_both_outputs(project: Project) -> None:
    ended = project.run(_all(STEADY, 3) + _all(UNSTEADY, 2), "--second-chance=9", "-n2", "--dist=loadgroup")
    assert (ended.status, ended.closing) == (0, "3 passed, 2 unsteady")
    summary = ended.out.partition(": unsteady -")[2]  # of the first of them, in any order
    for number in range(2):
        assert f"shaken {number}" in summary
        assert f"    test_it.py::test_unsteady_{number}\n" in summary.rpartition("Find the cause first:")[2]
    assert summary.count("1 passed in ") == 2


def test_three_unsteady_tests_fail(project: Project) -> None:
    ended = project.run(_all(STEADY, 1) + _all(UNSTEADY, 3))
    assert (ended.status, ended.closing) == (1, "3 failed, 1 passed")
    assert "unsteady: 3 failed and passed when run again" in ended.out


def test_test_that_fails_twice_fails_beside_an_unsteady_one(project: Project) -> None:
    ended = project.run(_all(STEADY, 1) + _all(UNSTEADY, 1) + BROKEN)
    assert (ended.status, ended.closing) == (1, "1 failed, 1 passed, 1 unsteady")
    assert "test_it.py::test_broken: failed twice" in ended.out


def test_too_many_failures_are_not_run_again(project: Project) -> None:
    ended = project.run(_all(UNSTEADY, 9))
    assert (ended.status, ended.closing) == (1, "9 failed")
    assert "no second chance: 9 tests failed" in ended.out


def test_no_time_left_leaves_failures_failed(project: Project) -> None:
    ended = project.run(_all(UNSTEADY, 1), "--second-chance=0")
    assert (ended.status, ended.closing) == (1, "1 failed")
    assert "no second chance: no time was left" in ended.out


def test_second_run_that_hangs_is_stopped_and_did_not_pass(project: Project) -> None:
    (project.folder / "test_it.py").write_text("import time\n\ndef test_hangs():\n    time.sleep(3600)\n")
    config: Any = SimpleNamespace(rootpath=project.folder, inipath=None, option=SimpleNamespace())
    passed, output = second_run(config, str(project.folder / "test_it.py::test_hangs"), 1.0)
    assert (passed, output.splitlines()[-1]) == (False, "no time was left: stopped after 1 s")


def test_error_in_a_fixture_counts_as_a_failure(project: Project) -> None:
    text = ""
    for phase in ("setup", "teardown"):
        for times, fails in (("once", "assert not first_time()"), ("twice", "assert False")):
            setup, teardown = (fails, "pass") if phase == "setup" else ("pass", fails)
            text += (
                f"\n@pytest.fixture\ndef {phase}_{times}():\n    {setup}\n    yield\n    {teardown}\n"
                f"\ndef test_{phase}_{times}({phase}_{times}):\n    pass\n"
            )
    ended = project.run(text)
    assert (ended.status, ended.closing) == (1, "1 passed, 2 errors, 2 unsteady")
    unsteady = ended.out.rpartition("Find the cause first:")[2].split()[:2]
    assert unsteady == ["test_it.py::test_setup_once", "test_it.py::test_teardown_once"]


def test_failure_in_call_and_tear_down_is_one_unsteady_test(project: Project) -> None:
    text = (
        "\n@pytest.fixture\ndef it():\n    first = first_time()\n    yield first\n    assert not first, 'teardown'\n"
        "\ndef test_it(it):\n    assert not it, 'call'\n"
    )
    ended = project.run(text)
    assert (ended.status, ended.closing) == (0, "1 unsteady")
    assert "first run, call:" in ended.out
    assert "first run, teardown:" in ended.out


CRASH = "\ndef test_crash_{0}():\n    if first_time():\n        os._exit(3)\n"


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(0, 7), (4, 0)])
def test_crashed_worker_counts_as_a_failure_of_its_test(project: Project, before: int, after: int) -> None:
    later = STEADY.replace("steady", "later")
    text = _all(STEADY, before) + _all(CRASH, 1) + _all(later, after)
    ended = project.run(text, "--second-chance=9", "-n2", "--dist=loadgroup")
    passed = f"{before + after} passed, " if before + after else ""
    assert (ended.status, ended.closing) == (0, f"{passed}1 unsteady")
    assert "crashed while running" in ended.out.rpartition("first run, ")[2]


@pytest.mark.slow
def test_test_of_an_xdist_group_is_found_again(project: Project) -> None:
    text = "\n@pytest.mark.xdist_group('disk')\n@pytest.mark.parametrize('it', ['a@b'])\ndef test_it(it):\n"
    ended = project.run(text + "    assert not first_time()\n", "--second-chance=9", "-n2", "--dist=loadgroup")
    assert (ended.status, ended.closing) == (0, "1 unsteady")


def test_skip_in_the_second_run_is_no_pass(project: Project) -> None:
    text = "\ndef test_it():\n    assert not first_time()\n    pytest.skip('not now')\n"
    ended = project.run(text)
    assert (ended.status, ended.closing) == (1, "1 failed")


def test_file_that_cannot_be_collected_gets_no_second_chance(project: Project) -> None:
    (project.folder / "test_other.py").write_text("import no_such_module\n")
    ended = project.run(_all(UNSTEADY, 1), "--second-chance=9", "--continue-on-collection-errors")
    assert (ended.status, ended.closing) == (1, "1 failed, 1 error")
    assert "no second chance: test_other.py could not be collected" in ended.out


def test_run_that_stops_at_its_first_failure_gets_no_second_chance(project: Project) -> None:
    ended = project.run(_all(UNSTEADY, 2), "--second-chance=9", "-x")
    assert (ended.status, ended.closing) == (1, "1 failed")


@pytest.mark.parametrize("run", ["first", "second"])
def test_interrupted_run_stays_interrupted_and_has_its_closing_line(project: Project, run: str) -> None:
    if run == "first":
        text = _all(UNSTEADY, 1) + "\ndef test_waits():\n    (here / 'waits').touch()\n    time.sleep(3600)\n"
    else:
        text = (
            "\ndef test_waits():\n    assert not first_time()\n"
            "    try:\n        (here / 'waits').touch()\n        time.sleep(3600)\n"
            "    finally:\n        (here / 'torn_down').touch()\n"
        )
    process = project.start(text)
    try:
        wait_for((project.folder / "waits").exists, "the test to wait")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=BOUND_S)
    finally:
        process.kill()
    ended = Run(process.returncode, out)
    assert (ended.status, ended.closing) == (2, "1 failed")
    assert (project.folder / "torn_down").exists() == (run == "second")
    assert "no second chance: " in ended.out


@pytest.mark.slow
def test_second_run_has_no_other_test_beside_it(project: Project) -> None:
    text = (
        "\nimport psutil\n"
        "\ndef test_it():\n    assert not first_time()\n"
        "    beside = [each for each in psutil.process_iter(['cmdline', 'ppid']) if os.getppid() == each.ppid()]\n"
        "    assert [each.pid for each in beside] == [os.getpid()]\n"
    )
    ended = project.run(text + _all(STEADY, 20), "--second-chance=9", "-n2")
    assert (ended.status, ended.closing) == (0, "20 passed, 1 unsteady")

"""A worker that crashes fails its test alone: the run goes on, and no other test is left out."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kit.waiting import BOUND_S

TESTS = Path(__file__).resolve().parents[1]
STEADY = "\ndef test_steady_{0}():\n    pass\n"
LATER = "\ndef test_later_{0}():\n    pass\n"
CRASH = "\ndef test_crash_{0}():\n    os._exit(3)\n"
LAST = "\ndef test_last_{0}():\n    os._exit(3)\n"
IN_A_GROUP = "\n@pytest.mark.xdist_group('one')\ndef test_in_group_{0}():\n    pass\n"


def closing_line(folder: Path, *tests: tuple[str, int]) -> tuple[int, str]:
    """The exit status and the last line, without its time, of a run of so many tests of each text on two workers."""
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -q --strict-markers -p no:cacheprovider\n")
    text = "".join(text.format(number) for text, count in tests for number in range(count))
    (folder / "test_it.py").write_text(f"import os\nimport pytest\n{text}")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "kit.crashed_workers", "-n2", "--dist=loadgroup"],
        cwd=folder,
        # a run takes all others' rights from the root of its temporary directories, below which other tests share files
        env={**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_DEBUG_TEMPROOT": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    return ended.returncode, re.sub(r" in [\d.]+s.*", "", ended.stdout.splitlines()[-1])


@pytest.mark.parametrize(("before", "after"), [(0, 7), (4, 0)])
def test_crashed_worker_fails_its_test_alone(tmp_path: Path, before: int, after: int) -> None:
    ended = closing_line(tmp_path, (STEADY, before), (CRASH, 1), (LATER, after))
    assert ended == (1, f"1 failed, {before + after} passed")


def test_more_crashes_than_workers_leave_no_other_test_out(tmp_path: Path) -> None:
    ended = closing_line(tmp_path, (STEADY, 2), (CRASH, 3), (IN_A_GROUP, 4), (LAST, 1))
    assert ended == (1, "4 failed, 6 passed")

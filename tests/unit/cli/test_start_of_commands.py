"""What a command is when its module has been imported: one thread, and the environment that it was given."""

import subprocess
import sys

import pytest

LOOK = """
import os, sys
from cosched.apps.cli.main import cli
before = dict(os.environ)
cli.get_command(None, "simulate")
assert "numpy" in sys.modules
assert dict(os.environ) == before
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.parametrize("given", ["", "2"])
def test_numpy_starts_no_threads_unless_the_user_says_so(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if given:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", given)
    ended = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert given or ended.stdout == "1\n"

"""What a command is when its module has been imported: one thread, and the environment that it was given."""

import os
import subprocess
import sys

import pytest

from cosched.apps.cli.shared.importing import NO_PUBLIC_AUTHORITIES, environment

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


def test_aiohttp_reads_no_public_authorities_unless_the_user_names_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("SSL_CERT_DIR", "/mine")
    before = dict(os.environ)
    with environment(NO_PUBLIC_AUTHORITIES):
        assert (os.environ["SSL_CERT_FILE"], os.environ["SSL_CERT_DIR"]) == ("/dev/null", "/mine")
    assert dict(os.environ) == before

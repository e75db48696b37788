"""What ``cosched submit`` refuses before anybody is asked: status 2, and where, what was found, what was expected."""

from pathlib import Path

import pytest
from kit.command import Call
from kit.snapshots import Snapshot


@pytest.fixture(autouse=True)
def script(tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#COSCHED --time 10min\n\n# a comment\necho hello\n")


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No service of this machine is asked by accident."""
    monkeypatch.setenv("COSCHED_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("COSCHED_SERVER", raising=False)
    monkeypatch.delenv("COSCHED_LAB", raising=False)


@pytest.mark.parametrize("what", ["options", "scripts", "numbers", "outputs", "service"])
def test_refused(what: str, snapshot: Snapshot, cosched: Call) -> None:
    snapshot.replay(cosched)


def test_standard_input_is_named_in_errors(cosched: Call) -> None:
    ended = cosched("submit", "-", given="#!/bin/sh\n#COSCHED --time x\n")
    assert ended.status == 2
    assert "standard input:2: --time: 'x'" in ended.err


def test_bytes_that_are_no_text(cosched: Call) -> None:
    bad = b"\xff".decode(errors="surrogateescape")
    for arguments in (["job.sh", bad], ["--name", bad, "job.sh"], ["--env", f"A={bad}", "job.sh"]):
        ended = cosched("submit", *arguments)
        assert ended.status == 2
        assert "expected text in UTF-8" in ended.err

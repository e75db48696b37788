"""The command as a user calls it: arguments in, exit status and streams out."""

from pathlib import Path

import pytest
from kit.command import JOBS, Call, Ended

from cosched.cli.main import main


@pytest.fixture
def cosched(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Call the command in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Ended:
        with pytest.raises(SystemExit) as ended:
            main([str(each) for each in arguments])
        streams = capsys.readouterr()
        return Ended(int(ended.value.code or 0), streams.out, streams.err)

    return call


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A small log."""
    path = tmp_path / "small.swf"
    path.write_text(JOBS)
    return path

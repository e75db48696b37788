"""The command as tests call it."""

import asyncio
import io
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cosched.apps.cli.main import main
from cosched.report import plots

#: Five jobs on four processors: enough to make a queue, small enough to check by hand.
JOBS = """\
; Version: 2.2
; MaxProcs: 4
; UnixStartTime: 843480031
; TimeZoneString: Europe/Stockholm
; Acknowledge: Somebody
 1   0 -1 100 2 -1 -1 2 200 -1 1 1 1 -1 -1 -1 -1 -1
 2  10 -1 100 2 -1 -1 2 100 -1 1 1 1 -1 -1 -1 -1 -1
 3  20 -1  50 4 -1 -1 4  60 -1 1 2 1 -1 -1 -1 -1 -1
 4  30 -1  60 1 -1 -1 1  70 -1 1 2 1 -1 -1 -1 -1 -1
 5  40 -1  60 1 -1 -1 1 300 -1 1 3 1 -1 -1 -1 -1 -1
"""


@dataclass(frozen=True)
class Ended:
    """How a call ended."""

    status: int
    out: str
    err: str


Call = Callable[..., Ended]


@pytest.fixture
def cosched(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Call the command in this process, in an empty directory: arguments in, exit status and streams out.

    ``given`` is its standard input.
    """
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object, given: str = "") -> Ended:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        with pytest.raises(SystemExit) as ended:
            main([str(each) for each in arguments])
        streams = capsys.readouterr()
        return Ended(int(ended.value.code or 0), streams.out, streams.err)

    return call


def run_here(*arguments: object, given: str = "", **env: str) -> Ended:
    """Call the command in this process, in any thread, with none of the tests' own settings but ``env``."""
    streams = {name: io.TextIOWrapper(io.BytesIO(), write_through=True) for name in ("stdin", "stdout", "stderr")}
    streams["stdin"].buffer.write(given.encode())
    streams["stdin"].seek(0)
    with pytest.MonkeyPatch.context() as patch:
        for name in [each for each in os.environ if each.startswith(("COSCHED_", "SSH_"))]:
            patch.delenv(name)
        for name, value in env.items():
            patch.setenv(name, value)
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        with pytest.raises(SystemExit) as ended:
            main([str(each) for each in arguments])
    for name in ("stdout", "stderr"):
        streams[name].seek(0)
    return Ended(int(ended.value.code or 0), streams["stdout"].read(), streams["stderr"].read())


@pytest.fixture
def without_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run leaves no plots, which are most of its cost."""
    monkeypatch.setattr(plots, "all_plots", lambda _schedules, _directory: [])


async def called(capture: pytest.CaptureFixture[str], *arguments: object) -> Ended:
    """Call the command in a thread, while a service runs in this one's loop."""

    def run() -> int:
        try:
            main([str(each) for each in arguments])
        except SystemExit as ended:
            return int(ended.code or 0)
        return 0

    status = await asyncio.to_thread(run)
    return Ended(status, *capture.readouterr())

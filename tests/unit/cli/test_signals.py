"""SIGTERM ends a command as Ctrl-C does: no worker and no part of a file stays, and the status says how it ended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from kit.waiting import BOUND_S, wait_for

from cosched.apps.cli.shared.outputs import event_log
from cosched.workload import swf
from cosched.workload.generators.registry import generate

LONG = ("compare", "long.swf", "--policies", "conservative,fpfs,easy", "--jobs", "2")
MANY = ("workload", "generate", "lublin03", "other.swf", "--jobs", "500000")
EVENTS = ("simulate", "long.swf", "--policy", "conservative", "--events", "events.jsonl")


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that takes longer to simulate than a test waits."""
    path = tmp_path_factory.mktemp("log") / "long.swf"
    swf.write(generate("lublin03", 20_000, 128, np.random.default_rng(1), load=0.95), path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("arguments", [LONG, EVENTS, MANY], ids=["workers", "part file", "a log's part file"])
def test_a_signal_leaves_neither_workers_nor_part_files(
    arguments: tuple[str, ...], number: signal.Signals, long: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "cosched.apps.cli.main"]
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    (tmp_path / "long.swf").symlink_to(long)
    # a shell's background has SIGINT ignored: Python then leaves it so
    begin = [
        sys.executable,
        "-c",
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])",
    ]
    process = subprocess.Popen(
        [*begin, *command, *arguments], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    give_up_s = time.monotonic() + 120
    try:
        begun = (lambda: children(process.pid)) if arguments is LONG else (lambda: any(tmp_path.glob(".*.part")))
        while not begun() and process.poll() is None:  # without a pause: the first worker is there, the second is not
            assert time.monotonic() < give_up_s, "waited 120 s for the simulation to begin"
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        workers = children(process.pid)
        if number is signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        _, said = process.communicate(timeout=BOUND_S)
        assert process.returncode == 130, said
        assert "interrupted" in said
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), "the workers to be gone")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["long.swf"]
    finally:
        process.kill()
        process.wait()
        if process.stderr:
            process.stderr.close()


def test_an_interrupt_in_the_moment_a_file_is_made_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def interrupted(path: Path, mode: str) -> None:
        opened(path, mode).close()
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "open", interrupted)
    with pytest.raises(KeyboardInterrupt), event_log(tmp_path / "events.jsonl"):
        pass
    assert not list(tmp_path.iterdir())

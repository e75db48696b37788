"""Signs of a person, on real pseudo-terminals."""

import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.waiting import BOUND_S

from cosched.config.node import PresenceSettings
from cosched.linux.presence import KeyWatch, Terminals, terminals_of
from node_agent.service.presence import Sources


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """(the keyboard's end, the program's end) of a pseudo-terminal."""
    keyboard, program = pty.openpty()
    yield keyboard, program
    os.close(keyboard)
    os.close(program)


def device(program: int) -> int:
    return os.fstat(program).st_rdev


def test_a_key_is_seen_at_once_and_output_is_not(terminal: tuple[int, int]) -> None:
    keyboard, program = terminal
    watch = KeyWatch()
    try:
        os.write(program, b"output of a long build\n")
        assert device(program) not in watch.used()
        os.write(keyboard, b"x\n")
        assert os.read(program, 10) == b"x\n"
        assert select.select([watch.fileno()], [], [], 10)[0]
        assert device(program) in watch.used()
        assert device(program) not in watch.used()
    finally:
        watch.close()


def test_a_terminal_that_is_opened_later_is_watched_too() -> None:
    watch = KeyWatch()
    try:
        keyboard, program = pty.openpty()
        used: set[int] = watch.used()
        os.write(keyboard, b"x\n")
        os.read(program, 10)
        assert select.select([watch.fileno()], [], [], 10)[0]
        assert device(program) in used | watch.used()
    finally:
        watch.close()
        os.close(keyboard)
        os.close(program)


def test_the_last_key_gives_the_idle_time_unless_the_terminal_is_a_jobs(
    terminal: tuple[int, int], tmp_path: Path
) -> None:
    """In a /dev of its own: whoever else uses this machine's terminals is not asked."""
    _, program = terminal
    (tmp_path / "pts").mkdir()
    name = os.ttyname(program)
    (tmp_path / "pts" / "7").symlink_to(name)
    os.utime(name, (os.stat(name).st_mtime - 500, os.stat(name).st_mtime))
    terminals = Terminals(tmp_path)
    reading = terminals.reading(set)
    assert reading.source == "terminals"
    assert reading.idle_s is not None
    assert 490 < reading.idle_s < 600
    assert terminals.reading(lambda: {device(program)}).idle_s == float("inf")


def test_without_any_terminal_there_is_nothing_to_watch(tmp_path: Path) -> None:
    (tmp_path / "pts").mkdir()
    assert Terminals(tmp_path).reading(set) == ("terminals", None, "")


def test_a_device_directory_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    reading = Terminals(tmp_path / "none").reading(set)
    assert reading.idle_s is None
    assert reading.error == f"{tmp_path}/none: No such file or directory"


def test_a_process_is_asked_for_its_controlling_terminal(terminal: tuple[int, int]) -> None:
    keyboard, program = terminal
    take = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); print(flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", take], stdin=program, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert terminals_of([child.pid]) == {device(program)}
        assert terminals_of([2**22 + 1]) == set()
    finally:
        os.write(keyboard, b"\n")
        child.communicate(timeout=BOUND_S)


def test_a_terminal_that_nothing_was_read_from_is_no_person(tmp_path: Path) -> None:
    """Open MPI gives its ranks terminals that are not theirs to be controlled by."""
    master, slave = os.openpty()
    try:
        (tmp_path / "pts").mkdir()
        (tmp_path / "pts" / "7").symlink_to(os.ttyname(slave))
        assert Terminals(tmp_path).reading(set).idle_s == float("inf")
        os.utime(os.ttyname(slave), (os.stat(slave).st_mtime - 5, os.stat(slave).st_mtime))
        idle_s = Terminals(tmp_path).reading(set).idle_s
        assert idle_s is not None
        assert 4 < idle_s < 60
    finally:
        os.close(master)
        os.close(slave)


async def test_fault_of_a_source_is_logged_once_and_told_at_each_look(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> float:
        raise ZeroDivisionError("unforeseen")

    sources = Sources(PresenceSettings(sources=["processes"]), set, fails, lambda reading: None)
    for _ in range(3):
        (reading,) = await sources.look(1.0, forgotten_sessions=False)
        assert reading.error == "ZeroDivisionError: unforeseen"
        assert sources.blind == ("processes: ZeroDivisionError: unforeseen",)
    assert [record.getMessage() for record in caplog.records] == ["source processes"]

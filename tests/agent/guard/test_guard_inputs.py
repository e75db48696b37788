"""No input ends the guard: what comes in is checked for its type, and a callback that raises takes its peer alone."""

import os
import random
import signal
import socket
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from kit.desk_alone import desk_alone

from cosched.linux.process import boottime_us
from node_agent.guard.base.loop import Duty, Loop

#: Well-formed JSON of shapes that nobody who means well sends.
ODD = (
    '{"do": ["status"]}',
    '{"do": {"status": 1}}',
    '{"do": null}',
    '{"do": 1e999}',
    '{"do": "pause", "seconds": [1]}',
    '{"do": "pause", "seconds": true}',
    '{"do": "pause", "seconds": NaN}',
    '{"do": "pause", "seconds": Infinity}',
    '{"do": "pause", "seconds": ' + "9" * 4000 + "}",
    '{"do": "pause", "seconds": ' + "[" * 900 + "]" * 900 + "}",
    '{"do": "\\ud800"}',
    "[" * 2000,
    '"status"',
    "null",
)


def test_whatever_is_said_at_the_desk_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    chance = random.Random(20)
    with desk_alone(tmp_path) as desk:
        before = desk.desk.status_fields()
        for packet in (*map(str.encode, ODD), *(chance.randbytes(chance.randrange(1, 200)) for _ in range(50))):
            assert desk.heard(0, packet)["error"] == "unknown", packet
        assert (desk.desk.status_fields(), desk.changes, desk.complaints) == (before, 0, [])


@pytest.fixture(name="loop")
def _loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    """A loop in this process, whose signals stay those of the tests."""
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("signal.set_wakeup_fd", lambda *_, **__: None)
    return Loop()


def broken(calls: list[int]) -> Callable[..., Any]:
    def call(*_: object) -> None:
        calls.append(boottime_us())
        raise ZeroDivisionError("on purpose")

    return call


def turns(loop: Loop, count: int) -> None:
    for _ in range(count):
        loop.later(0, lambda: None)
        loop.run_once()


def test_a_callback_that_raises_takes_its_peer_alone(loop: Loop, capsys: pytest.CaptureFixture[str]) -> None:
    (mine, theirs), (good, other) = socket.socketpair(), socket.socketpair()
    calls: list[int] = []
    heard: list[bytes] = []

    def give_up() -> None:
        loop.unwatch(mine.fileno())
        mine.close()

    loop.watch(mine.fileno(), broken(calls), on_failed=give_up)
    loop.watch(good.fileno(), lambda: heard.append(good.recv(10)))
    theirs.send(b"x")
    other.send(b"y")
    turns(loop, 3)
    assert (len(calls), heard) == (1, [b"y"])
    with pytest.raises(ConnectionResetError):
        theirs.recv(10)  # hung up on, with what it said unread
    assert capsys.readouterr().err.count("ZeroDivisionError: on purpose") == 1
    for each in (theirs, good, other):
        each.close()


def test_what_fails_again_and_again_is_called_once_a_second_and_told_once_a_minute(
    loop: Loop, capsys: pytest.CaptureFixture[str]
) -> None:
    read, write = os.pipe()
    os.write(write, b"x")
    by_fd: list[int] = []
    by_timer: list[int] = []
    by_duty: list[int] = []
    armed: list[int] = []
    loop.watch(read, broken(by_fd))
    loop.later(0, broken(by_timer))
    duty = Duty("the contract", broken(by_duty), lambda: 0)
    loop._on_duty_failed = lambda: armed.append(1)
    loop.duties = [duty]
    while len(by_fd) < 2 or len(by_timer) < 2 or len(by_duty) < 2:
        loop.run_once()
    for calls in (by_fd, by_timer, by_duty):
        assert all(later - earlier >= 990_000 for earlier, later in pairwise(calls)), calls
    assert len(armed) == len(by_duty)
    assert capsys.readouterr().err.count("Traceback") == 1  # the same line raises for all three
    loop.unwatch(read)
    os.close(read)
    os.close(write)


def test_a_child_that_cannot_be_reaped_keeps_no_signal_from_being_heard(
    loop: Loop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    fail = broken(calls)
    monkeypatch.setattr(os, "waitpid", lambda *_: fail())
    loop._woken, wake = os.pipe2(os.O_NONBLOCK)
    os.write(wake, bytes([signal.SIGCHLD, signal.SIGTERM]))
    assert not loop.attempt("a callback", loop._signalled)
    assert (len(calls), loop.stopping) == (1, True)
    assert "on purpose" in capsys.readouterr().err

"""The guard's own small processes: each is known to it from the fork to its end, and none holds up its loop."""

import errno
import os
import signal
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from cosched.linux import process
from cosched.linux.process import US_PER_S
from node_agent.guard.desk import helpers
from node_agent.guard.desk.wakeup_probe import WakeupProbe


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The processes that the test has forked; none is left afterwards."""
    pids: list[int] = []
    fork = os.fork

    def counted() -> int:
        if pid := fork():
            pids.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", counted)
    yield pids
    for pid in pids:
        if process.stat_of(pid) is not None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def sleeps() -> None:
    time.sleep(1000)


def test_one_of_which_no_descriptor_can_be_had_is_ended(monkeypatch: pytest.MonkeyPatch, forks: list[int]) -> None:
    """It would run on unknown, and another would be forked every minute."""

    def refused(_: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pidfd_open", refused)
    probe = WakeupProbe(groups(), "desk", wanted=True)
    probe.tick(0)
    assert probe.problem == "fork: Too many open files"
    (pid,) = forks
    assert process.stat_of(pid) is None


def test_one_that_cannot_be_killed_now_does_not_hold_up_the_guard(
    monkeypatch: pytest.MonkeyPatch, forks: list[int]
) -> None:
    """A process in uninterruptible sleep ends when its disk answers."""
    monkeypatch.setattr(helpers, "_PATIENCE_US", 100_000)
    probe = WakeupProbe(groups(), "desk", wanted=True)
    probe.tick(0)
    monkeypatch.setattr(process, "send_by_fd", lambda *_: True)
    probe.stop()
    (pid,) = forks
    assert process.stat_of(pid) is not None


def groups(place_at_desk: Any = None) -> Any:
    """The cgroups of a machine: with an owner's group where there is a function that places in it."""
    return SimpleNamespace(
        kernel_groups=place_at_desk is not None, place_at_desk=place_at_desk, forget_leaf=lambda *_: None
    )


def test_the_probe_goes_to_the_desk_when_the_owners_group_is_there(forks: list[int]) -> None:
    """A guard may start before anybody has logged in since the machine did."""
    there: list[int] = []
    answers: list[OSError | None] = [FileNotFoundError(errno.ENOENT, "No such file or directory", "user.slice"), None]

    def place(pid: int, *_: str) -> None:
        if (refusal := answers.pop(0)) is not None:
            raise refusal
        there.append(pid)

    probe = WakeupProbe(groups(place), "user.slice", wanted=True)
    probe.tick(0)
    assert probe.problem == "beside the guard, not in the owner's group: user.slice: No such file or directory"
    probe.tick(5 * US_PER_S)
    assert (there, probe.problem) == (forks, "")
    probe.tick(10 * US_PER_S)
    assert there == forks, "once is enough"
    probe.stop()

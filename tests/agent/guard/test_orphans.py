"""A job may leave orphans without end: they are reaped so many at a time, and keep its supervisor from nothing."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest
from kit.guards import RealGuard
from kit.visits import apart, children, ended, own_side
from kit.waiting import wait_for

from cosched.linux import files, process
from cosched.linux.cgroups import Cgroups
from node_agent.guard.launcher import supervisor
from node_agent.guard.launcher.supervisor import _Reaper

MOST = 8  # a visit, instead of 64


@pytest.fixture
def groups() -> Iterator[Cgroups]:
    """The cgroups of this machine, and none of ours afterwards."""
    with own_side() as found:
        yield found


def test_a_visit_reaps_no_more_than_so_many_and_the_command_first(
    groups: Cgroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_MOST_A_VISIT", MOST)
    monkeypatch.setattr(supervisor, "_BETWEEN_VISITS_S", 3600.0)  # none comes by itself, however long this takes

    def supervise() -> None:
        again: list[float] = []
        reaper = _Reaper(groups, again.append)
        for _ in range(MOST):
            ended()
        command = ended(5)
        ended()
        assert reaper.reaped(command) == 5
        assert len(children()) == 2, "the command was reaped before the orphans that had ended before it"
        assert again == [], "whoever has a command's end has nothing left to wait for"
        for _ in range(MOST):
            ended()
        reaper.next_s = 0.0
        assert reaper.reaped(1 << 22) is None
        assert len(children()) == 2
        assert len(again) == 1, "those who are left have another visit, whether or not anybody else ends"
        assert reaper.reaped(1 << 22) is None
        assert (len(children()), len(again)) == (2, 2), "not yet"
        reaper.next_s = 0.0
        assert reaper.reaped(1 << 22) is None
        assert (children(), len(again)) == (set(), 2)
        assert reaper.reaped(1 << 22) is None
        assert len(again) == 2, "nobody waits"

    assert apart(supervise) == 0


@pytest.mark.slow
def test_an_endless_number_of_orphans_does_not_hold_who_reaps_them(
    groups: Cgroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_MOST_A_VISIT", MOST)
    groups.create("job-1.1", None, 512)

    def supervise() -> None:
        process.become_subreaper()
        reaper = _Reaper(groups, list[float]().append)
        maker = os.fork()
        if maker == 0:
            orphan_without_end(groups)
        try:
            for _ in range(3):
                wait_for(lambda: len(children()) > 2 * MOST, "orphans")
                there = children()
                reaper.next_s = 0.0
                assert reaper.reaped(maker) is None
                assert 0 < len(there - children()) <= MOST
        finally:
            os.kill(maker, signal.SIGKILL)
        os.waitid(os.P_PID, maker, os.WEXITED | os.WNOWAIT)
        assert reaper.reaped(maker) == -signal.SIGKILL

    assert apart(supervise) == 0


def orphan_without_end(groups: Cgroups) -> NoReturn:
    """A job that leaves processes behind, which end at once, faster than they are reaped."""
    groups.enter("job-1.1")
    while True:
        try:
            pid = os.fork()
        except OSError:
            continue
        if pid == 0:
            with contextlib.suppress(OSError):
                os.fork()
            os._exit(0)
        os.waitpid(pid, 0)


def test_an_orphan_that_was_put_off_is_reaped_without_another(make_guard: Callable[..., RealGuard]) -> None:
    guard: RealGuard = make_guard()
    guard.prepare()
    guard.shell("(sleep 0.5 & sleep 0.5 & sleep 0.52 & sleep 0.54 & sleep 0.56 & ); echo made $$; exec sleep 1000")
    (command,) = guard.told("made")
    (supervisor,) = guard.supervisors()
    listing = f"/proc/{supervisor}/task/{supervisor}/children"
    wait_for(lambda: files.read(listing).split() == [str(command)], "the end of all orphans")

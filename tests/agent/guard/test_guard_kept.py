"""A guard that dies or hangs while the contract is relaxed: whoever keeps it starts another, and that one arms."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from kit.groups import ceiling
from kit.guards import RealGuard, alive
from kit.waiting import BOUND_S, wait_for

from cosched.apps.lab import keeping
from cosched.apps.lab.keeping import Kept, Service

WATCHDOG_S = 2.0


class Keeper:
    """What process 1 of a lab's node does for its guard."""

    def __init__(self, guard: RealGuard) -> None:
        self.children: dict[int, subprocess.Popen[bytes]] = {}
        self.told: list[dict[str, int]] = []  # what `lab up` would have seen
        config = guard.directory / "node.toml"
        argv = (sys.executable, "-I", "-m", "node_agent.guard", "--config", str(config))
        self.kept = Kept(Service(argv, str(guard.directory / "errors"), kept=True, watchdog_s=WATCHDOG_S), self._launch)

    def _launch(self, service: Service, more: Mapping[str, str]) -> int:
        with Path(service.log).open("ab") as log:
            child = subprocess.Popen(service.argv, stderr=log, env={**os.environ, **more})
        self.children[child.pid] = child
        return child.pid

    def until(self, condition: Callable[[], bool], what: str) -> None:
        give_up_s = time.monotonic() + BOUND_S
        while not condition():
            assert time.monotonic() < give_up_s, f"waited {BOUND_S} s for {what}"
            assert self.kept.signs is not None
            if select.select([self.kept.signs], [], [], 0.02)[0]:
                self.kept.heard()
            child = self.children[self.kept.pid]
            if self.kept.ended is None and child.poll() is not None:
                how = child.returncode
                self.kept.has_ended({"signal": -how} if how < 0 else {"status": how})
            if trouble := self.kept.trouble():
                self.told.append(trouble)
            self.kept.tick()

    def close(self) -> None:
        for child in self.children.values():
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            child.wait()
        assert self.kept.signs is not None
        self.kept.signs.close()


@pytest.fixture
def keeper(make_guard: Callable[..., RealGuard]) -> Iterator[tuple[RealGuard, Keeper]]:
    guard = make_guard("cgroups", contract={"cpu_ratio": 0.5, "memory_ratio": 1.0, "mpl": 1})
    assert guard.stop() == 0
    keeper = Keeper(guard)
    keeper.kept.start()
    try:
        yield guard, keeper
    finally:
        keeper.close()


def armed(guard: RealGuard) -> bool:
    """By what the kernel enforces, not by what anybody says."""
    with contextlib.suppress(OSError):
        return ceiling(guard.group) is not None
    return False


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_the_contract_is_armed_again_and_jobs_are_taken_over(
    keeper: tuple[RealGuard, Keeper], how: signal.Signals
) -> None:
    guard, kept = keeper
    guard.process = kept.children[kept.kept.pid]
    kept.until(lambda: (guard.directory / "run/guard.sock").exists() and armed(guard), "the guard")
    guard.client()
    guard.prepare()
    pid = guard.shell("sleep 1000")
    until_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000 + 100_000_000
    guard.ask({"do": "relax", "until_us": until_us, "epoch": 1})
    assert not armed(guard)
    first = kept.kept.pid
    kept.until(lambda: kept.kept.due_s() is not None, "a sign of life")
    os.kill(first, how)
    kept.until(lambda: kept.kept.pid != first and armed(guard), "another guard that arms")
    assert all(each == {"signal": signal.SIGKILL} for each in kept.told)
    assert bool(kept.told) == (how == signal.SIGKILL)  # what its watchdog killed is no error of its own
    guard.process = kept.children[kept.kept.pid]
    guard.client()
    assert alive(pid)
    assert guard.listed()["commands"][0]["state"] == "running"
    wait_for(lambda: guard.status()["armed"], "it to say so")


def test_one_that_fails_at_its_first_start_is_started_again_and_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a guard whose directory comes late does."""
    now_s, started = 1000.0, list[float]()
    monkeypatch.setattr(keeping, "time", SimpleNamespace(monotonic=lambda: now_s))

    def launch(service: Service, more: Mapping[str, str]) -> int:
        started.append(now_s)
        return 4711

    kept = Kept(Service(("guard",), "", kept=True), launch)
    kept.start()
    for pause_s in (2 * keeping.PAUSE_S, 4 * keeping.PAUSE_S, keeping.LONGEST_PAUSE_S, keeping.LONGEST_PAUSE_S):
        now_s += keeping._RAN_WELL_S - 0.1
        kept.has_ended({"status": 1})
        assert kept.trouble() == {"status": 1}
        now_s += pause_s - 0.01
        kept.tick()
        assert started[-1] < now_s - pause_s, "not yet"
        now_s += 0.02
        kept.tick()
        assert started[-1] == now_s
        assert kept.trouble() == {"status": 1}, "it has not run for long"
    now_s += keeping._RAN_WELL_S
    assert kept.trouble() is None


@pytest.mark.parametrize(("status", "least_s"), [(0, keeping.PAUSE_S), (1, keeping.PAUSE_S), (2, 10.0), (4, 10.0)])
def test_status_that_no_restart_mends_makes_the_pause_long(status: int, least_s: float) -> None:
    kept = Kept(Service(("true",), "", kept=True), lambda service, more: 1)
    kept.start()
    began_s = time.monotonic()
    kept.has_ended({"status": status})
    ended_s = time.monotonic()
    assert kept.again_at_s is not None
    assert began_s + least_s <= kept.again_at_s <= ended_s + max(least_s, keeping.LONGEST_PAUSE_S)

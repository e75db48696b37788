"""The synthetic user: what he does is drawn from the seed, and what he measures is what happens to him."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kit.labs import wait_for

from local_load.desk import Act, Felt, acts, distribution_ms


def first(seed: int, busy: float, until_s: float) -> list[Act]:
    return list(itertools.takewhile(lambda act: act.at_s < until_s, acts(seed, busy)))


def test_the_same_seed_gives_the_same_user() -> None:
    assert first(7, 0.15, 300) == first(7, 0.15, 300)
    assert first(7, 0.15, 300) != first(8, 0.15, 300)


def test_acts_are_in_order_and_bursts_take_their_share() -> None:
    for busy in (0.05, 0.15, 0.5):
        done = first(1, busy, 3600)
        assert done == sorted(done, key=lambda act: act.at_s)
        assert sum(act.burst_s for act in done) / 3600 == pytest.approx(busy, rel=0.1)
        assert all(act.burst_s < 60 for act in done)
    assert not any(act.burst_s for act in first(1, 0.0, 600))


def test_he_types_as_people_do() -> None:
    keys = [act for act in first(2, 0.15, 3600) if not act.burst_s]
    assert 1 < len(keys) / 3600 < 8  # a second


def test_a_distribution_is_by_nearest_rank() -> None:
    assert distribution_ms([i / 1000 for i in range(100, 0, -1)]) == {
        "count": 100, "p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 100.0,
    }  # fmt: skip
    assert distribution_ms([0.25]) == {"count": 1, "p50": 250.0, "p95": 250.0, "p99": 250.0, "max": 250.0}
    assert distribution_ms([])["count"] == 0


def test_a_burst_that_took_twice_its_cpu_says_so() -> None:
    assert Felt(burst_cpu=1.0, burst_wall=2.0).summary(1, 10.0)["burst_slowdown"] == 2.0
    assert Felt().summary(1, 10.0)["burst_slowdown"] is None


def call(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "local_load.desk", *arguments], cwd=Path(__file__).parents[2], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_he_types_at_a_terminal_of_his_own_and_tells_what_he_felt() -> None:
    began = time.monotonic()
    with call("--seconds", "2", "--seed", "3") as user:
        wait_for(lambda: terminals_of(user.pid) or user.poll() is not None, "him to sit down at a terminal")
        terminals = terminals_of(user.pid)
        out, err = user.communicate(timeout=60)
    assert (user.returncode, err) == (0, "")
    assert len(terminals) == 1
    told = json.loads(out)
    keys = [act for act in first(3, 0.15, 2) if not act.burst_s]
    assert 0 < told["latency_ms"]["count"] <= len(keys)
    assert 0 < told["latency_ms"]["p50"] <= told["latency_ms"]["p99"] <= told["latency_ms"]["max"]
    assert told["wake_up_ms"]["count"] == told["latency_ms"]["count"]
    assert told["lost_keys"] == 0
    assert 0 < told["cpu_s"] < time.monotonic() - began


def terminals_of(pid: int) -> set[str]:
    """The pseudo-terminals that a process's child, the editor, has open."""
    found = set()
    with contextlib.suppress(OSError):  # he has gone
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            for descriptor in Path(f"/proc/{child}/fd").iterdir():
                target = os.readlink(descriptor)
                if target.startswith("/dev/pts/") and target != "/dev/pts/ptmx":
                    found.add(target)
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_told_to_leave_he_tells_and_goes(number: signal.Signals) -> None:
    with call("--seconds", "600") as user:
        wait_for(lambda: terminals_of(user.pid) or user.poll() is not None, "him to sit down")
        user.send_signal(number)
        out, _ = user.communicate(timeout=30)
    assert user.returncode == 0
    assert json.loads(out)["seconds"] < 60


@pytest.mark.parametrize("arguments", [("--seconds", "0"), ("--seconds", "1e9"), ("--busy", "1"), ("--seconds", "x")])
def test_what_no_user_can_do(arguments: tuple[str, str]) -> None:
    with call(*arguments) as user:
        _, err = user.communicate(timeout=30)
    assert user.returncode == 2
    assert arguments[0] in err

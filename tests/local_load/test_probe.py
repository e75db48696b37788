"""The probe: every call is really made, at moments drawn from the seed, and nothing that is late is forgotten."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from kit.desks import ROOT, Probed
from kit.waiting import BOUND_S, wait_for

from local_load.probe import CALLS, MIX, moments

Start = Callable[..., Probed]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts probes, and makes sure that they are gone."""
    started: list[Probed] = []

    def begin(calls: tuple[str, ...] = CALLS, rate_hz: float = 100.0, seed: int = 1, seconds: float = 2.0) -> Probed:
        started.append(Probed(calls, rate_hz, seed, seconds))
        return started[-1]

    yield begin
    for each in started:
        each.kill()


def test_the_same_seed_gives_the_same_moments() -> None:
    first = list(islice(moments(CALLS, 40.0, 1), 400))
    assert first == list(islice(moments(CALLS, 40.0, 1), 400))
    assert first != list(islice(moments(CALLS, 40.0, 2), 400))
    for slot, (at_ns, _) in enumerate(first):
        assert slot * 25_000_000 <= at_ns < (slot + 1) * 25_000_000
    counts = {call: sum(each == call for _, each in first) for call in CALLS}
    assert counts == {call: 4 * share for call, share in MIX.items()}


def test_every_call_is_made_and_measured(start: Start) -> None:
    """At the moments that were drawn, all in order, and with the calls' own times below their responses."""
    probed = start(rate_hz=200.0, seconds=3.0).end()
    assert set(probed.samples) == set(CALLS)
    planned = [each for each in islice(moments(CALLS, 200.0, 1), 700) if each[0] < 3_000_000_000]
    offset_ns = probed.order[0][0] - planned[0][0]
    assert [(at_ns - offset_ns, call) for at_ns, call in probed.order] == planned
    for call, samples in probed.samples.items():
        for _, response_ns, own_ns, made in samples:
            assert not made or (0 < own_ns <= response_ns), call


def test_what_calls_take_has_the_order_of_what_they_do(start: Start) -> None:
    """To start a program takes longer than to open a file, that longer than to ask for a number; a burst its ms."""
    calls = ("getpid", "open", "spawn", "burst")

    def measured() -> dict[str, list[int]]:
        probed = start(calls, 100.0, seconds=3.0).end()
        made = {call: [own_ns for _, _, own_ns, made in probed.samples[call] if made] for call in calls}
        return made if min(map(len, made.values())) >= 5 else {}  # else it could not run: once more

    typical = {call: float(np.median(own_ns)) for call, own_ns in wait_for(measured, "some of each").items()}
    assert typical["getpid"] < typical["open"] < typical["spawn"]
    assert 300_000 < typical["burst"] < 30_000_000


@pytest.mark.system("strace")
def test_the_calls_are_those_that_they_are_named_for(start: Start, tmp_path: Path) -> None:
    probed = start(seconds=600.0)
    trace = tmp_path / "trace"
    wanted = {"getppid", "pread64|read", "write", "openat", "newfstatat|fstat", "mmap", "munmap", "clock_nanosleep",
              "poll", "timerfd_settime", "vfork|clone|clone3", "wait4"}  # fmt: skip

    def seen() -> set[str]:
        text = trace.read_text() if trace.exists() else ""
        return {names for names in wanted if any(f"{name}(" in text for name in names.split("|"))}

    tracer = subprocess.Popen(["strace", "-o", trace, "-p", str(probed.process.pid)], stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: seen() == wanted or tracer.poll() is not None, "all calls to be seen")
        assert seen() == wanted
    finally:
        tracer.terminate()
        tracer.wait(BOUND_S)
        probed.process.terminate()


@pytest.mark.slow
def test_a_probe_that_was_stopped_counts_every_moment_that_it_missed(start: Start) -> None:
    """Three seconds without the CPU are six hundred late samples, not one; those too late are not made, and marked."""
    probed = start(("nanosleep", "getpid"), 200.0, seconds=6.0)
    pid = probed.process.pid
    wait_for(lambda: probed_has_begun(pid), "it to begin")
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(3.0)  # the disturbance itself
    finally:
        os.kill(pid, signal.SIGCONT)
    probed.end()
    samples = sorted(each for samples in probed.samples.values() for each in samples)
    assert len(samples) == 1200
    longest = max(response_ns for _, response_ns, _, _ in samples)
    assert longest > 2_900_000_000
    late = [each for each in samples if each[1] > 100_000_000]
    assert len(late) > 500
    skipped = [each for each in samples if not each[3]]
    assert len(skipped) > 300
    assert all(each[1] > 1_000_000_000 for each in skipped)
    # who is made is in time, but for one that was under way when the probe was stopped
    far_too_late = [each[3] and each[1] > 1_100_000_000 for each in samples]
    assert not any(before and after for before, after in pairwise(far_too_late))
    assert sum(far_too_late) < 10


def probed_has_begun(pid: int) -> bool:
    """It sleeps between calls: it has read its order and measured itself."""
    return "nanosleep" in Path(f"/proc/{pid}/wchan").read_text()


PARENT = """
import json, os, subprocess, sys, time
order = {"calls": ["nanosleep"], "rate_hz": 50, "seed": 1, "seconds": 600, "base_ns": 0, "parent": os.getpid()}
child = subprocess.Popen([sys.executable, "-m", "local_load.probe"], stdin=subprocess.PIPE, stdout=1)
child.stdin.write(json.dumps(order).encode() + b"\\n")
child.stdin.flush()
print(child.pid, file=sys.stderr, flush=True)
time.sleep(600)
"""


def test_a_probe_whose_parent_has_died_dies() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert parent.stderr
        pid = int(parent.stderr.readline())
        wait_for(lambda: probed_has_begun(pid), "the probe to begin")
        parent.kill()
        parent.wait(BOUND_S)
        wait_for(lambda: not Path(f"/proc/{pid}").exists(), "it to die")
    finally:
        parent.kill()
        parent.communicate(timeout=BOUND_S)

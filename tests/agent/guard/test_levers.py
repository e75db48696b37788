"""Weights and turns of jobs on real cgroups: set, seen to act, and undone whatever happens."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from kit.guards import RealGuard, lever_of
from kit.waiting import wait_for

from cosched.linux import files
from cosched.linux.process import US_PER_S, boottime_us

_FAR_US = 10 * US_PER_S
NEUTRAL = (100, False)


def lever(guard: RealGuard, job: int) -> tuple[int, bool]:
    """A job's weight in percent and its idle flag, by the kernel's files."""
    return lever_of(f"{guard.group}/job-{job}.1")


def two_jobs(guard: RealGuard) -> None:
    for job in (1, 2):
        guard.prepare(job)
        guard.spawn(["sleep", "1000"], job)


def weigh(guard: RealGuard, job: int = 1, percent: int = 1000, lasting_us: int = _FAR_US) -> None:
    guard.ask_lasting({"do": "weigh", "job": job, "attempt": 1, "percent": percent}, lasting_us)


def slots(guard: RealGuard, slot_us: int = 20_000, lasting_us: int = _FAR_US) -> None:
    """Turns of both jobs; the first one's begins now."""
    rows = [[[1, 1]], [[2, 1]]]
    guard.ask_lasting({"do": "slots", "begin_us": boottime_us(), "slot_us": slot_us, "rows": rows}, lasting_us)


def test_a_weight_holds_and_is_undone_when_its_time_is_over(guard: RealGuard) -> None:
    two_jobs(guard)
    weigh(guard)
    assert (lever(guard, 1), lever(guard, 2)) == ((1000, False), NEUTRAL)
    assert guard.status()["levers"] == [[1, 1, 1000, False]]
    assert guard.status()["raises"] == 1
    weigh(guard, lasting_us=US_PER_S // 2)
    wait_for(lambda: lever(guard, 1) == NEUTRAL, "the weight's end")
    assert guard.status()["levers"] == []


def test_jobs_take_turns_until_there_are_no_rows(guard: RealGuard) -> None:
    two_jobs(guard)
    slots(guard)
    seen: set[tuple[bool, bool]] = set()

    def both_had_theirs() -> bool:
        if not guard.status()["levers"]:  # the lease is over before both were seen, as after a stall
            slots(guard)
        seen.add((lever(guard, 1)[1], lever(guard, 2)[1]))
        return {(True, False), (False, True)} <= seen

    wait_for(both_had_theirs, "a slot of each job")
    guard.ask({"do": "slots", "begin_us": 0, "slot_us": 20_000, "rows": [], "until_us": 0})
    assert (lever(guard, 1), lever(guard, 2)) == (NEUTRAL, NEUTRAL)


_AGENT = """
import sys, time
from node_agent.guard.base import requests
from node_agent.guard.base.client import GuardClient
from cosched.linux.process import boottime_us
client = GuardClient(sys.argv[1])
until_us = boottime_us() + 10_000_000
client.ask(requests.Weigh(1, 1, 1000, until_us))
client.ask(requests.Slots(0, 10_000_000, (((1, 1),), ((2, 1),)), until_us))
print("set", flush=True)
time.sleep(1000)
"""


def test_an_agent_killed_between_set_and_unset_leaves_nothing(guard: RealGuard) -> None:
    two_jobs(guard)
    guard.hang_up()
    agent = subprocess.Popen(
        [sys.executable, "-c", _AGENT, f"{guard.directory}/run/guard.sock"], stdout=subprocess.PIPE, cwd=os.getcwd()
    )
    with agent:
        try:
            assert agent.stdout is not None
            assert agent.stdout.readline() == b"set\n"
            assert {lever(guard, 1), lever(guard, 2)} != {NEUTRAL}
        finally:
            agent.kill()
    wait_for(lambda: lever(guard, 1) == lever(guard, 2) == NEUTRAL, "levers as they were made")


def test_a_killed_guards_successor_begins_neutral(guard: RealGuard) -> None:
    two_jobs(guard)
    weigh(guard)
    slots(guard, slot_us=10 * US_PER_S)
    assert {lever(guard, 1), lever(guard, 2)} != {NEUTRAL}
    guard.kill()
    guard.start()
    assert (lever(guard, 1), lever(guard, 2)) == (NEUTRAL, NEUTRAL)


def test_a_guard_that_ends_leaves_neutral_levers(guard: RealGuard) -> None:
    two_jobs(guard)
    weigh(guard, 2)
    slots(guard, slot_us=10 * US_PER_S)
    assert guard.stop() == 0
    assert (lever(guard, 1), lever(guard, 2)) == (NEUTRAL, NEUTRAL)


def test_without_cgroups_there_are_no_weights(make_guard: Callable[..., RealGuard]) -> None:
    guard = make_guard("none")
    guard.prepare(1, memory_bytes=None)
    far = boottime_us() + _FAR_US
    assert guard.refused({"do": "weigh", "job": 1, "attempt": 1, "percent": 200, "until_us": far})[0] == "failed"
    assert guard.status()["can"]["job weights"].startswith("no")


@pytest.mark.parametrize("by", ["weight", "idle"])
def test_the_raised_job_gets_most_of_a_cpu(guard: RealGuard, by: str) -> None:
    """A share of CPU time, not a speed: it holds on a busy machine too."""
    cpu = min(os.sched_getaffinity(0))
    pids = []
    for job in (1, 2):
        guard.prepare(job)
        pids.append(guard.spawn(["sh", "-c", "while :; do :; done"], job))
    for pid in pids:
        os.sched_setaffinity(pid, {cpu})

    def raised() -> None:
        weigh(guard) if by == "weight" else slots(guard, slot_us=10 * US_PER_S)

    raised()
    before = [_cpu_ns(pid) for pid in pids]
    used = [0, 0]

    def enough() -> bool:
        raised()  # anew: it holds however long the jobs take
        used[:] = [_cpu_ns(pid) - was for pid, was in zip(pids, before, strict=True)]
        return sum(used) > 300_000_000

    wait_for(enough, "0.3 s of CPU")
    assert used[0] > 4 * used[1]


def _cpu_ns(pid: int) -> int:
    return int(files.read(f"/proc/{pid}/schedstat").split()[0])

"""Turns below a ceiling: who waits is held, does not use up what there is, and is let go whatever happens."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.guards import RealGuard, places
from kit.waiting import wait_for

from cosched.linux import files
from cosched.linux.cgroups import YES, can_hold
from cosched.linux.process import US_PER_S, boottime_us

MakeGuard = Callable[..., RealGuard]
SPINS = ["sh", "-c", "while :; do :; done"]
SLEEPS = ["sleep", "1000"]
pytestmark = pytest.mark.skipif(can_hold() != YES, reason=can_hold())


@pytest.fixture
def guard(make_guard: MakeGuard) -> RealGuard:
    return make_guard(contract={"cpu_ratio": 0.5})


def group(guard: RealGuard, job: int) -> Path:
    """A job's group in the tree of the CPU."""
    return next(found for place in places(guard.group) if ((found := place / f"job-{job}.1") / "cpu.stat").exists())


def state(guard: RealGuard, job: int) -> str:
    """How a job waits, by the kernel's files; "runs" if it doesn't."""
    here = group(guard, job)
    quota = files.read(f"{here}/cpu.max") if (here / "cpu.max").exists() else files.read(f"{here}/cpu.cfs_quota_us")
    if quota.split()[0] not in ("-1", "max"):
        return "held"
    return "idle" if files.read(f"{here}/cpu.idle").strip() == "1" else "runs"


def slots(guard: RealGuard, slot_us: int, lasting_us: int = 9 * US_PER_S, begin_us: int | None = None) -> int:
    """Turns of jobs 1 and 2, from now on if not from another moment; their beginning."""
    begin_us = boottime_us() if begin_us is None else begin_us
    rows = [[[1, 1]], [[2, 1]]]
    guard.ask_lasting({"do": "slots", "begin_us": begin_us, "slot_us": slot_us, "rows": rows}, lasting_us)
    return begin_us


def second_waits(guard: RealGuard, how: str, slot_us: int = US_PER_S) -> int:
    """The first one's turn begins anew until the second one is seen to wait so, and the first one runs; its beginning.

    (A turn is short, and a busy machine may not look before it is over.)
    """
    begins_us: list[int] = []

    def so() -> bool:
        begins_us.append(slots(guard, slot_us))
        return (state(guard, 1), state(guard, 2)) == ("runs", how)

    wait_for(so, f"job 2 to be {how} and job 1 not")
    return begins_us[-1]


def two_jobs(guard: RealGuard, first: list[str] = SLEEPS, second: list[str] = SLEEPS) -> int:
    """The second one's process."""
    for job, command in ((1, first), (2, second)):
        guard.prepare(job)
        pid = guard.spawn(command, job)
    return pid


def test_who_waits_is_held_in_turns_and_let_go_at_their_end(guard: RealGuard) -> None:
    two_jobs(guard)
    slots(guard, 100_000)
    seen: set[tuple[str, str]] = set()

    def both_had_theirs() -> bool:
        if not guard.status()["levers"]:  # the lease is over before both were seen, as after a stall
            slots(guard, 100_000)
        first, second = state(guard, 1), state(guard, 2)
        if state(guard, 1) == first:  # no change-over meanwhile
            seen.add((first, second))
        return {("held", "runs"), ("runs", "held")} <= seen

    wait_for(both_had_theirs, "a turn of each job")
    assert ("held", "held") not in seen, "first who may run is let go"
    assert not {way for pair in seen for way in pair} & {"idle"}
    guard.ask({"do": "slots", "begin_us": 0, "slot_us": 100_000, "rows": [], "until_us": 0})
    assert (state(guard, 1), state(guard, 2)) == ("runs", "runs")
    assert guard.status()["levers"] == []


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_guards_end_or_its_successor_lets_all_go(guard: RealGuard, how: str) -> None:
    two_jobs(guard)
    second_waits(guard, "held")
    if how == "kill":
        guard.kill()
        guard.start()
    else:
        guard.stop()
    assert (state(guard, 1), state(guard, 2)) == ("runs", "runs")


def test_who_is_held_leaves_the_whole_of_what_there_is(guard: RealGuard) -> None:
    """The job whose turn it is sleeps: in the idle class the other one would run all the time."""
    pid = two_jobs(guard, second=SPINS)
    wait_for(lambda: cpu_ns(pid) > 50_000_000, "the computing one to run")
    turn_us = 900_000
    begin_us = second_waits(guard, "held", turn_us)
    before = cpu_ns(pid)
    time.sleep(max(0.0, (begin_us + turn_us - 100_000 - boottime_us()) / US_PER_S))
    used, late_us = cpu_ns(pid) - before, boottime_us() - begin_us
    assert late_us > turn_us or used < 20_000_000

    def had_its_own() -> bool:
        slots(guard, 50_000, begin_us=begin_us)
        return cpu_ns(pid) - before > 50_000_000

    wait_for(had_its_own, "its own turns")


def cpu_ns(pid: int) -> int:
    """What a process has used."""
    return int(files.read(f"/proc/{pid}/schedstat").split()[0])

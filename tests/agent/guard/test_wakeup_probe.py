"""The wake-up probe is at the desk, has no rights, counts how late it wakes, and ends with its guard."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from kit.desk_socket import desk as at_desk
from kit.guards import RealGuard, alive, at_a_desk, desk_of, places
from kit.waiting import wait_for

from cosched.linux import process, slices
from cosched.linux.cgroup_none import CgroupsNone
from cosched.linux.cgroups import PROBE
from cosched.linux.wakeups import BOUNDS_S, SLOT_S, WakeupCounts, probe
from cosched.model.desk import MOST_BUCKETS
from node_agent.guard.desk.wakeup_probe import WakeupProbe

MakeGuard = Callable[..., RealGuard]
SLOT_NS = round(SLOT_S * 1e9)


class Over(Exception):
    """The end of a test's time."""


class Clock:
    """Sleeps take as long as they are to, and by what ``late_ns`` says longer; the time ends at ``end_ns``."""

    def __init__(self, end_s: float, late_ns: Callable[[int], int]) -> None:
        self.now, self.end_ns, self.late_ns = 0, round(end_s * 1e9), late_ns

    def now_ns(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)
        self.now += self.late_ns(self.now)
        if self.now > self.end_ns:
            raise Over


def counted(end_s: float, late_ns: Callable[[int], int]) -> tuple[tuple[int, ...], int]:
    counts, clock = WakeupCounts(), Clock(end_s, late_ns)
    with pytest.raises(Over):
        probe(counts, Random(1), clock.now_ns, clock.sleep)
    return counts.read()


def test_each_tenth_of_a_second_has_a_wake_up_in_its_bucket() -> None:
    counts, late_us = counted(100, lambda now: 3_000_000)  # 3 ms
    assert 990 <= sum(counts) <= 1001
    assert sum(counts[: BOUNDS_S.index(0.0025) + 1]) <= 5, "those that became due in the three milliseconds"
    assert sum(counts[BOUNDS_S.index(0.005) + 1 :]) == 0
    assert 2950 * sum(counts) <= late_us <= 3000 * sum(counts)


def test_what_became_due_while_it_waited_counts_too() -> None:
    """It wakes two seconds late once: some twenty moments have passed, each that much less late."""
    stalls = iter([2_000_000_000])
    counts, late_us = counted(60, lambda now: next(stalls, 0) if now > 10e9 else 0)
    late = sum(counts[BOUNDS_S.index(0.1) :])
    assert 18 <= late <= 21
    assert 18_000_000 <= late_us <= 22_000_000, "a second late on average"


def test_one_that_was_stopped_for_an_hour_does_not_catch_up_with_it() -> None:
    stalls = iter([3600 * 10**9])
    counts, _ = counted(3700, lambda now: next(stalls, 0) if now > 50e9 else 0)
    assert sum(counts) < 1100


def test_the_buckets_travel() -> None:
    assert len(BOUNDS_S) + 1 <= MOST_BUCKETS
    assert list(BOUNDS_S) == sorted(set(BOUNDS_S))


@pytest.fixture
def guard(make_guard: MakeGuard) -> Iterator[RealGuard]:
    with at_a_desk(make_guard(start=False, monitoring={"wakeups": True})) as started:
        yield started


def there(guard: RealGuard) -> list[int]:
    """The processes in the owner's group and its leaf for the probe."""
    found = [listing / "cgroup.procs" for place in places(desk_of(guard)) for listing in (place, place / PROBE)]
    return [int(pid) for listing in found if listing.exists() for pid in listing.read_text().split()]


def test_it_is_in_the_owners_group_without_rights_and_counts(guard: RealGuard) -> None:
    wait_for(lambda: len(there(guard)) == 1, "the probe to be at the desk")
    (pid,) = there(guard)
    if os.geteuid() == 0:
        wait_for(lambda: os.stat(f"/proc/{pid}").st_uid == 65534, "it to have no rights")
        status = Path(f"/proc/{pid}/status").read_text()
        assert "CapEff:\t0000000000000000" in status
        assert "Groups:\t\n" in status or "Groups:\t \n" in status
    assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, 0)
    assert os.sched_getscheduler(pid) == os.SCHED_OTHER
    assert slices.slice_ns(pid) < slices.LONGEST_NS, "it does not give way as the guard does"
    wait_for(lambda: guard.status()["probe"]["wakeups"] is not None, "it to have counted")
    first, began_s = guard.status()["probe"]["wakeups"], time.monotonic()
    wait_for(lambda: sum(guard.status()["probe"]["wakeups"]["counts"]) >= sum(first["counts"]) + 10, "ten more")
    assert time.monotonic() - began_s > 0.5 * 10 * SLOT_S, "ten a second, no more"
    found = guard.status()["probe"]
    assert found["problem"] == ""
    assert len(found["wakeups"]["counts"]) == len(BOUNDS_S) + 1
    assert found["wakeups"]["late_us"] > 0


def test_it_dies_with_the_guard_that_is_killed(guard: RealGuard) -> None:
    wait_for(lambda: len(there(guard)) == 1, "the probe to be at the desk")
    (pid,) = there(guard)
    guard.kill()
    wait_for(lambda: not alive(pid), "the probe to die with its guard")


def test_one_that_was_killed_is_told_of_and_its_counts_stay() -> None:
    made = WakeupProbe(CgroupsNone("a test"), "desk", wanted=True)
    try:
        made.tick(0)
        wait_for(lambda: made.status_fields()["probe"]["wakeups"], "it to have counted")
        first = made._pid
        os.kill(first, 9)
        os.waitpid(first, 0)
        made.tick(5 * process.US_PER_S)
        found = made.status_fields()["probe"]
        assert (found["problem"], sum(found["wakeups"]["counts"]) > 0) == ("it has ended", True)
        made.tick(64 * process.US_PER_S)
        assert made.problem == "it has ended"
        made.tick(65 * process.US_PER_S)
        assert (made.problem, alive(made._pid)) == ("", True)
    finally:
        made.stop()


def test_the_owner_cannot_have_what_root_has_switched_off() -> None:
    made = WakeupProbe(CgroupsNone("a test"), "desk", wanted=False)
    assert made.allow(True) is False
    assert made.problem == "not wanted (monitoring.wakeups)"


@pytest.mark.parametrize("key", ["wakeups", "parallel"])
def test_there_is_none_by_the_owners_word(make_guard: MakeGuard, key: str) -> None:
    guard = make_guard(start=False, monitoring={"wakeups": key != "wakeups"})
    guard.top["parallel"] = key != "parallel"
    guard.start()
    assert guard.status()["probe"] == {"wakeups": None, "problem": "not wanted (monitoring.wakeups)"}
    assert (
        at_desk(guard, "probe", on=True)["message"] == "node.toml allows no probe here (monitoring.wakeups, parallel)"
    )
    assert at_desk(guard, "probe", on=False)["word"]["probe"] is False


@pytest.mark.parametrize(
    ("kind", "problem"),
    [("cgroups", "beside the guard, not in the owner's group: "), ("none", "")],
)
def test_without_an_owners_group_it_is_beside_the_guard(make_guard: MakeGuard, kind: str, problem: str) -> None:
    guard = make_guard(kind, start=False, monitoring={"wakeups": True})
    guard.config["cgroup"] |= {"desk": "there/is/no/such-group"}
    guard.start()
    wait_for(lambda: guard.status()["probe"]["wakeups"] is not None, "it to count")
    found = guard.status()["probe"]["problem"]
    assert found.startswith(problem) if problem else found == ""


def test_the_owner_switches_it_off_and_on_and_the_word_outlives_the_guard(guard: RealGuard) -> None:
    wait_for(lambda: len(there(guard)) == 1, "the probe to be at the desk")
    (pid,) = there(guard)
    assert at_desk(guard, "probe", on=False)["word"]["probe"] is False
    assert not alive(pid)
    wait_for(lambda: process.stat_of(pid) is None, "it to be no zombie")
    assert guard.status()["probe"]["problem"] == "the owner has switched it off"
    guard.kill()
    guard.start()
    assert guard.status()["probe"] == {"wakeups": None, "problem": "the owner has switched it off"}
    assert there(guard) == []
    assert at_desk(guard, "probe", on=True)["word"]["probe"] is True
    wait_for(lambda: len(there(guard)) == 1, "it to be back")

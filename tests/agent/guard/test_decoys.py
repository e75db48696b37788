"""Decoys are there while a ceiling is in force and a job is there, where they belong, and never longer."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.guards import US_PER_S, RealGuard, alive, at_a_desk, desk_of, places
from kit.waiting import wait_for

from cosched.linux.cgroup_none import CgroupsNone
from node_agent.guard.desk.decoys import Decoys, _herald

MakeGuard = Callable[..., RealGuard]
PROCESSORS = len(os.sched_getaffinity(0))


@pytest.fixture
def guard(make_guard: MakeGuard) -> Iterator[RealGuard]:
    with at_a_desk(make_guard(start=False, contract={"cpu_ratio": 0.5}, cgroup={"decoys": True})) as started:
        yield started


def inside(group: str) -> set[int]:
    """The processes in a group and below it, in the tree of the CPU."""
    listings = [
        listing for place in places(group) for listing in (place / "cgroup.procs", *place.glob("*/cgroup.procs"))
    ]
    return {int(pid) for listing in listings for pid in listing.read_text().split()}


def is_nobody(pid: int) -> bool:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return status["Uid"].split() == ["65534"] * 4


def shown(guard: RealGuard) -> dict[str, object]:
    found: dict[str, object] = guard.status()["decoys"]
    return found


def test_they_are_there_with_a_ceiling_and_a_job_and_gone_without(guard: RealGuard) -> None:
    assert shown(guard) == {"processes": 0, "problem": ""}
    guard.prepare(1)
    wait_for(lambda: shown(guard)["processes"] == 3 * PROCESSORS, "decoys to be there")
    heralds, others = inside(guard.group), inside(desk_of(guard))
    assert (len(heralds), len(others)) == (PROCESSORS, 2 * PROCESSORS)
    wait_for(lambda: all(map(is_nobody, heralds | others)), "decoys to have no rights")
    assert all(len(os.sched_getaffinity(pid)) == 1 for pid in heralds | others)
    now_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    guard.ask({"do": "relax", "until_us": now_us + 60 * US_PER_S, "epoch": 1})
    wait_for(lambda: shown(guard)["processes"] == 0, "decoys to go where there is no ceiling")
    wait_for(lambda: not any(map(alive, heralds | others)), "decoys to have ended")
    guard.ask({"do": "arm"})
    wait_for(lambda: shown(guard)["processes"] == 3 * PROCESSORS, "decoys to be back")
    guard.ask({"do": "kill", "job": 1, "attempt": 1, "grace_us": 0})
    guard.event("empty", job=1, attempt=1)
    wait_for(lambda: shown(guard)["processes"] == 0, "decoys to go with the last job, before it is forgotten")
    wait_for(lambda: not inside(guard.group) | inside(desk_of(guard)), "decoys to have left the groups")


def test_they_die_with_the_guard(guard: RealGuard) -> None:
    guard.prepare(1)
    wait_for(lambda: shown(guard)["processes"] == 3 * PROCESSORS, "decoys to be there")
    them = inside(guard.group) | inside(desk_of(guard))
    guard.kill()
    wait_for(lambda: not any(map(alive, them)), "decoys to die with the guard")
    guard.start()
    wait_for(lambda: shown(guard)["processes"] == 3 * PROCESSORS, "the next guard to have its own")


def test_heralds_leave_the_parallel_side_before_they_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed in the parallel side needs minutes to exit while the owner's processes compute."""
    heralds: list[int] = []
    at_desk: list[tuple[int, bool]] = []
    cgroups = CgroupsNone("by this test")
    monkeypatch.setattr(cgroups, "place_herald", heralds.append)
    monkeypatch.setattr(cgroups, "place_at_desk", lambda pid, *_, **__: at_desk.append((pid, alive(pid))))
    decoys = Decoys(cgroups, "desk", allowed=True)
    decoys.keep(0.5)
    made = [*at_desk, *((pid, True) for pid in heralds)]
    others = len(at_desk)
    decoys.stop()
    assert [os.waitpid(pid, 0)[0] for pid, _ in made] == [pid for pid, _ in made]
    assert at_desk[others:] == [(pid, True) for pid in heralds]
    assert len(heralds) == PROCESSORS


def test_without_an_owners_group_the_reason_is_told(make_guard: MakeGuard) -> None:
    guard = make_guard(contract={"cpu_ratio": 0.5}, cgroup={"decoys": True, "desk": "no-such-group"})
    guard.prepare(1)
    wait_for(lambda: "No such file" in str(shown(guard)["problem"]), "the reason")
    assert shown(guard)["processes"] == 0


def test_nobody_has_them_without_asking(make_guard: MakeGuard) -> None:
    guard = make_guard(contract={"cpu_ratio": 0.5})
    guard.prepare(1)
    assert shown(guard) == {"processes": 0, "problem": "not asked for (cgroup.decoys)"}


def test_a_herald_who_was_kept_waiting_looks_in_but_seldom() -> None:
    """Beside an owner who computes, what parallel work still gets is the jobs'."""
    ear, voice = os.pipe2(os.O_NONBLOCK)
    pid = os.fork()
    if pid == 0:
        try:
            _herald(voice, 0.03, SLOWLY_S)
        finally:
            os._exit(1)
    try:
        assert not all(silent_after_stops(pid, ear, 1) for _ in range(3)), "once may be anything"
        silent = (silent_after_stops(pid, ear, 3) for _ in range(10))
        assert any(silent), "stopped in the midst of its work the herald was not kept waiting"
        wait_for(lambda: spoke(ear), "the herald to be back")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ear)
        os.close(voice)


#: Between two looks of a herald: long enough to be stopped in, also on a busy machine.
SLOWLY_S = 0.2


def silent_after_stops(pid: int, ear: int, times: int) -> bool:
    """Whether a herald says nothing for a while that was stopped so often, each time between two looks."""
    spoke(ear)
    for _ in range(times):
        wait_for(lambda: spoke(ear), "the herald")
        os.kill(pid, signal.SIGSTOP)
        time.sleep(2 * SLOWLY_S)
        os.kill(pid, signal.SIGCONT)
    time.sleep(SLOWLY_S / 10)
    spoke(ear)
    time.sleep(1.5 * SLOWLY_S)
    return not spoke(ear)


def spoke(ear: int) -> bool:
    """Whether something was said since it was asked last."""
    try:
        return bool(os.read(ear, 1 << 16))
    except BlockingIOError:
        return False

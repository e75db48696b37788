"""Use by side, from real processes and real cgroups."""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from kit.agents import remove_groups
from kit.waiting import BOUND_S

from cosched.model.node import Usage
from node_agent.service import load
from node_agent.service.load import Load

MOUNT = Path("/sys/fs/cgroup")
BURN = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]


@pytest.fixture
def burner() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(BURN, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def looked(it: Load, enough: Callable[[Usage], bool]) -> Usage:
    end_s = time.monotonic() + BOUND_S
    while not enough(use := it.look()):
        assert time.monotonic() < end_s, use
        time.sleep(0.1)
    return use


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "_SCAN_EVERY_S", 0.2)


def by_processes(*, tasks: set[int], own: set[int], min_uid: int = 0) -> Load:
    return Load(
        MOUNT, "none", "none", 1 << 40, own=lambda: own, tasks=lambda: tasks, min_uid=min_uid, use_cgroups=False
    )


@pytest.mark.usefixtures("quick")
def test_a_jobs_process_is_the_parallel_sides(burner: "subprocess.Popen[bytes]") -> None:
    it = by_processes(tasks={burner.pid}, own=set(), min_uid=2**31)
    assert it.look().cpu_parallel == -1  # one look has no period yet
    use = looked(it, lambda use: use.cpu_parallel > 0.05)
    assert use.cpu_local == 0
    assert 0 < use.memory_parallel_bytes < 1 << 30
    assert not it.by_groups


@pytest.mark.usefixtures("quick")
def test_anybody_elses_is_the_owners_unless_it_is_the_agents(burner: "subprocess.Popen[bytes]") -> None:
    everybody = {int(name) for name in os.listdir("/proc") if name.isdigit()}
    mine = by_processes(tasks=set(), own=everybody - {burner.pid})
    mine.look()
    use = looked(mine, lambda use: use.cpu_local > 0.05)
    assert use.cpu_parallel == 0
    system = by_processes(tasks=set(), own=set(), min_uid=2**31)
    system.look()
    use = looked(system, lambda use: use.cpu_system > 0.05)
    assert (use.cpu_local, use.memory_local_bytes) == (0, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: cgroups of its own")
def test_cgroups_tell_the_sides_where_there_are_both(burner: "subprocess.Popen[bytes]") -> None:
    group = f"cosched-test-{uuid.uuid4().hex[:12]}"
    unified = (MOUNT / "cgroup.controllers").exists()
    trees = [MOUNT] if unified else [MOUNT / "cpuacct", MOUNT / "memory"]
    try:
        for tree in trees:
            for side in ("cosched", "desk"):
                (tree / group / side).mkdir(parents=True)
                if unified:
                    (tree / group / "cgroup.subtree_control").write_text("+cpu +memory")
            (tree / group / "desk" / "cgroup.procs").write_text(str(burner.pid))
        it = Load(MOUNT, f"{group}/cosched", f"{group}/desk", 1 << 30, own=set, tasks=set)
        it.look()
        use = looked(it, lambda use: use.cpu_local > 0.05)
        assert it.by_groups
        assert use.cpu_parallel == 0
        assert use.cpu_system < 0.2  # of the group around both, not of the machine
        assert use.memory_free_bytes > 1 << 28
    finally:
        remove_groups(group)


class Accounts:
    """Cgroups' accounts that a test removes and makes again; both sides have used one CPU second a look."""

    def __init__(self, _mount: Path) -> None:
        self.there, self.cpu_s = True, 1000.0

    def of(self, _group: str) -> tuple[float, int] | None:
        return (self.cpu_s, 1 << 20) if self.there else None


@pytest.mark.parametrize("absent_s", [1.0, 10.0])
def test_use_is_never_the_difference_of_cgroups_and_processes(monkeypatch: pytest.MonkeyPatch, absent_s: float) -> None:
    """Goal: cgroups that are away for a moment (a guard's restart) give no use that was not there.

    Method: a clock of the test's, accounts of 1000 CPU seconds, which a scan of processes does not have.
    """
    clock, accounts = SimpleNamespace(now_s=100.0), Accounts(MOUNT)
    monkeypatch.setattr(load, "_Accounts", lambda mount: accounts)
    monkeypatch.setattr(load, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    it = Load(MOUNT, "a", "b", 1 << 40, own=set, tasks=set, min_uid=2**31)
    seen = []
    for there, after_s in ((True, 1.0), (True, 1.0), (False, absent_s), (True, 1.0), (True, 10.0)):
        accounts.there = there
        clock.now_s += after_s
        accounts.cpu_s += 0.1 * after_s
        seen.append(it.look(0.9).cpu_local)
    known = [use for use in seen if use >= 0]
    assert known == pytest.approx([0.1] * len(known))
    assert len(known) >= 2

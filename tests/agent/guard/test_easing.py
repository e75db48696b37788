"""What is left of a job whose ranks have ended leaves the idle class for a while, on real cgroups, and not for more."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.guards import RealGuard, places
from kit.waiting import wait_for

from cosched.linux import files
from cosched.linux.cgroups import ENDINGS, read_pids_below
from node_agent.guard.launcher.easing import BUDGET_US

#: A launcher waits for its ranks, which end when one is told to; then it computes without end, as no launcher would.
JOB = """
cat > launcher <<'END'
echo $$ > launcher.pid
sleep 1000 &
sh -c 'echo $$ > rank.pid; exec sleep 1000'
kill $!
echo ended > rank.ended
while :; do :; done
END
sh launcher; :
"""


@pytest.fixture
def guard(make_guard: Callable[..., RealGuard]) -> RealGuard:
    """A guard whose jobs are in the idle class."""
    guard: RealGuard = make_guard(contract={"cpu_ratio": 0.5, "memory_ratio": 0.5, "mpl": 2})
    if not any((place / "cpu.shares").exists() for place in places(guard.group)):
        pytest.skip("needs control groups of version 1: with version 2 nothing is eased yet")
    if guard.status()["can"]["idle class"] != "yes":
        pytest.skip("needs a kernel with the idle class for control groups")
    return guard


def started(guard: RealGuard, script: str = JOB) -> int:
    """One of the job's ranks, once the guard has seen both: one could be the launcher, before it has started any."""
    guard.prepare()
    guard.shell(f"cd {guard.work}; {script}")
    rank = number(guard.work / "rank.pid")
    launcher = number(guard.work / "launcher.pid")
    wait_for(lambda: rank in children(launcher) and guard.listed()["ranks"] == 2, "the guard to see the ranks")
    return rank


def children(pid: int) -> set[int]:
    return {int(each) for each in files.read(f"/proc/{pid}/task/{pid}/children").split()}


def go(guard: RealGuard) -> None:
    """What the launcher waits for."""
    os.mkfifo(guard.work / "go")
    (guard.work / "go").chmod(0o666)


def number(file: Path) -> int:
    wait_for(lambda: file.exists() and file.read_text().endswith("\n"), file.name)
    return int(file.read_text())


def eased(guard: RealGuard) -> set[int]:
    """Who is beside the parallel side."""
    return {pid for place in places(f"{guard.group}-{ENDINGS}") for pid in read_pids_below(str(place))}


@pytest.mark.slow
def test_a_launcher_without_ranks_is_eased_once_for_half_a_second_of_cpu(guard: RealGuard) -> None:
    rank = started(guard)
    launcher = number(guard.work / "launcher.pid")
    used_us = guard.listed()["cpu_us"]
    assert eased(guard) == set()
    os.kill(rank, signal.SIGTERM)
    wait_for(lambda: launcher in eased(guard), "the launcher beside the jobs")
    (place,) = [each for each in places(f"{guard.group}-{ENDINGS}") if (each / "cpu.stat").exists()]
    assert files.read(f"{place}/cpu.cfs_quota_us").strip() == "1000"
    assert files.read(f"{place}/cpu.cfs_period_us").strip() == "10000"
    wait_for(lambda: eased(guard) == set(), "the end of its stretch")
    assert guard.listed()["cpu_us"] - used_us >= 0.9 * BUDGET_US
    guard.ask({"do": "kill", "job": 1, "attempt": 1, "grace_us": 0})
    guard.event("empty", job=1)
    guard.ask({"do": "forget", "job": 1, "attempt": 1})


def test_who_has_a_rank_again_is_among_the_jobs_again(guard: RealGuard) -> None:
    script = JOB.replace("while :; do :; done", "read line < go; sleep 1000")
    go(guard)
    rank = started(guard, script)
    os.kill(rank, signal.SIGTERM)
    wait_for(lambda: number(guard.work / "launcher.pid") in eased(guard), "the launcher beside the jobs")
    (guard.work / "go").write_text("\n")
    wait_for(lambda: eased(guard) == set(), "the launcher among the jobs")


def test_what_is_eased_is_killed_with_its_job(guard: RealGuard) -> None:
    script = JOB.replace("while :; do :; done", "trap '' TERM; read line < go")
    go(guard)
    rank = started(guard, script)
    os.kill(rank, signal.SIGTERM)
    wait_for(lambda: number(guard.work / "launcher.pid") in eased(guard), "the launcher beside the jobs")
    guard.ask({"do": "kill", "job": 1, "attempt": 1, "grace_us": 100_000})
    guard.event("empty", job=1)
    guard.ask({"do": "forget", "job": 1, "attempt": 1})


def test_a_new_guard_brings_back_who_is_there_and_begins_no_second_stretch(guard: RealGuard) -> None:
    script = JOB.replace("while :; do :; done", "read line < go; sleep 1000; read line < go")
    go(guard)
    rank = started(guard, script)
    os.kill(rank, signal.SIGTERM)
    wait_for(lambda: number(guard.work / "launcher.pid") in eased(guard), "the launcher beside the jobs")
    guard.kill()
    guard.start()
    wait_for(lambda: eased(guard) == set(), "the launcher among the jobs")

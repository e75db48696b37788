"""Sets of CPUs for jobs that run: what is there and what comes is kept to them, whoever dies meanwhile."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit.guards import SYSTEM_PYTHON, RealGuard
from kit.waiting import wait_for

from cosched.linux.cgroup_none import CgroupsNone
from cosched.linux.cpusets import keep_to
from node_agent.guard.base.requests import Prepare
from node_agent.guard.launcher.cpu_sets import CpuSets
from node_agent.guard.launcher.groups import Group

#: Says its pid, has a thread beside it and a child that has one, and starts another child whenever ``more`` is there.
_BUSY = f"""
echo main $$
{SYSTEM_PYTHON} -c 'import threading, time; threading.Thread(target=time.sleep, args=(600,)).start(); time.sleep(600)' &
until [ -e more ]; do sleep 0.05; done
sleep 600 &
echo late $!
wait
"""


@pytest.fixture(autouse=True)
def _two_cpus() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs: there is nothing to choose from one")


def cpus_of(pid: int) -> list[set[int]]:
    """Where each thread of a process may run."""
    found = []
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("Cpus_allowed_list")]
        cpus: set[int] = set()
        for part in line.split()[1].split(","):
            first, _, last = part.partition("-")
            cpus |= set(range(int(first), int(last or first) + 1))
        found.append(cpus)
    return found


def tree_of(pid: int) -> list[int]:
    """A process and all below it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in tree_of(int(child)))]


def resize(guard: RealGuard, n: int, cpus: int | None, job: int = 1, tasks: int = 1) -> list[int]:
    asked = guard.ask({"do": "resize", "job": job, "attempt": 1, "n": n, "tasks": tasks, "cpus": cpus, "asleep": False})
    assert guard.listed(job)["cpus"] == asked["cpus"]
    return list(asked["cpus"])


def all_on(pid: int, cpus: Collection[int]) -> bool:
    """Whether a process and all below it come to be there: one that is born while others are moved is moved after them.

    That is in the next second where there is no controller, and most have ended before.
    """

    def now() -> bool:
        try:
            return all(each == set(cpus) for below in tree_of(pid) for each in cpus_of(below))
        except (FileNotFoundError, ProcessLookupError):
            return False  # one has ended meanwhile

    return bool(wait_for(now, f"{pid} and all below it on {cpus}"))


def test_what_runs_and_what_comes_is_kept_to_the_set_and_let_go_again(any_guard: RealGuard) -> None:
    guard, everywhere = any_guard, sorted(os.sched_getaffinity(0))
    guard.prepare()
    guard.shell(_BUSY)
    (main,) = guard.told("main")
    wait_for(lambda: len(tree_of(main)) >= 2 and len(cpus_of(tree_of(main)[1])) == 2, "the thread of the child")
    assert all_on(main, everywhere)

    assert resize(guard, 7, 1) == everywhere[:1]
    assert all_on(main, everywhere[:1])
    (guard.work / "more").touch()
    (late,) = guard.told("late")
    assert cpus_of(late) == [set(everywhere[:1])]
    other = guard.shell("exec sleep 600", n=1)
    assert all_on(other, everywhere[:1])

    assert resize(guard, 7, 1) == everywhere[:1], "the same order again"
    assert resize(guard, 7, 2) == everywhere[:1], "an order that was obeyed is known by its number, and cannot fail"
    asked = {"do": "resize", "job": 1, "attempt": 1, "n": 6, "tasks": 1, "cpus": None, "asleep": False}
    assert guard.refused(asked) == ("stale", "order 6; order 7 was obeyed already")
    assert all_on(main, everywhere[:1])

    assert resize(guard, 8, None) == []
    assert all_on(main, everywhere)
    assert all_on(other, everywhere)


def test_a_set_outlasts_agent_and_guard_and_the_next_guard_goes_on_with_it(any_guard: RealGuard) -> None:
    guard, everywhere = any_guard, sorted(os.sched_getaffinity(0))
    guard.prepare()
    guard.shell(_BUSY)
    (main,) = guard.told("main")
    resize(guard, 7, 1)
    guard.hang_up()
    guard.client()
    assert all_on(main, everywhere[:1])
    guard.kill()
    assert all_on(main, everywhere[:1])
    guard.start()
    assert guard.listed()["cpus"] == everywhere[:1]
    assert all_on(main, everywhere[:1])
    assert all_on(guard.shell("exec sleep 600", n=1), everywhere[:1])
    assert (
        guard.refused({"do": "resize", "job": 1, "attempt": 1, "n": 6, "tasks": 1, "cpus": 2, "asleep": False})[0]
        == "stale"
    )
    assert resize(guard, 8, 2) == everywhere[:2]
    assert all_on(main, everywhere[:2])


class _WithoutController(CgroupsNone):
    """A kernel's groups, as far as sets of CPUs go, on a machine without that controller."""

    kernel_groups = True

    def __init__(self, pids: list[int]) -> None:
        super().__init__("a test")
        self.pids = pids

    def procs(self, name: str) -> list[int]:
        return self.pids

    def confine(self, name: str, cpus: Collection[int] | None) -> bool:
        return False


@pytest.fixture
def running() -> Iterator[Callable[[str], int]]:
    """A function that starts a Python program and gives its pid."""
    made: list[subprocess.Popen[str]] = []

    def run(program: str) -> int:
        made.append(subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True))
        assert made[-1].stdout is not None
        assert made[-1].stdout.readline() == "there\n"
        return made[-1].pid

    yield run
    for process in made:
        process.kill()
        process.communicate()


def test_without_a_controller_who_strays_is_brought_back(running: Callable[[str], int]) -> None:
    last = max(os.sched_getaffinity(0))
    pid = running(
        "import os, signal, time\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
        "print('there', flush=True)\n"
        "signal.sigwait([signal.SIGUSR1])\n"
        f"os.sched_setaffinity(0, [{last}])\n"
        "time.sleep(600)\n"
    )
    group = Group(Prepare(1, 1, "ada", "/", 1, None, None, 0))
    shared: Any = SimpleNamespace(groups={group.key: group}, cgroups=_WithoutController([pid]))
    sets = CpuSets(shared, 2, lambda _: None)
    assert sets.due_us() is None
    sets.give(group, 1)
    (first,) = sets.affinity(group)
    assert cpus_of(pid) == [{first}]
    os.kill(pid, signal.SIGUSR1)
    wait_for(lambda: cpus_of(pid) == [{last}], "the process to stray")
    sets.tick(1)
    assert cpus_of(pid) == [{first}]
    sets.give(group, None)
    assert cpus_of(pid) == [os.sched_getaffinity(0)]
    assert (sets.due_us(), sets.affinity(group)) == (None, ())


def test_threads_that_come_while_a_set_is_given_have_it_too(running: Callable[[str], int]) -> None:
    pid = running(
        "import threading, time\n"
        "def more():\n"
        "    for _ in range(200):\n"
        "        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "threading.Thread(target=more).start()\n"
        "print('there', flush=True)\n"
        "time.sleep(600)\n"
    )
    first = min(os.sched_getaffinity(0))
    keep_to([pid], {first}, strays_only=False)
    wait_for(lambda: len(cpus_of(pid)) >= 201, "all threads")
    keep_to([pid], {first}, strays_only=True)
    assert cpus_of(pid) == [{first}] * len(cpus_of(pid))


def test_a_job_that_is_made_ready_with_cpus_begins_on_them(any_guard: RealGuard) -> None:
    guard, everywhere = any_guard, sorted(os.sched_getaffinity(0))
    for cpus in (1, 2):
        guard.prepare(cpus, cpus=cpus)
        assert guard.listed(cpus)["cpus"] == everywhere[:cpus]
        assert all_on(guard.shell("exec sleep 600", job=cpus), everywhere[:cpus])
        guard.kill()
        guard.start()
        assert guard.listed(cpus)["cpus"] == everywhere[:cpus]
        assert all_on(guard.shell("exec sleep 600", job=cpus, n=1), everywhere[:cpus])
        guard.ask({"do": "kill", "job": cpus, "attempt": 1, "grace_us": 0})
        guard.event("empty", job=cpus)
        guard.ask({"do": "forget", "job": cpus, "attempt": 1})


def test_a_process_that_makes_threads_without_end_does_not_hold_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def threads(_: int) -> list[int]:
        nonlocal looks
        looks += 1
        assert looks < 100, "it is looked at for ever"
        return [(1 << 22) + looks]  # above all there can be: it has ended when it is moved

    monkeypatch.setattr("cosched.linux.cpusets._threads", threads)
    keep_to([1], {0}, strays_only=False)
    assert looks > 1

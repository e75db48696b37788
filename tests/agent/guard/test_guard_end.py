"""The end of a job: by itself, by order, at its limit, for lack of memory, while guards die; and no escape from it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kit.guards import DAEMON, MIB, SYSTEM_PYTHON, US_PER_S, RealGuard, alive, places
from kit.waiting import wait_for

from node_agent.guard.base.client import GuardRefused

DEAF = "trap '' TERM; echo deaf $$; while :; do sleep 0.1; done"
KILL = {"do": "kill", "job": 1, "attempt": 1}


def deaf_to_its_limit(guard: RealGuard) -> int:
    """Who ignores SIGTERM, as command 1 of job 1, whose limit runs from the start of command 0: only then."""
    guard.shell(DEAF, n=1)
    (pid,) = guard.told("deaf")
    guard.shell("exec sleep 1000")
    return pid


def test_daemons_that_left_their_session_are_counted_and_killed(any_guard: RealGuard) -> None:
    guard = any_guard
    guard.prepare()
    guard.shell(DAEMON)
    guard.event("exited", n=0, status=0)
    (daemon,) = guard.told("daemon")
    assert alive(daemon)
    assert guard.listed()["state"] == "running"
    guard.ask({**KILL, "grace_us": 0})
    guard.event("empty", job=1)
    assert not alive(daemon)
    assert guard.listed()["state"] == "ended"


def test_root_without_cgroups_kills_another_users_daemons(make_guard: Callable[..., RealGuard]) -> None:
    guard = make_guard(cgroup={"mode": "none"})
    guard.prepare()
    guard.shell(f"id -un > {guard.work}/user; {DAEMON}")
    guard.event("exited", n=0, status=0)
    assert (guard.work / "user").read_text().strip() == guard.user
    (daemon,) = guard.told("daemon")
    guard.ask({**KILL, "grace_us": 0})
    guard.event("empty", job=1)
    assert not alive(daemon)


def test_a_daemon_that_ends_by_itself_makes_the_group_empty(any_guard: RealGuard) -> None:
    guard = any_guard
    guard.prepare()
    guard.shell(DAEMON)
    guard.event("exited", n=0)
    (daemon,) = guard.told("daemon")
    os.kill(daemon, signal.SIGTERM)
    guard.event("empty", job=1)
    assert guard.listed()["state"] == "empty"


def test_sigterm_first_and_time_to_put_things_in_order(any_guard: RealGuard) -> None:
    guard = any_guard
    guard.prepare()
    guard.shell("trap 'echo cleaned 1; exit 7' TERM; echo ready $$; while :; do sleep 0.1; done")
    guard.told("ready")
    guard.ask({**KILL, "grace_us": 20 * US_PER_S})
    exited = guard.event("exited", n=0)
    assert (exited["status"], exited["cause"]) == (7, "killed")
    guard.told("cleaned")


def test_who_ignores_sigterm_is_killed_after_the_grace(any_guard: RealGuard) -> None:
    guard = any_guard
    guard.prepare()
    guard.shell(DEAF)
    (pid,) = guard.told("deaf")
    guard.ask({**KILL, "grace_us": 300_000})
    exited = guard.event("exited", n=0)
    assert (exited["signal"], exited["cause"]) == (9, "killed")
    guard.event("empty", job=1)
    assert not alive(pid)


def test_a_limit_ends_a_job_that_ignores_it_also_when_the_agent_has_gone(guard: RealGuard) -> None:
    guard.prepare(limit_us=2 * US_PER_S, grace_us=200_000)
    pid = deaf_to_its_limit(guard)
    guard.hang_up()
    wait_for(lambda: not alive(pid), "the job's end")
    guard.client()
    wait_for(lambda: guard.listed()["state"] == "ended", "the group's end")
    (command,) = [each for each in guard.listed()["commands"] if each["n"] == 1]
    assert (command["signal"], command["cause"], guard.listed()["ending"]) == (9, "limit", "limit")


def test_a_fork_bomb_is_bounded_and_killed(guard: RealGuard) -> None:
    guard.prepare()
    bomb = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"
    guard.spawn([SYSTEM_PYTHON, "-I", "-c", bomb])
    pids = wait_for(lambda: (found := members(guard)) and len(found) > 500 and found, "the bomb")
    assert len(pids) <= 512 + 128
    guard.ask({**KILL, "grace_us": 0})
    guard.event("empty", job=1)
    assert members(guard) == []


def test_a_fork_bomb_without_cgroups_is_killed(make_guard: Callable[..., RealGuard]) -> None:
    guard = make_guard("none")
    guard.prepare()
    # Each link leaves the session of the one before; 200 at most, for nothing bounds it there.
    bomb = "import os, time\nfor _ in range(200):\n  if os.fork(): break\n  os.setsid()\n"
    guard.spawn([SYSTEM_PYTHON, "-I", "-c", f"{bomb}\nprint('link', os.getpid(), flush=True)\ntime.sleep(1000)"])
    wait_for(lambda: guard.output().count("link") > 150, "a chain of processes")
    guard.ask({**KILL, "grace_us": 0})
    guard.event("empty", job=1)
    assert [line for line in guard.output().splitlines() if alive(int(line.split()[1]))] == []


def test_more_memory_than_the_jobs_limit_is_the_cause_of_its_end(guard: RealGuard) -> None:
    guard.prepare(tasks=2, memory_bytes=32 * MIB)
    guard.spawn([SYSTEM_PYTHON, "-I", "-c", "b = bytearray(200 << 20)"])
    exited = guard.event("exited", n=0)
    assert (exited["signal"], exited["cause"]) == (9, "memory")
    assert 48 * MIB < guard.event("empty")["memory_peak_bytes"] <= 64 * MIB


HOLDING = "import time; b = bytearray({} << 20); print('holds', flush=True); time.sleep(1000)"


def test_memory_shortage_of_all_jobs_ends_the_one_without_a_memory_request(
    make_guard: Callable[..., RealGuard],
) -> None:
    """Of 128 MiB one job has 75 promised and uses some 70: more than the other gets, which asked for nothing."""
    guard = make_guard(start=False)
    guard.top["memory_bytes"] = 128 * MIB
    guard.start()
    guard.prepare(1, memory_bytes=75 * MIB)
    guard.spawn([SYSTEM_PYTHON, "-I", "-c", HOLDING.format(62)], 1)
    wait_for(lambda: "holds" in guard.output(), "the job that has its memory")
    guard.prepare(2, memory_bytes=None)
    guard.spawn([SYSTEM_PYTHON, "-I", "-c", HOLDING.format(100)], 2)
    assert guard.event("exited", job=2)["signal"] == 9
    assert guard.listed(1)["state"] == "running"


def test_memory_below_the_jobs_limit_is_not(guard: RealGuard) -> None:
    guard.prepare(tasks=2, memory_bytes=100 * MIB)
    guard.spawn([SYSTEM_PYTHON, "-I", "-c", "b = bytearray(100 << 20); raise SystemExit(1)"])
    exited = guard.event("exited", n=0)
    assert (exited["status"], exited["cause"]) == (1, "own")


def test_without_cgroups_a_process_has_its_limit_on_data(make_guard: Callable[..., RealGuard]) -> None:
    guard = make_guard("none")
    guard.prepare(tasks=2, memory_bytes=50 * MIB)
    guard.spawn([SYSTEM_PYTHON, "-I", "-c", "b = bytearray(200 << 20)"])
    assert guard.event("exited", n=0)["status"] == 1
    assert "MemoryError" in guard.output()


def test_a_supervisor_that_is_killed_leaves_an_unknown_end(any_guard: RealGuard) -> None:
    guard = any_guard
    guard.prepare()
    guard.shell(f"{DAEMON}; exec sleep 1000")
    (daemon,) = guard.told("daemon")
    (supervisor,) = guard.supervisors()
    guard.kill_process(supervisor)
    exited = guard.event("exited", n=0)
    assert (exited["status"], exited["signal"], exited["cause"]) == (None, None, "unknown")
    assert guard.listed()["state"] == "running"  # the command goes on
    guard.ask({**KILL, "grace_us": 0})
    guard.event("empty", job=1)
    assert not alive(daemon)


def test_a_job_goes_on_when_its_guard_is_killed_and_the_next_guard_has_it(any_guard: RealGuard) -> None:
    guard = any_guard
    guard.prepare()
    guard.shell(f"echo began $$; until [ -e {guard.work}/end ]; do sleep 0.05; done; exit 5")
    (pid,) = guard.told("began")
    guard.kill()
    assert alive(pid)
    guard.start()
    assert alive(pid)
    assert guard.listed()["state"] == "running"
    assert guard.listed()["commands"] == [{"n": 0, "state": "running", "pid": pid}]
    assert guard.ask({"do": "whose", "pid": pid})["job"] == 1
    (guard.work / "end").touch()
    exited = guard.event("exited", n=0)
    assert (exited["status"], exited["cause"]) == (5, "own")
    guard.event("empty", job=1)
    guard.ask({"do": "forget", "job": 1, "attempt": 1})


def test_what_a_killed_guard_had_half_prepared_is_forgotten_and_prepared_anew(guard: RealGuard) -> None:
    """As an agent does whose guard has gone before it answered: whatever there is of it, the job runs."""
    for job, after_ms in enumerate((0, 1, 2, 4, 8, 16), 1):
        guard.client().send(guard.preparation(job))
        time.sleep(after_ms / 1000)
        guard.kill()
        guard.start()
        with contextlib.suppress(GuardRefused):  # nothing was there yet
            guard.ask({"do": "forget", "job": job, "attempt": 1})
        guard.prepare(job)
        guard.shell("exit 3", job=job)
        assert guard.event("exited", n=0)["status"] == 3
        guard.event("empty", job=job)
        guard.ask({"do": "forget", "job": job, "attempt": 1})
        assert list(guard.directory.glob("state/jobs/*")) == []


def test_what_is_prepared_waits_until_what_a_predecessor_left_of_it_is_removed(guard: RealGuard) -> None:
    guard.kill()
    left = guard.directory / "state/jobs/1.1/tmp"
    left.mkdir(parents=True)
    for number in range(20_000):  # so that it takes a while
        os.mkfifo(left / str(number))
    owner = left.parents[1].stat()
    for path in (left.parent, left):
        os.chown(path, owner.st_uid, owner.st_gid)
    guard.start()
    guard.prepare()
    guard.spawn(["true"])
    assert guard.event("exited", n=0)["status"] == 0
    assert not (left / "0").exists()


def test_what_a_guard_has_done_on_the_side_ends_with_it() -> None:
    """A successor takes over what is there: nothing may be added to it, or be removed from it, behind its back."""
    program = (
        "import time; from node_agent.guard.base.children import Errand; from node_agent.guard.base.loop import Loop;"
        "errand = Errand(lambda: time.sleep(1000), print); Loop().fork(errand);"
        "print(errand.pid, flush=True); time.sleep(1000)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as guard:
        assert guard.stdout is not None
        child = int(guard.stdout.readline())
        assert alive(child)
        guard.kill()
    wait_for(lambda: not alive(child), "the end of the guard's child")


def test_an_end_while_no_guard_is_there_is_not_lost(any_guard: RealGuard) -> None:
    guard = any_guard
    guard.prepare(job=1)
    guard.prepare(job=2)
    guard.shell("echo began $$; exec sleep 1000", job=2)
    guard.shell(f"until [ -e {guard.work}/end ]; do sleep 0.05; done; exit 5")
    guard.kill()
    (guard.work / "end").touch()
    record = guard.directory / "state/records/1.1.0.exit"
    wait_for(record.exists, "the supervisor's record")
    found = json.loads(record.read_text())
    assert (found["status"], found["cause"], found["n"]) == (5, "own", 0)
    assert found["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    guard.start()
    wait_for(lambda: guard.listed()["state"] == "empty", "the group to be seen as empty")
    (command,) = guard.listed()["commands"]
    assert (command["state"], command["status"], command["cause"]) == ("ended", 5, "own")
    assert guard.listed(job=2)["state"] == "running"


def test_a_missing_record_is_unknown_and_a_strange_group_is_left_alone(guard: RealGuard) -> None:
    guard.prepare()
    guard.prepare(job=2)
    first = guard.shell("exec sleep 1000")
    second = guard.shell("exec sleep 1000", job=2)
    (supervisor,) = [pid for pid in guard.supervisors() if f"{first}\n" in children(pid)]
    guard.kill()
    guard.kill_process(supervisor)
    for path in (guard.directory / "state/records").glob("2.1.*"):
        path.unlink()
    guard.start()
    (command,) = guard.listed()["commands"]
    assert (command["state"], command["status"], command["cause"]) == ("ended", None, "unknown")
    assert guard.listed()["state"] == "running"
    assert guard.listed(job=2)["state"] == "running"
    assert guard.listed(job=2)["user"] == "?"
    assert alive(first)
    assert alive(second)
    assert guard.refused(guard.spawning(["true"], job=2, n=1), guard.null())[0] == "busy"
    guard.ask({"do": "kill", "job": 2, "attempt": 1, "grace_us": 0})
    guard.event("empty", job=2)
    assert not alive(second)


def test_a_guard_that_is_told_to_end_lets_jobs_run(any_guard: RealGuard) -> None:
    guard = any_guard
    guard.prepare()
    pid = guard.shell("exec sleep 1000")
    assert guard.stop() == 0
    assert alive(pid)
    guard.start()
    assert guard.listed()["state"] == "running"


def members(guard: RealGuard) -> list[str]:
    """The processes in job 1's cgroup."""
    found = places(f"{guard.group}/job-1.1")
    return (found[0] / "cgroup.procs").read_text().split() if found else []


def children(pid: int) -> str:
    return "".join(f"{child}\n" for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())

"""Commands whose files lie on a file system that does not answer: what has not begun in time never begins."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit.accounts import copy_of_etc
from kit.disks import StallingDisk, hanging_directory, stalling_disk
from kit.guards import MIB, US_PER_S, RealGuard, places
from kit.waiting import wait_for

from cosched.linux import stalls
from cosched.linux.process import boottime_us

MakeGuard = Callable[..., RealGuard]
KILL = {"do": "kill", "job": 1, "attempt": 1, "grace_us": 0}


@pytest.fixture
def stalling(make_guard: MakeGuard) -> Iterator[tuple[RealGuard, StallingDisk]]:
    """A guard, and a disk that its jobs may write to."""
    guard = make_guard(start=False)
    with stalling_disk(guard.work / "disk") as disk:
        guard.start()
        guard.prepare()
        yield guard, disk


def nothing_left(guard: RealGuard) -> bool:
    """Whether the guard has forgotten all attempts, with their groups, directories and records."""
    left = [*guard.directory.glob("state/jobs/*"), *(job for each in places(guard.group) for job in each.glob("job-*"))]
    records = [path.name for path in guard.directory.glob("state/records/*") if path.name not in ("lock", "epoch")]
    return not left and not records and guard.ask({"do": "list"})["groups"] == []


def refused_start(guard: RealGuard, disk: StallingDisk, **fields: Any) -> tuple[str, str]:
    """The refusal of a script that would leave a file ``canary`` and writes its output to the disk."""
    request = guard.spawning(["touch", str(guard.work / "canary")], output=str(disk.mount / "out"), **fields)
    return guard.refused(request, guard.null())


def test_start_whose_output_stalls_is_refused_and_never_runs_late(stalling: tuple[RealGuard, StallingDisk]) -> None:
    guard, disk = stalling
    disk.freeze()
    code, story = refused_start(guard, disk)
    assert code == "unrun"
    assert f"the output {disk.mount}/out on {disk.mount} does not answer" in story
    assert guard.listed()["state"] == "ending"
    guard.ask(KILL)
    disk.thaw()
    guard.event("empty", job=1)
    assert not (guard.work / "canary").exists()
    guard.ask({"do": "forget", "job": 1, "attempt": 1})
    wait_for(lambda: nothing_left(guard), "the end of all that the attempt left")


def test_time_limit_counts_from_the_scripts_start(stalling: tuple[RealGuard, StallingDisk]) -> None:
    guard, disk = stalling
    guard.prepare(job=2, limit_us=1000 * US_PER_S)
    disk.freeze()
    guard.begin(guard.spawning(["true"], job=2, output=str(disk.mount / "out")), guard.null())
    wait_for(lambda: guard.listed(2)["commands"], "the command")
    assert guard.listed(2)["commands"][0]["state"] == "starting"
    assert guard.listed(2)["deadline_us"] is None
    disk.thaw()
    guard.event("exited", job=2, status=0)
    assert guard.listed(2)["deadline_us"] > boottime_us() + 900 * US_PER_S


def test_start_that_stalls_across_a_guards_death_is_answered_once(stalling: tuple[RealGuard, StallingDisk]) -> None:
    guard, disk = stalling
    request = guard.spawning(["sh", "-c", f"echo ran >> {guard.work}/canary"], output=str(disk.mount / "out"))
    disk.freeze()
    guard.begin(request, guard.null())
    wait_for(guard.supervisors, "the record of its supervisor")
    guard.kill()
    guard.start()
    assert guard.listed()["commands"][0]["state"] == "starting"
    number = guard.begin(request, guard.null())
    disk.thaw()
    assert guard.answer(number)["pid"] > 0
    guard.event("exited", n=0, status=0)
    assert (guard.work / "canary").read_text() == "ran\n"


def test_start_killed_while_no_guard_was_there_never_runs(stalling: tuple[RealGuard, StallingDisk]) -> None:
    guard, disk = stalling
    disk.freeze()
    guard.begin(guard.spawning(["touch", f"{guard.work}/canary"], output=str(disk.mount / "out")), guard.null())
    wait_for(guard.supervisors, "the record of its supervisor")
    guard.kill()
    guard.start()
    guard.ask(KILL)
    disk.thaw()
    guard.event("empty", job=1)
    assert not (guard.work / "canary").exists()
    guard.ask({"do": "forget", "job": 1, "attempt": 1})
    wait_for(lambda: nothing_left(guard), "the end of all that the attempt left")


def test_directory_that_hangs_is_refused_with_its_mount(make_guard: MakeGuard) -> None:
    guard = make_guard(start=False)
    with hanging_directory(guard.work / "home") as home:
        guard.start()
        code, story = guard.refused(guard.preparation(directory=str(home)))
        assert (code, story) == ("directory", f"{home} on {home}: no answer within 10 s")
        wait_for(lambda: guard.listed()["state"] == "ended", "the end of the preparation")
        guard.ask({"do": "forget", "job": 1, "attempt": 1})
        wait_for(lambda: nothing_left(guard), "the end of all that the attempt left")


def test_user_database_that_hangs_is_named_instead_of_a_file_system(make_guard: MakeGuard) -> None:
    guard = make_guard(start=False)
    guard.within = ["unshare", "--mount", "--propagation", "private"]
    guard.start()
    assert guard.process is not None
    etc = copy_of_etc(guard.directory)
    (etc / "passwd").unlink()
    os.mkfifo(etc / "passwd")
    view = ["nsenter", "--target", str(guard.process.pid), "--mount"]
    subprocess.run([*view, "mount", "--bind", etc, "/etc"], check=True)
    code, story = guard.refused(guard.preparation())
    assert code == "slow-users"
    assert story == f"this node's user database does not answer for {guard.user}: no start within 10 s"
    wait_for(lambda: guard.listed()["state"] == "ended", "the end of the preparation")


def test_process_that_waits_for_a_socket_waits_for_no_path() -> None:
    """It was said to wait for ``/``: the number 47 of a descriptor, as poll is given it, reads as that path."""
    program = (
        "import os, select\n"
        "read, write = os.pipe()\n"
        "os.dup2(read, 47)\n"
        "poll = select.poll()\n"
        "poll.register(47)\n"
        "print(flush=True)\n"
        "poll.poll()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as waits:
        assert waits.stdout is not None
        waits.stdout.readline()
        wait_for(lambda: stalls.waiting([waits.pid])[0].channel, "a process in poll")
        (found,) = stalls.waiting([waits.pid])
        waits.kill()
    assert (found.path, found.mount) == ("", "")


def test_process_that_cannot_be_ended_is_named_until_it_ends(stalling: tuple[RealGuard, StallingDisk]) -> None:
    guard, disk = stalling
    os.mkfifo(guard.work / "go", 0o666)
    pid = guard.shell(f"read line < {guard.work}/go; echo more > {disk.mount}/file")
    disk.freeze()
    (guard.work / "go").write_text("go\n")
    wait_for(lambda: stalls.uninterruptible(pid), "a write that stalls")
    guard.ask(KILL)
    told = guard.event("stalled", job=1, attempt=1)
    assert (told["user"], told["procs"], told["memory_bytes"]) == (guard.user, 1, 256 * MIB)
    (process,) = told["processes"]
    assert (process["pid"], process["command"], process["mount"]) == (pid, "sh", str(disk.mount))
    assert process["path"] == f"{disk.mount}/file"
    assert not process["own"]
    guard.client()
    assert guard.event("stalled", job=1, attempt=1) == told, "told again to an agent that has just come"
    disk.thaw()
    guard.event("empty", job=1)

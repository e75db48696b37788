"""The owner's switch: parallel work stops at once and goes on, without agent and scheduler, and for nobody else."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kit.command import Call, cosched
from kit.desk_socket import ask_as, desk
from kit.guards import US_PER_S, RealGuard, alive, places
from kit.waiting import wait_for

from node_agent.guard.desk.pause import OPTED_OUT

__all__ = ["cosched"]

COUNT = "n=0; while :; do n=$((n+1)); echo $n >count.new; mv count.new count; sleep 0.01; done"
NOBODY = 65_534


def count(guard: RealGuard, name: str = "count") -> int:
    path = Path(guard.work) / name
    return int(path.read_text()) if path.exists() else 0


def grows(guard: RealGuard, name: str = "count") -> None:
    before = count(guard, name)
    wait_for(lambda: count(guard, name) > before + 2, "the job to go on")


def stands_still(guard: RealGuard, name: str = "count") -> None:
    """A few looks in a row: what had been begun when it stopped may have been finished at the first."""

    def still() -> bool:
        before = count(guard, name)
        for _ in range(20):
            desk(guard, "status")
        return count(guard, name) == before

    wait_for(still, "the job to stand still")
    before = count(guard, name)
    subprocess.run(["sleep", "0.3"], check=True)
    assert count(guard, name) == before


def test_a_pause_stops_what_runs_and_it_goes_on_afterwards(any_guard: RealGuard) -> None:
    guard = any_guard
    guard.prepare()
    pid = guard.shell(COUNT)
    grows(guard)
    answer = desk(guard, "pause")
    assert answer["paused"].endswith("has paused parallel work at this desk")
    assert answer["paused_until_us"] is None
    guard.event("desk")
    assert guard.status()["paused"] == answer["paused"]
    stands_still(guard)
    assert alive(pid)
    assert desk(guard, "resume")["paused"] == ""
    grows(guard)


@pytest.fixture
def refused(make_guard: Any) -> tuple[RealGuard, Path]:
    """A guard with two jobs that count, and the file by which the kernel refuses to stop the first.

    The guard alone sees it so, by a mount of its own.
    """
    guard: RealGuard = make_guard(start=False)
    guard.within = ["unshare", "--mount", "--propagation", "private"]
    guard.start()
    assert guard.process is not None
    for job in (1, 2):
        guard.prepare(job)
        guard.shell(f"trap '' TERM; {COUNT.replace('count', f'count{job}')}", job=job)
        grows(guard, f"count{job}")
    freezer = kernel_file(guard, "freezer.state", "cgroup.freeze")
    inside = ["nsenter", f"--target={guard.process.pid}", "--mount"]
    subprocess.run([*inside, "mount", "-n", "--bind", freezer, freezer], check=True)
    subprocess.run([*inside, "mount", "-n", "-o", "remount,bind,ro", freezer], check=True)
    return guard, freezer


def kernel_file(guard: RealGuard, *names: str) -> Path:
    """A file of the first job's control group, whatever it is called in the version that is here."""
    paths = [place / name for place in places(f"{guard.group}/job-1.1") for name in names]
    return next(path for path in paths if path.exists())


def test_a_job_that_cannot_be_stopped_keeps_no_other_from_it_and_is_tried_again(
    refused: tuple[RealGuard, Path],
) -> None:
    guard, freezer = refused
    assert desk(guard, "pause")["paused"].endswith("has paused parallel work at this desk")
    stands_still(guard, "count2")
    grows(guard, "count1")
    assert guard.process is not None
    subprocess.run(["nsenter", f"--target={guard.process.pid}", "--mount", "umount", "-n", freezer], check=True)
    wait_for(lambda: freezer.read_text().strip() in {"FROZEN", "1"}, "another try")
    stands_still(guard, "count1")
    assert desk(guard, "resume")["paused"] == ""
    for job in (1, 2):
        grows(guard, f"count{job}")


def test_a_job_that_forks_all_the_time_stops_each_time(guard: RealGuard) -> None:
    """Version 1's freezer leaves about one in twenty such groups FREEZING, until they are frozen once more."""
    guard.prepare()
    guard.shell("while :; do /bin/true; done")
    state = kernel_file(guard, "freezer.state", "cgroup.events")
    for _ in range(5):
        desk(guard, "pause")
        wait_for(lambda: state.read_text().split()[-1] in {"FROZEN", "1"}, "all its processes to stand still")
        desk(guard, "resume")


def test_what_is_paused_can_be_killed(any_guard: RealGuard) -> None:
    guard = any_guard
    guard.prepare()
    pid = guard.shell(COUNT)
    grows(guard)
    desk(guard, "pause")
    guard.ask({"do": "kill", "job": 1, "attempt": 1, "grace_us": 100_000})
    guard.event("empty", job=1)
    assert not alive(pid)


def test_who_is_not_at_the_desk_may_look_and_decide_nothing(guard: RealGuard) -> None:
    assert ask_as(NOBODY, guard, do="status")["ok"]
    for do in ("pause", "resume"):
        answer = ask_as(NOBODY, guard, do=do)
        assert answer["error"] == "user"
        assert answer["message"].startswith("user 65534 is not logged in at this machine itself")
    assert guard.status()["paused"] == ""
    guard.stop()
    guard.config["security"]["desk_users"] = ["nobody"]
    guard.start()
    assert ask_as(NOBODY, guard, do="pause")["paused"] == "nobody has paused parallel work at this desk"


def test_desk_socket_obeys_the_session_on_screen_until_it_is_switched_away(make_guard: Any) -> None:
    """An ordinary user, in no list: by systemd's file of his session; also one whose number is above 2^31."""
    guard = make_guard(start=False)
    machine = guard.directory / "run-of-machine"
    session = machine / "systemd/sessions/2"
    session.parent.mkdir(parents=True)
    guard.within = ["unshare", "--mount", "sh", "-c", f'mount -n --bind {machine} /run && exec "$@"', "sh"]
    session.write_text("UID=65534\nACTIVE=1\nREMOTE=0\nCLASS=user\nTYPE=wayland\n")
    guard.start()
    assert ask_as(NOBODY, guard, do="pause")["paused"] == "nobody has paused parallel work at this desk"
    assert ask_as(NOBODY, guard, do="resume")["paused"] == ""
    for elsewhere in ("ACTIVE=1\nREMOTE=1", "ACTIVE=0\nREMOTE=0"):  # by ssh; another has the screen
        session.write_text(f"UID=65534\n{elsewhere}\nCLASS=user\nTYPE=wayland\n")
        assert ask_as(NOBODY, guard, do="pause")["error"] == "user"
    assert guard.status()["paused"] == ""
    session.write_text("UID=3000000000\nACTIVE=1\nREMOTE=0\nCLASS=user\nTYPE=wayland\n")
    own = guard.directory / "run/desk/3000000000.sock"
    wait_for(lambda: own.exists() and own.stat().st_uid == 3_000_000_000, "a socket of its own")
    assert ask_as(3_000_000_000, guard, do="pause")["paused"] == "3000000000 has paused parallel work at this desk"


def test_an_owner_who_takes_part_in_nothing_is_asked_nothing(make_guard: Any) -> None:
    guard = make_guard(start=False)
    guard.top["parallel"] = False
    guard.start()
    assert guard.refused(guard.preparation()) == ("paused", OPTED_OUT)
    assert desk(guard, "resume")["message"] == OPTED_OUT


def test_the_command_says_what_holds_here(guard: RealGuard, cosched: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSCHED_DESK_SOCKET", f"{guard.directory}/run/desk.sock")
    assert cosched("desk", "status").out == (
        "parallel work: no limit on CPU, beside everything of yours\nno job is here\n"
    )
    assert cosched("desk", "pause", "--for", "2h").out.startswith(
        "paused: root has paused parallel work at this desk, for "
    )
    assert json.loads(cosched("desk", "status", "--json").out)["paused_for_s"] > 3600
    assert cosched("desk", "resume").status == 0
    bad = cosched("desk", "pause", "--for", "soon")
    assert bad.status == 2
    assert "--for" in bad.err
    guard.stop()
    gone = cosched("desk", "status")
    assert gone.status == 3
    assert "no guard of cosched answers at" in gone.err


# --- jobs that have no CPU --------------------------------------------------------------------------------------------


def share(guard: RealGuard, n: int, cpus: int | None) -> None:
    guard.ask({"do": "resize", "job": 1, "attempt": 1, "n": n, "tasks": 1, "cpus": cpus, "asleep": False})


def test_a_job_without_a_cpu_stands_still_across_guards_and_goes_on_when_it_has_one(any_guard: RealGuard) -> None:
    guard = any_guard
    guard.prepare(limit_us=600 * US_PER_S)
    guard.shell(COUNT)
    grows(guard)
    deadline_us = guard.listed()["deadline_us"]
    share(guard, 7, 0)
    stands_still(guard)
    assert guard.refused(guard.spawning(["true"], n=1), guard.null())[0] == "busy"
    guard.kill()
    guard.start()
    stands_still(guard)
    share(guard, 8, 1)
    grows(guard)
    assert guard.listed()["deadline_us"] > deadline_us, "the time in which it had no CPU counts in no limit"

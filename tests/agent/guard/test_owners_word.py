"""What the desk's owner says beside a pause: ends, bans, hours, a share; who may, what outlives the guard."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from kit.command import Call, Ended, cosched
from kit.desk_alone import DECIDES, outside_now
from kit.desk_socket import ask_as, desk
from kit.guards import US_PER_S, RealGuard, alive, ordinary_user
from kit.waiting import wait_for

from cosched.model.presets import hours_of
from node_agent.guard.desk.hours import MINUTES, Window, open_spans, opens_in, windows_of

__all__ = ["cosched"]

IDLE = "while :; do sleep 0.05; done"


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_the_status_names_whose_job_is_here_and_what_it_uses(any_guard: RealGuard) -> None:
    guard = any_guard
    assert desk(guard, "status")["jobs"] == []
    guard.prepare(limit_us=3600 * US_PER_S)
    guard.shell(f"echo begun 1; {IDLE}")
    guard.told("begun")

    def shown() -> dict[str, Any] | None:
        jobs = desk(guard, "status")["jobs"]  # the same for a moment, however often it is asked
        return jobs[0] if jobs and jobs[0]["processes"] >= 1 and jobs[0]["memory_bytes"] > 0 else None

    job = wait_for(shown, "its processes and its memory")
    assert (job["job"], job["attempt"], job["state"]) == (1, 1, "running")
    assert job["user"] == guard.preparation()["user"]
    assert job["since_us"] < job["seen_us"] < job["until_us"] <= job["seen_us"] + 3600 * US_PER_S


# --- end --------------------------------------------------------------------------------------------------------------


def test_an_ended_job_is_told_as_the_owners_word_before_anything_that_comes_of_it(guard: RealGuard) -> None:
    guard.prepare()
    pid = guard.shell(IDLE)
    assert desk(guard, "end", job=1)["ended"] == [1]
    assert guard.event("desk")["word"]["ended"] == [[1, 1]]
    assert guard.event("exited", n=0)["cause"] == "owner"
    guard.event("empty", job=1)
    assert not alive(pid)
    assert desk(guard, "end", job=1)["error"] == "unknown"
    guard.kill()
    guard.start()
    assert guard.status()["word"]["ended"] == [[1, 1]], "a successor tells it again"
    guard.ask({"do": "kill", "job": 1, "attempt": 1, "grace_us": 0})
    guard.event("empty", job=1)
    guard.ask({"do": "forget", "job": 1, "attempt": 1})
    assert guard.status()["word"]["ended"] == []


# --- ban, hours, share ------------------------------------------------------------------------------------------------


def test_a_banned_users_jobs_are_refused_until_they_are_allowed_across_guards(guard: RealGuard) -> None:
    user = guard.preparation()["user"]
    desk(guard, "ban", user=user)
    assert guard.event("desk")["word"]["bans"] == [user]
    refused = ("owner", "its owner does not take this user's jobs")
    assert guard.refused(guard.preparation()) == refused
    guard.kill()
    guard.start()
    assert guard.refused(guard.preparation()) == refused
    desk(guard, "allow", user=user)
    guard.prepare()


def test_outside_of_its_hours_nothing_runs_here_and_inside_it_goes_on(guard: RealGuard) -> None:
    guard.prepare(limit_us=600 * US_PER_S)
    guard.shell(IDLE)
    limit_us = guard.listed()["deadline_us"]
    answer = desk(guard, "hours", windows=outside_now())
    assert "outside of the hours in which parallel work may run at this desk" in answer["paused"]
    assert answer["paused_until_us"] > 0
    assert answer["closed"] is guard.status()["closed"] is True
    assert guard.refused(guard.preparation(job=2))[0] == "paused"
    assert desk(guard, "pause")["closed"] is False, "it has no end"
    desk(guard, "resume")
    assert "outside of the hours" in guard.status()["paused"], "a pause that ends opens no hours"
    guard.kill()
    guard.start()
    assert "outside of the hours" in guard.status()["paused"]
    held_us = guard.listed()["deadline_us"]
    assert desk(guard, "hours", windows=None)["paused"] == ""
    assert held_us == limit_us
    assert guard.listed()["deadline_us"] > limit_us, "the time outside of its hours counts in no limit"
    guard.prepare(job=2)


# --- who may ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("connects", "refusal"),
    [
        ("s.connect(path)", "a job decides nothing about the desk that it runs on"),
        ("os.fork() or (s.connect(path), os._exit(0)); os.wait()", "who has connected has ended, or is not seen from"),
    ],
    ids=["itself", "by a child that has ended"],
)
def test_a_job_decides_nothing_though_it_runs_as_who_decides(make_guard: Any, connects: str, refusal: str) -> None:
    guard = make_guard(start=False)
    user = ordinary_user().pw_name
    guard.config["security"]["desk_users"] = [user]
    guard.start()
    guard.prepare(user=user)
    script = Path(guard.work) / "asks.py"
    script.write_text(
        "import json, os, socket, sys\n"
        f"for request in {DECIDES!r}:\n"
        "    for path in sys.argv[1:]:\n"
        "        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        f"        {connects}\n"
        "        s.send(json.dumps(request).encode())\n"
        "        answer = json.loads(s.recv(65536))\n"
        f"        print('answered', 1 if answer.get('message', '').startswith({refusal!r}) else 0)\n"
        "print('over 1', flush=True)\n"
    )
    script.chmod(0o644)
    own = f"{guard.directory}/run/desk/{ordinary_user().pw_uid}.sock"
    wait_for(Path(own).exists, "the door of who decides")
    guard.shell(f"/usr/bin/python3 -I {script} {guard.directory}/run/desk.sock {own} 2>&1")
    guard.told("over")
    answers = [line for line in guard.output().splitlines() if line.startswith("answered")]
    assert answers == ["answered 1"] * 2 * len(DECIDES)
    assert ask_as(ordinary_user().pw_uid, guard, do="pause")["ok"], "the same user outside of the job"


# --- the hours themselves ---------------------------------------------------------------------------------------------


def test_windows_are_the_hours_of_presets() -> None:
    for begin, end in ((480, 1020), (1080, 480), (0, 1440), (600, 0)):
        window = Window(begin, end, (0, 4))
        known = hours_of("00:00-24:00", ["mon", "fri"])._replace(begin=begin, end=end)
        for weekday, minute in product(range(7), range(0, MINUTES, 7)):
            open_now = opens_in([window], weekday, minute) == 0
            assert open_now == known.include(weekday, minute), (window, weekday, minute)


def test_hours_open_at_the_next_begin() -> None:
    nights, weekend = Window(18 * 60, 8 * 60, (0, 1, 2, 3, 4)), Window(0, MINUTES, (5, 6))
    assert opens_in([nights], 0, 12 * 60) == 6 * 60
    assert opens_in([nights], 0, 19 * 60) == 0
    assert opens_in([nights], 5, 7 * 60) == 0, "Friday's night"
    assert opens_in([nights], 5, 9 * 60) == (2 * 24 + 9) * 60
    assert opens_in([nights, weekend], 5, 9 * 60) == 0
    assert opens_in([weekend], 6, 23 * 60) == 0
    assert opens_in([weekend], 0, 0) == 5 * MINUTES
    assert windows_of([[0, 60, [3, 3, 1]]]) == (Window(0, 60, (1, 3)),)


def test_hours_are_foreseen_as_spans() -> None:
    week, all_days = 7 * MINUTES, tuple(range(7))
    nights, weekend = Window(18 * 60, 8 * 60, (0, 1, 2, 3, 4)), Window(0, MINUTES, (5, 6))
    assert open_spans([], 0, 0, week) == [(0, week)]
    assert open_spans([nights], 0, 12 * 60, MINUTES) == [(6 * 60, 20 * 60)]
    assert open_spans([nights], 1, 7 * 60, MINUTES) == [(0, 60), (11 * 60, MINUTES)], "Monday's night, and the next"
    assert open_spans([nights], 5, 1, MINUTES) == [(0, 8 * 60 - 1)], "Friday's night began the day before"
    assert open_spans([nights, weekend], 4, 18 * 60, 3 * MINUTES) == [(0, (6 + 2 * 24) * 60)]
    assert open_spans([Window(0, MINUTES, all_days)], 3, 5, week) == [(0, week)]
    assert open_spans([Window(60, 59, all_days), Window(0, 120, all_days)], 0, 0, week) == [(0, week)]
    for windows, now, at in product(([nights], [weekend], [nights, weekend]), range(0, week, 601), range(0, week, 97)):
        then = (now + at) % week
        held = any(
            each.begin <= minute < (each.end if each.begin < each.end else each.end + MINUTES)
            for each in windows
            for weekday in each.days
            for minute in ((then - weekday * MINUTES) % week,)
        )
        spans = open_spans(windows, *divmod(now, MINUTES), week)
        assert held == any(begin <= at < end for begin, end in spans), (windows, now, at)


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_tells_and_decides(guard: RealGuard, cosched: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSCHED_DESK_SOCKET", f"{guard.directory}/run/desk.sock")

    def at_desk(*arguments: str) -> Ended:
        return cosched("desk", *arguments)

    user = guard.preparation()["user"]
    guard.prepare(limit_us=3600 * US_PER_S)
    guard.shell(f"echo begun 1; {IDLE}")
    guard.told("begun")
    told = at_desk("status").out.splitlines()
    assert told[1].startswith(f"  job 1 of {user}: ")
    assert "process" in told[1]
    assert " here since " in told[1]
    assert told[1].endswith(" at most")
    job = json.loads(at_desk("status", "--json").out)["jobs"][0]
    assert (job["job"], job["user"]) == (1, user)
    assert 0 <= job["cpus_used"] < 64
    assert job["since"] < job["until"]
    assert at_desk("share", "0.25").out.splitlines()[-1] == "share: 0.25 of the CPU while somebody is here"
    unheard_of = at_desk("ban", "bob-unheard-of", "--for", "7d")
    assert "no user of this computer is called bob-unheard-of" in unheard_of.err
    assert "banned: bob-unheard-of until " in unheard_of.out, "an account may come yet"
    assert at_desk("allow", "bob-unheard-of").status == 0
    assert at_desk("ban", "root").err == ""
    assert at_desk("allow", "root").status == 0
    assert "banned: bob until " in at_desk("ban", "bob", "--for", "7d").out
    assert at_desk("ban", "--list").out.startswith("banned: bob until ")
    assert at_desk("allow", "bob").status == 0
    assert at_desk("ban", "--list").out == "nobody is banned here\n"
    assert "hours: 00:00-23:59 and sat,sun@00:00-24:00" in at_desk("hours", "00:00-23:59", "sat,sun").out
    assert "hours" not in at_desk("hours", "always").out
    assert "wake: on, this computer may be woken from its sleep for jobs that wait" in at_desk("wake", "on").out
    wait_for(lambda: guard.event("desk")["wake"], "word for the agent")
    assert "wake:" not in at_desk("wake", "off").out
    assert at_desk("share", "contract").status == 0
    for bad in (
        ["share", "2"],
        ["share", "much"],
        ["wake", "up"],
        ["hours", "18"],
        ["hours", "8:00-9:00", "noon"],
        ["end", "x"],
        ["share", "0.0001"],
        ["pause", "--for", "367d"],
        ["ban"],
        ["ban", "--list", "--for", "7d"],
        ["ban", ""],
    ):
        answer = at_desk(*bad)
        assert (answer.status, answer.out) == (2, ""), bad
    assert at_desk("end", "1").out == "ended here: job 1\n"
    guard.event("empty", job=1)
    assert at_desk("end", "all").out == "nothing runs here that was not being ended already\n"
    assert at_desk("end", "9").status == 1

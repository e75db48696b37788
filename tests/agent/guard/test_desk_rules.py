"""The desk by itself: whom it believes, and what holds where the disk or a directory of names fails it."""

import errno
import json
import os
import pwd
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kit.desk_alone import DECIDES, DeskAlone, desk_alone, outside_now
from kit.desk_socket import desk as at_desk

from cosched.apps.cli.desk import ban_command
from cosched.apps.cli.shared.desk_words import document, lines
from cosched.linux import files, process
from cosched.model import desk as desk_model
from node_agent.guard.base.records import Records
from node_agent.guard.desk import owners_word, switch
from node_agent.guard.desk.owners_word import FORESEEN_DAYS, MOST_AT_ONCE, MOST_BANS
from node_agent.guard.desk.pause import DAMAGED
from node_agent.guard.desk.switch import MOST_SPANS

STRANGER = 4_000_000_001


def test_a_directory_of_names_that_is_away_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names may be on a network: the guard has one loop, and whoever asks there must not stop it."""

    def hangs(_: object) -> None:
        raise AssertionError("asked for a name")

    user = pwd.getpwuid(os.getuid()).pw_name
    with desk_alone(tmp_path, (user, "nobody")) as desk:
        monkeypatch.setattr("pwd.getpwuid", hangs)
        monkeypatch.setattr("pwd.getpwnam", hangs)
        assert desk.said(STRANGER, "status")["ok"]
        assert "bans" not in desk.said(STRANGER, "status")["word"]
        assert desk.said(65534, "status")["word"]["bans"] == {}, "of security.desk_users"
        assert desk.said(65534, "pause")["paused"] == "nobody has paused parallel work at this desk"
        assert desk.said(65534, "resume")["paused"] == ""
        refused = desk.said(STRANGER, "pause")
        assert refused["error"] == "user"
        assert refused["message"].startswith(f"user {STRANGER} is not logged in at this machine itself: ")


def test_who_connects_from_outside_of_what_the_guard_sees_decides_nothing(make_guard: Any) -> None:
    """In a guard's own PID namespace all others have the number 0, and nobody can say which of them is a job's."""
    guard = make_guard(start=False)
    guard.within = ["unshare", "--pid", "--mount-proc", "--fork", "--kill-child"]
    guard.start()
    assert at_desk(guard, "status")["ok"]
    assert at_desk(guard, "pause")["message"].startswith("who has connected has ended, or is not seen from here")
    assert at_desk(guard, "status")["paused"] == ""


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk on which nothing can be changed any more."""

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "pause")

    monkeypatch.setattr(files, "replace", refused)
    monkeypatch.setattr(Records, "drop", refused)


def test_a_pause_holds_at_once_on_a_full_disk_and_the_answer_says_that_it_is_not_on_record(
    tmp_path: Path, full: None
) -> None:
    with desk_alone(tmp_path) as desk:
        answer = desk.said(0, "pause")
        assert answer["paused"] == "root has paused parallel work at this desk"
        assert desk.held is True
        (problem,) = answer["problems"]
        assert problem.startswith("what was last said of a pause is not on record (No space left on device)")
        assert f"problem: {problem}" in lines(document(answer))
        answer = desk.said(0, "resume")
        assert (answer["paused"], len(answer["problems"])) == ("", 1)
        assert desk.held is False


def test_a_pause_that_ends_by_itself_on_a_full_disk_ends(tmp_path: Path, full: None) -> None:
    """The second one replaces the first."""
    with desk_alone(tmp_path) as desk:
        desk.said(0, "pause", seconds=3600)
        desk.said(0, "pause", seconds=60)
        desk.desk.tick(process.boottime_us() + 61_000_000)
        assert desk.held is False
        assert desk.said(0, "status")["paused"] == ""


@pytest.mark.parametrize(("seconds", "later_s", "paused"), [(None, 10**6, True), (60, 59, True), (60, 61, False)])
def test_pause_is_taken_over_by_the_next_guard_or_is_over_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int | None, later_s: int, paused: bool
) -> None:
    with desk_alone(tmp_path) as desk:
        since_us = process.boottime_us()
        desk.said(0, "pause", seconds=seconds)
    boottime_us = process.boottime_us
    monkeypatch.setattr(process, "boottime_us", lambda: boottime_us() + later_s * process.US_PER_S)
    with desk_alone(tmp_path) as desk:
        held, held_since_us = desk.holds[0]
        assert held, "what its predecessor has stopped is known"
        assert since_us <= held_since_us <= boottime_us()
        assert (desk.held, desk.desk.status_fields()["paused"] != "") == (paused, paused)


PAUSED = {"boot_id": process.boot_id(), "user": "ann", "since_us": 1, "until_us": None, "until_s": None}
_DAMAGES: list[dict[str, Any]] = [
    {"since_us": None},
    {"since_us": "much"},
    {"until_us": []},
    {"until_us": float("nan")},
    {"until_us": float("inf")},
    {"boot_id": "other", "until_s": float("inf")},
]


@pytest.mark.parametrize(
    "record",
    ["", "{", "[]", "{}", "[" * 100_000] + [json.dumps(PAUSED | damage) for damage in _DAMAGES],
    ids=range(11),
)
def test_a_damaged_record_of_a_pause_is_a_pause_until_resumed(tmp_path: Path, record: str) -> None:
    (tmp_path / "pause").write_text(record)
    with desk_alone(tmp_path) as desk:
        answer = desk.said(0, "status")
        assert (answer["paused"], answer["problems"]) == ("somebody has paused parallel work at this desk", [DAMAGED])
        assert answer["paused_until_us"] is None
        assert desk.held is True
        assert len(desk.complaints) == 1
        answer = desk.said(0, "resume")
        assert (answer["paused"], answer["problems"], desk.held) == ("", [], False)
    with desk_alone(tmp_path) as desk:
        assert desk.said(0, "status")["paused"] == ""


@pytest.mark.parametrize(
    "record",
    [
        '{"cpu_ratio": 0.25, "bans": [["bo',
        '{"cpu_ratio": "much", "bans": [[1]], "hours": 3}',
        f'{{"cpu_ratio": {10**400}, "bans": [], "hours": null}}',
        f'{{"cpu_ratio": null, "bans": [["ada", "bob", {10**400}]], "hours": null}}',
    ],
    ids=range(4),
)
def test_damaged_record_of_owner_decisions_is_reported_until_the_next_decision(tmp_path: Path, record: str) -> None:
    (tmp_path / "word").write_text(record)
    with desk_alone(tmp_path) as desk:
        assert desk.said(0, "status")["problems"] == [owners_word.DAMAGED]
        assert desk.desk.status_fields()["word"] == {"cpu_ratio": None, "bans": [], "ended": []}
        assert desk.complaints == ["taking up what was said at this desk"]
        assert desk.said(0, "ban", user="bob")["problems"] == []
    with desk_alone(tmp_path) as desk:
        assert (desk.said(0, "status")["problems"], desk.complaints) == ([], [])


def test_strangers_decide_nothing(tmp_path: Path) -> None:
    with desk_alone(tmp_path) as desk:
        before = desk.desk.status_fields()
        for request in DECIDES:
            assert desk.said(STRANGER, **request)["error"] == "user", request
        assert (desk.desk.status_fields(), desk.changes) == (before, 0)


def test_video_inhibitor_from_the_session_on_screen_expires_after_two_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger would keep the desk from parallel work for ever."""
    with desk_alone(tmp_path) as desk:
        assert desk.said(STRANGER, "inhibited", seconds=60)["error"] == "user"
        assert desk.desk.status_fields()["inhibited_until_us"] == 0
        monkeypatch.setattr(switch, "local_users", lambda: {0})
        now_us = process.boottime_us()
        for seconds, most_us in ((60, 60_000_000), (10_000_000, 120_000_000)):
            assert desk.said(0, "inhibited", seconds=seconds) == {"ok": True}
            until_us = desk.desk.status_fields()["inhibited_until_us"]
            assert now_us + most_us <= until_us <= process.boottime_us() + most_us
        assert desk.changes == 1


_NAME, _SECONDS = "expected a user's name of at most 64 characters", "expected a number above 0, up to 31622400"
_WORDS = "do: expected status, pause, resume, end, ban, allow, hours, share, probe, wake or inhibited"


@pytest.mark.parametrize(
    ("packet", "complaint"),
    [
        ("nonsense", "not JSON"),
        ("[]", _WORDS),
        ('{"do": "reboot"}', _WORDS),
        ('{"do": "pause", "seconds": -1}', f"seconds: found -1; {_SECONDS}"),
        ('{"do": "pause", "seconds": "2h"}', f"seconds: found '2h'; {_SECONDS}"),
        ('{"do": "end", "job": "12"}', "job: found '12'; expected a job's number, or null for all"),
        ('{"do": "end", "job": true}', "job: found True; expected a job's number, or null for all"),
        ('{"do": "ban"}', f"user: found a NoneType; {_NAME}"),
        (f'{{"do": "ban", "user": "{65 * "a"}"}}', f"user: found '{65 * 'a'}'; {_NAME}"),
        ('{"do": "ban", "user": "a/b"}', f"user: found 'a/b'; {_NAME}"),
        ('{"do": "ban", "user": "bob", "seconds": 0}', f"seconds: found 0; {_SECONDS}"),
        ('{"do": "share", "cpu_ratio": 0}', "cpu_ratio: found 0; expected a share from 0.001 to 1"),
        ('{"do": "share", "cpu_ratio": 1.5}', "cpu_ratio: found 1.5; expected a share from 0.001 to 1"),
        ('{"do": "wake", "on": 1}', "on: found 1; expected true or false"),
        ('{"do": "probe"}', "on: found a NoneType; expected true or false"),
        ('{"do": "probe", "on": "off"}', "on: found 'off'; expected true or false"),
        ('{"do": "hours", "windows": []}', "windows: expected 1 to 8 windows"),
        ('{"do": "hours", "windows": [[0, 60, [7]]]}', "windows: expected days from 0 (Monday) to 6"),
        (
            '{"do": "hours", "windows": [[60, 60, [1]]]}',
            "windows: expected two different minutes of the day, 0 to 1440",
        ),
        ('{"do": "hours", "windows": [[0, 60]]}', "windows: expected windows of [begin, end, days]"),
    ],
    ids=range(20),
)
def test_malformed_request_is_refused_and_changes_nothing(tmp_path: Path, packet: str, complaint: str) -> None:
    with desk_alone(tmp_path) as desk:
        before = desk.desk.status_fields()
        assert desk.heard(0, packet.encode())["message"] == complaint
        assert (desk.desk.status_fields(), desk.changes) == (before, 0)


def test_bans_and_decisions_are_bounded_and_a_pause_is_not(tmp_path: Path) -> None:
    """Each is written to the disk, by the one process that arms the contract."""
    with desk_alone(tmp_path) as desk:
        for n in range(MOST_BANS):
            assert desk.said(0, "ban", user=f"u{n}")["ok"]
        assert desk.said(0, "ban", user="more")["error"] == "busy"
        assert desk.said(0, "ban", user="u0", seconds=60)["ok"], "one that is banned may be banned for another time"
    with desk_alone(tmp_path) as desk:
        answers = [desk.said(0, "share", cpu_ratio=(n % 90 + 10) / 100) for n in range(3 * MOST_AT_ONCE)]
        refused = {answer["message"] for answer in answers if "error" in answer}
        assert refused == {"too many decisions at once: wait a second"}
        assert desk.said(0, "pause")["paused"]


def test_share_is_in_force_at_once_and_with_the_next_guard(tmp_path: Path) -> None:
    for said, before in ((0.25, None), (None, 0.25), (0.9, None)):
        with desk_alone(tmp_path) as desk:
            assert desk.said(0, "share", cpu_ratio=said)["word"]["cpu_ratio"] == said
            assert (desk.shares, desk.changes) == ([before, said], 1)
            assert desk.desk.status_fields()["word"]["cpu_ratio"] == said


def test_ban_with_an_end_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with desk_alone(tmp_path) as desk:
        desk.said(0, "ban", user="bob", seconds=60)
        assert (desk.desk.status_fields()["word"]["bans"], desk.changes) == (["bob"], 1)
        now_s = time.time()
        for later_s, bans, changes in ((50, ["bob"], 1), (61, [], 2)):
            monkeypatch.setattr("time.time", lambda later_s=later_s: now_s + later_s)
            desk.desk.tick(desk.desk.due_us() + later_s * 1_000_000)
            assert (desk.desk.status_fields()["word"]["bans"], desk.changes) == (bans, changes)


def test_machine_is_woken_only_by_its_owners_word_and_when_jobs_may_run(tmp_path: Path) -> None:
    def spans(desk: DeskAlone) -> list[tuple[float, float]]:
        """In seconds from now."""
        now_us = process.boottime_us()
        wake = desk.desk.status_fields()["wake"]
        return [((begin - now_us) / 1_000_000, (end - now_us) / 1_000_000) for begin, end in wake]

    with desk_alone(tmp_path) as desk:
        assert desk.desk.status_fields()["wake"] is None
        assert desk.said(0, "wake", on=True)["word"]["wake"] is True
    with desk_alone(tmp_path) as desk:
        ((begin_s, end_s),) = spans(desk)
        assert begin_s < 60
        assert FORESEEN_DAYS - 1 < end_s / 86400 <= FORESEEN_DAYS
        desk.said(0, "pause", seconds=3600)
        ((begin_s, _),) = spans(desk)
        assert 3500 < begin_s <= 3600
        desk.said(0, "hours", windows=outside_now())
        assert MOST_SPANS == desk_model.MOST_SPANS
        found = spans(desk)
        assert len(found) == FORESEEN_DAYS
        assert all(begin_s >= 3500 and end_s > begin_s for begin_s, end_s in found)
        desk.said(0, "pause")
        assert spans(desk) == [], "a pause without an end"
        desk.said(0, "resume")
        desk.said(0, "wake", on=False)
        assert desk.desk.status_fields()["wake"] is None


def test_who_is_banned_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the list could be of another moment than what was said about who decides."""
    asked = []
    with desk_alone(tmp_path) as desk:
        desk.said(0, "ban", user="bob")

        def answers(_: Path, request: dict[str, Any]) -> dict[str, Any]:
            asked.append(request)
            return desk.said(0, **request)

        monkeypatch.setattr("cosched.apps.cli.desk.ask", answers)
        assert CliRunner().invoke(ban_command, ["--list"]).output == "banned: bob\n"
    assert asked == [{"do": "status"}]


def test_job_past_its_limit_is_told_as_overdue() -> None:
    def line(until: datetime) -> str:
        job = {"job": 7, "user": "bob", "state": "running", "processes": 1, "cpus_used": None, "memory_bytes": 0}
        jobs = [{**job, "since": "", "until": until.isoformat()}]
        told = {"problems": [], "limits": {"cpus": None, "idle": True}, "paused": "", "word": {}, "contract": {}}
        return lines(told | {"jobs": jobs})[1]

    now = datetime.now().astimezone().replace(hour=12, minute=30)
    assert line(now + timedelta(days=1)).endswith("12:30 at most")
    assert "overdue since" in line(now - timedelta(days=1))

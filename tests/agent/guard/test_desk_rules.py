"""The desk by itself: whom it believes, and what holds where the disk or a directory of names fails it."""

import errno
import json
import os
import pwd
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kit.desk_alone import desk_alone
from kit.desk_socket import desk as at_desk

from cosched.apps.cli.desk import ban_command
from cosched.apps.cli.shared.desk_words import document, lines
from cosched.linux import files, process
from node_agent.guard.base.records import Records
from node_agent.guard.desk.owners_word import DAMAGED as WORD_DAMAGED
from node_agent.guard.desk.pause import DAMAGED

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
    with desk_alone(tmp_path) as desk:
        desk.said(0, "pause", seconds=60)
        desk.desk.tick(process.boottime_us() + 61_000_000)
        assert desk.held is False
        assert desk.said(0, "status")["paused"] == ""


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


def test_a_damaged_record_of_the_owners_word_is_told_until_something_is_said_anew(tmp_path: Path) -> None:
    (tmp_path / "word").write_text('{"cpu_ratio": 0.25, "bans": [["bo')
    with desk_alone(tmp_path) as desk:
        assert desk.said(0, "status")["problems"] == [WORD_DAMAGED]
        assert desk.complaints == ["taking up what was said at this desk"]
        assert desk.said(0, "ban", user="bob")["problems"] == []
    with desk_alone(tmp_path) as desk:
        assert (desk.said(0, "status")["problems"], desk.complaints) == ([], [])


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

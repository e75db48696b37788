"""What strangers are told at the desk's socket: by the rule alone, and by a desk that it was asked of."""

from pathlib import Path
from typing import Any

import pytest
from kit.desk_alone import desk_alone

from cosched.apps.cli.shared.desk_words import document, lines
from node_agent.guard.desk import switch
from node_agent.guard.desk.view import PAUSED, availability, public_status

ANN, BOB = 1001, 3_000_000_000


def job(number: int, uid: int, user: str, **more: Any) -> dict[str, Any]:
    return {
        "job": number, "attempt": 1, "user": user, "uid": uid, "state": "running", "tasks": 2, "processes": 3,
        "cpus": 2, "cpu_us": 10, "seen_us": 20, "memory_bytes": 4096, "since_us": 5, "until_us": 100, "stopped": False,
        **more,
    }  # fmt: skip


def status(**more: Any) -> dict[str, Any]:
    """A desk whose owner is there and waits for the CPU."""
    made = {
        "armed": True, "until_us": 7, "epoch": 3, "contract": {"cpu_ratio": 0.5, "memory_ratio": 0.5, "mpl": 1},
        "contract_cpus": 2.0, "tight": 0.5, "limits": {"cpus": 1.0, "idle": True, "memory_bytes": 9, "problems": []},
        "paused": "", "paused_until_us": None, "problems": [], "jobs": [job(5, ANN, "ann"), job(6, BOB, "bob")],
        "word": {"cpu_ratio": 0.25, "hours": [[0, 60, [1]]], "probe": True, "wake": True, "bans": {"eve": {}}}, **more,
    }  # fmt: skip
    return {**made, "availability": availability(made)}


def test_stranger_sees_what_the_api_tells_of_a_node_and_own_jobs_in_full() -> None:
    told = public_status(status(), BOB)
    assert told.keys() == status().keys()
    assert {key: value for key, value in told.items() if value not in (None, {}, [], "")} == {
        "availability": "limited",
        "contract": {"cpu_ratio": 0.5, "memory_ratio": 0.5, "mpl": 1},
        "limits": {"cpus": 2.0, "idle": True},
        "jobs": told["jobs"],
    }
    other, own = told["jobs"]
    assert own == job(6, BOB, "bob")
    assert {key: value for key, value in other.items() if value is not None} == {
        "job": 5, "attempt": 1, "state": "running", "tasks": 2, "cpus": 2, "stopped": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    "hidden",
    [
        {"tight": 0.25, "limits": {"cpus": 0.5, "idle": True, "memory_bytes": 9, "problems": ["CPU"]}},
        {"until_us": 8, "epoch": 4},
        {"word": {"cpu_ratio": None, "hours": [], "probe": False, "wake": False, "bans": {}}},
        {"problems": ["what was last said of a pause is not on record"]},
        {"jobs": [job(5, 7, "eve", processes=9, cpu_us=99, seen_us=9, memory_bytes=1, since_us=1, until_us=None)]},
    ],
)
def test_hidden_values_change_nothing_that_a_stranger_is_told(hidden: dict[str, Any]) -> None:
    assert public_status(status(jobs=status()["jobs"][:1]) | hidden, BOB) == public_status(
        status(jobs=status()["jobs"][:1]), BOB
    )


def test_pause_is_told_without_its_author_and_its_end() -> None:
    paused = status(paused="ann has paused parallel work at this desk", paused_until_us=9)
    told = public_status(paused, BOB)
    assert (told["paused"], told["paused_until_us"], told["availability"]) == (PAUSED, None, "not_available")
    assert public_status(status(armed=False), BOB)["availability"] == "free"
    assert public_status(status(armed=False), BOB)["limits"]["cpus"] is None


def test_desk_view_is_reduced_for_unauthorised_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the seat is the job's own user; the job could be a program from elsewhere."""
    monkeypatch.setattr(switch, "local_users", lambda: {ANN})
    with desk_alone(tmp_path) as desk:
        desk.jobs = [job(5, ANN, "ann"), job(6, BOB, "bob")]
        assert desk.said(0, "ban", user="eve")["ok"]
        full, own, none = ["ann", "bob"], ["ann", None], [None, None]
        seen = ((0, False, full), (0, True, full), (ANN, False, full), (ANN, True, own), (7, False, none))
        for uid, is_job, users in seen:
            desk.is_job = is_job
            told = desk.said(uid, "status")
            assert [each["user"] for each in told["jobs"]] == users
            assert (told["armed"], "bans" in told["word"]) == ((True, True) if users is full else (None, False))
        desk.is_job = False
        desk.said(0, "pause")
        assert (desk.said(ANN, "status")["paused"], desk.said(7, "status")["paused"]) == (
            "root has paused parallel work at this desk", PAUSED
        )  # fmt: skip


def test_command_prints_what_a_stranger_is_told() -> None:
    told = document({**public_status(status(), BOB), "paused_for_s": None}, status())
    said = lines(told)
    assert said[0] == "parallel work: at most 2 CPUs, behind everything of yours"
    assert said[1] == "  job 5: another user's"
    assert said[2].startswith("  job 6 of bob: 3 processes, ")
    assert not [line for line in said if "ann" in line or "banned" in line]

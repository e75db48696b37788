"""What users are on a node, asked where the name service or a home may not answer."""

import asyncio
import os
from pathlib import Path

import pytest

from cosched.config.node import node_config
from cosched.linux.process import all_pids, stat_of
from cosched.linux.users import local_name
from cosched.wire import messages as wire
from cosched.wire.messages import Survey
from node_agent.core.attempt import Attempt
from node_agent.service import survey
from node_agent.service.environment import Environment
from node_agent.service.files import NodeFiles

CONFIG = node_config(
    {
        "name": "n1", "cluster": "c", "procs": 1, "memory_bytes": 1 << 30,
        "scheduler": {"url": "wss://127.0.0.1:1/v1/agent"}, "launch": {"address": "127.0.0.1"},
    },
    "node.toml",
)  # fmt: skip


def test_survey_tells_known_users_and_leaves_out_others() -> None:
    told = asyncio.run(survey.surveyed(Survey(7, ("root", "no-such-user")), CONFIG))
    assert (told.request, list(told.users)) == (7, ["root"])
    assert (told.users["root"].uid, told.users["root"].gid) == (0, 0)


def test_survey_that_hangs_is_given_up_and_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "_PROGRAM", ("sleep", "4711"))
    monkeypatch.setattr(survey, "_PATIENCE_S", 0.05)
    told = asyncio.run(survey.surveyed(Survey(7, ("root",)), CONFIG))
    assert "does not answer" in told.users["root"].problem
    left = [stat for pid in all_pids() if (stat := stat_of(pid)) is not None and stat.command == "sleep"]
    assert not [stat for stat in left if stat.state not in "ZX" and stat.parent == os.getpid()]


def test_local_name_is_read_from_files_of_this_machine_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "systemd/users").mkdir(parents=True)
    (tmp_path / "systemd/users/7001").write_text("# private data\nNAME=ann\nSTATE=active\n")
    (tmp_path / "passwd").write_text("root:x:0:0::/:/bin/sh\n\nbob:x:7002:7002::/:/bin/sh\n")
    monkeypatch.setattr("pwd.getpwuid", lambda uid: pytest.fail("the name service was asked"))
    names = [local_name(uid, str(tmp_path), str(tmp_path / "passwd")) for uid in (7001, 7002, 7003)]
    assert names == ["ann", "bob", "7003"]


def test_uid_of_an_attempt_is_what_the_guard_says_until_it_is_forgotten(tmp_path: Path) -> None:
    """The name service was asked for each remote command, in the loop that sends heartbeats."""
    environment = Environment(CONFIG, NodeFiles(tmp_path, "n1"), "/bin/rsh", "agent.sock", "job.sock")
    order = wire.Prepare(
        wire.Fence("c", 1, "i"), wire.OrderId(5, 1, 1), "no-such-user", (), 1, None, None, 0, "/", {}, b""
    )
    attempt = Attempt(5, 1, "boot", "c", order)
    assert environment.uid(attempt) is None
    environment.learn((5, 1), None)
    environment.learn((5, 1), 4_000_000_000)
    assert environment.uid(attempt) == 4_000_000_000
    environment.forget((5, 1))
    assert environment.uid(attempt) is None

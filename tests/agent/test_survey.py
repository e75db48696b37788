"""What users are on a node, asked where the name service or a home may not answer."""

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, cast

import pytest
from kit.accounts import account
from kit.agents import Cluster
from kit.disks import hanging_directory
from kit.needs import need_namespaces

from cosched.config.node import node_config
from cosched.linux.users import local_name
from cosched.wire import messages as wire
from cosched.wire.messages import Survey
from node_agent.core.attempt import Attempt
from node_agent.guard.base.client import GuardGone
from node_agent.guard.base.loop import Loop
from node_agent.guard.base.requests import MAX_SUBMITTERS, Accounts
from node_agent.guard.base.settings import Security
from node_agent.guard.launcher import user_survey
from node_agent.service.environment import Environment
from node_agent.service.guard import Guard
from node_agent.service.survey import UserSurveys

CONFIG = node_config(
    {
        "name": "n1", "cluster": "c", "procs": 1, "memory_bytes": 1 << 30,
        "scheduler": {"url": "wss://127.0.0.1:1/v1/agent"}, "launch": {"address": "127.0.0.1"},
    },
    "node.toml",
)  # fmt: skip


def node_with_hidden(cluster: Cluster, homes: Path) -> None:
    """Start a node whose agent sees an empty file system there, as ProtectHome=yes makes it; its guard does not."""
    need_namespaces()
    node = cluster.node("a", start=False)
    node._confined = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {homes} && exec "$@"', "sh"]
    node.start_guard()
    node.start_agent()


async def test_job_in_home_that_the_agents_unit_hides_works_there(cluster: Cluster) -> None:
    with account() as ada:
        home = Path(ada.pw_dir)
        node_with_hidden(cluster, home.parent)
        async with cluster.scheduler() as scheduler:
            fence = scheduler.fence
            await scheduler.tell("a", cluster.prepare(fence, 5, "a", user=ada.pw_name, directory=ada.pw_dir))
            await scheduler.next("a", wire.Prepared, order=wire.OrderId(5, 1, 1))
            script = b"#!/bin/sh\npwd && cp /bin/true own && ./own"
            run = wire.Run(fence, wire.OrderId(5, 1, 2), script=script, arguments=(), output=f"{home}/out")
            await scheduler.tell("a", run)
            ended = await scheduler.next("a", wire.ProgramEnded)
        assert (ended.exit, ended.error_tail) == (wire.Exit(0, None, "own"), b"")
        assert (home / "out").read_text() == f"{home}\n"
        assert (home / "out").stat().st_uid == ada.pw_uid


async def test_survey_sees_homes_that_the_sandbox_of_the_agents_unit_hides(cluster: Cluster) -> None:
    """Goal: no false "home: No such file or directory"."""
    with account() as ada, account() as bob:
        shutil.rmtree(bob.pw_dir)
        node_with_hidden(cluster, Path(ada.pw_dir).parent)
        async with cluster.scheduler() as scheduler:
            unknown = [f"no-such-user-{number}" for number in range(2 * MAX_SUBMITTERS)]
            for request in (7, 8):  # the second while the first is looked up
                asked = (ada.pw_name, *unknown, bob.pw_name, "no user's name")
                await scheduler.tell("a", Survey(request, asked, {bob.pw_name: bob.pw_uid}))
            told, again = [await scheduler.next("a", wire.Surveyed, request=request) for request in (7, 8)]
    assert told.users == again.users
    assert told.users == {
        ada.pw_name: wire.Account(ada.pw_uid, ada.pw_gid, ada.pw_dir, ""),
        bob.pw_name: wire.Account(bob.pw_uid, bob.pw_gid, bob.pw_dir, f"home {bob.pw_dir}: No such file or directory"),
    }


def test_survey_that_hangs_is_given_up_and_another_one_meanwhile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_survey, "accounts", lambda *_: time.sleep(1000))
    monkeypatch.setattr(user_survey, "_PATIENCE_US", 50_000)
    loop = Loop()
    answers: list[Any] = []
    users = user_survey.UserSurvey(Security(), loop)

    def finish() -> None:
        while users._running:
            loop.run_once()

    for _ in range(2):
        users.answer(Accounts({"root": None}), (), answers.append)
    assert [refusal.code for refusal in answers] == ["busy"]
    finish()
    assert [refusal.code for refusal in answers] == ["busy", "failed"]
    users.answer(Accounts({"root": None}), (), answers.append)
    assert answers.pop()["users"]["root"][3].startswith("cannot be looked up"), "it is still looked up"
    while users._late:
        loop.run_once()
    monkeypatch.undo()
    users.answer(Accounts({"root": None}), (), answers.append)
    finish()
    assert answers[2]["users"]["root"][:2] == [0, 0]


async def test_failed_user_lookup_is_encoded_as_uid_that_schedulers_decode() -> None:
    """Their uid was -1, which no scheduler reads: each question to a slow guard ended the node's link."""

    class Gone:
        async def ask(self, *_: object, **__: object) -> object:
            raise GuardGone("it is away")

    told = await UserSurveys(cast("Guard", Gone())).answer(Survey(7, ("ada",), {}))
    account = wire.Account(wire.NO_UID, wire.NO_UID, "", "cannot be looked up: it is away")
    assert wire.from_agent(wire.encode(told)) == wire.Surveyed(7, told.time_us, {"ada": account})


def test_slow_home_of_one_user_leaves_the_others_looked_up(tmp_path: Path) -> None:
    """One home that did not answer had all users of the node "cannot be looked up", in each later question, too."""
    loop = Loop()
    answers: list[Any] = []
    users = user_survey.UserSurvey(Security(), loop)
    with account() as ada, account() as bob, hanging_directory(tmp_path / "hanging") as hanging:
        shutil.rmtree(bob.pw_dir)
        subprocess.run(["usermod", "--home", hanging / "bob", bob.pw_name], check=True, capture_output=True)
        for asked in range(1, 3):
            users.answer(Accounts({bob.pw_name: None, ada.pw_name: None, "root": None}), (), answers.append)
            while len(answers) < asked:
                loop.run_once()
    for answer in answers:
        found = answer["users"]
        assert tuple(found[ada.pw_name]) == (ada.pw_uid, ada.pw_gid, ada.pw_dir, "")
        assert found["root"][:2] == [0, 0]
        assert found[bob.pw_name][3] == f"home {hanging}/bob does not answer"


def test_local_name_is_read_from_files_of_this_machine_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "systemd/users").mkdir(parents=True)
    (tmp_path / "systemd/users/7001").write_text("# private data\nNAME=ann\nSTATE=active\n")
    (tmp_path / "passwd").write_text("root:x:0:0::/:/bin/sh\n\nbob:x:7002:7002::/:/bin/sh\n")
    monkeypatch.setattr("pwd.getpwuid", lambda uid: pytest.fail("the name service was asked"))
    names = [local_name(uid, str(tmp_path), str(tmp_path / "passwd")) for uid in (7001, 7002, 7003)]
    assert names == ["ann", "bob", "7003"]


def test_uid_of_attempt_is_the_guards_answer_until_forget(tmp_path: Path) -> None:
    """The name service was asked for each remote command, in the loop that sends heartbeats."""
    environment = Environment(CONFIG, "/bin/rsh", "agent.sock", "job.sock")
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

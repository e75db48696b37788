"""A user whose name has another uid on one desk: its jobs run under the submitter's uid, or not there.

A scheduler as a process and two real desks; the first one in the order of places has a user database of its own.
"""

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from identity.test_real_users import Desk, wait_for
from kit.accounts import copy_of_etc
from kit.waiting import BOUND_S

from cosched.config.node import node_config
from cosched.config.templates import node_toml

pytestmark = pytest.mark.xdist_group("desk")


class TwoDesks(Desk):
    """On ``a`` the name of ``ada`` has the uid ``other``; on ``b`` and the scheduler's host it has ``own``."""

    names = ("a", "b")

    def make_nodes(self) -> None:
        self.own = pwd.getpwnam(self.ada).pw_uid
        self.other = self.own + 100_000
        lines = Path("/etc/passwd").read_text().splitlines()
        fields = [line.split(":") for line in lines]
        etc = copy_of_etc(self.base)
        (etc / "passwd").write_text(
            "".join(
                ":".join([*each[:2], str(self.other), *each[3:]] if each[0] == self.ada else each) + "\n"
                for each in fields
            )
        )
        self.nodes.node("a", start=False).own_file(etc, "/etc")
        self.start_a("switch")
        self.nodes.node("b")

    def start_a(self, users: str) -> None:
        """Start guard and agent of ``a`` with this for ``security.users``."""
        node = self.nodes.nodes["a"]
        for process in (node.agent, node.guard):
            if process is not None:
                process.terminate()
                process.wait(BOUND_S)
        raw = {
            "name": "a", "cluster": "test", "procs": 2, "memory_bytes": 1_000_000_000,
            "scheduler": {"url": f"wss://127.0.0.1:{self.nodes.port}/v1/agent"},
            "launch": {"address": "127.0.0.1", "port": node.port},
            "paths": {"run": str(node.run), "state": str(node.state), "identity": str(node.identity)},
            "presence": {"away_after_s": 60.0, "poll_s": 0.2},
            "cgroup": {"cosched": f"{node.group}/cosched", "desk": f"{node.group}/desk"},
            "security": {"users": users, "min_uid": 1},
        }  # fmt: skip
        node.config.write_text(node_toml(node_config(raw, str(node.config))))
        node.start_guard()
        node.start_agent()


@pytest.fixture(scope="module")
def desks() -> Iterator[TwoDesks]:
    if os.geteuid() != 0:
        pytest.skip("needs root: accounts, and guards that become them")
    for command in ("useradd", "setpriv", "curl"):
        if shutil.which(command) is None:
            pytest.skip(f"needs {command}")
    made = TwoDesks()
    try:
        made.begin()
        yield made
    finally:
        made.close()


def test_desk_with_another_uid_refuses_and_the_job_runs_elsewhere(desks: TwoDesks) -> None:
    job, said, _ = desks.ran(desks.ada, "id -u", directory="/")
    assert (job.state, said) == ("completed", f"{desks.own}\n")
    assert [share.name for share in job.nodes] == ["b"]
    (note,) = [step.note for step in job.history if "refused" in step.note]
    assert note.startswith(
        f"a refused: {desks.ada} has uid {desks.other} here and uid {desks.own} on the scheduler's host"
    )
    assert 'users = "by-name" in [security] of node.toml' in note


def test_launch_fails_with_the_cause_where_no_other_desk_is_left(desks: TwoDesks) -> None:
    job = desks.ended(desks.submit(desks.ada, "id -u", directory="/", tasks=4))
    assert (job.state, job.failure is not None) == ("launch failed", True)
    assert f"uid {desks.other} here and uid {desks.own}" in str(job.failure)


def test_doctor_names_the_desk_and_the_user_whose_uids_differ(desks: TwoDesks) -> None:
    command = [sys.executable, "-m", "cosched.apps.cli.main", "doctor", "--server", str(desks.socket)]
    ended = subprocess.run(
        [*command, "--user", desks.ada, "--user", desks.bob],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    text = " ".join(ended.stdout.split())
    assert f"user {desks.ada}" in text
    assert f"uid {desks.own} on the scheduler's host, b; {desks.other} on a" in text
    assert f"on a: {desks.ada} has uid {desks.other} here and uid {desks.own} on the scheduler's host" in text
    assert f"uid {pwd.getpwnam(desks.bob).pw_uid}, home" in text, "nothing differs for the other one"


def test_desk_by_name_runs_the_job_under_its_own_uid(desks: TwoDesks) -> None:
    desks.start_a("by-name")
    try:
        wait_for(lambda: {each.state for each in desks.client.nodes()} == {"up"}, "it to join again")
        desks.client.drain("b", "")
        job, said, error = desks.ran(desks.ada, "id -u; echo $HOME", directory="/")
        assert (job.state, said.splitlines()[0]) == ("completed", str(desks.other)), error
        survey = desks.client.survey([desks.ada, "no-such-user-here"])
        assert survey.uids == {desks.ada: desks.own}
    finally:
        desks.client.resume("b")
        desks.start_a("switch")

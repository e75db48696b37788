"""An installation laid out: owners and modes, and what an agent that was root has left for one that is not."""

import os
import pwd
from pathlib import Path

import pytest

from cosched.apps.enrol import laying
from cosched.errors import Failed
from cosched.install.layout import Directory, File, Installation

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files are given to another account")

ACCOUNT = pwd.getpwnam("nobody")


def owner(path: Path) -> int:
    return path.lstat().st_uid


def made(state: Path, *files: File) -> Installation:
    directories = (Directory(str(state), ACCOUNT.pw_name, "0711"),)
    return Installation("node", (), directories, files, (), (), ())


def test_what_roots_agent_kept_is_its_successors_and_the_guards_stays_roots(tmp_path: Path) -> None:
    state, elsewhere = tmp_path / "state", tmp_path / "elsewhere"
    for directory in ("attempts", "spool/5.1", "records", "jobs/5.1"):
        (state / directory).mkdir(parents=True)
    elsewhere.write_text("precious")
    for name in ("epoch", "spool/5.1/stdout", "records/5.1", "jobs/5.1/script"):
        (state / name).write_text("")
    (state / "spool" / "link").symlink_to(elsewhere)
    (state / "revoked").symlink_to(elsewhere)
    laying.lay(made(state))
    given = ("", "attempts", "epoch", "spool", "spool/5.1", "spool/5.1/stdout", "spool/link")
    assert {owner(state / name) for name in given} == {ACCOUNT.pw_uid}
    kept = ("records", "records/5.1", "jobs", "jobs/5.1", "jobs/5.1/script", "revoked")
    assert {owner(state / name) for name in kept} == {0}
    assert owner(elsewhere) == 0


def test_below_a_directory_that_was_the_accounts_already_nothing_is_given(tmp_path: Path) -> None:
    """Its owner could have put there whatever he likes to be given."""
    state = tmp_path / "state"
    (state / "spool").mkdir(parents=True)
    os.chown(state, ACCOUNT.pw_uid, -1)
    os.link(_secret(tmp_path), state / "spool" / "mine")
    laying.lay(made(state))
    assert owner(state / "spool" / "mine") == 0


def test_files_are_replaced_whole_with_their_owners_and_modes(tmp_path: Path) -> None:
    target = tmp_path / "etc" / "unit"
    file = File(str(target), "0640", "new\n")
    target.parent.mkdir()
    target.write_text("old\n")
    target.chmod(0o600)
    with target.open() as reader:
        laying.lay(made(tmp_path / "state", file))
        assert reader.read() == "old\n"
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("new\n", 0o640)
    assert [path.name for path in target.parent.iterdir()] == ["unit"]


def test_an_account_that_is_not_there_is_named(tmp_path: Path) -> None:
    lacking = Installation("node", (), (Directory(str(tmp_path / "s"), "no-such-account", "0755"),), (), (), (), ())
    with pytest.raises(Failed, match="no account no-such-account"):
        laying.lay(lacking)


def _secret(tmp_path: Path) -> Path:
    secret = tmp_path / "secret"
    secret.write_text("root's")
    return secret

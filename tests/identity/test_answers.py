"""What an authority has answered is put into force where it fits, by nobody's detour, and whole after any crash."""

import json
import os
import pwd
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit.command import Call, cosched
from kit.cuts import CHANGES, cuts

from cosched.apps.enrol import identity
from cosched.apps.enrol.enrolment import answered
from cosched.errors import BadInput
from cosched.identity import tls
from cosched.identity.accepting import accept
from cosched.identity.authority import create_authority, sign
from cosched.identity.names import Kind
from cosched.identity.requests import requested_key
from cosched.linux import files

__all__ = ["cosched"]
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: keys are given to another account")
OTHER = pwd.getpwnam("nobody")
TREE = "shutil.rmtree"


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    create_authority(tmp_path / "office" / "authority", "office")
    return tmp_path / "office" / "authority"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    (tmp_path / "host").mkdir()
    return tmp_path / "host"


def asked(cosched: Call, kind: Kind, host: Path, name: str = "ada", *again: str) -> str:
    ended = cosched("identity", "request", name, "--kind", kind, "--into", host, *again)
    assert ended.status == 0, ended.err
    return ended.out


def signed(authority: Path, kind: Kind, request: str, name: str = "ada") -> bytes:
    return json.dumps(sign(authority, kind, requested_key(request), name, [])).encode()


def server(kind: Kind) -> Callable[[Path], Any]:
    return tls.client_context if kind == "user" else tls.server_context


def content(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", ["scheduler", "user"])
def test_of_another_kind_name_or_authority_changes_nothing(
    kind: Kind, cosched: Call, authority: Path, host: Path, tmp_path: Path
) -> None:
    request = asked(cosched, kind, host)
    create_authority(tmp_path / "other", "office")
    good = json.loads(signed(authority, kind, request))
    mixed = good | {"ca.pem": (tmp_path / "other" / "ca.pem").read_text()}
    kinds: dict[Kind, Kind] = {"scheduler": "user", "user": "scheduler"}
    another = json.loads(signed(authority, kinds[kind], request))
    renamed = {f"{kind}.pem": another[f"{kinds[kind]}.pem"], "ca.pem": another["ca.pem"]}
    chained = good | {f"{kind}.pem": good[f"{kind}.pem"] + good["ca.pem"]}
    before = content(host)
    for wrong, words in (
        (mixed, "not issued by the authority"),
        (renamed, f"of {kinds[kind]} 'ada'"),
        (json.loads(signed(authority, kind, request, "bob")), "of .* 'bob'"),
        (chained, "certificate: 2"),
        (good | {f"{kind}.pem": "hello"}, "not a certificate"),
    ):
        with pytest.raises(BadInput, match=words):
            accept(kind, host, json.dumps(wrong).encode())
        assert content(host) == before
    accept(kind, host, json.dumps(good).encode())
    server(kind)(host)
    with pytest.raises(BadInput, match=r"of .* 'bob'.* 'ada', as was asked for"):
        accept(kind, host, signed(authority, kind, request, "bob"))
    accept(kind, host, json.dumps(good).encode())


def test_a_nodes_of_another_kind_name_or_authority_changes_nothing(authority: Path, host: Path, tmp_path: Path) -> None:
    create_authority(tmp_path / "other", "office")
    request = identity.request(host, "desk1")
    good = answered(authority, request, "desk1", "192.0.2.11")
    before = content(host)
    as_user = sign(authority, "user", requested_key(request), "desk1", [])["user.pem"]
    for wrong, words in (
        (answered(authority, request, "desk2", "desk2"), "of node 'desk2'; .* 'desk1', as was asked for"),
        (good | {"certificate": as_user}, "of user 'desk1'"),
        (good | {"authority": (tmp_path / "other" / "ca.pem").read_text()}, "not issued by the authority"),
    ):
        with pytest.raises(BadInput, match=words):
            identity.accept(host, identity.answer(wrong))
        assert content(host) == before


@ROOT
def test_an_account_is_given_its_keys_and_nothing_else(cosched: Call, authority: Path, host: Path) -> None:
    answer = signed(authority, "scheduler", asked(cosched, "scheduler", host))
    accept("scheduler", host, answer, OTHER.pw_name)
    owners = {path.name: path.lstat().st_uid for path in host.iterdir()}
    mine = {"scheduler.key", "grant.key"}
    assert {name for name, uid in owners.items() if uid == OTHER.pw_uid} == mine
    accept("user", host, signed(authority, "user", asked(cosched, "user", host)))
    (host / "grant.key").unlink()
    (host / "grant.key").touch(0o600)
    accept("user", host, signed(authority, "user", asked(cosched, "user", host)), OTHER.pw_name)
    assert (host / "user.key").stat().st_uid == OTHER.pw_uid
    assert (host / "grant.key").stat().st_uid == 0, "which is no user's"


@ROOT
def test_a_link_is_not_followed_to_somebody_elses_file(
    cosched: Call, authority: Path, host: Path, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.touch()
    answer = signed(authority, "scheduler", asked(cosched, "scheduler", host))
    (host / "grant.key").unlink()
    (host / "grant.key").symlink_to(precious)
    accept("scheduler", host, answer, OTHER.pw_name)
    assert precious.stat().st_uid == 0


@ROOT
@pytest.mark.parametrize(("uid", "mode"), [(OTHER.pw_uid, 0o755), (0, 0o775), (0, 0o757)])
def test_nothing_is_given_away_where_others_may_move_it(
    uid: int, mode: int, cosched: Call, authority: Path, host: Path
) -> None:
    answer = signed(authority, "user", asked(cosched, "user", host))
    before = content(host)
    os.chown(host, uid, -1)
    host.chmod(mode)
    with pytest.raises(BadInput, match="others may move files in it"):
        accept("user", host, answer, OTHER.pw_name)
    assert content(host) == before
    assert {path.lstat().st_uid for path in host.iterdir()} == {0}
    accept("user", host, answer)


@pytest.mark.parametrize("kind", ["scheduler", "user"])
def test_a_cut_is_healed_by_accepting_again_or_by_the_old_key(
    kind: Kind, cosched: Call, authority: Path, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept(kind, host, signed(authority, kind, asked(cosched, kind, host)))
    old = (host / f"{kind}.pem").read_bytes()
    answer = signed(authority, kind, asked(cosched, kind, host, "ada", "--again"))
    new = json.loads(answer)[f"{kind}.pem"].encode()
    for place in cuts(host, lambda cut: accept(kind, cut, answer), monkeypatch, (*CHANGES, TREE)):
        back = place.with_name(f"{place.name}-back")
        shutil.copytree(place, back, symlinks=True)
        try:
            server(kind)(back)
        except BadInput:
            (back / f"{kind}.key.old").replace(back / f"{kind}.key")
            server(kind)(back)
            assert (back / f"{kind}.pem").read_bytes() == old
        accept(kind, place, answer)
        server(kind)(place)
        assert (place / f"{kind}.pem").read_bytes() == new
        assert not [path.name for path in place.iterdir() if path.suffix in (".new", ".old", ".accepting", ".asked")]


def test_a_second_renewal_after_a_cut_keeps_the_way_back(
    cosched: Call, authority: Path, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept("scheduler", host, signed(authority, "scheduler", asked(cosched, "scheduler", host)))
    answer = signed(authority, "scheduler", asked(cosched, "scheduler", host, "ada", "--again"))
    for place in cuts(host, lambda cut: accept("scheduler", cut, answer), monkeypatch):
        again = signed(authority, "scheduler", asked(cosched, "scheduler", place, "ada", "--again"))
        for twice in cuts(place, partial(accept, "scheduler", answer=again), monkeypatch):
            try:
                tls.server_context(twice)
            except BadInput:
                (twice / "scheduler.key.old").replace(twice / "scheduler.key")
                tls.server_context(twice)


@ROOT
@pytest.mark.parametrize("exchanges", [True, False])
def test_a_nodes_identity_is_whole_after_any_cut_and_accepting_again_heals(
    exchanges: bool, authority: Path, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def renewal(name: str = "desk1") -> identity.Answer:
        return identity.answer(answered(authority, identity.request(host, name), name, name))

    if not exchanges:
        monkeypatch.setattr(files, "exchange", cannot)
    identity.accept(host, renewal(), OTHER.pw_name)
    answer = renewal()
    changes = (*CHANGES, TREE, *(["cosched.linux.files.exchange"] if exchanges else []))
    for place in cuts(host, lambda cut: identity.accept(cut, answer, OTHER.pw_name), monkeypatch, changes):
        if exchanges:
            tls.agent_server_context(place / "identity")
        identity.accept(place, answer, OTHER.pw_name)
        tls.agent_server_context(place / "identity")
        assert (place / "identity" / "node.pem").read_text() == answer.certificate
        assert (place / "identity" / "node.key").stat().st_uid == OTHER.pw_uid
        assert [path.name for path in place.iterdir()] == ["identity"]


def cannot(one: str, other: str) -> None:
    raise OSError(22, "Invalid argument", one, None, other)


def test_two_names_are_exchanged_in_one_moment(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "here").write_text(name)
    files.exchange(str(tmp_path / "one"), str(tmp_path / "other"))
    assert (tmp_path / "one" / "here").read_text() == "other"
    with pytest.raises(FileNotFoundError):
        files.exchange(str(tmp_path / "one"), str(tmp_path / "nowhere"))


def test_all_that_is_put_into_force_is_on_the_disk_before(
    cosched: Call, authority: Path, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: set[int] = set()
    fsync = os.fsync

    def noted(fd: int) -> None:
        kept.add(os.fstat(fd).st_ino)
        fsync(fd)

    monkeypatch.setattr("os.fsync", noted)
    accept("user", host, signed(authority, "user", asked(cosched, "user", host)))
    inodes = {path.name: path.stat().st_ino for path in (host / "user.pem", host / "ca.pem", host / "user.key", host)}
    assert {name for name, inode in inodes.items() if inode not in kept} == set()


@ROOT
def test_a_node_that_is_removed_leaves_no_key(authority: Path, host: Path) -> None:
    request = identity.request(host, "desk1")
    identity.accept(host, identity.answer(answered(authority, request, "desk1", "desk1")))
    identity.request(host, "desk1")
    identity.forget(host)
    assert list(host.iterdir()) == []

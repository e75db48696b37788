"""The key of grants is replaced: nodes are given the new one and the one before, and at the end the new one alone."""

import json
import os
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from kit.command import Call, cosched

from cosched.errors import BadInput
from cosched.identity import issued
from cosched.identity.authority import create_authority, issue
from cosched.identity.grants import load_grant_key, load_grant_pub
from cosched.identity.requests import new_request, requested_grant, with_grant

__all__ = ["cosched"]


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    create_authority(tmp_path / "authority", "office", grants=False)
    return tmp_path / "authority"


def scheduler(cosched: Call, authority: Path, host: Path) -> None:
    """A scheduler with a key of grants of its own, which the authority is told of."""
    host.mkdir()
    request = cosched("identity", "request", "head", "--into", host).out
    signed = cosched("identity", "sign", "head", "--authority", authority, given=request)
    assert signed.status == 0, signed.err
    accepted = cosched("identity", "accept", "--into", host, given=signed.out)
    assert accepted.status == 0, accepted.err


def takes(authority: Path, node: Path, *hosts: Path) -> list[bool]:
    """Whose grants a node takes whose certificate is made now."""
    issue(authority, "node", "desk1", node)
    known = load_grant_pub(node)
    found = []
    for host in hosts:
        try:
            known.verify(load_grant_key(host).sign(b"a grant"), b"a grant")
            found.append(True)
        except InvalidSignature:
            found.append(False)
    return found


def test_the_key_before_is_trusted_until_the_end_of_the_replacement(
    cosched: Call, authority: Path, tmp_path: Path
) -> None:
    old, new, newest = tmp_path / "old", tmp_path / "new", tmp_path / "newest"
    scheduler(cosched, authority, old)
    scheduler(cosched, authority, new)
    assert takes(authority, tmp_path / "n1", old, new) == [True, True]
    assert cosched("identity", "rotate", authority, "--finish").status == 0
    assert takes(authority, tmp_path / "n2", old, new) == [False, True]
    scheduler(cosched, authority, newest)
    assert takes(authority, tmp_path / "n3", old, new, newest) == [False, True, True]
    request = with_grant(new_request("head", tmp_path / "again.key"), new)
    assert cosched("identity", "sign", "head", "--authority", authority, given=request).status == 0
    assert (authority / "grant.pub").read_text().split()[0] == public(new), "the one that was brought last is in front"


def public(host: Path) -> str:
    return load_grant_key(host).public_key().public_bytes_raw().hex()


def test_a_request_that_cannot_be_signed_teaches_no_key(cosched: Call, authority: Path, tmp_path: Path) -> None:
    request = with_grant(new_request("head", tmp_path / "head.key"), tmp_path)
    for arguments in (("no name",), ("head", "--address", "no address")):
        refused = cosched("identity", "sign", *arguments, "--authority", authority, given=request)
        assert (refused.status, refused.out) == (2, "")
        assert not (authority / "grant.pub").exists()


def test_a_key_of_grants_counts_with_a_proof_of_its_private_half(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    for each in (mine, other):
        each.mkdir()
    request = with_grant(new_request("head", mine / "head.key"), mine)
    found = requested_grant(request)
    assert found is not None
    assert found.public_bytes_raw().hex() == public(mine)
    bare, proof = request.rsplit("cosched-grant-key-proof:", 1)
    foreign = with_grant(new_request("head", other / "head.key"), other)
    theirs = foreign.rsplit("cosched-grant-key-proof:", 1)[1]
    another = new_request("eve", tmp_path / "eve.key") + request[request.index("-----BEGIN PUBLIC") :]
    for wrong in (bare, f"{bare}cosched-grant-key-proof:\n!", f"{bare}cosched-grant-key-proof:{theirs}", another):
        with pytest.raises(BadInput, match="a key of grants without proof"):
            requested_grant(wrong)
    assert requested_grant(f"{bare}cosched-grant-key-proof:{proof}".replace("\n", "\r\n")) is not None
    assert requested_grant(new_request("ada", tmp_path / "ada.key")) is None


def test_the_file_is_readable_for_all_and_replaced_whole(
    cosched: Call, authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0o077)
    try:
        scheduler(cosched, authority, tmp_path / "old")
    finally:
        os.umask(before)
    assert (authority / "grant.pub").stat().st_mode & 0o777 == 0o644
    known = (authority / "grant.pub").read_bytes()
    request = with_grant(new_request("head", tmp_path / "head.key"), tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("cosched.linux.durable.os.fsync", full)
        patched.setattr(issued, "record", lambda *_: None)
        assert cosched("identity", "sign", "head", "--authority", authority, given=request).status != 0
    assert (authority / "grant.pub").read_bytes() == known
    assert json.loads(cosched("identity", "sign", "head", "--authority", authority, given=request).out)

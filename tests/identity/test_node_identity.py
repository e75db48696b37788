"""An enrolment's steps by the command: the key is made on the node and stays there, whoever goes the steps."""

import json
import os
import pwd
from pathlib import Path

import pytest
from cryptography import x509
from kit.command import Ended, run_here

from cosched.identity import tls
from cosched.identity.authority import create_authority

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: keys are given to another account")

OTHER = next(entry.pw_name for entry in pwd.getpwall() if entry.pw_uid not in (0, os.geteuid()))


def node(*arguments: object, given: str = "") -> Ended:
    return run_here("node", *arguments, given=given)


@pytest.fixture
def office(tmp_path: Path) -> Path:
    create_authority(tmp_path / "office" / "authority", "office")
    return tmp_path / "office"


def settings(etc: Path, name: str = "desk1") -> Path:
    """A directory with a node's settings, as 'node render' makes it."""
    etc.mkdir(exist_ok=True)
    (etc / "node.toml").write_text(
        f'name = "{name}"\ncluster = "office"\nprocs = 1\nmemory_bytes = 1073741824\n'
        '[scheduler]\nurl = "wss://head:7420/v1/agent"\n[launch]\naddress = "desk"\n'
    )
    return etc


def enrolled(office: Path, etc: Path, *again: str) -> str:
    """The three steps joined by standard input and output; what the authority was sent."""
    asked = node("request", "desk1", "--etc", settings(etc), *again)
    assert asked.status == 0, asked.err
    signed = node("sign", "desk1", "--cluster", office, "--address", "192.0.2.11", given=asked.out)
    assert signed.status == 0, signed.err
    accepted = node("accept", "--etc", etc, "--account", OTHER, given=signed.out)
    assert accepted.status == 0, accepted.err
    assert "in force;" in accepted.out, "a running agent takes it by itself, and not at its next start"
    return asked.out + signed.out


def test_the_key_stays_and_is_its_accounts(office: Path, tmp_path: Path) -> None:
    travelled = enrolled(office, tmp_path / "etc")
    identity = tmp_path / "etc" / "identity"
    key = (identity / "node.key").read_text()
    assert not any(line in travelled for line in key.splitlines() if "PRIVATE" not in line)
    assert "PRIVATE KEY" not in travelled
    found = {
        path.name: (pwd.getpwuid(path.stat().st_uid).pw_name, path.stat().st_mode & 0o777)
        for path in identity.iterdir()
    }
    public = ("root", 0o644)
    assert found == {"node.pem": public, "ca.pem": public, "grant.pub": public, "node.key": (OTHER, 0o600)}
    certificate = x509.load_pem_x509_certificate((identity / "node.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(each.value) for each in names] == ["desk1", "192.0.2.11"]
    assert not (tmp_path / "etc" / "identity.new").exists()


def test_an_identity_is_replaced_whole_and_only_when_it_is_accepted(office: Path, tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    enrolled(office, etc)
    old = (etc / "identity" / "node.key").read_bytes()
    refused = node("request", "desk1", "--etc", etc)
    assert (refused.status, "--again" in refused.err) == (2, True)
    assert node("request", "desk1", "--etc", etc, "--again").status == 0
    assert (etc / "identity" / "node.key").read_bytes() == old
    tls.agent_server_context(etc / "identity")  # still whole
    enrolled(office, etc, "--again")
    assert (etc / "identity" / "node.key").read_bytes() != old
    tls.agent_server_context(etc / "identity")


def test_a_certificate_of_another_key_changes_nothing(office: Path, tmp_path: Path) -> None:
    etc, other = tmp_path / "etc", tmp_path / "other"
    enrolled(office, etc)
    before = {path.name: path.read_bytes() for path in (etc / "identity").iterdir()}
    assert node("request", "desk1", "--etc", etc, "--again").status == 0
    foreign = node("request", "desk2", "--etc", settings(other, "desk2")).out
    signed = node("sign", "desk2", "--cluster", office, given=foreign).out
    for wrong in (signed, "{}", json.dumps(json.loads(signed) | {"more": 1}), "", "hello"):
        refused = node("accept", "--etc", etc, "--account", OTHER, given=wrong)
        assert refused.status in (1, 2), refused.err
    assert {path.name: path.read_bytes() for path in (etc / "identity").iterdir()} == before


@pytest.mark.parametrize(("settings_of", "words"), [("", "--etc"), ("desk2", "this is node desk2")])
def test_request_beside_no_settings_of_that_node_leaves_no_key(tmp_path: Path, settings_of: str, words: str) -> None:
    """As where the scheduler's host is a node too, whose settings lie elsewhere, and --etc was forgotten."""
    etc = settings(tmp_path / "etc", settings_of) if settings_of else tmp_path
    before = sorted(etc.iterdir())
    refused = node("request", "desk1", "--etc", etc)
    assert (refused.status, refused.out, words in refused.err) == (2, "", True)
    assert sorted(etc.iterdir()) == before


def test_what_was_never_asked_for_is_not_accepted(office: Path, tmp_path: Path) -> None:
    request = node("request", "desk1", "--etc", settings(tmp_path / "one")).out
    signed = node("sign", "desk1", "--cluster", office, given=request).out
    refused = node("accept", "--etc", tmp_path / "two", "--account", OTHER, given=signed)
    assert (refused.status, "node request" in refused.err) == (2, True)
    unknown = node("accept", "--etc", tmp_path / "one", "--account", "no-such-account", given=signed)
    assert (unknown.status, "no-such-account" in unknown.err) == (1, True)
    assert not (tmp_path / "one" / "identity").exists()
    assert node("sign", "desk1", "--cluster", office, given="no request").status == 2

"""Certificates of a cluster's authority: who is let in, who is not, and what the files must look like."""

import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from kit.waiting import BOUND_S

from cosched.errors import BadInput
from cosched.identity import authority, names, tls
from cosched.identity.grants import load_grant_key, load_grant_pub
from cosched.wire.grant import Grant, signed, verified

Place = Callable[[str], Path]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A cluster's identities: the scheduler with the authority, two nodes and a user."""
    made = tmp_path / "one"
    populate(made)
    return made


def populate(made: Path) -> None:
    authority.create_authority(made / "scheduler", "lab")
    authority.issue(
        made / "scheduler", "scheduler", "head", made / "scheduler", addresses=["127.0.0.1", "head.example"]
    )
    for name in ("n1", "n2"):
        authority.issue(made / "scheduler", "node", name, made / name)
    authority.issue(made / "scheduler", "user", "ada", made / "ada")


def meet(server: ssl.SSLContext, client: ssl.SSLContext, expected: str) -> tuple[tls.Peer, tls.Peer]:
    """Shake hands over a socket pair; who the server sees and who the client sees. Raises what either side raises."""
    ours, theirs = socket.socketpair()
    ours.settimeout(BOUND_S)
    theirs.settimeout(BOUND_S)
    seen: list[tls.Peer | BaseException] = []

    def serve() -> None:
        try:
            with ours, server.wrap_socket(ours, server_side=True) as connection:
                seen.append(tls.peer_of(connection))
                connection.sendall(b"!")
                connection.recv(1)
        except (OSError, BadInput) as error:
            seen.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with theirs, client.wrap_socket(theirs, server_hostname=expected) as connection:
            # a refusal of the client's certificate comes after its own handshake
            mine = tls.peer_of(connection) if connection.recv(1) else None
            if mine is not None:
                connection.sendall(b"!")
    finally:
        thread.join(BOUND_S)
    if isinstance(seen[0], BaseException):
        raise seen[0]
    assert mine is not None
    return seen[0], mine


def test_agents_users_and_scheduler_know_each_other(place: Path) -> None:
    server = tls.server_context(place / "scheduler")
    assert meet(server, tls.client_context(place / "n1"), names.SCHEDULER) == (("node", "n1"), ("scheduler", "head"))
    assert meet(server, tls.client_context(place / "ada"), "127.0.0.1") == (("user", "ada"), ("scheduler", "head"))
    agent = tls.agent_server_context(place / "n2")
    assert meet(agent, tls.client_context(place / "n1"), "n2") == (("node", "n1"), ("node", "n2"))


def test_only_tls_1_3_with_a_certificate(place: Path) -> None:
    server = tls.server_context(place / "scheduler")
    without = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    without.load_verify_locations(place / "scheduler" / "ca.pem")
    with pytest.raises(ssl.SSLError):
        meet(server, without, names.SCHEDULER)
    old = tls.client_context(place / "n1")
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        meet(server, old, names.SCHEDULER)


def test_another_authority_is_refused_by_either_side(place: Path, tmp_path: Path) -> None:
    populate(tmp_path / "two")
    server = tls.server_context(place / "scheduler")
    with pytest.raises(ssl.SSLCertVerificationError):
        meet(server, tls.client_context(tmp_path / "two" / "n1"), names.SCHEDULER)
    forger = tls.client_context(tmp_path / "two" / "n1")
    forger.load_verify_locations(place / "scheduler" / "ca.pem")  # it trusts us; we do not trust it
    with pytest.raises(ssl.SSLError):
        meet(server, forger, names.SCHEDULER)


def test_nobody_serves_under_another_name_or_as_another_kind(place: Path) -> None:
    node = tls.client_context(place / "n1")
    with pytest.raises(ssl.SSLCertVerificationError, match=r"[Hh]ostname"):
        meet(tls.agent_server_context(place / "n2"), node, "n1")
    with pytest.raises(ssl.SSLCertVerificationError, match=r"[Hh]ostname"):
        meet(tls.agent_server_context(place / "n2"), node, names.SCHEDULER)
    user_as_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    user_as_server.load_cert_chain(*names.certificate("user", place / "ada"))
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        meet(user_as_server, node, "ada")
    scheduler_as_client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    scheduler_as_client.load_cert_chain(*names.certificate("scheduler", place / "scheduler"))
    scheduler_as_client.load_verify_locations(place / "scheduler" / "ca.pem")
    with pytest.raises(ssl.SSLError):
        meet(tls.agent_server_context(place / "n2"), scheduler_as_client, "n2")
    with pytest.raises(BadInput, match="scheduler's own"):
        authority.issue(place / "scheduler", "node", "Scheduler", place / "evil")


def test_expect_tells_a_user_from_a_node(place: Path) -> None:
    shown: dict[str, object] = {}

    class Connection:
        def getpeercert(self) -> dict[str, object]:
            return shown

    connection: ssl.SSLObject = Connection()  # type: ignore[assignment]
    shown["subject"] = ((("organizationalUnitName", "user"),), (("commonName", "n1"),))
    with pytest.raises(BadInput, match="of user 'n1'; expected of node 'n1'"):
        tls.expect(connection, "node", "n1")
    shown["subject"] = ((("organizationalUnitName", "authority"),), (("commonName", "n1"),))
    with pytest.raises(BadInput, match="kind 'authority'"):
        tls.peer_of(connection)
    shown["subject"] = ((("organizationalUnitName", "node"),), (("commonName", "n1"),))
    assert tls.expect(connection, "node", "n1") == ("node", "n1")
    with pytest.raises(BadInput, match="of node 'n1'; expected of node 'n2'"):
        tls.expect(connection, "node", "n2")


def test_expired_is_refused_and_expiry_foretold(place: Path) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=100)
    authority.issue(place / "scheduler", "node", "old", place / "old", life=timedelta(days=50), now=long_ago)
    with pytest.raises(tls.Expired, match=r"of node 'old' expired on "):
        meet(tls.server_context(place / "scheduler"), tls.client_context(place / "old"), names.SCHEDULER)
    first = authority.validities(place / "old")[0]
    assert first.path.endswith("node.pem")
    assert -51 < first.days_left < -49
    fresh = authority.validity(place / "n1" / "node.pem")
    assert 700 < fresh.days_left < 731


LATE = ["before its end", "in its grace", "after its grace"]


@pytest.mark.parametrize("kind", ["node", "user"])
@pytest.mark.parametrize("late", LATE)
def test_only_nodes_and_scheduler_have_a_grace(kind: names.Kind, late: str, place: Path) -> None:
    grace_days = 14
    gone = {LATE[0]: -1, LATE[1]: grace_days - 1, LATE[2]: grace_days + 1}[late]
    begun = datetime.now(UTC) - timedelta(days=10 + gone)
    authority.issue(place / "scheduler", kind, "late", place / "late", life=timedelta(days=10), now=begun)
    server = tls.server_context(place / "scheduler")
    if late == LATE[0] or (kind == "node" and late == LATE[1]):
        assert meet(server, tls.client_context(place / "late"), names.SCHEDULER)[0] == (kind, "late")
        return
    with pytest.raises(tls.Expired, match=f"of {kind} 'late' expired on "):
        meet(server, tls.client_context(place / "late"), names.SCHEDULER)


def test_nodes_take_a_scheduler_in_its_grace_and_users_do_not(place: Path) -> None:
    ended = datetime.now(UTC) - timedelta(days=11)
    authority.issue(place / "scheduler", "scheduler", "old", place / "old", life=timedelta(days=10), now=ended)
    server = tls.server_context(place / "old")
    assert meet(server, tls.client_context(place / "n1"), names.SCHEDULER) == (("node", "n1"), ("scheduler", "old"))
    with pytest.raises(ssl.SSLCertVerificationError, match=r"(?i)expired"):
        meet(server, tls.client_context(place / "ada"), names.SCHEDULER)


def test_what_begins_later_does_not_count_yet(place: Path) -> None:
    later = datetime.now(UTC) + timedelta(days=9)
    authority.issue(place / "scheduler", "node", "early", place / "early", now=later)
    with pytest.raises(tls.Expired, match="of node 'early' is not valid before "):
        meet(tls.server_context(place / "scheduler"), tls.client_context(place / "early"), names.SCHEDULER)


def test_a_certificate_is_valid_for_a_clock_that_is_behind_and_no_longer_than_its_authority(place: Path) -> None:
    from cryptography import x509  # noqa: PLC0415

    made = x509.load_pem_x509_certificate((place / "n1" / "node.pem").read_bytes())
    assert datetime.now(UTC) - made.not_valid_before_utc >= timedelta(days=1)
    authority.issue(place / "scheduler", "node", "long", place / "long", life=timedelta(days=9999))
    ends = {each.until for each in authority.validities(place / "long")}
    assert len(ends) == 1


def test_keys_are_private_files_and_others_are_refused(place: Path) -> None:
    keys = sorted(place.glob("*/*.key"))
    assert [key.name for key in keys] == ["user.key", "node.key", "node.key", "ca.key", "grant.key", "scheduler.key"]
    assert {key.stat().st_mode & 0o777 for key in keys} == {0o600}
    (place / "n1" / "node.key").chmod(0o640)
    with pytest.raises(BadInput, match=r"node\.key.*0640.*chmod 600"):
        tls.client_context(place / "n1")
    (place / "scheduler" / "grant.key").chmod(0o604)
    with pytest.raises(BadInput, match=r"grant\.key.*0604"):
        load_grant_key(place / "scheduler")


def test_nothing_is_written_over(place: Path) -> None:
    with pytest.raises(BadInput, match=r"ca\.pem: is there already"):
        authority.create_authority(place / "scheduler", "lab")
    before = (place / "n1" / "node.key").read_bytes()
    with pytest.raises(BadInput, match=r"node\.pem: is there already"):
        authority.issue(place / "scheduler", "node", "n1", place / "n1")
    assert (place / "n1" / "node.key").read_bytes() == before
    authority.create_authority(place / "other", "lab")
    with pytest.raises(BadInput, match="another authority"):
        authority.issue(place / "other", "user", "eve", place / "n2")


def test_grants_are_signed_by_the_scheduler_and_verified_by_nodes(place: Path) -> None:
    grant = Grant("id", 1, 7, 1, "ada", ("n1", "n2"))
    blob = signed(grant, load_grant_key(place / "scheduler"))
    assert verified(blob, load_grant_pub(place / "n1")) == grant
    authority.create_authority(place / "other", "lab")
    with pytest.raises(BadInput, match="signature"):
        verified(blob, load_grant_pub(place / "other"))
    assert not (place / "n1" / "grant.key").exists()


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no authority": (lambda at: (at / "ca.pem").unlink(), r"ca\.pem: no such file"),
    "no certificate": (lambda at: (at / "node.pem").unlink(), r"user\.pem: no such file"),
    "no key": (lambda at: (at / "node.key").unlink(), r"node\.key: no such file"),
    "authority is text": (lambda at: (at / "ca.pem").write_text("hello"), r"ca\.pem: cannot be used"),
    "certificate is text": (lambda at: (at / "node.pem").write_text("hello"), r"node\.pem with node\.key"),
    "key of another": (
        lambda at: (at / "node.key").write_bytes((at.parent / "n2" / "node.key").read_bytes()),
        "another certificate's",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_with_files_is_said_with_the_file(case: str, place: Path) -> None:
    breaks, message = BROKEN[case]
    breaks(place / "n1")
    with pytest.raises(BadInput, match=message):
        tls.client_context(place / "n1")


@pytest.mark.parametrize("text", ["", "zz" * 32, "00" * 31])
def test_a_public_key_that_is_none(text: str, place: Path) -> None:
    (place / "n1" / "grant.pub").write_text(text)
    with pytest.raises(BadInput, match=r"grant\.pub: not a public key"):
        load_grant_pub(place / "n1")


@pytest.mark.parametrize("name", ["", "a b", "-n", "n_1", "a..b", "n.", "x" * 64, "*.example", "nöd", "../n"])
def test_names_that_no_host_has(name: str, place: Path) -> None:
    with pytest.raises(BadInput, match="node name"):
        authority.issue(place / "scheduler", "node", name, place / "bad")
    assert not (place / "bad").exists()


def test_a_mended_authority_key_is_refused(place: Path) -> None:
    authority.create_authority(place / "other", "lab")
    (place / "scheduler" / "ca.key").write_bytes((place / "other" / "ca.key").read_bytes())
    with pytest.raises(BadInput, match=r"ca\.key: not the key of"):
        authority.issue(place / "scheduler", "node", "n3", place / "n3")


def test_an_agent_needs_no_x509_library() -> None:
    code = "import sys, cosched.identity.tls, cosched.identity.names; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ}, check=False).returncode == 0

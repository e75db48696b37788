"""``init`` and ``doctor``, and the settings' bad input as an administrator meets it."""

import json
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from kit.command import Call
from kit.snapshots import Snapshot

from cosched.apps.cli import doctor
from cosched.config.cluster import load_cluster
from cosched.config.node import load_node
from cosched.identity import authority
from cosched.identity.grants import load_grant_key, load_grant_pub
from cosched.identity.tls import client_context, server_context

INIT = ("init", "office", "--scheduler", "head.example", "--node", "desk1", "--node", "desk2=192.0.2.12")


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No service and no identity of this machine is looked at by accident."""
    monkeypatch.setenv("COSCHED_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("COSCHED_IDENTITY", str(tmp_path / "me"))
    monkeypatch.delenv("COSCHED_SERVER", raising=False)
    monkeypatch.delenv("COSCHED_LAB", raising=False)


def test_init_makes_what_scheduler_nodes_and_users_need(cosched: Call, tmp_path: Path) -> None:
    ended = cosched(*INIT, "--user", "ada", "--procs", 8, "--mem", "16GiB", "--network", "192.0.2.0/24")
    assert ended.status == 0, ended.err
    assert "cosched scheduler --config /etc/cosched/cluster.yaml" in ended.out
    office = tmp_path / "office"
    cluster = load_cluster(office / "scheduler" / "cluster.yaml")
    assert (cluster.name, cluster.nodes, cluster.network) == ("office", ["desk1", "desk2"], "192.0.2.0/24")
    assert not (office / "scheduler" / "identity").exists()  # made on its host
    node = load_node(office / "nodes" / "desk2" / "node.toml")
    assert (node.name, node.cluster, node.procs, node.memory_bytes) == ("desk2", "office", 8, 16 << 30)
    assert (node.launch.address, node.scheduler.url) == ("192.0.2.12", "wss://head.example:7420/v1/agent")
    assert not list((office / "nodes").rglob("*.pem")) + list((office / "nodes").rglob("*.key"))  # made on the nodes
    assert "cosched identity request --kind user --into ~/.config/cosched ada" in ended.out
    assert [str(path.relative_to(office)) for path in office.rglob("*.key")] == ["authority/ca.key"]
    assert {path.stat().st_mode & 0o777 for path in office.rglob("*.key")} == {0o600}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["office"]


def test_init_writes_nothing_over_and_nothing_by_half(cosched: Call, tmp_path: Path) -> None:
    assert cosched(*INIT).status == 0
    before = {path: path.read_bytes() for path in (tmp_path / "office").rglob("*") if path.is_file()}
    again = cosched(*INIT)
    assert (again.status, "office: is there already" in again.err) == (2, True)
    half = cosched("init", "office", "--add", "--node", "desk3", "--node", "desk1")
    assert (half.status, "nodes/desk1: is there already" in half.err) == (2, True)
    assert {path: path.read_bytes() for path in (tmp_path / "office").rglob("*") if path.is_file()} == before
    bad = cosched("init", "other", "--scheduler", "a b", "--node", "n")
    assert (bad.status, "address: 'a b'" in bad.err) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["office"]


def test_init_adds_nodes_and_users_of_the_same_authority(cosched: Call, tmp_path: Path) -> None:
    assert cosched(*INIT).status == 0
    ended = cosched("init", "office", "--add", "--node", "desk3", "--user", "bob", "--json")
    assert ended.status == 0, ended.err
    made = json.loads(ended.out)
    assert (made["cluster"], made["nodes"], made["users"]) == ("office", ["desk3"], ["bob"])
    new = tmp_path / "office" / "nodes" / "desk3"
    assert load_node(new / "node.toml").scheduler.url == "wss://head.example:7420/v1/agent"
    assert not (tmp_path / "office" / "users").exists()


def test_every_key_is_made_where_it_is_used(cosched: Call, tmp_path: Path) -> None:
    """The steps that 'init' names, for the scheduler and a user; the authority learns the key of grants."""
    from cosched.identity.requests import requested_key  # noqa: PLC0415

    assert cosched(*INIT, "--user", "ada").status == 0
    own = tmp_path / "office" / "authority"
    identities = {"scheduler": tmp_path / "head", "user": tmp_path / "ada"}
    for kind, place in identities.items():
        place.mkdir()
        name = "scheduler" if kind == "scheduler" else "ada"
        csr = cosched("identity", "request", name, "--kind", kind, "--into", place).out
        assert "PRIVATE" not in csr
        signed = cosched("identity", "sign", name, "--kind", kind, "--authority", own, given=csr)
        assert signed.status == 0, signed.err
        wrong = cosched("identity", "accept", "--kind", kind, "--into", place, given="{}")
        assert (wrong.status, "certificate" in wrong.err) == (2, True)
        accepted = cosched("identity", "accept", "--kind", kind, "--into", place, given=signed.out)
        assert accepted.status == 0, accepted.err
    server_context(identities["scheduler"])
    client_context(identities["user"])
    signer, verifier = load_grant_key(identities["scheduler"]), load_grant_pub(own)
    verifier.verify(signer.sign(b"grant"), b"grant")
    assert not (own / "grant.key").exists()
    old = (identities["user"] / "user.key").read_bytes()
    csr = cosched("identity", "request", "ada", "--kind", "user", "--into", identities["user"], "--again").out
    assert (identities["user"] / "user.key").read_bytes() == old
    answer = cosched("identity", "sign", "ada", "--kind", "user", "--authority", own, given=csr).out
    assert cosched("identity", "accept", "--kind", "user", "--into", identities["user"], given=answer).status == 0
    assert (identities["user"] / "user.key").read_bytes() != old
    client_context(identities["user"])
    again = cosched("identity", "accept", "--kind", "user", "--into", identities["user"], given=answer)
    assert again.status == 0, "the same answer once more changes nothing"
    assert requested_key(csr)
    assert sorted(path.name for path in identities["user"].iterdir()) == ["ca.pem", "user.key", "user.pem"]


@pytest.mark.parametrize("what", ["init", "clusters"])
def test_refused(what: str, snapshot: Snapshot, cosched: Call) -> None:
    snapshot.replay(cosched)


def test_init_for_a_scheduler_at_an_ipv6_address_listens_there(cosched: Call, tmp_path: Path) -> None:
    assert cosched("init", "office", "--scheduler", "fd00::1", "--node", "a").status == 0
    assert load_cluster(tmp_path / "office/scheduler/cluster.yaml").listen.address == "::"
    assert load_node(tmp_path / "office/nodes/a/node.toml").scheduler.url == "wss://[fd00::1]:7420/v1/agent"


def test_doctor_says_what_a_node_cannot_have(cosched: Call, tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text("prcs = 2\n")
    ended = cosched("doctor", "--node-config", "node.toml", "--json")
    said = next(each for each in json.loads(ended.out)["checks"] if "node.toml" in each["found"])
    assert (ended.status, said["what"], said["level"]) == (1, "settings", "fail")
    assert said["found"].startswith("node.toml: ")
    assert said["advice"] == "mend the file; the agent does not start with it"


def test_doctor_without_a_service_says_what_to_do_and_goes_on(cosched: Call) -> None:
    ended = cosched("doctor")
    assert ended.status == 1
    first, second, *rest = ended.out.splitlines()
    assert first.startswith("fail   service: no scheduler answers")
    assert "--server" in second
    assert any("python: 3." in line for line in rest)


@pytest.mark.parametrize(("status", "words"), [(0, "with mpi4py"), (1, "without mpi4py")])
def test_doctor_asks_the_python_on_path_for_mpi4py(
    status: int, words: str, cosched: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asked its own Python, which jobs do not use."""
    for name, line in {"mpirun": "echo mpirun 1", "python3": f"exit {status}"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert f"{tmp_path}/python3 {words}" in cosched("doctor").out


def test_doctor_tells_soon_of_a_service_that_hangs(
    cosched: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_PATIENCE_S", 0.05)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "mute"))
        listener.listen()
        ended = cosched("doctor", "--server", tmp_path / "mute")
    assert ended.status == 1
    assert "it takes too long" in ended.out
    assert "start it anew where it hangs" in ended.out


def test_doctor_foretells_expiry(cosched: Call, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority.create_authority(tmp_path / "ca", "c")
    authority.issue(tmp_path / "ca", "user", "ada", tmp_path / "me", life=timedelta(days=20))

    def levels() -> dict[str, str]:
        checks = json.loads(cosched("doctor", "--json").out)["checks"]
        return {Path(c["found"].partition(": ")[0]).name: c["level"] for c in checks if c["what"] == "certificate"}

    assert levels() == {"ca.pem": "ok", "user.pem": "warn"}
    for name in ("user.pem", "user.key"):
        (tmp_path / "me" / name).unlink()
    long_ago = now - timedelta(days=40)
    authority.issue(tmp_path / "ca", "user", "ada", tmp_path / "me", life=timedelta(days=20), now=long_ago)
    assert levels() == {"ca.pem": "ok", "user.pem": "fail"}
    (tmp_path / "me" / "user.pem").write_text("nothing")
    assert "fail" in levels().values()

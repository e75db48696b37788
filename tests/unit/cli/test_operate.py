"""``init`` and ``doctor``, and the settings' bad input as an administrator meets it."""

import json
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from kit.command import Call

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


BAD_INIT = {
    ("office", "--node", "desk1"): ["--scheduler: not given"],
    ("office", "--scheduler", "head"): ["--node: no node"],
    ("office", "--scheduler", "head", "--node", "a_b"): ["node name: 'a_b'", "a host's name"],
    ("office", "--scheduler", "head", "--node", "scheduler"): ["'scheduler', which is the scheduler's own"],
    ("office", "--scheduler", "head", "--node", "a", "--node", "a=b"): ["--node: 'a' is named twice"],
    ("office", "--scheduler", "head", "--node", "Desk1", "--node", "desk1"): ["--node: 'desk1' beside 'Desk1'"],
    ("office", "--scheduler", "head", "--node", "a=fd00::5"): ["launch.address: found 'fd00::5'", "an IPv4 address"],
    ("office", "--scheduler", "head", "--node", "a="): ["--node: 'a='", "NAME=ADDRESS"],
    ("office", "--scheduler", "head", "--node", "a", "--user", "../b"): ["user name: '../b'"],
    ("office", "--scheduler", "head", "--node", "a", "--mem", "12"): ["--mem: '12'", "with its unit"],
    ("office", "--scheduler", "head", "--node", "a", "--port", "70000"): ["--port: '70000'", "from 1 to 65535"],
    ("no/such", "--scheduler", "head", "--node", "a"): ["no directory"],
    ("office", "--add", "--node", "a"): ["office/scheduler/cluster.yaml: no such file"],
}


@pytest.mark.parametrize("arguments", BAD_INIT)
def test_init_refuses(arguments: tuple[str, ...], cosched: Call, tmp_path: Path) -> None:
    ended = cosched("init", *arguments)
    assert ended.status == 2, ended
    for part in BAD_INIT[arguments]:
        assert part in ended.err
    assert not list(tmp_path.iterdir())


def test_init_for_a_scheduler_at_an_ipv6_address_listens_there(cosched: Call, tmp_path: Path) -> None:
    assert cosched("init", "office", "--scheduler", "fd00::1", "--node", "a").status == 0
    assert load_cluster(tmp_path / "office/scheduler/cluster.yaml").listen.address == "::"
    assert load_node(tmp_path / "office/nodes/a/node.toml").scheduler.url == "wss://[fd00::1]:7420/v1/agent"


#: cluster.yaml -> what the message must contain beside the file's name.
BAD_CLUSTERS = {
    "name: a\nnoeds: [n1]\n": ["noeds: unknown key", "did you mean 'nodes'?"],
    "name: a\nlisten: {prot: 1}\n": ["listen.prot: unknown key", "did you mean 'port'?"],
    "name: a\nlisten: {port: many}\n": ["listen.port: found 'many'", "expected int"],
    "nodes: [a]\n": ["name"],
    "name: a\nlease: 10\n": ["lease: found 10", "expected str"],
    "name: a\nlease: 10 sec\n": ["lease: unknown unit 'sec'"],
    "name: a\nlease: 1s\n": ["lease: found '1s'", "more than twice the heartbeat, 1s"],
    "name: a\ndefault_memory: 1 gig\n": ["default_memory: unknown unit 'gig'", "did you mean"],
    "name: a\ncontract: {cpu_ratio: 1.5}\n": ["contract.cpu_ratio: found 1.5", "above 0, up to 1"],
    "name: a\ncontract: {memory_ratio: 0}\n": ["contract.memory_ratio: found 0", "above 0, up to 1"],
    "name: a\nmax_queued: -1\n": ["max_queued: found -1", "0: any number"],
    "name: a\nmax_queued_per_user: all\n": ["max_queued_per_user: found 'all'", "expected int"],
    "name: a\nmax_submissions_per_minute: -5\n": ["max_submissions_per_minute: found -5"],
    "name: a\nlaunch: {retries: -1}\n": ["launch.retries: found -1", "a number, 0 to 1000"],
    "name: a\nlaunch: {retry: 1}\n": ["launch.retry: unknown key", "did you mean 'retries'?"],
    "name: a\nset_aside: {losses: 1001}\n": ["set_aside.losses: found 1001"],
    "name: a\nset_aside: {failed_launches: some}\n": ["set_aside.failed_launches: found 'some'", "expected int"],
    "name: a\nset_aside: {within: 60}\n": ["set_aside.within: found 60", "expected str"],
    "name: a\nset_aside: {within: an hour}\n": ["set_aside.within"],
    "name: a\ncontract: {mpl: 0}\n": ["contract.mpl: found 0", "at least 1 task"],
    "name: a\nnodes: [x, x]\n": ["nodes: a node is named twice"],
    "name: a\nnodes: [Desk1, desk1]\n": ["nodes: 'desk1' beside 'Desk1'", "one spelling of a host's name"],
    "name: ''\n": ["name: found ''", "what the cluster is called"],
    "name: a\nnodes: ['x y']\n": ["nodes[0]: found 'x y'", "a host's name"],
    "name: a\nnodes: [x, ../x]\n": ["nodes[1]: found '../x'", "a host's name"],
    "name: a\nlisten: {port: 65536}\n": ["listen.port: found 65536", "a port, 0 to 65535"],
    "name: a\ndefault_time: 2h\nmax_time: 1h\n": ["default_time: found '2h'", "at most max_time, 1h"],
    "name: a\nmax_time: 0s\n": ["max_time: found '0s'", "more than nothing"],
    "name: a\nlaunch_timeout: 0s\n": ["launch_timeout: found '0s'", "more than nothing"],
    "name: a\npass_interval: 2min\n": ["pass_interval: found '2min'", "at most 1min"],
    "name: a\nmax_nodes_per_job: 0\n": ["max_nodes_per_job: found 0", "at least 1"],
    "name: a\ndefault_memory: 0B\n": ["default_memory: found '0B'", "at least 1B"],
    "name: a\nstate: here\n": ["state: found 'here'", "an absolute path"],
    "name: a\nnetwork: 10.0.0.0/99\n": ["network: found '10.0.0.0/99'", "such as 10.0.0.0/24"],
    "name: a\nplace: spred\n": ["place: found 'spred'", "one of first-fit, spread", "did you mean 'spread'?"],
    "name: a\ncoscheduling: {mode: gong}\n": ["coscheduling.mode: found 'gong'", "did you mean 'gang'?"],
    "name: a\noperators: [root, '@']\n": ["operators[1]: found '@'", "a group's as '@GROUP'"],
    "name: a\noperators: root\n": ["operators: found 'root'", "expected array"],
    "name: a\npolicy: esy\n": ["policy: no policy 'esy'", "did you mean 'easy'?"],
    "name: a\norder: fcsf\n": ["order: no order 'fcsf'", "did you mean 'fcfs'?"],
    "name: a\nname: b\n": [":2: the key 'name' stands twice"],
    "name: [a\n": ["not YAML"],
}


@pytest.mark.parametrize("text", BAD_CLUSTERS)
def test_settings_of_a_cluster(text: str, cosched: Call, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(text)
    for call in (["scheduler", "--check"], ["scheduler"]):
        if text.startswith(("name: a\npolicy", "name: a\norder")) and call[-1] != "--check":
            continue  # the running service names the key without the file
        ended = cosched(*call, "--config", "cluster.yaml")
        assert ended.status == 2, ended
        for part in ["cluster.yaml", *BAD_CLUSTERS[text]]:
            assert part in ended.err
        assert not ended.out


GOOD_NODE = """\
name = "a"
cluster = "c"
procs = 2
memory_bytes = 1000000000
[scheduler]
url = "wss://head:7420/v1/agent"
[launch]
address = "a"
"""
#: What is put in its place -> what doctor says of node.toml.
BAD_NODES = {
    ("procs = 2", "prcs = 2"): ["prcs: unknown key", "did you mean 'procs'?"],
    ("procs = 2", "procs = 0"): ["procs: found 0", "at least 1"],
    ("procs = 2", 'procs = "two"'): ["procs: found 'two'", "expected int"],
    ("memory_bytes = 1000000000", 'memory_bytes = "1GB"'): ["memory_bytes: found '1GB'", "expected int"],
    ("[launch]", "[contract]\ncpu_ratio = 2\n[launch]"): ["contract.cpu_ratio: found 2.0", "above 0, up to 1"],
    ("[launch]", "[presence]\npoll_s = 0\n[launch]"): ["presence.poll_s: found 0", "a number above 0"],
    ("[launch]", "[presence]\npoll_s = inf\n[launch]"): ["presence.poll_s: found inf", "a number above 0, up to"],
    ("[launch]", "[presence]\nbusy_cpus = nan\n[launch]"): ["presence.busy_cpus: found nan", "a number above 0"],
    ("[launch]", "[presence]\naway_after_s = 1e400\n[launch]"): ["presence.away_after_s: found inf", "a number above"],
    ("[launch]", '[cgroup]\nmode = "v3"\n[launch]'): ["cgroup.mode: found 'v3'", "one of auto, v2, v1, none"],
    ("[launch]", '[presence]\nsources = ["input", "mice"]\n[launch]'): [
        "presence.sources[1]: found 'mice'",
        "processes",
    ],
    ('name = "a"', 'name = "a b"'): ["name: found 'a b'", "a host's name"],
    ('cluster = "c"', 'cluster = ""'): ["cluster: found ''", "the cluster's name"],
    ("memory_bytes = 1000000000", "memory_bytes = 0"): ["memory_bytes: found 0", "at least 1"],
    ('"wss://head:7420/v1/agent"', '"http://head"'): ["scheduler.url: found 'http://head'", "wss://HOST:PORT/v1/agent"],
    ('address = "a"', 'address = ""'): ["launch.address: found ''", "where other agents reach this one"],
    ('address = "a"', 'address = "a"\nport = 70000'): ["launch.port: found 70000", "1 to 65535"],
    ('address = "a"', 'address = "a"\nnetwork = "lan"'): ["launch.network: found 'lan'", "10.0.0.0/24"],
    ("[launch]", '[paths]\nrun = "run"\n[launch]'): ["paths.run: found 'run'", "an absolute path"],
    ("[launch]", '[paths]\nkeep = ["/a", "b"]\n[launch]'): ["paths.keep[1]: found 'b'", "an absolute path"],
    ("[launch]", '[cgroup]\ncosched = "../x"\n[launch]'): ["cgroup.cosched: found '../x'", "below the mount"],
    ("[launch]", "[security]\nmin_uid = -1\n[launch]"): ["security.min_uid: found -1", "a user's number"],
    ("[launch]", "[weights]\nio = 101\n[launch]"): ["weights.io: found 101", "1 to 100, or 0 for none"],
    ("[launch]", "[weights]\nnetwork_priority = -1\n[launch]"): ["weights.network_priority", "a priority of packets"],
    ("[launch]", '[security]\nusers = "swich"\n[launch]'): ["security.users", "did you mean 'switch'?"],
    ("[launch]", "[lunch]"): ["lunch: unknown key", "did you mean 'launch'?"],
    ('name = "a"', "name = a"): ["not TOML"],
}


@pytest.mark.parametrize("change", BAD_NODES)
def test_settings_of_a_node(change: tuple[str, str], cosched: Call, tmp_path: Path) -> None:
    text = GOOD_NODE.replace(*change, 1)
    assert text != GOOD_NODE
    (tmp_path / "node.toml").write_text(text)
    ended = cosched("doctor", "--node-config", "node.toml", "--json")
    found = [check for check in json.loads(ended.out)["checks"] if check["what"] == "settings"]
    said = next(check for check in found if "node.toml" in check["found"])
    assert (ended.status, said["level"]) == (1, "fail")
    for part in BAD_NODES[change]:
        assert part in said["found"]
    assert said["advice"]


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

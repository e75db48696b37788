"""Nodes enrolled over a real ssh server of the test's own, with real guards and agents; and taken out again."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.agents import free_port, remove_groups
from kit.command import run_here
from kit.waiting import BOUND_S, wait_for

from cosched.apps.enrol import services
from cosched.apps.enrol.ssh import remote_command
from cosched.errors import BadInput
from cosched.identity import authority
from cosched.identity.requests import new_request, requested_key

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin")

pytestmark = [pytest.mark.system("openssh-server"), pytest.mark.xdist_group("office")]


class Office:
    """A cluster's directory and its running scheduler; an ssh server; hosts, each in a directory of this machine."""

    def __init__(self) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="cosched-", dir="/var/tmp"))  # a job has a /tmp of its own
        self.base.chmod(0o755)
        self.group = f"cosched-test-{uuid.uuid4().hex[:12]}"
        self.port = free_port()
        self.sshd_port = free_port()
        self.cluster = self.base / "office"
        self.server = self.base / "s.sock"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.hosts: list[str] = []
        self._sshd()
        self._scheduler()

    def _keygen(self, name: str) -> Path:
        path = self.base / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True, timeout=BOUND_S)
        return path

    def _sshd(self) -> None:
        host_key, self.key = self._keygen("host_key"), self._keygen("key")
        self.host_key = host_key.with_suffix(".pub").read_text().split()[:2]
        self.known_hosts = self.base / "known_hosts"
        self.known_hosts.write_text(f"[127.0.0.1]:{self.sshd_port} {' '.join(self.host_key)}\n")
        authorized = self.base / "authorized_keys"
        authorized.write_text(self.key.with_suffix(".pub").read_text())
        config = self.base / "sshd_config"
        config.write_text(
            f"Port {self.sshd_port}\nListenAddress 127.0.0.1\nHostKey {host_key}\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {authorized}\nStrictModes no\nPermitRootLogin prohibit-password\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nMaxStartups 100\n"
        )
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where sshd confines itself before it knows who calls
        self._start([str(SSHD), "-D", "-e", "-f", str(config)], "sshd.log")
        wait_for(lambda: listening(self.sshd_port), "sshd to listen")

    def _scheduler(self) -> None:
        made = run_here(
            "init", self.cluster, "--scheduler", "127.0.0.1", "--port", self.port, "--node", "unused", "--here"
        )
        assert made.status == 0, made.err
        settings = self.cluster / "scheduler" / "cluster.yaml"
        text = settings.read_text()
        for was, now in (
            ("/run/cosched/scheduler.sock", str(self.server)),
            ("/var/lib/cosched/scheduler", str(self.base / "journal")),
            ("/etc/cosched/identity", str(self.cluster / "scheduler" / "identity")),
        ):
            assert was in text
            text = text.replace(was, now)
        settings.write_text(text + "allow_root: true\nheartbeat: 200ms\n")
        command = [sys.executable, "-m", "cosched.apps.cli.main", "scheduler", "--config", str(settings)]
        self._start(command, "scheduler.log")
        wait_for(lambda: self.server.exists() and listening(self.port), "the scheduler to listen")

    def _start(self, command: list[str], log: str) -> None:
        with (self.base / log).open("ab") as file:
            self.processes.append(subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL))

    def node(self, verb: str, *places: str, **more: str) -> tuple[int, list[dict[str, Any]], str]:
        """``cosched node add|remove``: exit status, what became of each host, what was said on standard error."""
        name = places[0].partition("=")[0]
        options = {
            "--cluster": self.cluster, "--server": self.server, "--port": self.sshd_port, "--key": self.key,
            "--known-hosts": self.known_hosts, "--python": sys.executable, "--etc": self.base / name / "etc",
        }  # fmt: skip
        if verb == "add":
            self.hosts.append(name)
            extra = self.base / f"{name}.toml"
            extra.write_text(
                f'[cgroup]\ncosched = "{self.group}/{name}/cosched"\ndesk = "{self.group}/{name}/desk"\n'
                "[security]\nallow_root = true\nmin_uid = 1\n"
            )
            options |= {
                "--state": self.base / name / "state", "--run": self.base / name / "run", "--extra": extra,
                "--agent-port": free_port(), "--procs": 2, "--mem": "1GB", "--services": "detached",
            }  # fmt: skip
        options |= {f"--{key.replace('_', '-')}": value for key, value in more.items() if value != ""}
        flags = [f"--{key.replace('_', '-')}" for key, value in more.items() if value == ""]
        words = [word for option, value in options.items() for word in (option, value)]
        ended = run_here("node", verb, *places, *words, *flags, "--json")
        outcomes = json.loads(ended.out)["nodes"] if ended.out else []
        return ended.status, outcomes, ended.err

    def states(self) -> dict[str, str]:
        said = run_here("nodes", "--json", "--server", self.server)
        assert said.status == 0, said.err
        return {node["name"]: node["state"] for node in json.loads(said.out)["nodes"]}

    def close(self) -> None:
        from cosched.config.node import load_node  # noqa: PLC0415

        for name in self.hosts:
            for path in (self.base / name / "etc").glob("node.toml*"):
                services.stop(load_node(path))
        for process in self.processes:
            process.terminate()
            try:
                process.wait(BOUND_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(BOUND_S)
        remove_groups(self.group)
        for mount in self.base.glob("*/state/jobs/*/shm"):
            subprocess.run(["umount", mount], check=False, capture_output=True, timeout=BOUND_S)
        shutil.rmtree(self.base)


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def office() -> Iterator[Office]:
    if os.geteuid() != 0:
        pytest.skip("needs root: guards that make cgroups, and an ssh server that lets root in")
    made = Office()
    try:
        yield made
    finally:
        made.close()


@pytest.mark.slow
def test_a_host_becomes_a_node_runs_a_job_and_ceases_to_be_one(office: Office) -> None:
    status, (outcome,), error = office.node("add", "desk1=127.0.0.1")
    assert (status, outcome["problem"], outcome["notes"]) == (0, "", []), (outcome, error)
    assert outcome["services"] == "detached"
    assert office.states()["desk1"] == "up"
    etc = office.base / "desk1" / "etc"
    assert (etc / "identity" / "node.key").stat().st_mode & 0o777 == 0o600
    assert not list(office.cluster.rglob("nodes/desk1/**/node.key")), "the key was made there, and stayed there"
    mark = office.base / "desk1" / "state" / "marked"
    script = office.base / "job.sh"
    script.write_text(f"#!/bin/sh\necho there > {mark}\nexec sleep 7345\n")
    script.chmod(0o755)
    sent = run_here("submit", "--server", office.server, "--directory", "/", "--json", script)
    assert sent.status == 0, sent.err
    job_id = json.loads(sent.out)["job_id"]
    wait_for(mark.exists, "the job to run")

    old = (etc / "identity" / "node.key").read_bytes()
    status, (outcome,), error = office.node("renew", "desk1=127.0.0.1")
    assert (status, outcome["problem"], outcome["notes"]) == (0, "", []), (outcome, error)
    assert (etc / "identity" / "node.key").read_bytes() != old
    assert len(authority.serials_of(office.cluster / "authority", "node", "desk1")) == 2
    shown = json.loads(run_here("show", job_id, "--json", "--server", office.server).out)
    assert shown["state"] == "running"

    status, (outcome,), error = office.node("remove", "desk1=127.0.0.1")
    assert (status, outcome["problem"], outcome["notes"]) == (0, "", []), (outcome, error)
    assert sorted(outcome["services"].split(", ")) == ["cosched-agent", "cosched-guard"]
    shown = json.loads(run_here("show", job_id, "--json", "--server", office.server).out)
    assert shown["state"] == "node lost"
    assert "desk1" not in office.states()
    assert not (etc / "identity").exists()
    assert not [line for line in running() if str(etc) in line], "no guard, no agent"
    assert not [line for line in running() if line.startswith("sleep 7345")], "and nothing of its job"
    members = json.loads((office.base / "journal" / "members.json").read_text())
    assert list(members["revoked"].values()) == ["desk1", "desk1"]

    status, (outcome,), error = office.node("add", "desk1=127.0.0.1")  # and again, with another key
    assert (status, outcome["problem"]) == (0, ""), error
    assert office.states()["desk1"] == "up"


def running() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def test_a_host_key_that_is_not_known_or_has_changed_is_refused_with_what_to_do(office: Office, tmp_path: Path) -> None:
    nobody = tmp_path / "known"
    nobody.write_text("")
    status, (outcome,), _ = office.node("add", "desk2=127.0.0.1", known_hosts=str(nobody))
    assert status == 1
    for words in ("its host key is not known (ssh-ed25519 SHA256:", "ssh-keyscan", "at the machine itself"):
        assert words in outcome["problem"]
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True, timeout=BOUND_S)
    kind, key = other.with_suffix(".pub").read_text().split()[:2]
    nobody.write_text(f"[127.0.0.1]:{office.sshd_port} {kind} {key}\n")
    status, (outcome,), _ = office.node("add", "desk2=127.0.0.1", known_hosts=str(nobody))
    assert status == 1
    for words in ("its host key has CHANGED", f"ssh-keygen -R '[127.0.0.1]:{office.sshd_port}'"):
        assert words in outcome["problem"]
    assert "desk2" not in office.states()
    assert not (office.base / "desk2").exists()


@pytest.mark.slow
def test_what_fails_on_the_way_is_told_and_leaves_nobody_admitted(office: Office, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", stranger], check=True, timeout=BOUND_S)
    cases: list[tuple[dict[str, str], str]] = [
        ({"key": str(stranger)}, "is the key right (--key)"),
        ({"port": str(free_port())}, "cannot be reached: nothing listens there"),
        ({"python": "/no/such/python"}, "is cosched installed there, for /no/such/python (--python)?"),
        ({"run": "/proc/none"}, "/proc/none"),
    ]
    for more, words in cases:
        status, (outcome,), error = office.node("add", "desk3=127.0.0.1", **more)
        assert status == 1, more
        assert words in outcome["problem"], (more, outcome, error)
        assert "desk3" not in office.states()
    status, _, error = office.node("add", "desk3=127.0.0.1", extra=str(office.key))
    assert (status, "not TOML" in error) == (2, True), error
    mistaken = office.base / "mistaken.toml"
    mistaken.write_text("[presence]\npoll = 3\n")
    status, outcomes, error = office.node("add", "desk3=127.0.0.1", extra=str(mistaken))
    assert (status, outcomes, "presence.poll: unknown key" in error) == (2, [], True), error


def test_several_hosts_side_by_side_and_one_that_fails_costs_no_other(office: Office) -> None:
    status, outcomes, error = office.node("add", "many", "many2=127.0.0.1", "many3=192.0.2.1", parallel="3")
    del error
    by_name = {each["name"]: each for each in outcomes}
    assert status == 1
    assert sorted(by_name) == ["many", "many2", "many3"]
    assert not by_name["many"]["ok"]  # no such host
    assert not by_name["many3"]["ok"]  # an address that nobody has
    assert by_name["many2"]["ok"], by_name
    # and the one that was added is removed though it cannot be reached
    status, (outcome,), _ = office.node("remove", "many2=127.0.0.1", port=str(free_port()))
    assert (status, outcome["problem"]) == (0, "")
    assert "refused from now on, but its host was not tidied" in outcome["notes"][0]
    assert "many2" not in office.states()
    log = office.base / "many" / "state" / "cosched-agent.log"
    wait_for(
        lambda: "was removed from this cluster" in log.read_text() or "was revoked" in log.read_text(), "its agent"
    )


def test_a_request_is_believed_for_its_key_and_nothing_else(tmp_path: Path) -> None:
    authority.create_authority(tmp_path / "authority", "office")
    request = new_request("scheduler", tmp_path / "key")  # it may ask to be whom it likes
    made = authority.sign_node(tmp_path / "authority", requested_key(request), "desk1", ["192.0.2.9"])
    from cryptography import x509  # noqa: PLC0415

    certificate = x509.load_pem_x509_certificate(made["node.pem"].encode())
    assert "CN=desk1" in certificate.subject.rfc4514_string()
    assert "OU=node" in certificate.subject.rfc4514_string()
    assert authority.serials_of(tmp_path / "authority", "node", "desk1") == [f"{certificate.serial_number:x}"]
    body = request.splitlines()
    for wrong in ("", "hello", request.replace(body[2], body[2][::-1])):
        with pytest.raises(BadInput, match="certificate request"):
            requested_key(wrong)
    with pytest.raises(BadInput, match="node name"):
        authority.sign_node(tmp_path / "authority", requested_key(request), "../x", [])


def test_a_stale_note_of_a_process_stops_nobody(tmp_path: Path) -> None:
    """Its number may be another's by now."""
    from cosched.config.node import Launch, NodeConfig, Paths, SchedulerLink  # noqa: PLC0415

    config = NodeConfig(
        name="n", cluster="c", procs=1, memory_bytes=1, scheduler=SchedulerLink("wss://h/v1/agent"),
        launch=Launch("127.0.0.1"), paths=Paths(str(tmp_path), str(tmp_path)),
    )  # fmt: skip
    with subprocess.Popen(["sleep", "600"]) as innocent:
        try:
            (tmp_path / "cosched-agent.pid").write_text(f"{innocent.pid} 1\n")
            (tmp_path / "cosched-guard.pid").write_text("no number\n")
            assert services.stop(config) == []
            assert innocent.poll() is None
        finally:
            innocent.send_signal(signal.SIGKILL)


@pytest.mark.parametrize(
    ("installed", "runs"), [("venv", "the environment's"), ("alone", "the path's"), ("", "the path's")]
)
def test_steps_run_with_the_python_beside_the_hosts_command(tmp_path: Path, installed: str, runs: str) -> None:
    """Installation makes an environment and links its command into the path; no ``python3`` of the path has cosched."""
    path, environment = tmp_path / "path", tmp_path / "venv/bin"
    for directory, says in ((path, "the path's"), (environment, "the environment's")):
        directory.mkdir(parents=True)
        (directory / "python3").write_text(f'#!/bin/sh\necho "{says} $*"\n')
        (directory / "python3").chmod(0o755)
    if installed:
        command = (environment if installed == "venv" else tmp_path) / "cosched"
        command.write_text("#!/bin/sh\n")
        command.chmod(0o755)
        (path / "cosched").symlink_to(command)
    ended = subprocess.run(
        ["sh", "-c", remote_command("", "lay out")], env={"PATH": f"{path}:/usr/bin:/bin"}, cwd=environment,
        capture_output=True, text=True, timeout=BOUND_S, check=True,
    )  # fmt: skip
    assert ended.stdout == f"{runs} -m cosched.apps.enrol.remote lay out\n"

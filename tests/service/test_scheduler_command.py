"""``cosched scheduler`` as a process: checked, started, asked, stopped, and refused where it cannot work."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import yaml

from tests.kit.service import DEADLINE_S, Cluster

COMMAND = [sys.executable, "-m", "cosched.cli.main", "scheduler"]


def written(cluster: Cluster) -> Path:
    path = cluster.path / "cluster.yaml"
    path.write_text(yaml.safe_dump(msgspec.to_builtins(cluster.config)))
    return path


@contextmanager
def started(cluster: Cluster, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, "--config", str(written(cluster))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE_S)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ready_then_stopped(cluster: Cluster, number: signal.Signals) -> None:
    with started(cluster) as process:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(DEADLINE_S)
            client.connect(str(cluster.socket))
            client.sendall(b"GET /v1/cluster HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200 OK")
        process.send_signal(number)
        _, log = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, log
    events = [msgspec.json.decode(line)["event"] for line in log.splitlines()]
    assert events == ["starting", "recovered", "listening", "stopping", "stopped"]
    assert not cluster.socket.exists()


def test_killed_and_started_again(cluster: Cluster) -> None:
    with started(cluster):
        pass  # SIGKILL
    assert cluster.socket.exists()
    with started(cluster) as process:
        process.terminate()
        _, log = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert "epoch 2" in log


def test_a_second_one_on_the_same_journal_is_refused(cluster: Cluster) -> None:
    with started(cluster):
        answer = run("--config", str(cluster.path / "cluster.yaml"))
        assert (answer.returncode, answer.stdout) == (1, "")
        assert "another scheduler does" in answer.stderr


def test_systemd_hears_of_it(cluster: Cluster) -> None:
    address = str(cluster.path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.settimeout(DEADLINE_S)
        with started(cluster, NOTIFY_SOCKET=address) as process:
            assert systemd.recv(100) == b"READY=1"
            process.terminate()
            assert systemd.recv(100) == b"STOPPING=1"


def test_check(cluster: Cluster) -> None:
    answer = run("--config", str(written(cluster)), "--check")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "cluster test: 3 nodes may join, policy easy" in answer.stdout
    assert f"users of this host: {cluster.socket}" in answer.stdout
    assert "scheduler.pem: valid for" in answer.stdout
    assert not (cluster.path / "state").exists(), "a check changes nothing"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"policy": "eazy"}, "policy: no policy 'eazy'; expected one of"),
        ({"listen": {"socket": "", "address": ""}}, "listen: neither socket nor address"),
        ({"listen": {"socket": "/" + "x" * 120}}, "121 bytes; expected at most 107"),
        ({"identity": "/nonexistent"}, "/nonexistent/ca.pem: no such file; expected the authority's certificate"),
        ({"lease": "1s"}, "lease: found '1s'; expected more than twice the heartbeat, 1s"),
        ({"lease": "ten"}, "lease: 'ten'; expected a duration with its unit"),
        ({"contract": {"cpu_ratio": 2.0}}, "contract.cpu_ratio: found 2.0; expected a share above 0"),
        ({"nodes": ["n1", "n1"]}, "nodes: a node is named twice"),
        ({"polcy": "easy"}, "polcy: unknown key"),
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_bad_settings(
    make_cluster: Callable[..., Cluster], settings: dict[str, object], words: str, check: bool
) -> None:
    path = written(make_cluster())
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | settings))
    answer = run("--config", str(path), *(["--check"] if check else []))
    assert (answer.returncode, answer.stdout) == (2, ""), answer.stderr
    assert words in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_key_that_others_may_read(cluster: Cluster) -> None:
    (cluster.identity / "grant.key").chmod(0o644)
    answer = run("--config", str(written(cluster)))
    assert answer.returncode == 2
    assert "grant.key: a secret with mode 0644: others may read it" in answer.stderr


def test_no_settings() -> None:
    answer = run("--config", "/nonexistent/cluster.yaml")
    expected = "expected a file of settings (cosched init makes those of a cluster)"
    assert (answer.returncode, answer.stderr) == (2, f"cosched: /nonexistent/cluster.yaml: no such file; {expected}\n")

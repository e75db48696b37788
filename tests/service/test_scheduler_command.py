"""``cosched scheduler`` as a process: checked, started, asked, stopped, and refused where it cannot work."""

import asyncio
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from kit.command import Call, cosched  # noqa: F401 (a fixture)
from kit.service import DEADLINE_S, Cluster, running

from cosched.config.cluster import Listen
from cosched.errors import Failed, NeedsRepair
from cosched.wire.messages import TAKE_OVER_EPOCH

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "docs/examples"
COMMAND = [sys.executable, "-P", "-m", "cosched.apps.cli.main", "scheduler"]


def written(cluster: Cluster) -> Path:
    path = cluster.path / "cluster.yaml"
    path.write_text(yaml.safe_dump(msgspec.to_builtins(cluster.config)))
    return path


@contextmanager
def started(cluster: Cluster, *options: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, "--config", str(written(cluster)), *options],
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


@pytest.fixture
def here(cosched: Call) -> Iterator[Call]:  # noqa: F811 (the fixture)
    """The command in this process, whose threads take turns as before in the end."""
    interval_s = sys.getswitchinterval()
    yield lambda *arguments: cosched("scheduler", *arguments)
    sys.setswitchinterval(interval_s)


def asked(cluster: Cluster) -> dict[str, Any]:
    """What a running one says of its cluster."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(DEADLINE_S)
        client.connect(str(cluster.socket))
        client.sendall(b"GET /v1/cluster HTTP/1.0\r\nHost: x\r\n\r\n")
        head, _, body = b"".join(iter(lambda: client.recv(65536), b"")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 OK"), head
    return msgspec.json.decode(body, type=dict[str, Any])


def test_killed_started_again_taking_over_and_stopped_by_each_signal(cluster: Cluster) -> None:
    """It has taken over for good: a plain restart needs no word. And systemd hears of it."""
    epochs = []
    with started(cluster):
        epochs.append(asked(cluster)["epoch"])  # and then SIGKILL
    assert cluster.socket.exists()
    address = str(cluster.path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.settimeout(DEADLINE_S)
        for number, options in ((signal.SIGTERM, ["--take-over"]), (signal.SIGINT, [])):
            with started(cluster, *options, NOTIFY_SOCKET=address) as process:
                assert systemd.recv(100) == b"READY=1"
                epochs.append(asked(cluster)["epoch"])
                process.send_signal(number)
                assert systemd.recv(100) == b"STOPPING=1"
                _, log = process.communicate(timeout=DEADLINE_S)
                assert process.returncode == 0, log
            events = [msgspec.json.decode(line)["event"] for line in log.splitlines()]
            assert events == ["starting", "recovered", "listening", "stopping", "stopped"]
            assert not cluster.socket.exists()
    assert epochs == [1, max(epochs[1], TAKE_OVER_EPOCH), epochs[1] + 1]


def test_check(cluster: Cluster, here: Call) -> None:
    answer = here("--config", str(written(cluster)), "--check")
    assert (answer.status, answer.err) == (0, "")
    assert "cluster test: 3 nodes may join, policy easy" in answer.out
    assert f"users of this host: {cluster.socket}" in answer.out
    assert "scheduler.pem: valid for" in answer.out
    assert not (cluster.path / "state").exists(), "a check changes nothing"


def test_backup_of_a_running_service_is_restored_elsewhere(cluster: Cluster, tmp_path: Path, here: Call) -> None:
    settings, target = cluster.path / "cluster.yaml", tmp_path / "backup"
    with started(cluster):
        answer = here("--config", str(settings), "--backup", str(target))
        assert (answer.status, answer.err) == (0, "")
        (cluster.path / "state/members.json").write_text("{}")
        again = here("--config", str(settings), "--backup", str(target))
        assert (again.status, "which exists" in again.err) == (2, True)
        second = here("--config", str(settings), "--backup", str(tmp_path / "second"))
        assert second.status == 0, second.err
    assert [each.name for each in target.iterdir()] == ["journal.db"]
    assert sorted(each.name for each in (tmp_path / "second").iterdir()) == ["journal.db", "members.json"]
    assert target.stat().st_mode & 0o777 == 0o700
    shutil.rmtree(cluster.path / "state")
    (cluster.path / "state").mkdir()
    restored = here("--config", str(settings), "--restore", str(target / "journal.db"))
    assert (restored.status, restored.err) == (0, "")
    assert "epoch 2: 0 events" in here("--config", str(settings), "--check").out


def test_backup_without_a_journal_or_a_place_to_write_leaves_nothing(
    cluster: Cluster, tmp_path: Path, here: Call
) -> None:
    settings, state = str(written(cluster)), cluster.path / "state"
    no_directory = here("--config", settings, "--backup", str(tmp_path / "backup"))
    assert (no_directory.status, f"no directory {state}" in no_directory.err) == (4, True), no_directory.err
    state.mkdir()
    no_journal = here("--config", settings, "--backup", str(tmp_path / "backup"))
    assert (no_journal.status, "no such file" in no_journal.err) == (4, True), no_journal.err
    no_target = here("--config", settings, "--backup", str(tmp_path / "nowhere/backup"))
    assert (no_target.status, "no directory can be" in no_target.err) == (1, True), no_target.err
    assert not list(tmp_path.glob("**/*backup*"))


def test_second_one_beside_the_running_service_is_refused_and_a_check_recovers_a_copy(
    cluster: Cluster, here: Call
) -> None:
    with started(cluster) as process:
        answer = here("--config", str(cluster.path / "cluster.yaml"))
        assert (answer.status, answer.out) == (1, "")
        assert "another scheduler does" in answer.err
        before = (cluster.path / "state/journal.db").read_bytes()
        answer = here("--config", str(cluster.path / "cluster.yaml"), "--check")
        assert (answer.status, answer.err) == (0, "")
        assert f"scheduler.sock, where process {process.pid} serves now" in answer.out
        assert "epoch 2: 0 events after the snapshot at 0; jobs alive: none" in answer.out
        assert (cluster.path / "state/journal.db").read_bytes() == before
    answer = here("--config", str(cluster.path / "cluster.yaml"), "--check")
    assert (answer.status, "serves now" in answer.out) == (0, False)


def _foreign_journal(cluster: Cluster) -> None:
    with closing(sqlite3.connect(cluster.path / "state/journal.db")) as journal:
        journal.execute("PRAGMA user_version = 99")


def _truncated_journal(cluster: Cluster) -> None:
    path = cluster.path / "state/journal.db"
    with closing(sqlite3.connect(path)) as journal:
        journal.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _damaged_journal(cluster: Cluster) -> None:
    with closing(sqlite3.connect(cluster.path / "state/journal.db", isolation_level=None)) as journal:
        journal.execute("UPDATE runs SET run = replace(run, '\"epoch\":1', '\"epoch\":7')")


def _damaged_tokens(cluster: Cluster) -> None:
    (cluster.path / "state/tokens.json").write_text("{")


def _damaged_members(cluster: Cluster) -> None:
    (cluster.path / "state/members.json").write_text("{")


def _journal_gone(cluster: Cluster) -> None:
    (cluster.path / "state/journal.db").unlink()
    (cluster.path / "state/journal.db-wal").touch()


def _file_for_a_socket(cluster: Cluster) -> None:
    cluster.socket.write_text("")


def _file_for_a_directory(cluster: Cluster) -> None:
    shutil.rmtree(cluster.path / "state")
    (cluster.path / "state").write_text("")


@pytest.mark.parametrize(
    ("spoilt", "status", "words"),
    [
        (_truncated_journal, NeedsRepair.status, "journal.db: it is damaged"),
        (_damaged_journal, NeedsRepair.status, "its list of starts is damaged"),
        (_foreign_journal, NeedsRepair.status, "its format is 99"),
        (_journal_gone, NeedsRepair.status, "journal.db-wal is still there"),
        (_damaged_members, NeedsRepair.status, "members.json: not the list of members"),
        (_damaged_tokens, NeedsRepair.status, "tokens.json: not the list of tokens"),
        (_file_for_a_socket, Failed.status, "there is something that is no socket"),
        (_file_for_a_directory, Failed.status, "state"),
    ],
)
def test_status_of_a_failed_start_tells_whether_another_may_succeed(
    spoilt: Callable[[Cluster], None], status: int, words: str, cluster: Cluster, here: Call
) -> None:
    asyncio.run(_started_and_stopped(cluster))
    spoilt(cluster)
    for check in ("--check",), ():
        answer = here("--config", str(written(cluster)), *check)
        assert (answer.status, answer.out) == (status, ""), answer
        assert words in answer.err
        assert "Traceback" not in answer.err


async def _started_and_stopped(cluster: Cluster) -> None:
    async with running(cluster):
        pass


@pytest.mark.parametrize("check", [True, False])
def test_a_port_that_another_program_has(make_cluster: Callable[..., Cluster], check: bool, here: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        cluster = make_cluster(listen=Listen("", "127.0.0.1", other.getsockname()[1]))
        answer = here("--config", str(written(cluster)), *(["--check"] if check else []))
    assert (answer.status, answer.out) == (1, ""), answer
    assert "Address already in use" in answer.err


def test_a_policy_of_ones_own_lies_in_its_directory(
    make_cluster: Callable[..., Cluster], tmp_path: Path, here: Call
) -> None:
    shutil.copy(EXAMPLES / "least_work.py", tmp_path / "policy_of_ones_own.py")  # a name that no other test imports
    assert Path.cwd() == tmp_path, "which does not count: any user may write there"
    alone = make_cluster(policy="policy_of_ones_own:LeastWorkFirst")
    for check in ("--check",), ():
        refused = here("--config", str(written(alone)), *check)
        assert (refused.status, refused.out) == (2, ""), refused
        assert "no module 'policy_of_ones_own'; expected an installed module, or policy_directory" in refused.err
    cluster = make_cluster(policy="policy_of_ones_own:LeastWorkFirst", policy_directory=str(tmp_path))
    with started(cluster) as process:
        assert process.poll() is None
        answer = run("--config", str(cluster.path / "cluster.yaml"), "--check")
        assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"policy": "eazy"}, "policy: no policy 'eazy'; expected one of"),
        ({"listen": {"socket": "", "address": ""}}, "listen: neither socket nor address"),
        ({"listen": {"socket": "/" + "x" * 120}}, "121 bytes; expected at most 107"),
        ({"identity": "/nonexistent"}, "/nonexistent/ca.pem: no such file; expected the authority's certificate"),
        ({"policy_directory": "here"}, "policy_directory: found 'here'; expected an absolute path"),
        ({"lease": "1s"}, "lease: found '1s'; expected more than twice the heartbeat, 1s"),
        ({"lease": "ten"}, "lease: 'ten'; expected a duration with its unit"),
        ({"contract": {"cpu_ratio": 2.0}}, "contract.cpu_ratio: found 2.0; expected a share above 0"),
        ({"nodes": ["n1", "n1"]}, "nodes: a node is named twice"),
        ({"polcy": "easy"}, "polcy: unknown key"),
    ],
)
def test_bad_settings(
    make_cluster: Callable[..., Cluster], settings: dict[str, object], words: str, here: Call
) -> None:
    path = written(make_cluster())
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | settings))
    for check in (["--check"], []):
        answer = here("--config", str(path), *check)
        assert (answer.status, answer.out) == (2, ""), answer.err
        assert words in answer.err
        assert "Traceback" not in answer.err


def test_a_key_that_others_may_read(cluster: Cluster, here: Call) -> None:
    (cluster.identity / "grant.key").chmod(0o644)
    answer = here("--config", str(written(cluster)))
    assert answer.status == 2
    assert "grant.key: a secret with mode 0644: others may read it" in answer.err


def test_no_settings(here: Call) -> None:
    answer = here("--config", "/nonexistent/cluster.yaml")
    expected = "expected a file of settings (cosched init makes those of a cluster)"
    assert (answer.status, answer.err) == (2, f"cosched: /nonexistent/cluster.yaml: no such file; {expected}\n")

"""Guard and agent as systemd's own services, run where systemd is process 1 (see ``test_guard_uml``, ``uml-init``).

Not collected by itself: it writes units to /etc/systemd/system and starts them.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.guards import ClientByHand, alive, ordinary_user
from kit.waiting import BOUND_S, wait_for

from cosched.apps.enrol import services
from cosched.config.node import NodeConfig, node_config
from cosched.config.templates import node_toml
from cosched.identity.authority import create_authority, issue
from node_agent.guard.client import GuardGone

GROUPS = Path("/sys/fs/cgroup")
SIDE = GROUPS / services.PLACE
MIB = 1 << 20


@pytest.fixture(scope="module")
def installed() -> Iterator[tuple[Path, NodeConfig]]:
    """This machine as a node, its guard and agent started by systemd, placed as an enrolment does it."""
    base = Path("/run/node")
    base.mkdir()
    create_authority(base / "authority", "test")
    issue(base / "authority", "node", "desk1", base / "identity")
    settings = {
        "name": "desk1",
        "cluster": "test",
        "procs": 1,
        "memory_bytes": 512 * MIB,
        "scheduler": {"url": "wss://127.0.0.1:9/v1/agent"},
        "launch": {"address": "127.0.0.1", "port": 7700, "network": "127.0.0.0/8"},
        "paths": {"run": f"{base}/run", "state": f"{base}/state", "identity": f"{base}/identity"},
        "cgroup": {"cosched": services.place()},
    }
    path = base / "node.toml"
    config = node_config(settings, str(path))
    path.write_text(node_toml(config))
    try:
        services.start(path, config, "systemd")
        yield path, config
    finally:
        services.stop(config)


def ask(config: NodeConfig, request: dict[str, object], fds: tuple[int, ...] = ()) -> dict[str, Any]:
    """Ask the guard, as its agent would; that is stopped meanwhile, for the guard serves one."""

    def answered() -> dict[str, Any] | None:
        try:
            with ClientByHand(f"{config.paths.run}/guard.sock") as guard:
                guard.ask({"do": "arm"})
                return dict(guard.ask(request, fds, timeout_s=20))
        except GuardGone:
            return None

    found: dict[str, Any] = wait_for(answered, "the guard")
    return found


def systemctl(*words: str) -> str:
    return subprocess.run(
        ["systemctl", *words], capture_output=True, text=True, check=True, timeout=BOUND_S
    ).stdout.strip()


def cpu_max() -> str:
    return (SIDE / "cpu.max").read_text().split()[0]


def test_parallel_work_lies_in_a_slice_that_is_idle(installed: tuple[Path, NodeConfig]) -> None:
    assert services.place() == services.PLACE
    assert (GROUPS / services.SLICE / "cpu.idle").read_text().strip() == "1"
    assert cpu_max() == "5000"  # armed: half of a CPU in each 10 ms
    assert systemctl("is-active", "cosched-agent", "cosched-guard", "cosched-jobs").split() == ["active"] * 3
    path, _ = installed
    checked = subprocess.run(
        [sys.executable, "-m", "cosched.apps.cli.main", "agent", "--config", str(path), "--check", "--json"],
        capture_output=True, text=True, check=False, timeout=BOUND_S,
    )  # fmt: skip
    found = {each["what"]: each for each in json.loads(checked.stdout)["findings"]}
    assert found["protects the desk"]["found"] == "yes", found
    assert found["cpu ceiling"]["found"] == "yes"


def test_limits_outlast_a_reload_and_jobs_a_guard(installed: tuple[Path, NodeConfig]) -> None:
    _, config = installed
    systemctl("stop", "cosched-agent")
    account = ordinary_user()
    ask(config, {
        "do": "prepare", "job": 1, "attempt": 1, "user": account.pw_name, "directory": "/", "tasks": 1,
        "memory_bytes": 64 * MIB, "limit_us": None, "grace_us": 1_000_000, "umask": 0o022,
        "cpus": None, "asleep": False,
    })  # fmt: skip
    with open("/dev/null", "r+b") as null:
        fds = (null.fileno(),) * 3
        pid = int(ask(config, {
            "do": "spawn", "job": 1, "attempt": 1, "n": 0, "argv": ["sleep", "600"], "env": {}, "cwd": "/",
            "script": False, "output": None, "error": None, "stream": None,
        }, fds)["pid"])  # fmt: skip
    assert Path(f"/proc/{pid}/cgroup").read_text().strip() == f"0::/{services.PLACE}/job-1.1"
    systemctl("daemon-reload")
    assert (GROUPS / services.SLICE / "cpu.idle").read_text().strip() == "1"
    assert cpu_max() == "5000"
    systemctl("restart", "cosched-guard")
    assert alive(pid)
    (group,) = ask(config, {"do": "list"})["groups"]
    assert (group["job"], group["attempt"]) == (1, 1)
    ask(config, {"do": "kill", "job": 1, "attempt": 1, "grace_us": 0})
    wait_for(lambda: not alive(pid), "the job's end")
    systemctl("start", "cosched-agent")


def test_nothing_is_left_when_a_node_is_removed(installed: tuple[Path, NodeConfig]) -> None:
    _, config = installed
    services.stop(config)
    assert not list(services.UNITS.glob("cosched*"))
    end_s = time.monotonic() + 20
    while SIDE.exists() and time.monotonic() < end_s:
        time.sleep(0.1)
    assert not SIDE.exists()

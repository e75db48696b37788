"""The experiment on the contract runs on a real lab, with all its controls; how fast is not asked here."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from kit.needs import need_root

from cosched.apps.experiments.contract import ABSENT, ABSENT_UNPROTECTED, IDLE, UNPROTECTED
from cosched.apps.lab.files import AWAY_AFTER_S
from cosched.apps.lab.lab import Lab

_MODULE = ("-m", "cosched.apps.cli.main")
#: Others run beside it: a disturbed run is made again twice at most.
_COMMAND = ("bench", "contract", "--tasks=1", "--rounds=1", "--seconds=2", "--reactions=1", "--tries=3")


@pytest.mark.long
@pytest.mark.xdist_group("live")
@pytest.mark.parametrize("desk", ["made for it", "a lab's", "this machine's"])
def test_one_short_round_of_everything(tmp_path: Path, desk: str) -> None:
    """On a lab of its own; on one that is up; and on a node of one, as on a machine that is a cluster's node."""
    need_root()
    out = tmp_path / "out"
    with tempfile.TemporaryDirectory(prefix="cosched-") as runtime, pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSCHED_RUNTIME_DIR", runtime)  # short: sockets are below it
        if desk == "made for it":
            done = cosched(*_COMMAND, "--out", str(out))
        else:
            with Lab.up(1, name="bench", pin=True, keep=[tmp_path]) as lab:
                if desk == "a lab's":
                    done = cosched(*_COMMAND, "--lab", lab.name, "--out", str(out))
                else:
                    (node,) = lab.state["nodes"]
                    settings = f"{node['directory']}/node.toml"
                    socket = str(lab.socket.resolve())
                    there = ("lab", "run", "--name", lab.name, node["name"], "--", sys.executable, *_MODULE)
                    done = cosched(*there, *_COMMAND, "--server", socket, "--config", settings, "--out", str(out))
    assert done.returncode in (0, 1), done.stderr  # 1: a goal is missed, as on any busy machine

    raw = json.loads((out / "contract.json").read_text())
    assert raw["refused"] == {}
    lines = [json.loads(line) for line in (out / "contract-runs.jsonl").read_text().splitlines()]
    felt = {line["condition"]: line["felt"] for line in lines if "felt" in line}
    assert set(felt) == {IDLE, UNPROTECTED, f"{ABSENT}none", ABSENT_UNPROTECTED, "none"}
    assert felt["none"]["parallel_cpus"] > 0
    assert felt[IDLE]["parallel_cpus"] == 0
    assert felt[UNPROTECTED]["p99_s"]["nanosleep"] > 0
    assert felt[UNPROTECTED]["parallel_cpus"] > 0
    assert {cell["condition"] for cell in raw["cells"]} <= set(felt)
    (reaction,) = raw["reactions"]
    assert 0 < reaction["limited_s"] < AWAY_AFTER_S < reaction["back_s"]
    assert "first key to the ceiling in force" in done.stdout
    assert "last key to the whole node back" in done.stdout


@pytest.mark.xdist_group("live")
def test_a_cluster_whose_jobs_could_start_elsewhere_is_refused(lab: Lab) -> None:
    done = cosched(*_COMMAND, "--lab", lab.name)
    assert done.returncode == 1
    if lab.tier == 1:
        assert f"of the cluster's nodes {lab.nodes[0]} alone must be up, not {', '.join(lab.nodes)}" in done.stderr
    else:
        assert "contracts need control groups" in done.stderr


def cosched(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *_MODULE, *arguments], capture_output=True, text=True, timeout=240, check=False
    )

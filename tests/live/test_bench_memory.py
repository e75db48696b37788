"""The experiment on memory runs on a real lab, with its controls: what is kept from an owner, and what is not."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from kit.needs import need_root

from cosched.apps.experiments.memory import CONTRACT, IDLE, UNPROTECTED


@pytest.mark.long
@pytest.mark.xdist_group("live")
def test_an_owner_loses_his_memory_without_a_contract_alone(tmp_path: Path) -> None:
    need_root()
    with tempfile.TemporaryDirectory(prefix="cosched-") as runtime:  # short: sockets are below it
        done = subprocess.run(
            [sys.executable, "-m", "cosched.apps.cli.main", "bench", "memory", "--rounds", "1", "--seconds", "4",
             "--out", tmp_path / "out"],
            capture_output=True, text=True, timeout=240, check=False, env=os.environ | {"COSCHED_RUNTIME_DIR": runtime},
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    raw = json.loads((tmp_path / "out/memory.json").read_text())
    lost = {cell["condition"]: cell["lost_share"]["median"] for cell in raw["cells"]}
    assert lost[IDLE] == lost[CONTRACT] == 0
    assert lost[UNPROTECTED] > 0.5
    assert raw["missed"] == {"without swap": ""}
    assert not list(Path("/var/tmp").glob("cosched-memory-*"))

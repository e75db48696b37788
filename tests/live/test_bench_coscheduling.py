"""The experiment on coscheduling runs: on a lab that it makes, and on one that is up; how fast is not asked here."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from kit.needs import need_root
from kit.waiting import skip_if_busy

from cosched.apps.experiments.matrix import ALONE
from cosched.apps.lab.lab import Lab

pytestmark = pytest.mark.xdist_group("live")

_CELL = ("yield, 1 ms", "one computing task")
#: Others run beside it: a disturbed run is made again twice at most.
_COMMAND = ("--works", _CELL[0], "--beside", "one", "--rounds=1", "--seconds=0.5", "--tries=3")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("place", ["made for it", "a lab"])
def test_a_short_round_of_one_cell(tmp_path: Path, place: str) -> None:
    need_root()
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs: a node on each")
    command = (*_COMMAND, "--out", str(tmp_path / "out"))
    with tempfile.TemporaryDirectory(prefix="cosched-") as runtime, pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSCHED_RUNTIME_DIR", runtime)  # short: sockets are below it
        if place == "a lab":
            modes = {"none", "gang"}
            with Lab.up(2, name="bench", pin=True, mpl=3) as lab:
                done = bench(*command, "--modes", ",".join(sorted(modes)), "--lab", lab.name)
        else:
            modes = {"plain", "ccs"}
            done = bench(*command, "--modes", ",".join(sorted(modes)))
    assert done.returncode in (0, 1), done.stderr  # 1: a goal is missed, as on any busy machine

    lines = [json.loads(line) for line in (tmp_path / "out/coscheduling-runs.jsonl").read_text().splitlines()]
    runs = {line["mode"]: line for line in lines if "mode" in line}
    if ALONE not in runs:
        skip_if_busy("an undisturbed half second")
    assert set(runs) == {ALONE, *modes}
    assert {(run["work"], run["company"]) for run in runs.values()} == {_CELL}
    assert runs[ALONE]["rate"] == 0
    for mode in modes:
        assert runs[mode]["seconds"] > runs[ALONE]["seconds"] > 0.4, "half a second of computing, beside somebody"
        assert 0 < runs[mode]["rate"] < 1
    raw = json.loads((tmp_path / "out/coscheduling.json").read_text())
    assert raw["refused"] == {}
    plots = {path.name for path in (tmp_path / "out").glob("*.png")}
    assert plots == ({"coscheduling-one-computing-task.png"} if raw["cells"] else set())


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "cosched.apps.cli.main", "bench", "coscheduling", *arguments],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip

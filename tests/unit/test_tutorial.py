"""docs/guide/tutorial.md, command by command: each is run as it stands there, and prints what stands there."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from kit.guides import typed

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs/guide/tutorial.md"
_PATIENCE_S = 300


def words(lines: list[str]) -> list[str]:
    """Lines without what only lays them out: stretches of space, empty lines."""
    return [" ".join(line.split()) for line in lines if line.strip()]


def clone(at: Path) -> Path:
    """A checkout as the tutorial sees it. Its ``run`` takes this test's environment instead of making one."""
    at.mkdir()
    (at / "docs").symlink_to(ROOT / "docs")
    run = at / "run"
    run.write_text(
        f'#!/bin/sh\n[ "$1" = cosched ] && shift && exec {shlex.quote(sys.executable)} -m cosched.apps.cli.main "$@"\n'
    )
    run.chmod(0o755)
    return at


@pytest.mark.slow
def test_every_command_of_the_tutorial_prints_what_the_tutorial_says(tmp_path: Path) -> None:
    place, here = clone(tmp_path / "clone"), tmp_path / "here"
    told = list(typed("tutorial", TUTORIAL.read_text()))
    assert len(told) > 10
    here.write_text(str(place))
    for line in told:
        command = line.command
        ended = subprocess.run(
            ["bash", "-o", "pipefail", "-c", f"{command}\nstatus=$?; pwd >{shlex.quote(str(here))}; exit $status"],
            cwd=here.read_text().strip(), capture_output=True, text=True, timeout=_PATIENCE_S, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, f"{command}\n{ended.stderr}"
        assert words(ended.stdout.splitlines()) == words([*line.printed]), command
    assert {plot.stem for plot in place.rglob("*.png") if "compared" in plot.parts} == {
        "slowdown", "queue", "utilization", "gantt-easy", "gantt-small_first_SmallFirst",
    }  # fmt: skip


def test_space_and_empty_lines_only_lay_out() -> None:
    assert words(["b", "", " c   d"]) == ["b", "c d"]

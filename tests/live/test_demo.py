"""The demo as a newcomer runs it, in each tier, and interrupted; nothing may be left behind."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cosched.lab import tiers

pytestmark = pytest.mark.xdist_group("live")


@dataclass
class Place:
    """Where a demo is run: directories of its own, so that what it leaves is told from what others do meanwhile."""

    folder: Path
    runtime: Path
    temp: Path

    def environment(self) -> dict[str, str]:
        return {**os.environ, "COSCHED_RUNTIME_DIR": str(self.runtime), "TMPDIR": str(self.temp)}

    def start(self, *options: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "cosched.cli.main", "demo", "--out", str(self.folder / "out"), *options],
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def left_behind(self) -> list[str]:
        """What a demo started here has left: processes, control groups, files; the names of its labs show them."""
        found = [f"file {path}" for root in (self.runtime, self.temp) for path in root.rglob("*") if not path.is_dir()]
        found += [f"lab directory {path}" for path in self.runtime.glob("labs/*")]
        mark = str(self.runtime).encode()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                text = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
            except OSError:
                continue
            if mark in text:
                found.append(f"process {process.name}: {text[-300:]!r}")
        return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="demo") as short:  # the path of a socket may have 107 bytes
        place = Place(tmp_path, Path(short), tmp_path / "tmp")
        place.temp.mkdir()
        yield from checked(place)


def checked(place: Place) -> Iterator[Place]:
    groups, shared = lab_groups(), shared_memory()
    yield place
    assert place.left_behind() == []
    assert not {group for group in lab_groups() - groups if "demo-" in group}
    assert not {name for name in shared_memory() - shared if "cosched" in name or "ompi" in name or "prte" in name}


def lab_groups() -> set[str]:
    """The control groups of labs on this machine."""
    return {str(path) for path in Path("/sys/fs/cgroup").glob("**/cosched-lab/*")}


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


@pytest.mark.parametrize("tier", [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)])
def test_the_demo_ends_well_and_leaves_nothing(place: Place, tier: int) -> None:
    possible = tiers.best(tier)
    if possible.tier != tier:
        pytest.skip(f"this machine has no tier {tier}: {possible.why}")
    running = place.start("--tier", str(tier), "--json")
    try:
        out, err = running.communicate(timeout=400)
    finally:
        end(running)
    assert running.returncode == 0, (out, err)
    told = json.loads(out)
    assert f"tier {tier}" in told["tier"]
    assert len(told["jobs"]) >= 12
    assert {job["kind"] for job in told["jobs"]} == {"cpu", "comm"}
    assert sum(job["state"] == "completed" for job in told["jobs"]) == len(told["jobs"]) - 1
    (broken,) = (job for job in told["jobs"] if job["state"] != "completed")
    assert broken["state"] == "failed"
    assert broken["failure"]["tail"]
    assert told["user"]["latency_ms"]["count"] > 20
    assert (place.folder / "out" / "journal.db").stat().st_size > 0


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))])
def test_an_interrupted_demo_leaves_nothing(place: Place, seed: int) -> None:
    running = place.start()
    delay_s = random.Random(seed).uniform(0.2, 4.0 + 4.0 * seed)
    try:
        time.sleep(delay_s)
        os.kill(running.pid, signal.SIGINT)
        _, err = running.communicate(timeout=60)
    finally:
        end(running)
    assert running.returncode == 130, (delay_s, err)


def end(process: "subprocess.Popen[str]") -> None:
    """Make sure that it is gone, whatever the test saw."""
    if process.poll() is None:
        process.kill()
        process.communicate(timeout=30)

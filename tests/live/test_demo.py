"""The demo as a newcomer runs it, in each tier, and interrupted; nothing may be left behind."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.groups import groups, pids
from kit.labs import ordinary_user
from kit.needs import need_namespaces_of
from kit.waiting import BOUND_S, wait_for

from cosched.apps.lab import tiers
from space_scheduler.replay import replay

pytestmark = pytest.mark.xdist_group("demos and folds")


class Place:
    """Where a demo is run, and by whom: directories of its own, so that what it leaves is told from what others do."""

    def __init__(self, folder: Path, prefix: tuple[str, ...] = (), python: str = sys.executable) -> None:
        self.runtime, self.temp, self.out = (folder / name for name in ("run", "tmp", "out"))
        self.argv = [*prefix, python, "-m", "cosched.apps.cli.main", "demo", "--out", str(self.out)]
        for each in (self.runtime, self.temp):
            each.mkdir()

    def start(self, *options: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*self.argv, *options],
            env={**os.environ, "COSCHED_RUNTIME_DIR": str(self.runtime), "TMPDIR": str(self.temp)},
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def left_behind(self) -> list[str]:
        """What a demo started here has left: files, sockets, mounts, processes; its directories' names show them."""
        found = [f"file {path}" for root in (self.runtime, self.temp) for path in root.rglob("*") if not path.is_dir()]
        found += [f"lab directory {path}" for path in self.runtime.glob("labs/*")]
        mark = str(self.runtime)
        for table in ("/proc/self/mountinfo", "/proc/net/unix"):
            found += [f"{table}: {line}" for line in Path(table).read_text().splitlines() if mark in line]
        for process in Path("/proc").glob("[0-9]*"):
            try:
                text = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in text:
                found.append(f"process {process.name}: {text[-300:]!r}")
        return found


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="demo", dir="/tmp") as short:  # the path of a socket may have 107 bytes
        Path(short).chmod(0o755)
        yield Path(short)


@pytest.fixture
def place(folder: Path) -> Iterator[Place]:
    """Where this user runs it: root, in CI."""
    yield from checked(Place(folder), os.geteuid())


@pytest.fixture
def users_place(folder: Path) -> Iterator[Place]:
    """Where an ordinary user runs it, in an environment that has what this one has and a Python that he may read."""
    prefix, python, uid = ordinary_user()
    own, theirs = folder / "venv", Path(sys.prefix)
    (own / "bin").mkdir(parents=True)
    (own / "lib").symlink_to(theirs / "lib")
    (own / "pyvenv.cfg").write_text(f"home = {Path(python).parent}\n")
    for command in (theirs / "bin").iterdir():
        (own / "bin" / command.name).symlink_to(python if command.name.startswith("python") else command)
    place = Place(folder, prefix, str(own / "bin" / "python"))
    for each in (folder, place.runtime, place.temp):
        os.chown(each, uid, uid)
    yield from checked(place, uid)


def checked(place: Place, uid: int) -> Iterator[Place]:
    before, shared = demos_groups(uid), shared_memory()
    yield place
    assert place.left_behind() == []
    left = demos_groups(uid) - before
    assert not left, [(group, groups(f"{group}/**"), pids(f"{group}/**/cgroup.procs")) for group in left]
    assert not {name for name in shared_memory() - shared if "cosched" in name or "ompi" in name or "prte" in name}


def demos_groups(uid: int) -> set[str]:
    """The control groups of demos on this machine that are this user's."""
    found = set()
    for group in groups("**/cosched-lab/demo-*"):
        with contextlib.suppress(FileNotFoundError):  # the demo that somebody watches meanwhile
            if group.stat().st_uid == uid:
                found.add(str(group))
    return found


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def told_by(place: Place, *options: str) -> dict[str, Any]:
    """What a demo tells, which must end well."""
    running = place.start("--json", *options)
    try:
        out, err = running.communicate(timeout=400)
    finally:
        end(running)
    assert running.returncode == 0, (out, err)
    told: dict[str, Any] = json.loads(out)
    (broken,) = (job for job in told["jobs"] if job["state"] != "completed")
    assert broken["state"] == "failed"
    assert broken["failure"]["tail"]
    assert {job["kind"] for job in told["jobs"]} == {"cpu", "comm"}
    assert (place.out / "journal.db").stat().st_size > 0
    found = replay(place.out / "journal.db")
    assert found.agrees, str(found.difference)
    assert found.instructions >= len(told["jobs"])
    return told


def of_tier(tier: int, told: dict[str, Any]) -> bool:
    return f": tier {tier}, " in told["tier"]


def need_tier(tier: int) -> None:
    possible = tiers.best(tier)
    if possible.tier != tier:
        pytest.skip(f"this machine has no tier {tier}: {possible.why}")


@pytest.mark.long
@pytest.mark.parametrize("tier", [1, 2, 3])
def test_the_demo_ends_well_and_leaves_nothing(place: Place, tier: int) -> None:
    need_tier(tier)
    told = told_by(place, "--tier", str(tier))
    assert of_tier(tier, told)
    assert len(told["jobs"]) >= 12
    assert told["user"]["calls"]["key"]["count"] > 20


@pytest.mark.slow
def test_a_short_demo_of_an_ordinary_user_ends_well_and_leaves_nothing(users_place: Place) -> None:
    short(users_place, 3, "--tier", "3")


@pytest.mark.slow
def test_short_demo_of_root_ends_well_where_run_is_noexec(place: Place) -> None:
    need_tier(1)
    place.runtime = Path("/run", place.runtime.parent.name)
    steps = """
        mount -t tmpfs -o nosuid,nodev,noexec tmpfs /run
        mounts() { grep " /run/" /proc/mounts || true; }
        before=$(mounts)  # covered by the tmpfs; each goes when its directory is removed, by another test too
        "$@"
        test -z "$(ls -A /run; mounts | grep -vxF "$before")"
    """
    place.argv = ["unshare", "-m", "sh", "-ec", steps, "sh", *place.argv]
    short(place, 1)


def short(place: Place, tier: int, *options: str) -> None:
    told = told_by(place, "--short", *options)
    if not of_tier(tier, told):
        pytest.skip(f"this machine has no tier {tier} for this user: {told['tier']}")
    assert {job["tasks"] for job in told["jobs"]} == ({1} if tier == 3 else {1, 2, 4})
    assert told["user"]["calls"]["key"]["count"] > 0


def test_a_place_that_cannot_be_written_to_is_told_before_anything_is_made(users_place: Place) -> None:
    users_place.out.mkdir()
    users_place.out.chmod(0o555)  # and where root runs this it is root's, as after a demo that root ran
    for out, what in ((users_place.out, "Permission denied"), (Path("/proc/none"), "No such file or directory")):
        status, said, err = refused(users_place, "--out", str(out))
        assert (status, said) == (2, ""), err
        assert f"cosched: --out {out}: {what}; expected a directory that this user may write to" in err
    mine = users_place.out / "journal.db"
    users_place.out.chmod(0o777)
    mine.touch(mode=0o444)
    status, _, err = refused(users_place)
    assert status == 2
    assert "journal.db of somebody else" in err


def refused(place: Place, *options: str) -> tuple[int, str, str]:
    """A demo that should end at once: status, output, error. One that does not is ended, for the next test."""
    running = place.start(*options)
    try:
        said, err = running.communicate(timeout=BOUND_S)
    finally:
        end(running)
    return running.returncode, said, err


#: Which demo is interrupted, and how late at most: in its lab's making, in its jobs, in its end.
INTERRUPTED = [
    pytest.param("root", 1, 12, id="root-1-12"),
    pytest.param("user", 3, 8, id="user-3-8"),
    *(
        pytest.param(who, tier, late_s, id=f"{who}-{tier}-{late_s}", marks=pytest.mark.long)
        for who, tier in (("root", 1), ("user", 2), ("user", 3))
        for late_s in (2, 4, 6, 16, 32)
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("who", "tier", "late_s"), INTERRUPTED)
def test_an_interrupted_demo_leaves_nothing(request: pytest.FixtureRequest, who: str, tier: int, late_s: float) -> None:
    need_tier(tier if who == "root" else 3)
    place: Place = request.getfixturevalue("place" if who == "root" else "users_place")
    if who == "user" and tier == 2:
        *prefix, python = place.argv[: place.argv.index("-m")]
        need_namespaces_of(tuple(prefix), python)
    delay_s = random.Random(f"{who} {tier} {late_s}").uniform(late_s / 2, late_s) - 1.0
    running = place.start("--tier", str(tier))
    try:
        wait_for(place.out.exists, "the demo to begin: an interrupt of its imports is Python's")
        time.sleep(delay_s)
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does it: to all in the foreground
        _, err = running.communicate(timeout=BOUND_S)
    finally:
        end(running)
    assert running.returncode == 130, (delay_s, err)


def end(process: "subprocess.Popen[str]") -> None:
    """Make sure that it is gone, whatever the test saw."""
    if process.poll() is None:
        process.kill()
        process.communicate(timeout=BOUND_S)

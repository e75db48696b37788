"""The machines that the demo's matrix is made on: what they lack is not there, and what is left behind is seen."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import astuple
from itertools import combinations
from pathlib import Path

import pytest
from campaigns.demo_matrix import PAIRS, Row, made_user, shut_in
from kit.needs import need_root

EVERYTHING = Row(root=True, pip=True, compiler=True, ip=True, user_namespaces=True)
NOTHING = Row(root=False, pip=False, compiler=False, ip=False, user_namespaces=False)


def test_the_rows_have_every_pair() -> None:
    for two in combinations(range(5), 2):
        assert len({tuple(astuple(row)[at] for at in two) for row in PAIRS}) == 4, two


@pytest.fixture
def base() -> Iterator[Path]:
    need_root()
    base = Path(tempfile.mkdtemp(prefix="cosched-matrix-", dir="/var/lib"))
    try:
        base.chmod(0o755)
        (base / "home" / "cosched").mkdir(parents=True)
        yield base
    finally:
        subprocess.run(["userdel", base.name], check=False, capture_output=True)
        shutil.rmtree(base)


@pytest.mark.system("iproute2")
def test_what_is_missing_is_not_there(base: Path) -> None:
    asked = (
        "for each in cc gcc c++ ip pip3; do command -v $each && echo there; done; python3 -m ensurepip --version;"
        "unshare --user true; ls /sys/class/net; id -un; exit 7"
    )
    found = shut_in(NOTHING, base, made_user(base), ["/bin/sh", "-c", asked], online=False)
    assert found["status"] == 7, found
    assert "there" not in found["output"]
    assert "No module named ensurepip" in found["output"]
    assert "unshare failed: No space left on device" in found["output"]
    assert found["output"].splitlines()[-2:] == ["lo", base.name]
    assert found["left"] == []


@pytest.mark.system("gcc", "iproute2")
def test_what_is_not_missing_is_there(base: Path) -> None:
    asked = "set -e; command -v cc; unshare --user true; touch /dev/shm/mine; rm /dev/shm/mine"
    found = shut_in(EVERYTHING, base, "root", ["/bin/sh", "-c", asked], online=False)
    assert found["status"] == 0, found
    assert found["left"] == []


@pytest.mark.system("iproute2")
def test_what_is_left_behind_is_seen(base: Path) -> None:
    sleep = f"sleep 599.{os.getpid()}"
    asked = (
        "import os, socket, subprocess, sys; open('/tmp/a', 'w'); open('/dev/shm/b', 'w'); open('c', 'w');"
        "s = socket.socket(); s.bind(('127.0.0.1', 7999)); s.listen(); os.set_inheritable(s.fileno(), True);"
        f"subprocess.Popen(['setsid', '-f', *'{sleep}'.split()], close_fds=False)"
    )
    found = shut_in(EVERYTHING, base, "root", ["/usr/bin/python3", "-c", asked], online=False)
    assert found["status"] == 0, found
    left = " ".join(found["left"])
    for what in (
        "file /tmp/a",
        "file /dev/shm/b",
        f"file {base}/home/cosched/c",
        sleep,
        "socket tcp 0100007F:1F3F",
    ):
        assert what in left
    assert not [
        path for path in Path("/proc").glob("[0-9]*/cmdline") if sleep.replace(" ", "\0").encode() in _read(path)
    ]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""

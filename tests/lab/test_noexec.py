"""A lab on a hardened host: its directory lies on a mount with ``noexec``, as /run does on Debian with an initramfs.

So do /var and /dev/shm; /proc hides the processes of others, and files are made without rights for others.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from kit.labs import Bench, bench_of
from kit.needs import need_mounts
from kit.waiting import wait_for

#: A job that executes a program of its own in its private /tmp, and starts a command on each of its two nodes.
SCRIPT = """#!/bin/sh -e
cp /bin/true /tmp/own
/tmp/own
for node in node1 node2; do "$HYDRA_LAUNCHER_EXEC" "$node" uname -n; done
"""


@dataclass
class NoexecBench(Bench):
    """A bench in a mount namespace of its own, where its runtime directory is a tmpfs mounted ``noexec``."""

    holder: int = 0

    def root(self) -> Path:
        return Path(f"/proc/{self.holder}/root")

    def left(self) -> list[str]:
        files = (self.root() / self.runtime.relative_to("/")).glob("**/*")
        mounts = (self.root() / "proc" / str(self.holder) / "mountinfo").read_text().splitlines()
        own = [line for line in mounts if f"{self.runtime}/" in line]
        return [*super().left(), *map(str, files), *own]


@contextmanager
def noexec(bench: Bench) -> Iterator[NoexecBench]:
    need_mounts()
    owner = bench.runtime.stat().st_uid
    options = "nosuid,nodev,noexec"
    script = f"""
    mount -t tmpfs -o {options},mode=755,uid={owner} tmpfs {bench.runtime}
    for place in /var /dev/shm; do mount --bind $place $place; mount -o remount,bind,{options} $place; done
    mount -t proc -o hidepid=2 proc /proc
    echo mounted
    exec sleep infinity"""
    with subprocess.Popen(["unshare", "-m", "sh", "-e", "-c", script], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "mounted\n"
            enter = ("nsenter", f"--mount=/proc/{holder.pid}/ns/mnt", "--", "sh", "-c", 'umask 077; exec "$@"', "sh")
            made = NoexecBench(bench.runtime, bench.name, (*enter, *bench.prefix), bench.python, holder=holder.pid)
            yield made
            made.call("down", "--all")
        finally:
            holder.kill()


@pytest.fixture(params=["tier 1", "tier 2"])
def noexec_bench(request: pytest.FixtureRequest) -> Iterator[NoexecBench]:
    with bench_of(int(request.param[-1])) as bench, noexec(bench) as made:
        yield made


def cosched(bench: Bench, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [*bench.prefix, bench.python, "-P", "-m", "cosched.apps.cli.main", *arguments]
    return subprocess.run(argv, env=bench.environment(), cwd="/", capture_output=True, text=True, check=False)


def test_job_runs_in_lab_whose_directory_is_noexec_and_a_killed_holder_leaves_no_mount(
    noexec_bench: NoexecBench,
) -> None:
    bench = noexec_bench
    script = bench.runtime.parent / "job.sh"
    script.write_text(SCRIPT)
    bench.up("--nodes", 2)
    ran = cosched(bench, "submit", "-n", "2", "--wait", "--output", "/dev/null", str(script))
    assert ran.returncode == 0, (ran.stdout, ran.stderr)
    holder = json.loads(bench.done("status", "--json", "--name", bench.name))["holder"]
    os.kill(holder, signal.SIGKILL)
    bench.down()
    wait_for(lambda: bench.left() == [], f"nothing to be left, was {bench.left()}")


def test_lab_without_namespaces_on_noexec_is_refused_with_remedy(user_bench: Bench) -> None:
    with noexec(user_bench) as bench:
        refused = bench.call("up", "--name", bench.name, "--tier", 3, "--nodes", 2)
        assert refused.returncode == 1
        assert f"{bench.runtime} is mounted noexec" in refused.stderr
        assert "remedy: COSCHED_RUNTIME_DIR=DIR" in refused.stderr
        assert bench.left() == []
        elsewhere = bench.runtime.parent / "elsewhere"
        elsewhere.mkdir()
        os.chown(elsewhere, bench.runtime.stat().st_uid, -1)
        remedied = replace(bench, env={"COSCHED_RUNTIME_DIR": str(elsewhere)})
        remedied.up("--nodes", 1, "--tier", 3)
        remedied.down()

"""A disk of bounded size: output that is cut, output that is swept, and a disk that is full while jobs run."""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.agents import Cluster, Node, until
from kit.needs import need_mounts

from cosched.wire import messages as wire
from node_agent.service.spool import Spool

KIB = 1 << 10


async def test_output_beyond_the_limit_is_cut_with_a_line_and_the_job_goes_on(cluster: Cluster) -> None:
    node = cluster.node("a", output='limit = "64KiB"')
    mark = cluster.base / "enough"
    script = f"""#!/bin/sh
head -c 300000 /dev/zero | tr '\\0' x
until [ -e {mark} ]; do sleep 0.02; done
head -c 300000 /dev/zero | tr '\\0' y
echo short >&2
exit 5
"""
    kept = b"x" * 64 * KIB + b"\ncosched: cut here: only the first 65536 bytes are kept (output.limit)\n"
    async with cluster.scheduler() as scheduler:
        fence = scheduler.fence
        await scheduler.tell("a", cluster.prepare(fence, 5, "a"))
        await scheduler.next("a", wire.Prepared)
        await scheduler.order(wire.Run, 5, 2, script=script.encode(), arguments=())
        await scheduler.next("a", wire.Started)
        spooled = node.state / "spool/5.1/stdout"
        await until(lambda: spooled.exists() and spooled.stat().st_size == len(kept), "the output to be cut")
        assert await scheduler.output("a", 5) == kept, "while it runs"
        mark.touch()
        ended = await scheduler.next("a", wire.ProgramEnded)
        assert (ended.exit, ended.error_tail) == (wire.Exit(5, None, "own"), b"short\n")
        assert await scheduler.output("a", 5) == kept
        assert await scheduler.output("a", 5, "stderr") == b"short\n"
        assert "its stdout is cut at 65536 bytes" in node.log.read_text()
        node.stop_agent()
        node.start_agent()
        await until(lambda: len(scheduler.hellos) == 2, "the agent to come back")
        assert await scheduler.output("a", 5) == kept, "cut once, it stays so"


def test_a_reader_never_sees_what_will_be_cut(tmp_path: Path) -> None:
    spool = Spool(tmp_path, limit_bytes=10)
    descriptor = spool.open(1, 1, "stdout")
    os.write(descriptor, b"0123456789")
    assert spool.read(1, 1, "stdout", 0, 100) == (b"0123456789", 10)
    os.write(descriptor, b"beyond")
    data, size = spool.read(1, 1, "stdout", 10, 1000)
    assert data == b"\ncosched: cut here: only the first 10 bytes are kept (output.limit)\n"
    os.write(descriptor, b"far beyond")
    assert spool.read(1, 1, "stdout", size, 1000) == (b"", size)
    assert spool.read(1, 1, "stdout", 3, 4) == (b"3456", size)
    os.close(descriptor)


def test_what_ended_first_is_swept_first_and_what_is_in_use_stays(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for job_id in range(1, 6):
        descriptor = spool.open(job_id, 1, "stdout")
        os.write(descriptor, b"x" * 100 * KIB)
        os.close(descriptor)
        os.utime(tmp_path / f"{job_id}.1" / "stdout", (job_id * 100, job_id * 100))
    (tmp_path / "not.mine").mkdir()
    assert spool.sweep(10**9, 10**9, [], now_s=lambda: 600.0) == []
    assert spool.sweep(10**9, 450.0, [(1, 1)], now_s=lambda: 600.0) == [], "the first is in use"
    assert spool.sweep(10**9, 450.0, [], now_s=lambda: 600.0) == [(1, 1)], "older than 450 s"
    assert spool.sweep(250 * KIB, 10**9, [(2, 1)], now_s=lambda: 600.0) == [(3, 1), (4, 1)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2.1", "5.1", "not.mine"]


@contextlib.contextmanager
def small_disk(node: Node, size: str) -> Iterator[None]:
    """The node's state on a file system of its own; the node is ended before it goes."""
    node.state.mkdir(parents=True)
    need_mounts()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0755", "tmpfs", node.state], check=True)
    try:
        yield
    finally:
        node.close()
        subprocess.run(["umount", "-l", node.state], check=True)


def fill(disk: Path) -> Path:
    """Write until nothing more fits."""
    filler = disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    assert os.statvfs(disk).f_bavail == 0
    return filler


@pytest.mark.parametrize("user_fills_it", [False, True])
async def test_on_a_full_disk_nothing_new_is_taken_and_what_runs_ends_as_it_would(
    cluster: Cluster, user_fills_it: bool
) -> None:
    """Filled by somebody, or by a job through its own output."""
    node = cluster.node("a", start=False, output='least_free = "1MiB"')
    go = cluster.base / "go"
    filling = "cat /dev/zero" if user_fills_it else ":"
    script = f"#!/bin/sh\necho first\n{filling}\nuntil [ -e {go} ]; do sleep 0.02; done\nexit 7\n"
    with small_disk(node, "8m"):
        node.start_guard()
        node.start_agent()
        async with cluster.scheduler() as scheduler:
            fence = scheduler.fence
            await scheduler.tell("a", cluster.prepare(fence, 5, "a"))
            await scheduler.next("a", wire.Prepared)
            await scheduler.order(wire.Run, 5, 2, script=script.encode(), arguments=())
            await scheduler.next("a", wire.Started)
            if user_fills_it:
                await until(lambda: os.statvfs(node.state).f_bavail == 0, "the disk to be full")
                filler = node.state / "spool/5.1/stdout"
            else:
                filler = fill(node.state)

            await scheduler.tell("a", cluster.prepare(fence, 6, "a"))
            refused = await scheduler.next("a", wire.Refused)
            assert (refused.order.job_id, refused.code) == (6, "failed")
            assert f"the disk of {node.state} is full: 0 MiB are free, new work needs 1" in refused.message
            await until(lambda: scheduler.reports["a"].disk.endswith("make room there"), "the report of the full disk")
            assert (await scheduler.output("a", 5)).startswith(b"first\n")

            go.touch()
            assert (await scheduler.next("a", wire.ProgramEnded, job_id=5)).exit == wire.Exit(7, None, "own")
            await scheduler.order(wire.Kill, 5, 3, grace_us=100_000)
            await scheduler.next("a", wire.GroupEnded, job_id=5)
            assert "records cannot be written: " in node.log.read_text()

            os.truncate(filler, 0)
            await until(lambda: "records can be written again" in node.log.read_text(), "the records to be written")
            await until(lambda: not scheduler.reports["a"].disk, "the report of room")
            record = node.state / "records/5.1.group"
            await until(lambda: json.loads(record.read_text())["ending"] == "killed", "the guard's record of its end")
            node.stop_agent()
            node.start_agent()
            await until(lambda: len(scheduler.hellos) == 2, "the agent to come back")
            report = next(each for each in scheduler.hellos[1].groups if each.job_id == 5)
            assert (report.state, report.exit) == ("ended", wire.Exit(7, None, "own"))
            await scheduler.tell("a", cluster.prepare(fence, 8, "a"))
            assert (await scheduler.next("a", wire.Prepared)).order.job_id == 8

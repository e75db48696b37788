"""The journal on a real disk that is really full: nothing is accepted, jobs run and end, and it goes on by itself."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.needs import need_mounts
from kit.service import Cluster, Running, running

from cosched.wire import messages as wire


@contextlib.contextmanager
def small_disk(path: Path, size: str) -> Iterator[None]:
    """A file system of its own at a path."""
    need_mounts()
    path.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def fill(disk: Path) -> Path:
    """Write until nothing more fits."""
    filler = disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    assert os.statvfs(disk).f_bavail == 0
    return filler


async def submit_until_refused(service: Running) -> int:
    """Submissions until one is refused, which the last pages of a file may still delay; how many were accepted."""
    script = "#!/bin/sh\n" + "# as long as scripts are\n" * 400
    for accepted in range(200):
        job = {"script": script, "directory": "/tmp"}
        async with service.http.post("/v1/jobs", json=job) as answer:
            if answer.status == 503:
                assert "cannot be written" in (await answer.json())["message"]
                return accepted
            assert answer.status == 201
    raise AssertionError("the disk does not get full")


async def test_a_full_disk_under_the_journal(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    state = Path(cluster.config.state)
    with small_disk(state, "4m"):
        async with running(cluster) as service, service.agent("n1") as agent:
            job_id = await service.runs()
            filler = fill(state)
            await submit_until_refused(service)
            assert (await service.get("/healthz", 503))["message"].startswith("no jobs are accepted: journal ")
            assert not (await service.get("/v1/cluster"))["accepting"]
            await service.get(f"/v1/jobs/{job_id}")
            await service.post(f"/v1/jobs/{job_id}/cancel", status=503)
            await service.logged("nothing is accepted until it can be")

            await agent.ends(job_id, wire.Exit(status=3))  # what nodes report waits for the disk
            await asyncio.sleep(0)
            assert (await service.job(job_id)).state == "running"
            os.truncate(filler, 0)
            done = await service.job_in(job_id, "failed")
            assert done.exit_status == 3
            await service.submit()
            await service.logged("well again")
        async with running(cluster) as service:
            assert (await service.job(job_id)).state == "failed"


async def test_a_start_on_a_full_disk_is_refused_and_says_so(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    state = Path(cluster.config.state)
    with small_disk(state, "2m"):
        fill(state)
        with pytest.raises(Exception, match=r"cannot be made|full"):
            async with running(cluster):
                pass
        (state / "filler").unlink()
        async with running(cluster) as service:
            await service.submit()

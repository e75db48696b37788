"""A file system that does not answer, in a real lab: what cannot start runs elsewhere, what cannot end is told."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.disks import StallingDisk, stalling_disk
from kit.processes import running_module
from kit.waiting import wait_for
from live.conftest import Jobs, groups_of

from cosched.apps.lab import tiers
from cosched.apps.lab.lab import Lab
from cosched.client.client import Client

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("faults")]


@pytest.fixture
def disk() -> Iterator[StallingDisk]:
    with tempfile.TemporaryDirectory(prefix="stalling-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        with stalling_disk(Path(folder) / "disk") as made:
            yield made


@pytest.fixture
def lab(disk: StallingDisk) -> Iterator[Lab]:
    """Two nodes; the second has a healthy directory where the first has the disk."""
    if (possible := tiers.best(1)).tier != 1:
        pytest.skip(f"needs a lab of tier 1, with control groups: {possible.why}")
    with Lab.up(nodes=2, name=f"stalled-{os.getpid()}", keep=[disk.mount.parent]) as up:
        directory = next(each["directory"] for each in up.state["nodes"] if each["name"] == "node2")
        guard, *_ = running_module("node_agent.guard", directory)
        subprocess.run(["nsenter", f"--target={guard}", "--mount", "--pid", "umount", disk.mount], check=True)
        try:
            yield up
        finally:
            disk.thaw()  # else the lab's processes cannot be ended


def left_on(lab: Lab, node: str) -> list[Path]:
    """What a node's guard still keeps of jobs."""
    directory = Path(next(each["directory"] for each in lab.state["nodes"] if each["name"] == node))
    records = [each for each in directory.glob("state/records/*") if each.name not in ("lock", "epoch")]
    return [*directory.glob("state/jobs/*"), *records]


def held_on(client: Client, node: str) -> int:
    return next(each.held_procs for each in client.nodes() if each.name == node)


def test_launch_that_stalls_runs_once_elsewhere_and_a_job_that_cannot_end_is_told(
    lab: Lab, client: Client, jobs: Jobs, disk: StallingDisk
) -> None:
    canary = disk.mount.parent / "canary"
    disk.freeze()
    job_id = jobs.submit(f"hostname >> {canary}", tasks=1, output=str(disk.mount / "out"))
    job = jobs.ended(job_id)
    assert (job.state, [share.name for share in job.nodes]) == ("completed", ["node2"])
    assert any("node1 refused: the output" in each.note and "does not answer" in each.note for each in job.history)
    assert held_on(client, "node1") == 1
    (stalled,) = client.job(job_id).stalled
    assert (stalled.node, stalled.attempt, stalled.processes[0].mount) == ("node1", 1, str(disk.mount))
    assert [each.state for each in client.nodes()] == ["up", "up"], "one user's mount sets no node aside"
    disk.thaw()
    wait_for(lambda: held_on(client, "node1") == 0 and not left_on(lab, "node1"), "the end of the attempt on node1")
    assert canary.read_text() == "node2\n"
    assert groups_of(lab, job_id) == {}

    go = disk.mount.parent / "go"
    os.mkfifo(go)
    writes = f"read line < {go}; echo more >> {disk.mount}/file"
    job_id = jobs.submit(writes, tasks=1, time_limit_s=5.0, directory=str(disk.mount))
    jobs.becomes(job_id, "running")
    (disk.mount / "file").touch()
    disk.freeze()
    go.write_text("go\n")
    stalled = jobs.becomes(job_id, "ending").stalled[0]
    assert stalled.processes[0].path == f"{disk.mount}/file"
    assert "waits for" in client.explain(job_id).stalled[0].processes[0].text
    (node,) = [each for each in client.nodes() if each.name == "node1"]
    assert (node.jobs, node.stalled[0].job_id, node.held_procs) == ([job_id], job_id, 0)
    disk.thaw()
    assert jobs.ended(job_id).state == "timed out"
    wait_for(lambda: not left_on(lab, "node1"), "the end of the job on node1")

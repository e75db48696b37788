"""The ceiling where there are no control groups: whole processors, by affinity."""

import os
import signal
from pathlib import Path

import pytest
from kit.waiting import wait_for

from node_agent.linux.cgroup_none import CgroupsNone


@pytest.mark.parametrize("before", [None, 1.0], ids=["tightened", "relaxed"])
def test_without_cgroups_a_command_follows_a_ceiling_that_changed_while_it_started(before: float | None) -> None:
    """Its supervisor was forked under the one before, and has that one's processors in its memory."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs: of one nothing can be taken away by affinity")
    groups = CgroupsNone("no rights")
    groups.create("job", None, 10)
    groups.set_limits(before, False, 0)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.read(read, 1)
            groups.enter("job")
            os.execvp("sleep", ["sleep", "600"])
        finally:
            os._exit(1)
    try:
        groups.set_limits(1.0 if before is None else None, False, 0)
        count = 1 if before is None else len(os.sched_getaffinity(0))
        os.write(write, b"x")
        wait_for(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", "the command to run")
        assert len(os.sched_getaffinity(pid)) != count
        groups.began("job", pid)
        assert len(os.sched_getaffinity(pid)) == count
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(read)
        os.close(write)

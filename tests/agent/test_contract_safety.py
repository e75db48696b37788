"""Promises to the person at the desk, on real processes: whatever becomes of an agent, the desk is protected."""

import os
import pwd
import signal
from pathlib import Path
from typing import Any

import pytest
from kit.agents import Cluster, Node, until
from kit.groups import ceiling
from kit.waiting import BOUND_S

#: As an ordinary user has it: a guard of his own, and no control groups.
ORDINARY: dict[str, Any] = {"cgroup": 'mode = "none"', "security": 'users = "self"\nallow_root = true'}
NOBODYS = 'preset = "dedicated"\npoll_s = 0.2'


def ceiling_of(node: Node) -> float | None:
    """CPUs that parallel work may use, as the kernel has it."""
    return ceiling(f"{node.group}/cosched")


async def relaxed(cluster: Cluster) -> Node:
    """A node on which parallel work has all of the CPU."""
    node = cluster.node("a", presence=NOBODYS)
    await until(lambda: ceiling_of(node) is None if os.path.exists(node.run / "guard.sock") else False, "no ceiling")
    return node


async def test_a_late_word_of_an_agent_that_slept_relaxes_nothing_by_itself(cluster: Cluster) -> None:
    """After it wakes it looks again, and relaxes only while the scheduler is heard."""
    scheduler = cluster.scheduler()
    scheduler.lease_us = 1_000_000
    async with scheduler:
        node = await relaxed(cluster)
        assert node.agent is not None
        node.agent.send_signal(signal.SIGSTOP)
        await until(lambda: ceiling_of(node) == 1.0, "the ceiling")
        scheduler.links["a"].transport.abort()  # who is stopped takes no leave
    node.agent.send_signal(signal.SIGCONT)
    await until(lambda: "armed, the scheduler has not been heard" in node.log.read_text(), "the agent to look")
    assert ceiling_of(node) == 1.0


async def test_an_agent_cut_off_from_its_scheduler_arms_when_the_lease_ends(cluster: Cluster) -> None:
    scheduler = cluster.scheduler()
    scheduler.lease_us = 1_000_000
    async with scheduler:
        node = await relaxed(cluster)
    await until(lambda: ceiling_of(node) == 1.0, "the ceiling")


async def test_a_guard_that_was_killed_while_relaxed_begins_armed(cluster: Cluster) -> None:
    async with cluster.scheduler():
        node = await relaxed(cluster)
        node.stop_agent(signal.SIGKILL)  # else it relaxes the new guard as well, which is as it should be
        await until(lambda: ceiling_of(node) == 1.0, "the ceiling")
        assert node.guard is not None
        node.guard.kill()
        node.guard.wait(BOUND_S)
        cpu = Path("/sys/fs/cgroup/cpu", node.group, "cosched/cpu.cfs_quota_us")
        if cpu.exists():
            cpu.write_text("-1")
        node.start_guard()
        await until(lambda: ceiling_of(node) == 1.0, "the ceiling")


async def test_without_cgroups_tasks_go_back_to_fewer_cpus(users_cluster: Cluster) -> None:
    """There the ceiling is whole CPUs, by affinity: half of two is one."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs: of one nothing can be taken away by affinity")
    async with users_cluster.scheduler() as scheduler:
        node = users_cluster.node("a", presence=NOBODYS, **ORDINARY)
        user = pwd.getpwuid(os.geteuid()).pw_name
        task = await users_cluster.run(scheduler, b"exec sleep 600\n", user=user)
        try:
            await until(lambda: len(os.sched_getaffinity(task)) > 1, "nobody to be there")
            assert node.agent is not None
            node.agent.kill()
            await until(lambda: len(os.sched_getaffinity(task)) == 1, "the ceiling")
        finally:
            os.kill(task, signal.SIGKILL)  # without a group of its own nothing else ends it

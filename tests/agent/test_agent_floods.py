"""Connections without end at the agent's doors: they keep out whoever makes them, and are held against no node."""

import asyncio
import contextlib
import os
import resource
import socket
import sys
from collections.abc import Hashable

import pytest
from kit.agents import Cluster, Node, Scheduler, until

from cosched.admission import Bounds, NoPlace, Places
from cosched.wire import messages as wire
from node_agent.service.entrance import Place

#: In a job: so many connections to the agent, each renewed when it is closed, none of which says anything.
HOLD = """
import os, pathlib, resource, select, socket, sys, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held, refused = [], 0
while True:
    while len(held) < 1100:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(os.environ["COSCHED_AGENT_SOCKET"])
        except OSError:
            connection.close()
            break
        held.append(connection)
    poll = select.poll()
    for each in held:
        poll.register(each, select.POLLIN)
    for fd, _ in poll.poll(50):
        found = next(each for each in held if each.fileno() == fd)
        held.remove(found)
        found.close()
        refused += 1
    if refused > 100 or len(held) == 1100:
        pathlib.Path(sys.argv[1]).touch()
"""

#: In a job: a call, made again only where it has failed and nothing ran here for a second: it waits for an agent for
#: few seconds, of which a stall takes all.
CALL = """
import os, subprocess, sys, time
stood = True
while stood:
    stood, looked_s = False, time.monotonic()
    call = subprocess.Popen([os.environ["RSH"], *sys.argv[1:]])
    while call.poll() is None:
        time.sleep(0.05)
        stood |= time.monotonic() > looked_s + 1
        looked_s = time.monotonic()
    stood &= call.returncode == 255
print(call.returncode)
"""


async def started(cluster: Cluster, scheduler: Scheduler, job_id: int, script: str, *nodes: Node) -> None:
    """A job over nodes that runs a script on the first."""
    for node in nodes:
        names = [each.name for each in nodes]
        await scheduler.tell(node.name, cluster.prepare(scheduler.fence, job_id, *names))
        await scheduler.next(node.name, wire.Prepared)
    text = b"#!/bin/sh\n" + script.encode()
    await scheduler.tell(nodes[0].name, wire.Run(scheduler.fence, wire.OrderId(job_id, 1, 2), text, ()))
    await scheduler.next(nodes[0].name, wire.Started)


def descriptors(node: Node) -> int:
    assert node.agent is not None
    return len(os.listdir(f"/proc/{node.agent.pid}/fd"))


async def test_one_jobs_connections_shut_out_no_other_job(cluster: Cluster) -> None:
    a, b = cluster.node("a"), cluster.node("b")
    async with cluster.scheduler() as scheduler:
        hold, call, full = a.base / "hold.py", a.base / "call.py", a.base / "full"
        hold.write_text(HOLD)
        call.write_text(CALL)
        await started(cluster, scheduler, 5, f"exec {sys.executable} {hold} {full}", a, b)
        await until(full.exists, "the job to hold what it gets")
        await started(cluster, scheduler, 6, f"exec {sys.executable} {call} -n b 'echo there'", a, b)
        ended = await scheduler.next(a.name, wire.ProgramEnded)
        assert ended.exit == wire.Exit(0)
        assert await scheduler.output(a.name, 6, "stdout") == b"there\n0\n"


async def test_strangers_at_the_port_leave_room_for_agents(cluster: Cluster) -> None:
    """300 connections that never begin a handshake: few are open at a time, and a launch passes between them."""
    a, b = cluster.node("a"), cluster.node("b")
    async with cluster.scheduler() as scheduler:
        go = a.base / "go"
        script = f"until [ -e {go} ]; do sleep 0.05; done; $RSH -n b 'echo there'; echo $?"
        await started(cluster, scheduler, 6, script, a, b)
        before = descriptors(b)
        silent = [socket.socket() for _ in range(300)]
        for each in silent:
            each.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                each.connect(("127.0.0.1", b.port))
        await asyncio.sleep(0)
        assert descriptors(b) <= before + 64
        await until(lambda: sum(closed(each) for each in silent) >= 200, "the rest to be hung up on")
        go.touch()
        ended = await scheduler.next(a.name, wire.ProgramEnded)
        assert ended.exit == wire.Exit(0)
        assert await scheduler.output(a.name, 6, "stdout") == b"there\n0\n"
        for each in silent:
            each.close()


def closed(connection: socket.socket) -> bool:
    try:
        return not connection.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True


async def test_no_descriptor_left_is_not_the_nodes_fault(cluster: Cluster) -> None:
    """What is refused as ``failed`` is held against the node; ``busy`` is only tried elsewhere, or later."""
    a = cluster.node("a")
    async with cluster.scheduler() as scheduler:
        await until(lambda: "a" in scheduler.beats, "the agent to be linked")
        assert a.agent is not None
        limits = resource.prlimit(a.agent.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(a.agent.pid, resource.RLIMIT_NOFILE, (descriptors(a), limits[1]))
        await scheduler.tell("a", cluster.prepare(scheduler.fence, 7, "a"))
        refused = await scheduler.next("a", wire.Refused)
        resource.prlimit(a.agent.pid, resource.RLIMIT_NOFILE, limits)
        assert refused.code == "busy", refused.message
        assert "Too many open files" in refused.message


def test_finished_connection_is_not_evicted() -> None:
    places: Places[Hashable, Place] = Places(Bounds(1, 1))
    with socket.socket() as connection:
        place = Place("job 5", connection, places)
        places.enter(place, place.owner)
        place.finished()
        with pytest.raises(NoPlace):
            places.enter(Place("job 6", connection, places), "job 6")

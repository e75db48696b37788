"""Jobs over real agents and their launch route, for tests that leave the nodes as they were."""

import asyncio
import os
import signal
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from cosched.identity.tls import client_context
from cosched.wire import messages as wire
from cosched.wire.stream import Frames, Kind
from kit.agents import DEADLINE_S, Cluster, Node, Scheduler
from kit.groups import pids
from node_agent.service.commands import Wanted
from node_agent.service.rsh_proxy import Call

JOB, EPOCH = 5, 4


class Job:
    """A job over nodes, whose script does what files in its directory tell it to."""

    def __init__(
        self, cluster: Cluster, scheduler: Scheduler, *nodes: Node, user: str = "root", number: int = JOB
    ) -> None:
        self.cluster, self.scheduler, self.nodes, self.user, self.number = cluster, scheduler, nodes, user, number

    async def prepare(self, *, epoch: int | None = None) -> None:
        names = [node.name for node in self.nodes]
        more: dict[str, Any] = {}
        if epoch is not None:
            more["grant"] = self.cluster.grant(self.number, tuple(names), self.user, epoch)
        there = [node for node in self.nodes if node.agent is not None]
        for node in there:
            await self.scheduler.tell(
                node.name, self.cluster.prepare(self.scheduler.fence, self.number, *names, user=self.user, **more)
            )
        for node in there:
            await self.scheduler.next(node.name, wire.Prepared)

    async def run(self, script: str) -> wire.ProgramEnded:
        """Run the script on the first node to its end."""
        await self.start(script)
        return await self.scheduler.next(self.nodes[0].name, wire.ProgramEnded, job_id=self.number)

    async def start(self, script: str) -> None:
        order = wire.OrderId(self.number, 1, 2)
        text = b"#!/bin/sh\n" + script.encode()
        await self.scheduler.tell(self.nodes[0].name, wire.Run(self.scheduler.fence, order, text, ()))
        await self.scheduler.next(self.nodes[0].name, wire.Started)

    async def out(self, stream: str = "stdout") -> str:
        return (await self.scheduler.output(self.nodes[0].name, self.number, stream)).decode()

    async def kill(self, node: Node) -> None:
        """End it on a node."""
        await self.scheduler.tell(node.name, wire.Kill(self.scheduler.fence, wire.OrderId(self.number, 1, 9), 0))
        await self.scheduler.next(node.name, wire.GroupEnded, job_id=self.number)


class Route:
    """Nodes with their agents and a scheduler, and the jobs of one test, which end with it."""

    def __init__(self, cluster: Cluster, scheduler: Scheduler, numbers: Iterator[int]) -> None:
        self.cluster, self.scheduler, self._numbers = cluster, scheduler, numbers
        self.place = cluster.base / f"test-{next(numbers)}"  # for files of this test
        self.place.mkdir()
        self.left: list[tuple[Job, Node]] = []

    @property
    def a(self) -> Node:
        """A node that runs, as the next two."""
        return self._node("a")

    @property
    def b(self) -> Node:
        return self._node("b")

    @property
    def c(self) -> Node:
        return self._node("c")

    def _node(self, name: str) -> Node:
        return self.cluster.nodes.get(name) or self.cluster.node(name)

    def number(self) -> int:
        """Of a job that the test prepares and ends itself."""
        self._node("a")
        return next(self._numbers)

    async def job(self, *nodes: Node, user: str = "root") -> Job:
        """One that is prepared on these nodes."""
        job = Job(self.cluster, self.scheduler, *nodes, user=user, number=self.number())
        await job.prepare()
        self.left += [(job, node) for node in nodes if node.agent is not None]
        return job

    async def kill(self, job: Job, node: Node) -> None:
        """End a job on a node."""
        self.left.remove((job, node))
        await job.kill(node)

    def stop_agent(self, node: Node, how: int = signal.SIGKILL) -> None:
        """What is told to the node next is told to the agent that is started next."""
        node.stop_agent(how)
        self.scheduler.links.pop(node.name, None)

    def restart(self, node: Node, how: int = signal.SIGKILL) -> None:
        self.stop_agent(node, how)
        node.start_agent()


def sleeping(node: Node, number: int = JOB) -> list[str]:
    """What the ``sleep`` commands in the job's cgroup on a node were told."""
    found = []
    for pid in pids(f"*/{node.group}/cosched/job-{number}.1/cgroup.procs"):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"sleep"):
            found.append(words[1].decode())
    return sorted(found)


def wanted(command: str) -> Wanted:
    return Wanted(command, os.urandom(16).hex(), 0, 0, again=False)


async def call(node: Node, identity: Path, call: Call | bytes, name: str = "") -> tuple[Kind, bytes]:
    """Dial an agent's port as another agent would, and give its last frame."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", node.port, ssl=client_context(identity), server_hostname=name or node.name
    )
    try:
        frames = Frames()
        got: list[tuple[Kind, bytes]] = []
        async with asyncio.timeout(DEADLINE_S):
            while not got and (data := await reader.read(65536)):
                got += frames.feed(data)
        if got and got[0][0] is Kind.CHALLENGE and isinstance(call, Call):
            call = msgspec.structs.replace(call, challenge=call.challenge or got[0][1])
        data = call if isinstance(call, bytes) else msgspec.msgpack.encode(call)
        writer.write(struct.pack(">I", len(data)) + data)
        async with asyncio.timeout(DEADLINE_S):
            while not (got and got[-1][0] in (Kind.EXIT, Kind.FAIL)) and (data := await reader.read(65536)):
                got += frames.feed(data)
        assert got, "the agent said nothing"
        return got[-1]
    finally:
        writer.close()

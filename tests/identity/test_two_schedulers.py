"""At most one scheduler drives a node: real schedulers, a real agent, and an address that changes hands."""

import asyncio
import contextlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from kit.agents import Cluster as Nodes
from kit.agents import free_port, until
from kit.groups import pids
from kit.waiting import BOUND_S

from cosched.client.client import Client
from cosched.client.transport import Transport
from cosched.errors import Failed
from cosched.wire.api import JobDoc, Submission


class Address:
    """Where the agents find their scheduler: passed on to the one that has it now, as a service address is."""

    def __init__(self, port: int) -> None:
        self.port, self.target = port, 0
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> "Address":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()

    def move(self, target: int) -> None:
        """From now on it is another's, and what is open is cut."""
        self.target = target
        self.cut()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, theirs = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers += [writer, theirs]
        with contextlib.suppress(OSError):
            await asyncio.gather(self._copy(reader, theirs), self._copy(there, writer))

    @staticmethod
    async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
        sink.close()


class Scheduler:
    """A real one, as a process."""

    def __init__(self, nodes: Nodes, name: str, *, lease: str = "60s") -> None:
        self.base = nodes.base / name
        self.base.mkdir()
        self.port, self.socket = free_port(), self.base / "s.sock"
        self.state = self.base / "state"
        self.log = self.base / "log"
        self.settings = self.base / "cluster.yaml"
        self.settings.write_text(
            json.dumps(
                {
                    "name": "test", "nodes": ["a"], "state": str(self.state), "identity": str(nodes.identity),
                    "listen": {"socket": str(self.socket), "address": "127.0.0.1", "port": self.port},
                    "heartbeat": "200ms", "lease": lease, "allow_root": True, "pass_interval": "10ms",
                }
            )
        )  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    async def started(self) -> "Scheduler":
        command = [sys.executable, "-m", "cosched.apps.cli.main", "scheduler", "--config", str(self.settings)]
        with self.log.open("ab") as log:
            process = self.process = subprocess.Popen(command, stdout=log, stderr=log)
        await until(lambda: process.poll() is not None or b"ready" in self.log.read_bytes(), "ready", BOUND_S)
        assert process.poll() is None, self.log.read_text()
        return self

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(BOUND_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(BOUND_S)
        self.process = None

    def client(self) -> Client:
        return Client(Transport(str(self.socket)))

    async def node_is(self, state: str) -> None:
        def is_it() -> bool:
            with self.client() as client:
                return [node.state for node in client.nodes()] == [state]

        await until(is_it, f"node {state} at {self.base.name}: {self.log.read_text()[-2000:]}", BOUND_S)

    async def agent_came(self, times: int) -> None:
        def did_it() -> bool:
            return self.log.read_text().count("agent connected") >= times

        await until(did_it, f"the agent's call, the {times}th: {self.log.read_text()[-2000:]}", BOUND_S)

    async def job_is(self, job_id: int, *states: str) -> JobDoc:
        def found() -> JobDoc | None:
            with self.client() as client:
                job = client.job(job_id)
            return job if job.state in states else None

        return await until(found, f"job {job_id} {states} at {self.base.name}", BOUND_S)

    def submit(self, script: str) -> int:
        with self.client() as client:
            return client.submit(Submission(script=f"#!/bin/sh\n{script}\n", directory="/")).job_id


@pytest_asyncio.fixture
async def stage(nodes: Nodes) -> AsyncIterator[tuple[Nodes, Address]]:
    """Nodes whose agents dial an address; whatever schedulers a test has started are stopped."""
    async with Address(nodes.port) as address:
        yield nodes, address


@contextlib.contextmanager
def ended(*schedulers: Scheduler) -> Iterator[None]:
    try:
        yield
    finally:
        for each in schedulers:
            each.stop()


def pids_of(nodes: Nodes, what: str) -> list[int]:
    """The processes in the node's job cgroups whose command has these words."""
    found = []
    for pid in pids(f"*/{nodes.group}/a/cosched/job-*/**/cgroup.procs"):
        with contextlib.suppress(OSError):
            if what in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode():
                found.append(pid)
    return sorted(found)


@pytest.mark.slow
async def test_an_old_scheduler_that_wakes_up_is_refused_and_changes_nothing(stage: tuple[Nodes, Address]) -> None:
    nodes, address = stage
    old = Scheduler(nodes, "old", lease="3s")  # it is to lose the node
    new = Scheduler(nodes, "new")
    with ended(old, new):
        await old.started()
        address.move(old.port)
        node = nodes.node("a")
        await old.node_is("up")
        job_id = old.submit("exec sleep 6001")
        await old.job_is(job_id, "running")
        pids = await until(lambda: pids_of(nodes, "sleep 6001"), "the job to run")
        old.send(signal.SIGSTOP)  # its machine hangs; another takes its journal, and its address
        shutil.copytree(old.state, new.state)
        (new.state / "journal.db.lock").unlink()
        await new.started()
        address.move(new.port)
        await new.agent_came(1)
        await new.node_is("up")
        await new.job_is(job_id, "running")

        old.send(signal.SIGCONT)  # and now it wakes up: it is sure to drive the lab
        mark = nodes.base / "twice"
        lost = old.submit(f"touch {mark}")
        await old.node_is("lost")
        with old.client() as client:
            for each in (lost, job_id):
                with contextlib.suppress(Failed):  # it may have given it up already
                    client.cancel(each)
        await old.job_is(job_id, "node lost", "cancelled")
        assert pids_of(nodes, "sleep 6001") == pids, "what it believes harms no job"

        address.move(old.port)  # even with its address back
        await until(lambda: "a newer one drives this lab" in old.log.read_text(), "the old one to refuse", BOUND_S)
        await until(lambda: "it does not want this node" in node.log.read_text(), "the agent to hear of it")
        assert pids_of(nodes, "sleep 6001") == pids
        assert not mark.exists()

        address.move(new.port)
        await new.agent_came(2)
        await new.node_is("up")
        assert (await new.job_is(job_id, "running")).state == "running"
        assert pids_of(nodes, "sleep 6001") == pids
        with new.client() as client:
            client.cancel(job_id)
        await new.job_is(job_id, "cancelled")

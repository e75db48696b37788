"""Many agents in one process, for measurements of the service: real links (TLS, WebSocket, epoch on disk), no guard.

Each obeys as an agent does, at once and without doing anything; a job's script "runs" for a random time around
``RUNS_S`` and ends well. Says on standard output, a JSON object a line, when each was welcomed (``CLOCK_MONOTONIC``).

    python -m benchmarks._agents DIRECTORY URL COUNT RUNS_S
"""

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from cosched.model.node import Presence, Usage
from cosched.wire import messages as wire
from cosched.wire.sequence import new_session
from node_agent.service.fence import EpochFile
from node_agent.service.link import Link
from node_agent.service.revocations import Revocations

PROCS = 2
MEMORY_BYTES = 8 << 30


def node_name(number: int) -> str:
    """The name of the agent of that number, from 0 on."""
    return f"w{number}"


class Attempt:
    """What an agent keeps of an attempt at a job."""

    def __init__(self, key: tuple[int, int]) -> None:
        self.key = key
        self.state = "prepared"
        self.last_order = 0
        self.exit: wire.Exit | None = None

    def events(self) -> list[wire.FromAgent]:
        """What has happened and is not acknowledged."""
        told: list[wire.FromAgent] = [wire.ProgramEnded(*self.key, self.exit)] if self.exit else []
        return [*told, wire.GroupEnded(*self.key)] if self.state == "ended" else told


class Uncoscheduled:
    """What a link needs of a coscheduler that coschedules nothing."""

    def welcome(self) -> None:
        """There is a scheduler."""

    def signed(self, beat: wire.Heartbeat) -> wire.Heartbeat:
        """Nothing to add."""
        return beat

    def told(self, *_: object) -> None:
        """Nothing to do."""


class Agent:
    """What a link needs of an agent: its orders, its desk, its hello."""

    def __init__(self, directory: Path, number: int, url: str, runs_s: float) -> None:
        self.name = node_name(number)
        self._number = number
        self._runs_s = runs_s
        self._attempts: dict[tuple[int, int], Attempt] = {}
        self._epochs = EpochFile(directory / self.name / "epoch")
        self.heard_us: int | None = None
        self.link = Link(
            url,
            directory / self.name,
            self._hello,
            self,  # type: ignore[arg-type]
            self._epochs,
            self,  # type: ignore[arg-type]
            Uncoscheduled(),  # type: ignore[arg-type]
            lambda kind, why: print(json.dumps({"node": self.name, "complains": f"{kind}: {why}"}), flush=True),  # type: ignore[arg-type]
            Revocations(directory / self.name / "revoked"),
            self._survey,
            lambda cluster: None,
        )

    async def _survey(self, request: wire.Survey) -> wire.Surveyed:
        raise NotImplementedError("nobody asks in a measurement")

    @property
    def attempts(self) -> list[Attempt]:
        """As the agent's orders have them."""
        return list(self._attempts.values())

    def _hello(self) -> wire.Hello:
        reports = tuple(
            wire.GroupReport(*each.key, each.state, each.last_order, each.exit) for each in self._attempts.values()
        )
        return wire.Hello(
            wire.VERSION,
            self.name,
            "boot",
            PROCS,
            MEMORY_BYTES,
            "127.0.0.1",
            10_000 + self._number,
            "benchmark",
            groups=reports,
            obeyed=self._epochs.fence,
            session=new_session(),
        )

    def welcome(self, *_: object) -> None:
        """As the desk hears of a welcome."""
        self.heard()
        print(json.dumps({"node": self.name, "welcomed_s": time.monotonic()}), flush=True)

    def heard(self) -> None:
        """The scheduler gave a sign of life."""
        self.heard_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000

    def heartbeat(self) -> wire.Heartbeat:
        """Somebody is busy here."""
        return wire.Heartbeat(Usage(cpu_parallel=1.5, memory_parallel_bytes=1 << 30), Presence.AWAY, "tty", None, False)

    async def obey(self, order: wire.Order) -> None:
        """As an agent does, without doing anything."""
        key = (order.order.job_id, order.order.attempt)
        attempt = self._attempts.setdefault(key, Attempt(key))
        attempt.last_order = max(attempt.last_order, order.order.n)
        if isinstance(order, wire.Prepare):
            self.link.tell(wire.Prepared(order.order))
        elif isinstance(order, wire.Run):
            attempt.state = "running"
            self.link.tell(wire.Started(order.order, 4711))
            asyncio.get_running_loop().call_later(random.uniform(0.5, 1.5) * self._runs_s, self._end, attempt)
        elif isinstance(order, wire.Kill):
            attempt.state = "ended"
            self.link.tell(wire.GroupEnded(*key, 1_000_000, 1 << 20))
        else:
            self._attempts.pop(key, None)

    def _end(self, attempt: Attempt) -> None:
        if attempt.exit is None and attempt.state == "running":
            attempt.exit = wire.Exit(status=0)
            self.link.tell(wire.ProgramEnded(*attempt.key, attempt.exit))

    def output(self, request: wire.ReadOutput) -> wire.OutputChunk:
        """There is none."""
        return wire.OutputChunk(request.request, b"", 0, True)


async def run(directory: Path, url: str, count: int, runs_s: float) -> None:
    """All of them, until this process is ended."""
    agents = [Agent(directory, number, url, runs_s) for number in range(count)]
    async with asyncio.TaskGroup() as tasks:
        for agent in agents:
            tasks.create_task(agent.link.keep())


def main(arguments: list[Any]) -> None:
    """See above."""
    directory, url, count, runs_s = arguments
    asyncio.run(run(Path(directory), url, int(count), float(runs_s)))


if __name__ == "__main__":
    main(sys.argv[1:])

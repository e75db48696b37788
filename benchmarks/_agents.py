"""Many agents in one process, for measurements of the service: real links (TLS, WebSocket, epoch on disk), no guard.

Each is an agent's core with a model of a guard, which does everything at once and starts nothing; a job's script "runs"
for a random time around ``RUNS_S`` and ends well. Says on standard output, a JSON object a line, when each was welcomed
(``CLOCK_MONOTONIC``).

    python -m benchmarks._agents DIRECTORY URL COUNT RUNS_S
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cosched.identity.grants import load_grant_pub
from cosched.linux.process import boottime_us
from cosched.model.desk import ContractReason, DeskReport
from cosched.model.node import Presence, Usage
from cosched.wire import messages as wire
from cosched.wire.grant import verified
from cosched.wire.sequence import new_session
from node_agent.core.agent import AgentCore
from node_agent.core.attempt import Key
from node_agent.core.guard_model import GuardModel
from node_agent.core.played import PlayedAgent, Player
from node_agent.service.fence import EpochFile
from node_agent.service.link import Link
from node_agent.service.revocations import Revocations

PROCS = 2
MEMORY_BYTES = 8 << 30


def node_name(number: int) -> str:
    """The name of the agent of that number, from 0 on."""
    return f"w{number}"


class Uncoscheduled:
    """What a link needs of a coscheduler that coschedules nothing."""

    def welcome(self) -> None:
        """There is a scheduler."""

    def signed(self, beat: wire.Heartbeat) -> wire.Heartbeat:
        """Nothing to add."""
        return beat

    def told(self, *_: object) -> None:
        """Nothing to do."""


class Agent(Player):
    """An agent whose guard is a model, on a real link."""

    def __init__(self, directory: Path, number: int, url: str, runs_s: float) -> None:
        self.name = node_name(number)
        self._number = number
        self._runs_s = runs_s
        place = directory / self.name
        epochs, key = EpochFile(place / "epoch"), load_grant_pub(place)
        self._core = AgentCore(self.name, "boot", epochs.fence)
        self._played = PlayedAgent(
            self._core,
            GuardModel(1_000_000, 1 << 20),
            self,
            lambda blob: verified(blob, key),
            epochs.keep,
            lambda after_us, call: _later(after_us / 1e6, call),
            boottime_us,
        )
        self.word = wire.NO_WORD
        self.tell_word: Callable[[wire.OwnersWord], None] = lambda word: None
        self.link = Link(
            url,
            place,
            self._hello,
            self._played,  # type: ignore[arg-type]
            lambda request: wire.OutputChunk(request.request, b"", 0, True),
            self,  # type: ignore[arg-type]
            Uncoscheduled(),  # type: ignore[arg-type]
            lambda kind, why: print(json.dumps({"node": self.name, "complains": f"{kind}: {why}"}), flush=True),  # type: ignore[arg-type]
            Revocations(place / "revoked"),
            self._survey,
            lambda key, given, waits: None,
        )

    async def _survey(self, request: wire.Survey) -> wire.Surveyed:
        raise NotImplementedError("no measurement asks for a survey")

    def _hello(self) -> wire.Hello:
        return wire.Hello(
            wire.VERSION,
            self.name,
            "boot",
            PROCS,
            MEMORY_BYTES,
            "127.0.0.1",
            10_000 + self._number,
            "benchmark",
            groups=self._core.reports(),
            obeyed=self._core.fence,
            session=new_session(),
        )

    def welcome(self, *_: object) -> None:
        """As the desk hears of a welcome."""
        print(json.dumps({"node": self.name, "welcomed_s": time.monotonic()}), flush=True)

    def heartbeat(self) -> wire.Heartbeat:
        """Somebody is busy here."""
        return wire.Heartbeat(Usage(cpu_parallel=1.5, memory_parallel_bytes=1 << 30), Presence.AWAY, "tty", None, False)

    def report(self) -> DeskReport:
        """Its contract is in force, since somebody is there."""
        return DeskReport(ContractReason.PRESENT, 1.0)

    def script_started(self, key: Key) -> None:
        """It ends well, some time later."""
        _later(random.uniform(0.5, 1.5) * self._runs_s, lambda: self._played.end_script(key, wire.Exit(status=0)))


def _later(after_s: float, call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(after_s, call)


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

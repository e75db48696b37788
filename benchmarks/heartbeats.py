"""What heartbeats cost the scheduler, from their bytes to the bytes of the answer: without sockets, so nothing else.

So many agents with so many jobs that run, each on several of their nodes, say one heartbeat each and are answered: the
bytes are decoded in their turn, the owner's and the jobs' figures are kept, what the node is to be told is found, and
the answer is encoded. The clock is made, so that a round is one heartbeat's time, and what is made anew in that time
is in the figure. Told is the median CPU of a round as a share of one core, with the lowest and highest round.

    ./run bench heartbeats [--nodes 10000] [--jobs 5000] [--width 4] [--rounds 5]
"""

import argparse
import io
import statistics
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.measure import machine
from cosched.config.cluster import ClusterConfig
from cosched.model.allocation import Allocation, Share
from cosched.model.contract import SocialContract
from cosched.model.coscheduling import Receives
from cosched.model.effort import Effort
from cosched.model.job import Job, JobState
from cosched.model.node import Presence, Usage
from cosched.wire import messages as wire
from cosched.wire.api import Submission
from cosched.wire.sequence import Numbering, new_session
from space_scheduler.machine.turns import SavedTurns
from space_scheduler.service.access.members import Members
from space_scheduler.service.journal.records import JobRecord
from space_scheduler.service.launch.nodes import NodeEntry
from space_scheduler.service.launch.orders import Orders
from space_scheduler.service.launch.service_core import ServiceCore
from space_scheduler.service.launch.values import Started
from space_scheduler.service.link.link import Link
from space_scheduler.service.link.session import Session
from space_scheduler.service.log import Log
from space_scheduler.service.shell import Shell

PROCS = 2
MEMORY_BYTES = 8 << 30
LIMIT_US = 3_600_000_000


class Clock:
    """Seconds since boot, as the benchmark says."""

    now_s = 1000.0

    def __call__(self) -> float:
        """The time of now."""
        return self.now_s


class NoHost:
    """There is no core: nothing that it would have to hear happens in a round."""

    async def ask(self, *_: object) -> Any:
        """An event, or facts of a job: a defect of the benchmark."""
        raise AssertionError("a heartbeat of this benchmark has nothing new to say")


def made(nodes: int, jobs: int, width: int, clock: Clock) -> tuple[Link, list[tuple[NodeEntry, bytes]]]:
    """The service's part that hears agents, and each node with the heartbeat that it says."""
    names = [f"w{number}" for number in range(nodes)]
    shared = SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=2)  # limits count work, at each heartbeat
    config = ClusterConfig(name="c", nodes=names, policy="normal", contract=shared)
    log, fence = Log(io.StringIO(), people=False), wire.Fence("c", 1, "i")
    host: Any = NoHost()
    rules = ServiceCore(config, names, fence, Orders(config, fence, Ed25519PrivateKey.generate()))
    shell = Shell(rules, host, log, clock)
    link = shell.link = Link(config, rules.book, fence, log, shell.feed, Members(Path("members.json"), list(names)))
    ways = [Receives.BLOCKS if job % 5 else Receives.POLLS for job in range(1, jobs + 1)]
    receives: dict[int, tuple[Receives, ...]] = {job: (way,) for job, way in enumerate(ways, 1)}
    records = tuple(running(names, jobs, width))
    progress = {each.id: (float(LIMIT_US), 1.0) for each in records}
    shell.feed(Started(records, (), progress, SavedTurns(receives, tuple(names))))
    there: dict[str, list[int]] = {}
    for launch in rules.launches.attempts.values():
        for name in launch.gang.nodes:
            there.setdefault(name, []).append(launch.job_id)
    said = []
    for number, entry in enumerate(rules.book):
        entry.hello = wire.Hello(
            1, entry.name, "boot", PROCS, MEMORY_BYTES, "127.0.0.1", 1, "bench", session=new_session()
        )
        entry.size, entry.known = entry.offers(shared), True
        entry.heard_s = clock()
        signs = tuple(
            wire.JobSigns(
                job, 1, "polls" if job % 5 == 0 else "blocks", 7, ("tcp",), Effort(10**9, 10**7, 10**6, 99), 10**9, 0
            )
            for job in there.get(entry.name, ())
        )
        beat = wire.Heartbeat(
            Usage(0.9, 0.1, 0.01, 1 << 30, 1 << 30, 1 << 28), Presence.AWAY, "idle", asked_us=number + 1, jobs=signs,
            clock_bound_us=100,
        )  # fmt: skip
        said.append((entry, wire.encode(beat)))
    return link, said


def running(names: list[str], jobs: int, width: int) -> Iterator[JobRecord]:
    """Records of jobs that run, each with a task on so many neighbouring nodes, spread over all."""
    for number in range(jobs):
        first = number * width
        nodes = [names[(first + at) % len(names)] for at in range(width)]
        yield JobRecord(
            job=Job(number + 1, width, LIMIT_US, 0), user="u", state=JobState.RUNNING, submit_us=0, attempt=1,
            limit_us=LIMIT_US,
            submission=Submission(script="#!/bin/sh\n", directory="/"),
            allocation=Allocation(width, nodes=tuple(Share(node, 1) for node in nodes)),
        )  # fmt: skip


def one_round(link: Link, said: list[tuple[NodeEntry, bytes]], clock: Clock) -> float:
    """CPU seconds of one heartbeat of every node, each at its own moment of a heartbeat's time."""
    transport: Any = None
    frames = []
    for entry, beat in said:
        assert entry.hello is not None
        session = link.sessions[entry.name] = Session(transport, transport, entry.name, link.log, entry.hello)
        entry.connected = entry.agreed = True
        frames.append((entry, session, Numbering(session.session).frame(beat)))
    answers = 0
    began_s = time.process_time()
    for entry, session, frame in frames:
        clock.now_s += link.beat_s / len(frames)
        message = wire.from_agent(session.turn.payload(frame))
        entry.heard_at = datetime.now().astimezone()
        link._hand_on(entry, session, message)
        answers += session._frames.qsize()
    took_s = time.process_time() - began_s
    assert answers == len(frames), "every heartbeat is answered"
    return took_s


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    options.add_argument("--nodes", type=int, default=10_000)
    options.add_argument("--jobs", type=int, default=5_000)
    options.add_argument("--width", type=int, default=4, help="nodes of a job (4)")
    options.add_argument("--rounds", type=int, default=5)
    asked = options.parse_args()
    clock = Clock()
    link, said = made(asked.nodes, asked.jobs, asked.width, clock)
    took_s = [one_round(link, said, clock) for _ in range(asked.rounds + 1)][1:]  # the first warms up
    shares = sorted(each / link.beat_s for each in took_s)
    print(
        f"{machine()}; {asked.nodes} nodes, {asked.jobs} jobs on {asked.width} each, a heartbeat in {link.beat_s:g} s"
    )
    print(f"{statistics.median(shares):.3f} of a core [{shares[0]:.3f} … {shares[-1]:.3f}]")


if __name__ == "__main__":
    main()

"""A chain of dependent jobs in a host that is killed again and again: ``killed_chain.py JOURNAL LENGTH KILLS SEED``.

Each life of the host is a process of its own, forked from this one, on the same journal, and is killed by SIGKILL at a
random moment; the last one lives until all jobs have ended. The file ``ran`` beside the journal is a node's own record:
a line for each job that has run, in that order. Prints how many lives were killed. Status 1 where one failed.
"""

import asyncio
import os
import random
import signal
import sys
import time
from pathlib import Path

from cosched.model.job import After, Job, JobState
from cosched.model.node import Node
from cosched.wire.api import Submission
from space_scheduler.eligibility.dependency import DEPENDENCY
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Start
from space_scheduler.plugins import resolve
from space_scheduler.service.core.host import CoreHost
from space_scheduler.service.core.journalled import JournalledCore, Settings
from space_scheduler.service.journal.records import Committed

SCRIPT = Submission(script="#!/bin/sh\n", directory="/")


class Life:
    """One life of the host: goes on with the chain that is in the journal. Each step is a byte on ``steps``."""

    def __init__(self, path: Path, length: int, steps: int) -> None:
        self.length = length
        self.steps = steps
        ran = path.with_name("ran")
        self.ran = {int(line) for line in ran.read_text().split()} if ran.exists() else set[int]()
        self.node = os.open(ran, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.tasks: set[asyncio.Task[None]] = set()
        self.host = CoreHost(
            Settings(path, resolve("easy"), "easy", snapshot_every=50, eligibility=[DEPENDENCY]),
            pass_interval_us=1000,
            on_committed=self.committed,
        )

    async def live(self) -> None:
        """Submit what is missing, run what starts, until all jobs have ended."""
        found = await self.host.start()
        if not found.nodes:
            await self.host.post(ev.NodeJoined(Node("ant", 4, 1 << 30)))
        for record in found.jobs.values():
            if record.allocation:
                self.launch(record.id)
        last = found.last_job_id
        while last < self.length:
            after = After(last) if last else None
            last = await self.host.submit(Job(0, 1, 10**7, 0, after=after), SCRIPT, "ann")
            os.write(self.steps, b".")
        while self.host.view().jobs:
            await asyncio.sleep(0.001)
            for task in self.tasks:
                if task.done():
                    task.result()
        await self.host.close()

    def committed(self, each: Committed) -> None:
        """A start is in the journal."""
        for instruction in each.instructions:
            if isinstance(instruction, Start):
                self.launch(instruction.job.id)

    def launch(self, job_id: int) -> None:
        self.tasks.add(asyncio.get_running_loop().create_task(self.run(job_id)))

    async def run(self, job_id: int) -> None:
        """Run it, if the node has not; a job that had run when its host was killed has ended."""
        if job_id not in self.ran:
            self.ran.add(job_id)
            os.write(self.node, b"%d\n" % job_id)
        if self.host.view().jobs[job_id].state is JobState.STARTING:
            await self.host.post(ev.JobLaunched(job_id))
            os.write(self.steps, b".")
        await self.host.post(ev.JobEnded(job_id))
        os.write(self.steps, b".")


def begun(path: Path, length: int) -> tuple[int, int]:
    """The process of a life, and where its steps can be read."""
    reads, writes = os.pipe()
    if process := os.fork():
        os.close(writes)
        return process, reads
    status = 1
    try:
        os.close(reads)
        asyncio.run(Life(path, length, writes).live())
        status = 0
    except Exception as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(status)


def main(path: Path, length: int, kills: int, seed: int) -> int:
    """As the module says."""
    JournalledCore.compares = True  # each commit asserts that the two books of jobs agree
    chance = random.Random(seed)
    killed = 0
    for _ in range(kills):
        process, steps = begun(path, length)
        for _ in range(chance.randrange(3 * length // kills)):  # of 3 * length steps in all
            if not os.read(steps, 1):
                break
        time.sleep(chance.random() * 0.005)
        os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        os.close(steps)
        if status != signal.SIGKILL:
            sys.exit(f"life {killed + 1} ended by itself: status {status}")
        killed += 1
    process, steps = begun(path, length)
    while os.read(steps, 4096):
        pass
    _, status = os.waitpid(process, 0)
    sys.stdout.write(f"{killed}\n")
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))

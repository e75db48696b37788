"""A host that is killed: submits jobs, lets them run at once, and prints every number that it was given."""

import asyncio
import sys
from pathlib import Path

from cosched.model.job import Job, JobState
from cosched.model.node import Node
from cosched.wire.api import Submission
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Start
from space_scheduler.plugins import resolve
from space_scheduler.service.core.host import CoreHost
from space_scheduler.service.core.journalled import Settings
from space_scheduler.service.journal.records import Committed


def say(word: str, job_id: int) -> None:
    sys.stdout.write(f"{word} {job_id}\n")
    sys.stdout.flush()


async def main(path: Path) -> None:
    """Print ``accepted N`` when job N is accepted and ``started N`` when its start is handed on, until killed."""
    loop = asyncio.get_running_loop()
    tasks = set()

    def committed(each: Committed) -> None:
        for instruction in each.instructions:
            if isinstance(instruction, Start):
                say("started", instruction.job.id)
                tasks.add(loop.create_task(run(instruction.job.id)))

    async def run(job_id: int) -> None:
        if host.view().jobs[job_id].state is JobState.STARTING:
            await host.post(ev.JobLaunched(job_id))
        await host.post(ev.JobEnded(job_id))
        say("ended", job_id)

    host = CoreHost(
        Settings(path, resolve("easy"), "easy", snapshot_every=50), pass_interval_us=1000, on_committed=committed
    )
    found = await host.start()
    if not found.nodes:
        await host.post(ev.NodeJoined(Node("ant", 4, 1 << 30)))
    for record in found.jobs.values():
        if record.allocation:
            tasks.add(loop.create_task(run(record.id)))
    script = Submission(script="#!/bin/sh\n", directory="/")
    while True:
        numbers = await asyncio.gather(*(host.submit(Job(0, 1, 10**7, 0), script, "ann") for _ in range(3)))
        for number in numbers:
            say("accepted", number)
        while len(host.view().queue) > 8:
            await asyncio.sleep(0.001)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))

"""Waiting for jobs: found by number, alive or ended, and told of their steps as they are journalled."""

import asyncio
from contextlib import suppress
from weakref import WeakValueDictionary

from space_scheduler.machine.record import UnknownJob
from space_scheduler.service.access.problems import Refusal
from space_scheduler.service.core.host import CoreHost
from space_scheduler.service.journal.records import Committed, JobRecord


class Jobs:
    """All jobs, and the next step of each that is waited for: an event, kept for as long as a request has it."""

    def __init__(self, core: CoreHost) -> None:
        self._core = core
        self._steps: WeakValueDictionary[int, asyncio.Event] = WeakValueDictionary()
        self.stopping = False

    async def find(self, job_id: int) -> JobRecord:
        """A job, alive or ended. Raises :class:`Refusal` with 404."""
        try:
            return await self._core.job(job_id)
        except UnknownJob:
            raise Refusal(404, f"there is no job {job_id}", where="job", found=str(job_id)) from None

    def committed(self, committed: Committed) -> None:
        """Wake the requests that wait for the jobs that have changed."""
        for job_id, _ in committed.transitions:
            if (step := self._steps.pop(job_id, None)) is not None:
                step.set()

    async def changed(self, job_id: int, timeout_s: float) -> None:
        """Wait until a job makes a step, at most so long."""
        await at_most(self._step_of(job_id), timeout_s)

    async def ended(self, job_id: int, timeout_s: float) -> JobRecord:
        """The job when it has ended, or as it is after ``timeout_s``."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while True:
            step = self._step_of(job_id)  # before the look: what happens in between is not missed
            record = await self.find(job_id)
            left_s = until - loop.time()
            if not record.alive or self.stopping or left_s <= 0:
                return record
            await at_most(step, left_s)

    def _step_of(self, job_id: int) -> asyncio.Event:
        step = self._steps.setdefault(job_id, asyncio.Event())
        if self.stopping:
            step.set()
        return step

    def stop(self) -> None:
        """The service ends: no request waits any longer."""
        self.stopping = True
        for step in self._steps.values():
            step.set()


async def at_most(event: asyncio.Event, timeout_s: float) -> None:
    """Wait until an event is set, at most so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()

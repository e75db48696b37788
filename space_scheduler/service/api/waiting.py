"""Waiting for jobs: found by number, alive or ended, and told of their steps as they are journalled."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from space_scheduler.machine.record import UnknownJob
from space_scheduler.service.access.problems import Refusal
from space_scheduler.service.core.host import CoreHost
from space_scheduler.service.journal.records import Committed, JobRecord


class Jobs:
    """All jobs, and who waits for them."""

    def __init__(self, core: CoreHost) -> None:
        self._core = core
        self._waiting: dict[int, set[asyncio.Future[None]]] = {}
        self.stopping = False

    async def find(self, job_id: int) -> JobRecord:
        """A job, alive or ended. Raises :class:`Refusal` with 404."""
        try:
            return await self._core.job(job_id)
        except UnknownJob:
            raise Refusal(404, f"there is no job {job_id}", where="job", found=str(job_id)) from None

    def committed(self, committed: Committed) -> None:
        """Wake who waits for the jobs that have changed."""
        for job_id, _ in committed.transitions:
            for future in self._waiting.pop(job_id, ()):
                if not future.done():
                    future.set_result(None)

    async def changed(self, job_id: int, timeout_s: float) -> None:
        """Wait until a job makes a step, at most so long."""
        with self._step_of(job_id) as step:
            await _at_most(step, timeout_s)

    async def ended(self, job_id: int, timeout_s: float) -> JobRecord:
        """The job when it has ended, or as it is after ``timeout_s``."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while True:
            with self._step_of(job_id) as step:  # before the look: what happens in between is not missed
                record = await self.find(job_id)
                left_s = until - loop.time()
                if not record.alive or self.stopping or left_s <= 0:
                    return record
                await _at_most(step, left_s)

    @contextmanager
    def _step_of(self, job_id: int) -> Iterator[asyncio.Future[None]]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.stopping:
            future.set_result(None)
        waiting = self._waiting.setdefault(job_id, set())
        waiting.add(future)
        try:
            yield future
        finally:
            waiting.discard(future)
            if not waiting and self._waiting.get(job_id) is waiting:
                del self._waiting[job_id]

    def stop(self) -> None:
        """The service ends: nobody waits any longer."""
        self.stopping = True
        for futures in self._waiting.values():
            for future in futures:
                if not future.done():
                    future.set_result(None)
        self._waiting.clear()


async def _at_most(step: asyncio.Future[None], timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await step
    except TimeoutError:
        pass

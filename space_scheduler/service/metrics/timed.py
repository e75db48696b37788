"""The host of the core, with the time that every event takes to get into the journal."""

from collections.abc import Callable, Coroutine, Sequence
from time import monotonic
from typing import Any, TypeVar

from cosched.model.job import Job
from cosched.model.node import Node
from cosched.wire.api import Submission
from space_scheduler.machine import events as ev
from space_scheduler.service.core.host import CoreHost
from space_scheduler.service.core.journalled import Most
from space_scheduler.service.journal.records import Committed, Facts, View

Accepted = TypeVar("Accepted")


class Timed:
    """What the service needs of its host. ``journalled`` is told how long an event took, in seconds."""

    def __init__(self, host: CoreHost) -> None:
        self._host = host
        self.journalled: Callable[[float], None] = lambda seconds: None

    async def submit(
        self, job: Job, submission: Submission, user: str, *, hold: bool = False, most: Most | None = None
    ) -> int:
        """Accept a job (``CoreHost.submit``)."""
        return await self._timed(self._host.submit(job, submission, user, hold=hold, most=most))

    async def post(self, event: ev.Event, *, note: str = "", facts: Facts | None = None) -> Committed:
        """Accept an event (``CoreHost.post``)."""
        return await self._timed(self._host.post(event, note=note, facts=facts))

    async def report(self, event: ev.Event, *, note: str = "", facts: Facts | None = None) -> Committed:
        """Accept what the rules have found (``CoreHost.report``)."""
        return await self._timed(self._host.report(event, note=note, facts=facts))

    async def _timed(self, accepted: Coroutine[Any, Any, Accepted]) -> Accepted:
        began_s = monotonic()
        answer = await accepted
        self.journalled(monotonic() - began_s)
        return answer

    async def annotate(self, job_id: int, facts: Facts) -> None:
        """Journal facts of a job."""
        await self._host.annotate(job_id, facts)

    async def wanted(self, nodes: Sequence[Node]) -> tuple[str, ...]:
        """On which of these nodes a job that waits would start, did they join now (``CoreHost.wanted``)."""
        return await self._host.wanted(nodes)

    def view(self) -> View:
        """The last published state."""
        return self._host.view()

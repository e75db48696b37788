"""The live host of the core: it runs in one worker thread, beside the event loop that talks to the world.

Accepting and deciding are apart (design, section 4). An event is *accepted* when the core has taken it in and it is in
the journal; then its poster is answered. Passes are coalesced, at least ``pass_interval_us`` apart; what a pass decided
is handed on only when it is in the journal too.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from cosched.model.components import Dividing
from cosched.model.job import Job
from cosched.model.node import Node
from cosched.wire.api import Submission
from space_scheduler.eligibility.rule import Rule
from space_scheduler.machine import events as ev
from space_scheduler.machine.record import UnknownJob
from space_scheduler.machine.state import MachineRules
from space_scheduler.policy.interface import Policy
from space_scheduler.service.core.journalled import OVERDUE_AFTER_US, JournalledCore, Most
from space_scheduler.service.core.opening import Settings
from space_scheduler.service.core.work import NotAccepting, Work
from space_scheduler.service.core.worker import Worker, settle
from space_scheduler.service.journal import jobs
from space_scheduler.service.journal.clock import Clock, Sources
from space_scheduler.service.journal.records import Committed, Explained, Facts, JobRecord, View
from space_scheduler.service.journal.recovery import Recovered

__all__ = ["CoreHost", "NotAccepting"]

#: What users and operators wish is refused while it cannot be journalled; what nodes report waits.
WISHES: Final = (ev.JobSubmitted, ev.JobHeld, ev.JobReleased, ev.JobCancelled, ev.NodeDrained, ev.NodeResumed)
Answer = TypeVar("Answer")


class CoreHost:
    """The core, its journal and its clock. All coroutines are called on the event loop that called ``start``.

    ``cluster_id``, ``epoch``, ``instance`` (the fence of every order) and ``clock`` are there after ``start``.
    """

    cluster_id: str
    epoch: int
    instance: str
    clock: Clock

    def __init__(
        self,
        path: Path,
        policy: Policy,
        *,
        policy_name: str,
        order_name: str | None = None,
        rules: MachineRules | None = None,
        pass_interval_us: int = 50_000,
        snapshot_every: int = 5_000,
        keep_events: int | None = 20_000,
        keep_us: int | None = None,
        keep_jobs_us: int | None = None,
        on_committed: Callable[[Committed], None] = lambda committed: None,
        on_problem: Callable[[str], None] = lambda problem: None,
        sources: Sources | None = None,
        least_epoch: int = 1,
        dividing: Dividing | None = None,
        overdue_after_us: int = OVERDUE_AFTER_US,
        eligibility: Sequence[Rule] = (),
    ) -> None:
        """A host on the journal at ``path``, which is made if there is none; its directory must be there.

        ``policy_name`` and ``order_name`` are what the journal says of the policy, for a replay. A snapshot is written
        after ``snapshot_every`` events, and those of more than ``keep_events`` or ``keep_us`` before it are dropped
        (None: never), and jobs, with their stories, that ended ``keep_jobs_us`` before it. ``on_committed`` is called
        on the event loop for every event with its instructions and the jobs' steps, in the journal's order, after the
        commit; ``on_problem`` when something goes wrong or (with "") is well again. Neither may raise. This start's
        epoch is ``least_epoch`` at least: how a fresh journal takes over nodes that have obeyed another. Jobs are
        divided over clusters by ``dividing`` (None: those alone that say their components). A job that others wait for
        is predicted anew so long after its predicted end (``overdue_after_us``). ``eligibility`` are the rules that are
        asked before a job is queued.
        """
        self.path = path
        self.policy_name, self.order_name = policy_name, order_name
        settings = Settings(
            path,
            policy,
            policy_name,
            order_name,
            rules or MachineRules(),
            snapshot_every,
            keep_events,
            keep_us,
            least_epoch,
            sources,
            dividing,
            overdue_after_us,
            keep_jobs_us,
            eligibility,
        )
        self._worker = Worker(settings, pass_interval_us, on_committed, on_problem)

    async def start(self) -> Recovered:
        """Open the journal, recover, begin to work. Raises ``JournalRefused`` or ``JournalUnwritable`` (``Failed``).

        A pass is run at once: what it decides is handed on after ``start`` has returned.
        """
        opened = await self._worker.start(asyncio.get_running_loop())
        self.cluster_id, self.clock = opened.journal.cluster_id, opened.clock
        self.epoch, self.instance = opened.run.epoch, opened.run.instance
        return opened.recovered

    async def close(self) -> None:
        """Take in what was posted, write a snapshot if possible, close the journal. What comes later is refused."""
        await self._worker.close()

    async def submit(
        self, job: Job, submission: Submission, user: str, *, hold: bool = False, most: Most | None = None
    ) -> int:
        """Accept a job and give its number; the job's own ``id`` and ``submit_us`` are the host's to fill in.

        Raises ``Infeasible`` (could never start here, with the reason), ``QueueFull`` (``most`` wait already), and
        :class:`NotAccepting`.
        """
        return await self._do(
            lambda core, now_us: core.submit(job, submission, user, now_us, hold=hold, most=most), wish=True
        )

    async def post(self, event: ev.Event, *, note: str = "", facts: Facts | None = None) -> Committed:
        """Accept an event; answered when it is in the journal.

        ``facts`` are of the job that the event names. Raises ``UnknownJob``, ``UnknownNode``, ``IllegalTransition`` or
        ValueError where the event does not fit (the state is then as before). While the journal cannot be written,
        wishes (:data:`WISHES`) raise :class:`NotAccepting`; what nodes report waits until it can.
        """
        if isinstance(event, ev.Boundary | ev.TimerDue):
            raise ValueError(f"{type(event).__name__} is the host's own to say")
        return await self._take_in(event, note, facts, wish=isinstance(event, WISHES))

    async def report(self, event: ev.Event, *, note: str = "", facts: Facts | None = None) -> Committed:
        """Accept what the service's own rules have found; as :meth:`post`, but for that all of it waits for the disk.

        The rules say it once. An operator's drain can be wished for again, an owner's pause cannot.
        """
        return await self._take_in(event, note, facts, wish=False)

    async def _take_in(self, event: ev.Event, note: str, facts: Facts | None, *, wish: bool) -> Committed:
        return await self._do(lambda core, now_us: core.take_in(event, now_us, note, facts), wish=wish)

    async def choose(self, policy: Policy, name: str, order: str | None, rules: MachineRules) -> None:
        """Have another policy decide from now on, until the service ends. Answered when it is in the journal.

        Raises ``Failed`` where it cannot order the queue, and :class:`NotAccepting`.
        """
        await self._do(lambda core, now_us: core.choose(policy, name, order, rules, now_us), wish=True)
        self.policy_name, self.order_name = name, order

    async def annotate(self, job_id: int, facts: Facts) -> None:
        """Journal facts of a job, alive or ended. Raises ``UnknownJob``."""
        await self._do(lambda core, _: core.annotate(job_id, facts), decides=False)

    def view(self) -> View:
        """The last published state. Never blocks; what has been answered is in it."""
        return self._worker.view

    async def explain(self, job_id: int, *, owners: bool = False) -> Explained:
        """Why a job, alive or ended, is in its state. Raises ``UnknownJob``.

        ``owners``: what is used of nodes is told with what their owners use, which is for operators.
        """
        return await self._do(
            lambda core, now_us: core.explain(job_id, now_us, owners=owners), decides=False, reads=True
        )

    async def wanted(self, nodes: Sequence[Node]) -> tuple[str, ...]:
        """On which of these nodes a job that waits would start, did they join now. Nothing changes by it."""
        return await self._do(lambda core, now_us: core.wanted(nodes, now_us), decides=False, reads=True)

    async def job(self, job_id: int) -> JobRecord:
        """A job, alive or ended. Raises ``UnknownJob``."""
        record = self._worker.view.jobs.get(job_id) or await asyncio.to_thread(jobs.look_up, self.path, job_id)
        if record is None:
            raise UnknownJob(job_id)
        return record

    async def history(self, *, limit: int = 100, user: str | None = None, before: int | None = None) -> list[JobRecord]:
        """Ended jobs, the last to end first; ``before``: only those that ended before that job."""
        return await asyncio.to_thread(jobs.history, self.path, limit, user, before)

    def tell_passes(self, on_pass: Callable[[float], None]) -> None:
        """Have ``on_pass`` called after each pass from now on, in the core's thread, with how many seconds it took."""
        self._worker.on_pass = on_pass

    def wake(self) -> None:
        """Look at the clock again (after a suspension, or in a test that has moved it)."""
        self._worker.wake()

    async def _do(
        self,
        apply: Callable[[JournalledCore, int], Answer],
        *,
        wish: bool = False,
        decides: bool = True,
        reads: bool = False,
    ) -> Answer:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._worker.put(Work(apply, partial(settle, future), wish=wish, decides=decides, reads=reads))
        answer: Answer = await future
        return answer

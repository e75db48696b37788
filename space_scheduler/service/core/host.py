"""The live host of the core: it runs in one thread, beside the event loop that talks to the world.

Accepting and deciding are apart (design, section 4). An event is *accepted* when the core has taken it in and it is in
the journal; then its caller is answered. Passes are coalesced, at least ``pass_interval_us`` apart; what a pass decided
is handed on only when it is in the journal too. Which is accepted when, committed with what and answered after which
commit is for the rules (``worker``) to say; here are the thread, the queue to it, the clocks, and the way back.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import Any

import msgspec

from cosched.model.job import Job
from cosched.wire.api import Submission
from cosched.wire.messages import Fence
from space_scheduler.machine import events as ev
from space_scheduler.machine.record import UnknownJob
from space_scheduler.machine.rules import MachineRules
from space_scheduler.policy.interface import Policy
from space_scheduler.service.core import worker as fx
from space_scheduler.service.core.journalled import Opened, Settings, opened
from space_scheduler.service.core.worker import MOST_TOGETHER, Most, Result, Steps, Work, WorkerCore
from space_scheduler.service.journal import jobs
from space_scheduler.service.journal.journal import SnapshotRow, packed
from space_scheduler.service.journal.records import Committed, Explained, Facts, JobRecord, View
from space_scheduler.service.journal.recovery import Recovered

_log = logging.getLogger(__name__)


class CoreHost:
    """The core, its journal and its clock. All coroutines are called on the event loop that called ``start``.

    ``fence`` (of every order) and ``clock`` are there after ``start``.
    ``on_pass`` is called in the core's thread after each pass with its seconds, ``on_journalled`` on the event loop
    with those that an event took to be answered.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        pass_interval_us: int = 50_000,
        on_committed: Callable[[Committed], None] = lambda committed: None,
        on_problem: Callable[[str], None] = lambda problem: None,
    ) -> None:
        """A host on the journal of the settings; its directory must be there.

        ``on_committed`` is called on the event loop for every event with its instructions and the jobs' steps, in the
        journal's order, after the commit; ``on_problem`` when something goes wrong or (with "") is well again. Neither
        may raise.
        """
        self.path = settings.path
        self.policy_name, self.order_name = settings.policy_name, settings.order_name
        self.on_pass: Callable[[float], None] = lambda seconds: None
        self.on_journalled: Callable[[float], None] = lambda seconds: None
        self.record_differences = 0
        self._settings = settings
        self._rules = WorkerCore(pass_interval_us)
        self._on_committed = on_committed
        self._on_problem = on_problem
        self._numbers = count()
        self._asked: dict[int, asyncio.Future[Any]] = {}  # by the number of the request
        self._inbox: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._packer = ThreadPoolExecutor(1, "cosched-snapshot")
        self._packing: Future[SnapshotRow] | None = None
        self._view = View()

    # from the event loop

    async def start(self) -> Recovered:
        """Open the journal, recover, begin to work. Raises ``JournalRefused`` or ``JournalUnwritable`` (``Failed``).

        A pass is run at once: what it decides is handed on after ``start`` has returned.
        """
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[None] = self._loop.create_future()
        begun: asyncio.Future[Opened] = self._loop.create_future()
        self._thread = threading.Thread(target=self._main, args=(begun,), name="cosched-core", daemon=True)
        self._thread.start()
        found = await begun
        self.fence, self.clock = Fence(found.journal.cluster_id, found.run.epoch, found.run.instance), found.clock
        return found.recovered

    async def close(self) -> None:
        """Take in what was posted, write a snapshot if possible, close the journal. What comes later is refused."""
        if self._thread is not None:
            self._closing = True
            self.wake()
            await asyncio.shield(self._finished)
            self._thread.join()

    async def ask(self, request: fx.Request[Result], *, wish: bool = False) -> Result:
        """The answer to a request, given when what it changes is in the journal.

        What is no ``wish`` waits for the disk: the service's own rules post what they have found once. An operator's
        drain can be wished for again, an owner's pause cannot. Raises as :meth:`post` does, but for that.
        """
        if self._closing or self._thread is None or not self._thread.is_alive():
            raise self._rules.refusal()
        began_s = time.monotonic()
        work = Work(next(self._numbers), request, wish)
        future = self._asked[work.number] = self._loop.create_future()
        self._inbox.put(work)
        answer: Result = await future
        if isinstance(request, fx.Submit | fx.Post):
            self.on_journalled(time.monotonic() - began_s)
        return answer

    async def submit(
        self, job: Job, submission: Submission, user: str, *, hold: bool = False, most: Most | None = None
    ) -> int:
        """Accept a job and give its number; the job's own ``id`` and ``submit_us`` are the host's to fill in.

        Raises ``Infeasible`` (could never start here, with the reason), ``QueueFull`` (``most`` wait already), and
        :class:`NotAccepting`.
        """
        return await self.ask(fx.Submit(job, submission, user, hold, most), wish=True)

    async def post(self, event: ev.Event, *, note: str = "", facts: Facts | None = None) -> Committed:
        """Accept what a user or an operator wishes; answered when it is in the journal.

        ``facts`` are of the job that the event names. Raises ``UnknownJob``, ``UnknownNode``, ``IllegalTransition`` or
        ValueError where the event does not fit (the state is then as before), and :class:`NotAccepting` while the
        journal cannot be written.
        """
        if isinstance(event, ev.Boundary | ev.TimerDue):
            raise ValueError(f"{type(event).__name__} is the host's own to say")
        return await self.ask(fx.Post(event, note, facts), wish=True)

    async def choose(self, policy: Policy, name: str, order: str | None, rules: MachineRules) -> None:
        """Have another policy decide from now on, until the service ends. Answered when it is in the journal.

        Raises ``Failed`` where it cannot order the queue, and :class:`NotAccepting`.
        """
        await self.ask(fx.Choose(policy, name, order, rules), wish=True)
        self.policy_name, self.order_name = name, order

    def view(self) -> View:
        """The last published state. Never blocks; what has been answered is in it."""
        return self._view

    async def explain(self, job_id: int, *, owners: bool = False) -> Explained:
        """Why a job, alive or ended, is in its state. Raises ``UnknownJob``.

        ``owners``: what is used of nodes is told with what their owners use, which is for operators.
        """
        return await self.ask(fx.Explain(job_id, owners))

    async def job(self, job_id: int) -> JobRecord:
        """A job, alive or ended. Raises ``UnknownJob``."""
        record = self._view.jobs.get(job_id) or await asyncio.to_thread(jobs.look_up, self.path, job_id)
        if record is None:
            raise UnknownJob(job_id)
        return record

    async def history(self, *, limit: int = 100, user: str | None = None, before: int | None = None) -> list[JobRecord]:
        """Ended jobs, the last to end first; ``before``: only those that ended before that job."""
        return await asyncio.to_thread(jobs.history, self.path, limit, user, before)

    def wake(self) -> None:
        """Look at the clock again (after a suspension, or in a test that has moved it)."""
        self._inbox.put(None)

    # the thread

    def _main(self, begun: asyncio.Future[Opened]) -> None:
        try:
            found = opened(self._settings)
        except BaseException as error:  # of any kind: the caller waits for it
            self._call(_settle, begun, None, error)
            self._call(self._finish)
            return
        self._core, self._clock = found.core, found.clock
        self._follow(self._rules.publish())
        self._call(_settle, begun, found)
        try:
            while not self._closing or not self._inbox.empty():
                self._follow(self._rules.turn(self._waited_for()))
            self._follow(self._rules.ends())
        except BaseException as error:
            _log.critical("the core's thread has failed: %s", error, exc_info=True)
            problem = self._rules.failed(error)
            self._view = msgspec.structs.replace(self._view, accepting=False, problem=problem)
            self._call(self._on_problem, problem)
        finally:
            self._packer.shutdown()
            found.journal.close()
            self._call(self._finish)

    def _waited_for(self) -> list[Work]:
        """What was posted, when there is something to do or the time has come for something."""
        found: list[Work | None] = []
        with suppress(queue.Empty):
            found.append(self._inbox.get(timeout=self._rules.pause_s(self._moment())))
            while len(found) < MOST_TOGETHER:
                found.append(self._inbox.get_nowait())
        return [work for work in found if work is not None]

    def _moment(self) -> fx.Moment:
        core, packing = self._core, self._packing
        snapshot = (packing is not None, packing is not None and packing.done(), core.save_us)
        return fx.Moment(self._clock.now_us(), time.monotonic(), core.pass_due_us, *snapshot)

    def _follow(self, steps: Steps[None]) -> None:
        """Carry out what the rules want done, one thing after the other."""
        core = self._core
        outcome: fx.Outcome = None
        while True:
            try:
                effect = steps.send(outcome)
            except StopIteration:
                return
            outcome = None
            match effect:
                case fx.Apply(work, now_us):
                    outcome = core.apply(work, now_us)
                case fx.HandOut(answers, committed):
                    with suppress(RuntimeError):  # the loop is closed: nothing waits any more
                        self._loop.call_soon_threadsafe(self._hand_out, answers, committed)
                case fx.Publish():
                    seen, self._view = self._view, core.published(effect, self._view)
                    if effect.problem != seen.problem:
                        self._call(self._on_problem, effect.problem)
                case fx.Say(level, text, error):
                    _log.log(level, "%s", text, exc_info=error)
                case fx.PackSnapshot():
                    self._pack()
                case _:
                    began_s = time.monotonic()
                    outcome = core.carry_out(effect, self._moment, self._packed_row)
                    if outcome is True:  # a pass
                        self.on_pass(time.monotonic() - began_s)

    def _pack(self) -> None:
        if wrong := self._core.difference():
            self.record_differences += 1
            _log.error("the scheduler's two records of its jobs differ, and a start may refuse the journal: %s", wrong)
        self._packing = self._packer.submit(packed, self._core.photograph())
        self._packing.add_done_callback(lambda _: self.wake())

    def _packed_row(self) -> SnapshotRow:
        assert self._packing is not None
        packing, self._packing = self._packing, None
        return packing.result()

    # to the event loop

    def _hand_out(self, answers: Sequence[fx.Answer], committed: Sequence[Committed]) -> None:
        """Give answers, then what is in the journal, in order; one that fails does not keep the others from it."""
        for each in answers:
            _settle(self._asked.pop(each.work.number), each.value, each.error)
        for event in committed:
            try:
                self._on_committed(event)
            except Exception:
                _log.exception("what follows a commit has failed")

    def _finish(self) -> None:
        """The last on the event loop: each request that has no answer yet is refused."""
        self._closing = True
        for future in self._asked.values():
            _settle(future, None, self._rules.refusal())
        self._asked.clear()
        self._finished.set_result(None)

    def _call(self, call: Callable[..., object], *arguments: object) -> None:
        """Have the event loop call this."""
        with suppress(RuntimeError):  # as in _follow
            self._loop.call_soon_threadsafe(call, *arguments)


def _settle(future: asyncio.Future[Any], answer: Any, error: BaseException | None = None) -> None:
    """Give the answer on the event loop; the caller may have been cancelled."""
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(answer)

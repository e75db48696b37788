"""The thread in which the core runs: it waits for what is posted, and carries out the worker's rules (``worker_core``).

Which is accepted when, committed with what and answered after which commit is theirs; here are the thread, the queue to
it, the clocks, and the way back to the event loop.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from space_scheduler.service.core import worker_effects as fx
from space_scheduler.service.core.deeds import carried_out, published
from space_scheduler.service.core.journalled import JournalledCore
from space_scheduler.service.core.opening import Opened, Settings, opened
from space_scheduler.service.core.work import Work
from space_scheduler.service.core.worker_core import MOST_TOGETHER, Steps, WorkerCore
from space_scheduler.service.journal.journal import SnapshotRow, packed
from space_scheduler.service.journal.records import Committed, View
from space_scheduler.service.journal.schema import JournalUnwritable

_log = logging.getLogger(__name__)


class Worker:
    """The thread, and the queue to it. ``view`` may be read from anywhere; ``on_pass`` is called in the thread."""

    def __init__(
        self,
        settings: Settings,
        pass_interval_us: int,
        on_committed: Callable[[Committed], None],
        on_problem: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._rules = WorkerCore(pass_interval_us)
        self._on_committed = on_committed
        self._on_problem = on_problem
        self._inbox: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._taken: list[Work] = []
        self._closing = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._finished: asyncio.Future[None]
        self._packer = ThreadPoolExecutor(1, "cosched-snapshot")
        self._packing: Future[SnapshotRow] | None = None
        self.view = View()
        self.on_pass: Callable[[float], None] = lambda seconds: None

    # from the event loop

    async def start(self, loop: asyncio.AbstractEventLoop) -> Opened:
        """Open the journal in the thread; from then on it works."""
        self._loop = loop
        asked: asyncio.Future[Opened] = loop.create_future()
        self._finished = loop.create_future()
        work = Work(_nothing, partial(settle, asked))
        self._thread = threading.Thread(target=self._main, args=(work,), name="cosched-core", daemon=True)
        self._thread.start()
        return await asked

    async def close(self) -> None:
        """Let the thread end what it was given, and end."""
        if self._thread is not None and not self._closing:
            self._closing = True
            self._inbox.put(None)
        if self._thread is not None:
            await asyncio.shield(self._finished)
            self._thread.join()

    def put(self, work: Work) -> None:
        """Give the thread something to do."""
        if self._closing or self._thread is None or not self._thread.is_alive():
            work.answer(error=self._rules.refusal())
            return
        self._inbox.put(work)

    def wake(self) -> None:
        """Have it look at the clock again."""
        self._inbox.put(None)

    # the thread

    def _main(self, asked: Work) -> None:
        try:
            found = opened(self._settings)
            self._journal, self._core, self._clock = found.journal, found.core, found.clock
        except BaseException as error:  # for the caller, whatever it is: the caller waits for it
            self._call(partial(asked.answer, None, error), self._finish)
            return
        self._follow(self._rules.began())
        self._call(partial(asked.answer, found))
        try:
            while not self._closing or not self._inbox.empty():
                self._taken = self._waited_for()
                self._follow(self._rules.turn(self._taken))
            self._follow(self._rules.ends())
        except BaseException as error:
            _log.critical("the core's thread has failed: %s", error, exc_info=True)
            problem = self._rules.failed(error)
            self.view = msgspec.structs.replace(self.view, accepting=False, problem=problem)
            refused = [partial(work.answer, None, self._rules.refusal()) for work in self._taken]
            self._call(partial(self._on_problem, problem), *refused)  # an answer that was given already stays
            self._closing = True
        finally:
            self._packer.shutdown()
            self._journal.close()
            self._call(self._finish)

    def _waited_for(self) -> list[Work]:
        """What was posted, when there is something to do or the time has come for something."""
        found: list[Work] = []
        try:
            first = self._inbox.get(timeout=self._rules.pause_s(self._moment()))
            found = [first] if first is not None else []
        except queue.Empty:
            pass
        while len(found) < MOST_TOGETHER:
            try:
                work = self._inbox.get_nowait()
            except queue.Empty:
                break
            if work is not None:
                found.append(work)
        return found

    def _moment(self) -> fx.Moment:
        is_packed = self._packing is not None and self._packing.done()
        core, now_us = self._core, self._clock.now_us()
        due = core.snapshot_due(now_us)
        return fx.Moment(now_us, time.monotonic(), core.pass_due_us, due, is_packed, core.save_us)

    def _follow(self, steps: Steps[None]) -> None:
        """Carry out what the rules want done, one thing after the other."""
        outcome: fx.Outcome = None
        with suppress(StopIteration):
            while True:
                outcome = self._carry_out(steps.send(outcome))

    def _carry_out(self, effect: fx.Effect) -> fx.Outcome:
        match effect:
            case fx.HandOut(answers, committed):
                self._call(
                    *(partial(each.work.answer, each.value, each.error) for each in answers),
                    *(partial(self._on_committed, each) for each in committed),
                )
            case fx.Publish():
                self.view = published(self.view, self._core, effect)
            case fx.TellProblem(problem):
                self._call(partial(self._on_problem, problem))
            case fx.Say(level, text, error):
                _log.log(level, "%s", text, exc_info=error)
            case fx.PackSnapshot():
                if wrong := self._core.difference():
                    _log.error(
                        "the scheduler's two records of its jobs differ, and a start may refuse the journal: %s", wrong
                    )
                self._packing = self._packer.submit(packed, self._core.photograph())
                self._packing.add_done_callback(lambda _: self._inbox.put(None))
            case fx.WriteSnapshot():
                return self._write_snapshot()
            case fx.Decide():
                return self._decide(effect)
            case _:
                return carried_out(effect, self._core, self._moment)
        return None

    def _decide(self, effect: fx.Decide) -> fx.Outcome:
        began_s = time.monotonic()
        outcome = carried_out(effect, self._core, self._moment)
        if isinstance(outcome, fx.Passed) and outcome.asked:
            self.on_pass(time.monotonic() - began_s)
        return outcome

    def _write_snapshot(self) -> fx.Failure | None:
        assert self._packing is not None
        packing, self._packing = self._packing, None
        try:
            self._journal.write_snapshot(
                packing.result(),
                keep_events=self._core.keep_events,
                keep_us=self._core.keep_us,
                now_us=self._clock.now_us(),
            )
        except JournalUnwritable as error:
            return fx.Failure(str(error))
        return None

    # to the event loop

    def _finish(self) -> None:
        """The last on the event loop: who still waits for an answer gets one."""
        self._closing = True
        left = self._rules.left()
        while not self._inbox.empty():
            work = self._inbox.get_nowait()
            if work is not None:
                left.append(work)
        for work in left:
            work.answer(error=self._rules.refusal())
        if not self._finished.done():
            self._finished.set_result(None)

    def _call(self, *calls: Callable[[], object]) -> None:
        """Have the event loop call these, in this order; one that fails does not keep the others from it."""

        def all_of_them() -> None:
            for call in calls:
                try:
                    call()
                except Exception:
                    _log.exception("what follows a commit has failed")

        if calls:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(all_of_them)


def settle(future: asyncio.Future[Any], answer: Any, error: BaseException | None) -> None:
    """Give the answer, on the event loop, to whoever waits for it; that may have gone."""
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(answer)


def _nothing(_core: JournalledCore, _now_us: int) -> None:
    """The work of a start is opening."""

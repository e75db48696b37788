"""The thread in which the core runs: takes in what is posted, commits it in groups, runs passes, answers.

Nothing here decides anything about jobs. What it decides is when: accepted together, committed together; a pass when
something has changed, not sooner than the interval after the last one; later, after one that failed.
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
from typing import Any, Final

import msgspec

from cosched.errors import Failed
from space_scheduler.machine.record import UnknownJob
from space_scheduler.service.core.journalled import JournalledCore
from space_scheduler.service.core.opening import Opened, Settings, opened
from space_scheduler.service.core.work import MISFITS, NotAccepting, Work
from space_scheduler.service.journal.journal import SnapshotRow, packed
from space_scheduler.service.journal.records import Committed, View
from space_scheduler.service.journal.schema import JournalUnwritable

_log = logging.getLogger(__name__)
_MOST_TOGETHER: Final = 512
_RETRY_S: Final = 1.0
_SLOWEST_RETRY_S: Final = 60.0
_NAP_S: Final = 1.0  # waits are by a clock that stops in suspension: never longer than this


class Worker:
    """The thread, and the queue to it. ``view`` may be read from anywhere."""

    def __init__(
        self,
        settings: Settings,
        pass_interval_us: int,
        on_committed: Callable[[Committed], None],
        on_problem: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._pass_interval_us = pass_interval_us
        self._on_committed = on_committed
        self._on_problem = on_problem
        self._inbox: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._finished: asyncio.Future[None]
        self._packer = ThreadPoolExecutor(1, "cosched-snapshot")
        self._packing: Future[SnapshotRow] | None = None
        self._held_back: list[Work] = []  # what nodes reported while nothing could be written
        self._unwritable = ""
        self._in_doubt = False  # the state in memory is not the journal's
        self._policy_problem = ""
        self._told = ""
        self._wanted = True  # a pass; one is run at the start
        self._passed_us: int | None = None
        self._decided_us = 0
        self._not_before_s = 0.0  # the next try of what failed, by the monotonic clock
        self._retry_s = _RETRY_S
        self.view = View()

    # from the event loop

    async def start(self, loop: asyncio.AbstractEventLoop) -> Opened:
        """Open the journal in the thread; from then on it works."""
        self._loop = loop
        asked: asyncio.Future[Opened] = loop.create_future()
        self._finished = loop.create_future()
        self._thread = threading.Thread(
            target=self._main, args=(Work(_nothing, asked),), name="cosched-core", daemon=True
        )
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
            work.answer(error=self._refusal())
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
        except BaseException as error:  # the poster's, whatever it is: he waits for it
            self._call(partial(asked.answer, None, error), self._finish)
            return
        self._publish()
        self._call(partial(asked.answer, found))
        try:
            while not self._closing or not self._inbox.empty():
                self._turn(self._waited_for())
            self._last_words()
        except BaseException as error:
            _log.critical("the core's thread has failed: %s", error, exc_info=True)
            self._unwritable = f"the scheduler's core has failed and must be started again: {error}"
            self.view = msgspec.structs.replace(self.view, accepting=False, problem=self._unwritable)
            self._call(partial(self._on_problem, self._unwritable))
            self._closing = True
        finally:
            self._packer.shutdown()
            self._journal.close()
            self._call(self._finish)

    def _waited_for(self) -> list[Work]:
        """What was posted, when there is something to do or the time has come for something."""
        found: list[Work] = []
        try:
            first = self._inbox.get(timeout=self._pause_s())
            found = [first] if first is not None else []
        except queue.Empty:
            pass
        while len(found) < _MOST_TOGETHER:
            try:
                work = self._inbox.get_nowait()
            except queue.Empty:
                break
            if work is not None:
                found.append(work)
        return found

    def _pause_s(self) -> float | None:
        """How long there is nothing to do, if nothing is posted; None: for ever."""
        now_s = time.monotonic()
        if self._unwritable or (self._policy_problem and self._wanted):
            return max(0.0, self._not_before_s - now_s)
        due_us = [] if self._core.timer_us is None else [self._core.timer_us]
        now_us = self._clock.now_us()
        if self._wanted:
            due_us.append(now_us if self._passed_us is None else self._passed_us + self._pass_interval_us)
        return min(_NAP_S, max(0.0, (min(due_us) - now_us) / 1e6)) if due_us else None

    def _turn(self, works: list[Work]) -> None:
        """Take in what was posted, then decide, if it is time."""
        if self._unwritable and not self._writable_again():
            self._refuse(works)
            return
        held_back, self._held_back = self._held_back, []
        self._accept([*held_back, *works])
        if not self._unwritable and self._pass_due():
            self._decide()
        if not self._unwritable:
            try:
                self._save_if_due()
            except JournalUnwritable as error:  # what was accepted and decided is written all the same
                self._cannot_write(error)

    def _save_if_due(self) -> None:
        """Snapshots: taken here, packed beside (that takes long), written here."""
        if self._packing is None and self._core.snapshot_due:
            self._packing = self._packer.submit(packed, self._core.photograph())
            self._packing.add_done_callback(lambda _: self._inbox.put(None))
        elif self._packing is not None and self._packing.done():
            packing, self._packing = self._packing, None
            self._journal.write_snapshot(packing.result(), keep_events=self._core.keep_events)

    def _pass_due(self) -> bool:
        if self._policy_problem and time.monotonic() < self._not_before_s:
            return False
        now_us = self._clock.now_us()
        if self._core.timer_us is not None and self._core.timer_us <= now_us:
            self._wanted = True
        return self._wanted and (self._passed_us is None or now_us >= self._passed_us + self._pass_interval_us)

    def _accept(self, works: list[Work]) -> None:
        done: list[tuple[Work, Any]] = []
        failed: list[tuple[Work, Exception]] = []
        now_us = self._clock.now_us()
        for at, work in enumerate(works):
            try:
                done.append((work, work.apply(self._core, now_us)))
            except MISFITS as error:
                failed.append((work, error))
            except Exception as error:
                # it may have been left half done (a user's policy orders the queue): keep what came before it
                _log.error("an event was refused: %s", error, exc_info=not isinstance(error, Failed | ValueError))
                self._commit(done)
                done = []
                if self._unwritable or not self._rebuilt():
                    self._refuse(works[at:])
                    break
                known = isinstance(error, Failed | ValueError)
                failed.append((work, error if known else Failed(f"{type(error).__name__}: {error}")))
        self._commit(done)
        self._call(*(partial(work.answer, None, error) for work, error in failed))

    def _commit(self, done: list[tuple[Work, Any]]) -> None:
        """One transaction; then answers, and what is to be done."""
        staged = self._core.staged
        try:
            committed = self._core.commit()
        except JournalUnwritable as error:
            self._in_doubt = True  # the state is ahead of the journal
            self._cannot_write(error)
            self._refuse([work for work, _ in done])
            return
        if done or committed:
            self._wanted = self._wanted or any(work.decides for work, _ in done)
            if staged:
                self._publish()
            self._call(
                *(partial(work.answer, answer) for work, answer in done),
                *(partial(self._on_committed, each) for each in committed),
            )

    def _decide(self) -> None:
        now_us = self._clock.now_us()
        self._wanted = False
        passes = self._core.state.passes
        try:
            self._core.decide(now_us)
        except Exception as error:
            problem = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
            _log.error("a scheduling pass failed: %s", problem, exc_info=not isinstance(error, Failed))
            self._wanted, self._passed_us = True, now_us
            self._not_before_s = time.monotonic() + self._retry_s
            self._retry_s = min(2 * self._retry_s, _SLOWEST_RETRY_S)
            self._policy_problem = f"the policy fails, nothing is started: {problem}"
            self._rebuilt()
            self._publish()
            return
        if self._core.state.passes != passes:
            self._decided_us = self._passed_us = now_us
        self._policy_problem, self._retry_s = "", _RETRY_S
        self._commit([])
        if self._unwritable:
            self._wanted = True
        elif self._told:
            self._publish()

    # when the journal cannot be written

    def _cannot_write(self, error: JournalUnwritable) -> None:
        _log.error("%s; nothing is accepted until it can be", error)
        self._unwritable = f"{error}; nothing is accepted until it can be, what runs goes on"
        self._not_before_s = time.monotonic() + _RETRY_S
        if not self._in_doubt or self._rebuilt():
            self._publish()

    def _writable_again(self) -> bool:
        if time.monotonic() < self._not_before_s:
            return False
        self._not_before_s = time.monotonic() + _RETRY_S
        try:
            self._journal.probe()
        except JournalUnwritable:
            return False
        if self._in_doubt and not self._rebuilt():
            return False
        self._unwritable, self._wanted = "", True
        _log.warning("the journal can be written again")
        self._publish()
        return True

    def _rebuilt(self) -> bool:
        """Make the state the journal's again; where that cannot be read either, it is tried again later."""
        try:
            self._core.recover()
        except Failed as error:
            _log.error("%s", error)
            self._unwritable = f"{error}; nothing is accepted until it can be read"
            self._in_doubt = True
            self._not_before_s = time.monotonic() + _RETRY_S
            self._publish()
            return False
        self._in_doubt = False
        return True

    def _refuse(self, works: list[Work]) -> None:
        """Wishes are refused, reports wait, questions are answered from the last good state."""
        error = self._refusal()
        for work in works:
            if work.reads and not self._in_doubt:
                try:
                    self._call(partial(work.answer, work.apply(self._core, self._clock.now_us())))
                except (UnknownJob, Failed) as refused:
                    self._call(partial(work.answer, None, refused))
            elif work.wish or work.reads:
                self._call(partial(work.answer, None, error))
            else:
                self._held_back.append(work)

    def _refusal(self) -> NotAccepting:
        return NotAccepting(self._unwritable or "the scheduler is being stopped")

    def _last_words(self) -> None:
        if not self._unwritable:
            try:
                self._core.save_if_due(now=True)
            except JournalUnwritable as error:
                _log.error("%s; the next start recovers from what is there", error)

    # to the event loop

    def _publish(self) -> None:
        problem = self._unwritable or self._policy_problem
        if self._in_doubt:  # what was seen last is what is known
            self.view = msgspec.structs.replace(self.view, accepting=False, problem=problem)
        else:
            self.view = self._core.view(decided_us=self._decided_us, accepting=not self._unwritable, problem=problem)
        if problem != self._told:
            self._told = problem
            self._call(partial(self._on_problem, problem))

    def _finish(self) -> None:
        """The last on the event loop: who still waits for an answer gets one."""
        self._closing = True
        left, self._held_back = self._held_back, []
        while not self._inbox.empty():
            work = self._inbox.get_nowait()
            if work is not None:
                left.append(work)
        for work in left:
            work.answer(error=self._refusal())
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


def _nothing(_core: JournalledCore, _now_us: int) -> None:
    """The work of a start is opening."""

"""The worker's rules, carried out in virtual time on a real journal; any write may be the last thing that is done.

Sites: ``crash before commit``, ``crash after commit`` (nobody has been told), ``torn write`` (a piece of a transaction
is left), ``slow disk``. What is handed out reaches the event loop a little later, in its order.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from faults.disk import Disk
from faults.violation import Violation
from faults.world import MS, S, Sleeper, World
from space_scheduler.service.core import worker as fx
from space_scheduler.service.core.journalled import Opened
from space_scheduler.service.core.worker import MOST_TOGETHER, Request, Steps, Work, WorkerCore
from space_scheduler.service.journal.journal import SnapshotRow, packed
from space_scheduler.service.journal.records import Committed, View

#: What is due at once may be found by one turn, and done by the next.
_IN_VAIN = 3


class Worker:
    """The thread of one start of a scheduler. ``crash`` is called when it is killed in the midst of a write."""

    def __init__(
        self,
        world: World,
        process: Sleeper,
        found: Opened,
        disk: Disk,
        rules: WorkerCore,
        on_committed: Callable[[Committed], None],
        crash: Callable[[], None],
    ) -> None:
        self.world = world
        self.rules = rules
        self.over = False
        self.view = View()
        self.commits = 0
        self._process = process
        self._found = found
        self._disk = disk
        self._on_committed = on_committed
        self._crash = crash
        self._inbox: deque[Work] = deque()
        self._callbacks: list[Callable[[Any, BaseException | None], None]] = []  # by the number of the request
        self.on_ask_wanted: Callable[[], None] = lambda: None  # called before the core answers ``AskWanted``
        self._wakings = 0
        self._waits = False
        self._loop_us = 0  # when the last was handed out that was
        self._row: SnapshotRow | None = None
        self._packed_us = 0
        self._vain = 0  # turns in a row in which there was nothing to do, and no pause after them
        self._go_on(rules.publish(), None)

    def put(
        self, request: Request[Any], answered: Callable[[Any, BaseException | None], None], *, wish: bool = False
    ) -> None:
        """Give it something to do. ``answered`` is called with the answer or with an error."""
        work = Work(len(self._callbacks), request, wish)
        self._callbacks.append(answered)
        self._inbox.append(work)
        if self._waits:
            self._wake_in(self.world.draw_us(20, 200))

    def _moment(self) -> fx.Moment:
        core, now_us = self._found.core, self.world.now_us
        packing = self._row is not None
        is_packed = packing and now_us >= self._packed_us
        return fx.Moment(self._found.clock.now_us(), now_us / S, core.pass_due_us, packing, is_packed, core.save_us)

    def _wait(self) -> None:
        self._waits = True
        pause_s = 0.0 if self._inbox else self.rules.pause_s(self._moment())
        self._vain = self._vain + 1 if pause_s == 0 and not self._inbox else 0
        if self._vain > _IN_VAIN:
            raise Violation(f"O17: the worker has turned {self._vain} times with nothing to do, and does not pause")
        if pause_s is not None:
            self._wake_in(round(pause_s * S) + 1)

    def _wake_in(self, after_us: int) -> None:
        self._wakings += 1
        number = self._wakings
        self.world.after(after_us, lambda: self._process.do(partial(self._turn, number)))

    def _turn(self, number: int) -> None:
        if self.over or not self._waits or number != self._wakings:
            return
        self._waits = False
        works = [self._inbox.popleft() for _ in range(min(MOST_TOGETHER, len(self._inbox)))]
        self._go_on(self.rules.turn(works), None)

    def _go_on(self, steps: Steps[None], outcome: fx.Outcome) -> None:
        """Carry out one effect after the other, until a write takes its time."""
        while not self.over:
            try:
                effect = steps.send(outcome)
            except StopIteration:
                self._wait()
                return
            if isinstance(effect, fx.WriteSnapshot) or (isinstance(effect, fx.Commit) and self._found.core.staged):
                after_us = self.world.draw_us(200, 2 * MS)
                if self.world.fault("slow disk"):
                    after_us += self.world.draw_us(100 * MS, 6 * S)
                self.world.after(after_us, partial(self._process.do, partial(self._write, steps, effect)))
                return
            if not isinstance(effect, fx.Look | fx.Commit):
                self._vain = 0
            outcome = self._carry_out(effect)

    def _write(self, steps: Steps[None], effect: fx.Commit | fx.WriteSnapshot) -> None:
        world = self.world
        if self.over:
            return
        if world.fault("crash before commit"):
            self._crash()
        elif world.fault("torn write"):
            before = self._disk.read()
            self._carry_out(effect)
            torn = self._disk.torn(before, self._disk.read())
            self._crash()
            self._disk.put(torn)
        else:
            outcome = self._carry_out(effect)
            self.commits += 1
            if world.fault("crash after commit"):
                self._crash()
            else:
                self._go_on(steps, outcome)

    def _carry_out(self, effect: fx.Effect) -> fx.Outcome:
        world, core = self.world, self._found.core
        match effect:
            case fx.Apply(work, now_us):
                if isinstance(work.request, fx.AskWanted):
                    self.on_ask_wanted()
                with self._disk.writing(core.journal):
                    return core.apply(work, now_us)
            case fx.HandOut():
                self._loop_us = max(self._loop_us, world.now_us + world.draw_us(10, MS))
                world.at(self._loop_us, lambda: self._process.do(partial(self._hand_out, effect)))
            case fx.Publish(_, _, problem):
                if problem != self.view.problem:
                    world.say(f"scheduler: {problem or 'all is well'}")
                self.view = core.published(effect, self.view)
            case fx.Say(_, text):
                world.say(f"scheduler: {text}")
            case fx.PackSnapshot():
                self._row, self._packed_us = packed(core.photograph()), world.now_us + world.draw_us(MS, 500 * MS)
                world.at(self._packed_us, lambda: self._process.do(self._wake))
            case _:
                with self._disk.writing(core.journal):
                    return core.carry_out(effect, self._moment, self._packed_row)
        return None

    def _wake(self) -> None:
        if self._waits:
            self._wake_in(0)

    def _packed_row(self) -> SnapshotRow:
        row, self._row = self._row, None
        assert row is not None
        return row

    def _hand_out(self, effect: fx.HandOut) -> None:
        if self.over:
            return
        for each in effect.answers:
            self._callbacks[each.work.number](each.value, each.error)
        for committed in effect.committed:
            self._on_committed(committed)

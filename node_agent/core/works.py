"""Sequences of steps that wait for replies: written as generators, continued by what the shell hands in.

A work yields what it wants (a request to the guard, a question about the node, a time to pass) and goes on with the
reply. Works of one lane run one after another, in the order in which they were begun; others side by side.
"""

from collections import deque
from collections.abc import Generator, Hashable
from typing import Final, TypeVar

import msgspec

from node_agent.core import effects as fx
from node_agent.core.memory import Memory
from node_agent.core.replies import Declined, Done, ErrorTail, Failed, GrantRead, GroupResized, NoGuard, Reply


class GuardWait(msgspec.Struct, frozen=True):
    """Wait until the guard is there, for so long at most. The reply is ``Done`` or ``NoGuard``."""

    at_most_us: int


class Pause(msgspec.Struct, frozen=True):
    """Let some time pass. The reply is ``Done``."""

    for_us: int


#: For how long an order waits for a guard that is being started anew.
GUARD_WAIT_US: Final = 5_000_000

Wish = fx.GuardRequest | fx.NodeQuestion | GuardWait | Pause
Result = TypeVar("Result")
Steps = Generator[Wish, Reply, Result]


class Refusal(Exception):
    """Something cannot be done; ``code`` as in ``wire.messages.Refused``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class GuardAway(Exception):
    """The guard is not there, or has gone before it answered."""


class Unable(Exception):
    """It could not be done, or could not even be asked."""


def asked(wish: Wish) -> Steps[Done]:
    """Ask, and wait for the reply. Raises :class:`Refusal`, :class:`GuardAway`, :class:`Unable`."""
    reply = yield from _granted(wish)
    assert isinstance(reply, Done), reply
    return reply


def resized(request: fx.ResizeGroup) -> Steps[tuple[int, ...]]:
    """Have the guard resize a group; the CPUs that it has now. Raises as :func:`asked`."""
    reply = yield from _granted(request)
    assert isinstance(reply, GroupResized), reply
    return reply.cpus


def _granted(wish: Wish) -> Steps[Reply]:
    """Any reply but a refusal."""
    reply = yield wish
    if isinstance(reply, Declined):
        raise Refusal(reply.code, reply.message)
    if isinstance(reply, NoGuard):
        raise GuardAway(reply.message)
    if isinstance(reply, Failed):
        raise Unable(reply.message)
    return reply


def grant_read(blob: bytes) -> Steps[GrantRead]:
    """Have a grant read. Raises :class:`Unable` for one that is not the scheduler's."""
    reply = yield from _granted(fx.ReadGrant(blob))
    assert isinstance(reply, GrantRead), reply
    return reply


def error_tail(key: tuple[int, int]) -> Steps[bytes]:
    """The last bytes of a script's error output."""
    reply = yield fx.ReadErrorTail(key)
    assert isinstance(reply, ErrorTail), reply
    return reply.data


class Work:
    """Steps that have begun, or wait for their lane."""

    def __init__(self, lane: Hashable, steps: Steps[None]) -> None:
        self.lane = lane
        self.steps = steps


class Works:
    """All that goes on."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._numbers = 0
        self._asked_guard: dict[int, Work] = {}
        self._asked_node: dict[int, Work] = {}
        self._pausing: dict[int, Work] = {}
        self._wait_for_guard: dict[int, Work] = {}
        self._lanes: dict[Hashable, deque[Work]] = {}

    def begin(self, steps: Steps[None], lane: Hashable = None) -> Work:
        """Begin now, or after those that were begun in the same lane; without a lane, now."""
        work = Work(lane, steps)
        if lane is not None:
            waiting = self._lanes.setdefault(lane, deque())
            waiting.append(work)
            if len(waiting) > 1:
                return work
        self._go_on(work, None)
        return work

    def stop(self, work: Work) -> None:
        """Have no further step done."""
        for table in (self._asked_guard, self._asked_node, self._pausing, self._wait_for_guard):
            for number in [number for number, each in table.items() if each is work]:
                del table[number]
                if table is self._pausing or table is self._wait_for_guard:
                    self._memory.effects.append(fx.CancelTimer(number))
        work.steps.close()
        self._ended(work)

    def replied(self, number: int, reply: Reply) -> None:
        """Go on with a reply; one to what nobody asks any more is nothing."""
        work = self._asked_guard.pop(number, None) or self._asked_node.pop(number, None)
        if work is not None:
            self._go_on(work, reply)

    def due(self, number: int) -> None:
        """Go on, since a time has passed."""
        if (work := self._pausing.pop(number, None)) is not None:
            self._go_on(work, Done())
        elif (work := self._wait_for_guard.pop(number, None)) is not None:
            self._go_on(work, NoGuard(f"the node's guard is not there: {self._memory.guard_problem}"))

    def guard_came(self) -> None:
        """Go on with what waits for a guard."""
        waiting, self._wait_for_guard = self._wait_for_guard, {}
        for number, work in waiting.items():
            self._memory.effects.append(fx.CancelTimer(number))
            self._go_on(work, Done())

    def guard_lost(self, problem: str) -> None:
        """What the guard was asked and has not answered, it will not answer any more."""
        unanswered, self._asked_guard = self._asked_guard, {}
        for work in unanswered.values():
            self._go_on(work, NoGuard(problem))

    def _go_on(self, work: Work, reply: Reply | None) -> None:
        try:
            while True:
                wish = next(work.steps) if reply is None else work.steps.send(reply)
                if not (isinstance(wish, GuardWait) and self._memory.guard_there):
                    break
                reply = Done()
        except BaseException as error:
            self._ended(work)
            if isinstance(error, StopIteration):
                return
            raise
        self._wanted(work, wish)

    def _wanted(self, work: Work, wish: Wish) -> None:
        self._numbers += 1
        number, effects = self._numbers, self._memory.effects
        if isinstance(wish, GuardWait):
            self._wait_for_guard[number] = work
            effects.append(fx.SetTimer(number, wish.at_most_us))
        elif isinstance(wish, Pause):
            self._pausing[number] = work
            effects.append(fx.SetTimer(number, wish.for_us))
        elif isinstance(wish, fx.NodeQuestion):
            self._asked_node[number] = work
            effects.append(fx.AskNode(number, wish))
        else:
            self._asked_guard[number] = work
            effects.append(fx.AskGuard(number, wish))

    def _ended(self, work: Work) -> None:
        """The next of its lane begins."""
        if work.lane is None or (waiting := self._lanes.get(work.lane)) is None:
            return
        waiting.remove(work)
        if waiting:
            self._go_on(waiting[0], None)
        else:
            del self._lanes[work.lane]

"""Sequences of steps that wait for replies: written as generators, continued by what the shell hands in.

A work yields what it wants (a request to the guard, a question about the node, a time to pass) and goes on with the
reply; ``Declined`` is raised in it as :class:`Refusal`. Works of one lane run one after another, in the order in which
they were begun; others side by side.
"""

from collections import deque
from collections.abc import Generator, Hashable
from typing import Any, NamedTuple, TypeVar

import msgspec

from node_agent.core import effects as fx
from node_agent.core.memory import Memory
from node_agent.core.replies import AWAY, Declined, Done, Reply


class GuardWait(msgspec.Struct, frozen=True):
    """Wait until the guard is there, for so long at most. Reply: ``Done``, or ``Declined`` (away)."""

    us: int = 5_000_000


class Pause(msgspec.Struct, frozen=True):
    """Let some time pass. Reply: ``Done``."""

    us: int


Wish = fx.GuardRequest | fx.NodeQuestion | GuardWait | Pause
Result = TypeVar("Result")
Steps = Generator[Wish, Any, Result]  # the kind of a reply is that of its wish


class Refusal(Exception):
    """Something cannot be done; ``code`` as in ``replies.Declined``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class GuardAway(Refusal):
    """The guard is not there, or has gone before it answered."""


class Work(NamedTuple):
    """Steps that have begun, or wait for their lane."""

    lane: Hashable
    steps: Steps[Any]


class Works:
    """All that goes on."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._numbers = 0
        self._waiting: dict[int, tuple[Work, Wish]] = {}  # by the number of the question or the timer
        self._lanes: dict[Hashable, deque[Work]] = {}

    def begin(self, steps: Steps[Any], lane: Hashable = None) -> None:
        """Begin now, or after those that were begun in the same lane; without a lane, now."""
        work = Work(lane, steps)
        if lane is not None:
            waiting = self._lanes.setdefault(lane, deque())
            waiting.append(work)
            if len(waiting) > 1:
                return
        self._go_on(work, None)

    def replied(self, number: int, reply: Reply) -> None:
        """Go on with a reply; one that is not waited for any more is dropped."""
        if (found := self._waiting.pop(number, None)) is not None:
            self._go_on(found[0], reply)

    def due(self, number: int) -> None:
        """Go on, since a time has passed; a work that has gone on already is left alone."""
        if number in self._waiting:
            away = Declined(AWAY, f"the node's guard is not there: {self._memory.guard_problem}")
            self.replied(number, Done() if isinstance(self._waiting[number][1], Pause) else away)

    def reply_to_all(self, kind: Any, reply: Reply) -> None:
        """Go on with every work that waits for a wish of that kind now."""
        for number in [number for number, (_, wish) in self._waiting.items() if isinstance(wish, kind)]:
            self.replied(number, reply)

    def _go_on(self, work: Work, reply: Reply | None) -> None:
        try:
            while True:
                if isinstance(reply, Declined):
                    error = GuardAway if reply.code == AWAY else Refusal
                    wish = work.steps.throw(error(reply.code, reply.message))
                else:
                    wish = work.steps.send(reply)
                if not (isinstance(wish, GuardWait) and self._memory.guard_there):
                    break
                reply = Done()
        except StopIteration:
            self._ended(work)
            return
        except BaseException:
            self._ended(work)
            raise
        self._numbers += 1
        self._waiting[self._numbers] = work, wish
        if isinstance(wish, GuardWait | Pause):
            self._memory.effects.append(fx.SetTimer(self._numbers, wish.us))
        elif isinstance(wish, fx.NodeQuestion):
            self._memory.effects.append(fx.AskNode(self._numbers, wish))
        else:
            self._memory.effects.append(fx.AskGuard(self._numbers, wish))

    def _ended(self, work: Work) -> None:
        """The next of its lane begins."""
        if work.lane is None:
            return
        waiting = self._lanes[work.lane]
        waiting.popleft()
        if waiting:
            self._go_on(waiting[0], None)
        else:
            del self._lanes[work.lane]

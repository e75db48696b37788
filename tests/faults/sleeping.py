"""A desk that sleeps: its scheduler is told just before, and may call it by a packet where its owner agrees.

Real: what the scheduler makes of the report, and whom it calls when. Made: the owner's word, logind, and the network
card that listens. Sites: ``node sleeps`` (until its owner comes back, or it is called), ``call lost`` (the packet).
"""

from collections import deque
from typing import TYPE_CHECKING

from cosched.model.desk import ContractReason, DeskReport, Wakeable
from faults.world import MS, S, World

if TYPE_CHECKING:
    from faults.node import Node

#: How long logind holds the sleep back, so that the scheduler can be told.
_HELD_BACK_US = 300 * MS
_STEP_US = S


class Sleep:
    """The sleep of one machine."""

    def __init__(self, world: World, node: "Node") -> None:
        self._world = world
        self._node = node
        self._asleep = False
        self._until_us = 0
        #: When which spans were said, newest last: what was said last may not have arrived.
        self._said: deque[tuple[int, tuple[tuple[float, float], ...]]] = deque(maxlen=4)

    def may_be_called(self, slack_us: int) -> bool:
        """Whether its owner agrees that it is woken now, or did or will so shortly before or after."""
        slack_s = slack_us / S
        return any(
            begin_s - slack_s <= (self._world.now_us - said_us) / S < end_s + slack_s
            for said_us, spans in self._said
            for begin_s, end_s in spans
        )

    def begin(self) -> None:
        """It is about to sleep."""
        world = self._world
        if self._asleep:
            return
        self._asleep = True
        self._until_us = world.now_us + world.draw_us(5 * S, 120 * S)
        begin_s = world.random.choice((0.0, 0.0, 20.0))
        spans = world.random.choice(((), ((begin_s, begin_s + 60.0),), ((begin_s, 86400.0),)))
        self._said.append((world.now_us, spans))
        wakeable = Wakeable("52:54:00:12:34:56", "10.0.0.255", spans) if spans else None
        self._node.say(f"is about to sleep until {self._until_us / S:.1f} s; may be woken: {spans}")
        self._node.tell_desk(DeskReport(ContractReason.ASLEEP, wakeable=wakeable))
        world.after(_HELD_BACK_US, self._go_on)

    def _go_on(self) -> None:
        """It sleeps for a moment more, or is awake. What waits for its waking comes later than this."""
        if self._world.now_us < self._until_us:
            self._world.after(_STEP_US, self._go_on)
            self._node.suspend(_STEP_US)
            return
        self._asleep = False
        self._node.say("is awake")
        self._node.awake(lambda: self._node.tell_desk(DeskReport(ContractReason.RELAXED)))

    def called(self) -> None:
        """A packet for it was sent."""
        if self._asleep and not self._world.fault("call lost"):
            self._until_us = min(self._until_us, self._world.now_us + self._world.draw_us(S, 8 * S))

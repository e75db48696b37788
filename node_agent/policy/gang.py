"""Gang scheduling by the clock: slots counted from the cluster's time, so that changing over takes no message.

The cluster's time is the scheduler's clock. An agent estimates how far it is from its own by asking now and then: the
answer was given somewhere between question and arrival, so half of the round trip bounds the error. The best of the
last answers counts, its bound widened by what clocks may have drifted apart since. When the bound passes a stated share
of a slot, the node takes no part in slots: half-synchronised ones cost more than they bring.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from node_agent.policy.raising import Job, Slots

#: The largest error of a clock, as a share of a slot.
MOST_OFF: Final = 0.1
#: How fast two computers' clocks may drift apart: 100 us in a second is far more than they do.
_DRIFT: Final = 1e-4
_KEPT: Final = 32


class _Sample(NamedTuple):
    ahead_us: int
    bound_us: int
    at_us: int

    def bound_at(self, now_us: int) -> int:
        return self.bound_us + int(_DRIFT * max(0, now_us - self.at_us))


class Clock:
    """How far the cluster's time is ahead of this node's."""

    def __init__(self) -> None:
        self._samples: list[_Sample] = []
        self._best: _Sample | None = None

    def answered(self, asked_us: int, there_us: int, now_us: int) -> None:
        """The scheduler's clock was ``there_us`` at some moment between two of this node's."""
        if now_us >= asked_us:
            middle_us = (asked_us + now_us) // 2
            self._samples.append(_Sample(there_us - middle_us, (now_us - asked_us + 1) // 2, now_us))
            del self._samples[:-_KEPT]
            self._best = min(self._samples, key=lambda sample: sample.bound_at(now_us))  # and so it is later on

    def forget(self) -> None:
        """Another scheduler's clock counts from now on."""
        self._samples.clear()
        self._best = None

    def ahead_us(self, now_us: int) -> tuple[int, int] | None:
        """(estimate, bound of its error), or None while nothing is known."""
        best = self._best
        return None if best is None else (best.ahead_us, best.bound_at(now_us))

    def good_for(self, slot_us: int, now_us: int) -> bool:
        """Whether slots of that length can be kept in step."""
        known = self.ahead_us(now_us)
        return known is not None and known[1] <= MOST_OFF * slot_us


def period_begins_us(clock: Clock, period_us: int, now_us: int) -> int | None:
    """Where on this node a period begins, of those that are counted from 0 in the cluster's time; None: not known.

    Turns of whole periods begin with one.
    """
    known = clock.ahead_us(now_us)
    if known is None or not clock.good_for(period_us, now_us):
        return None
    return (now_us + known[0]) // period_us * period_us - known[0]


def slots(jobs: Iterable[Job], clock: Clock, slot_us: int, now_us: int, until_us: int) -> Slots | None:
    """The turns of the jobs that have rows; None where there are none, or the clock is not good enough.

    A job that keeps the CPU for itself needs a neighbour to keep it from: with one job there are no turns. A row that
    none of this node's jobs has is everybody's.
    """
    placed = [job for job in jobs if job.rows > 1]
    known = clock.ahead_us(now_us)
    if len(placed) < 2 or known is None or not clock.good_for(slot_us, now_us):
        return None
    count = max(job.rows for job in placed)
    rows = tuple(tuple(job.key for job in placed if job.row % count == row) for row in range(count))
    round_us = count * slot_us
    begin_us = (now_us + known[0]) // round_us * round_us - known[0]
    return Slots(begin_us, slot_us, rows, until_us)

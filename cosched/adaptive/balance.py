"""The balancer: rows in proportion to how fast each rank has worked.

A rank's speed is the part of all rows that it did in a second of its own computing (:meth:`Meter.work`): a slow node
and one that somebody else is using look alike, and are treated alike. Weights stay within a factor of each other, and
change only if the slowest rank gains enough by it.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

#: A weight is at most so many times the mean of all, and at least this part of it.
BOUND = 4.0
#: So much shorter must the slowest rank's step become before rows move for it.
GAIN = 1.1
#: How much the newest measurement counts beside the older ones.
_NEWEST = 0.5


class Meter:
    """What this rank has done since it was last asked: parts of all rows (1 is all, once), and seconds of computing."""

    def __init__(self) -> None:
        self.seconds = self._parts = self._since_s = 0.0

    @contextmanager
    def work(self) -> Iterator[None]:
        """What is done inside counts as computing."""
        began_s = time.perf_counter()
        yield
        self._since_s += time.perf_counter() - began_s

    def step(self, part: float) -> None:
        """A step has ended, in which this rank had that part of all rows."""
        if self._since_s:
            self.seconds += self._since_s
            self._parts += part
            self._since_s = 0.0

    def taken(self) -> tuple[float, float]:
        """Parts and seconds; the account begins anew."""
        found = self._parts, self.seconds
        self.seconds = self._parts = 0.0
        return found


class Balancer:
    """The leader's: speeds of ranks, and weights from them. ``nodes`` has the node of each rank."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._nodes = nodes
        self.speeds: dict[int, float] = {}

    def learn(self, measured: Mapping[int, tuple[float, float]]) -> None:
        """Take what meters of ranks have counted."""
        for rank, (parts, seconds) in measured.items():
            if parts > 0 and seconds > 0:
                now = parts / seconds
                self.speeds[rank] = now + (1 - _NEWEST) * (self.speeds.get(rank, now) - now)

    def weights(self, ranks: Sequence[int], current: Sequence[float] | None = None) -> tuple[float, ...]:
        """Weights for ranks: those they have, or equal ones, unless others are enough better."""
        kept = tuple(current or [1.0] * len(ranks))
        if not self.speeds:
            return kept
        speeds = [self._speed(rank) for rank in ranks]
        mean = sum(speeds) / len(speeds)
        better = tuple(min(max(speed / mean, 1 / BOUND), BOUND) for speed in speeds)
        return better if _slowest(kept, speeds) >= GAIN * _slowest(better, speeds) else kept

    def _speed(self, rank: int) -> float:
        """A rank's own; else the mean of its node; else of all."""
        if rank in self.speeds:
            return self.speeds[rank]
        beside = [speed for each, speed in self.speeds.items() if self._nodes[each] == self._nodes[rank]]
        known = beside or list(self.speeds.values())
        return sum(known) / len(known)


def _slowest(weights: Sequence[float], speeds: Sequence[float]) -> float:
    """How long a step takes the slowest, in a unit of its own."""
    return max(weight / speed for weight, speed in zip(weights, speeds, strict=True)) / sum(weights)

"""CPU time that may be spent on who asks: a share of one CPU, measured, with a little at once for who asks seldom."""

import time
from typing import Final

_NS_PER_US: Final = 1000
#: So much must be there before anything is done again: work in pieces, not a wake-up for each microsecond earned.
_PIECE_NS: Final = 2_000_000


class Budget:
    """Earns ``share`` of the time that passes, keeps at most ``most_us``; what is overdrawn is earned back first."""

    def __init__(self, share: float, most_us: int) -> None:
        self._share = share
        self._most_ns = most_us * _NS_PER_US
        self._left_ns = float(self._most_ns)
        self._seen_ns = time.monotonic_ns()

    def spend(self, cpu_ns: int) -> None:
        """So much CPU time has been used."""
        self._earn()
        self._left_ns -= cpu_ns

    def rest_us(self) -> int:
        """For how long nothing should be done: 0 where there is something left."""
        self._earn()
        if self._left_ns > 0:
            return 0
        return round((min(_PIECE_NS, self._most_ns) - self._left_ns) / self._share) // _NS_PER_US

    def _earn(self) -> None:
        now_ns = time.monotonic_ns()
        self._left_ns = min(self._most_ns, self._left_ns + (now_ns - self._seen_ns) * self._share)
        self._seen_ns = now_ns

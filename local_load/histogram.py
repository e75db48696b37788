"""Latencies from a microsecond to ten seconds, counted in buckets: fine ones for reports, coarse ones for Prometheus.

Fine: every power of two is divided into 32 (HDR-like, at most 3.2 % wide). Coarse: the exported series' bounds, among
them the 400 ms beyond which a person notices that he waits, so that the share above it is exact. What is shorter or
longer than the range is in the first or the last bucket; sum and maximum are exact.
"""

from bisect import bisect_left
from typing import Final

from cosched.monitoring.local import BOUNDS_S, NOTICED_S

_LOW_NS: Final = 1_000
_HIGH_NS: Final = 10_000_000_000
_BITS: Final = 5
_FIRST: Final = 1024  # the power of two at or above a microsecond, where fine buckets begin


def fine_index(value_ns: int) -> int:
    """The fine bucket of a value; 0 has all below 1.024 µs."""
    if value_ns < _FIRST:
        return 0
    value_ns = min(value_ns, _HIGH_NS)
    octave = value_ns.bit_length() - 1
    return 1 + ((octave - 10) << _BITS) + ((value_ns >> (octave - _BITS)) & 31)


def fine_bounds_ns(index: int) -> tuple[int, int]:
    """A fine bucket's values: from the first, up to below the second."""
    if index == 0:
        return 0, _FIRST
    octave, part = divmod(index - 1, 32)
    width = 1 << (octave + 10 - _BITS)
    return (32 + part) * width, (33 + part) * width


_FINE: Final = fine_index(_HIGH_NS) + 1


class Histogram:
    """Counts of one call's latencies. ``coarse[i]`` is of those up to ``BOUNDS_S[i]`` and above the bound before."""

    __slots__ = ("coarse", "count", "fine", "max_ns", "sum_ns")

    def __init__(self) -> None:
        self.fine = [0] * _FINE
        self.coarse = [0] * (len(BOUNDS_S) + 1)
        self.count = 0
        self.sum_ns = 0
        self.max_ns = 0

    def add(self, value_ns: int) -> None:
        """Count a latency."""
        value_ns = max(0, value_ns)
        self.fine[fine_index(value_ns)] += 1
        self.coarse[bisect_left(BOUNDS_S, value_ns / 1e9)] += 1
        self.count += 1
        self.sum_ns += value_ns
        self.max_ns = max(self.max_ns, value_ns)

    def quantile_s(self, share: float) -> float:
        """The value below or at which that share of all is, to the middle of its bucket; 0 where there is nothing."""
        rank, seen = share * self.count, 0
        for index, count in enumerate(self.fine):
            seen += count
            if count and seen >= rank:
                low, high = fine_bounds_ns(index)
                return min((low + high) / 2, self.max_ns) / 1e9
        return self.max_ns / 1e9

    def share_above(self, bound_s: float) -> float:
        """The share of all above one of the coarse bounds."""
        if not self.count:
            return 0.0
        return sum(self.coarse[BOUNDS_S.index(bound_s) + 1 :]) / self.count

    def summary(self) -> dict[str, float]:
        """Count, percentiles, maximum and mean in seconds, and the share that a person notices."""
        return {
            "count": self.count,
            "p50_s": self.quantile_s(0.50),
            "p95_s": self.quantile_s(0.95),
            "p99_s": self.quantile_s(0.99),
            "p999_s": self.quantile_s(0.999),
            "max_s": self.max_ns / 1e9,
            "mean_s": self.sum_ns / self.count / 1e9 if self.count else 0.0,
            "above_400ms_ratio": self.share_above(NOTICED_S),
        }

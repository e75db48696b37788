"""Differences between two policies that met the same workloads: arrays of one value per replication, in one order."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cosched.metrics.intervals import Interval, of_replications

Values = Sequence[float] | NDArray[np.float64]


def difference(ours: Values, base: Values, level: float = 0.95) -> Interval:
    """Mean of ``ours - base``, paired by replication."""
    return of_replications(np.asarray(ours, np.float64) - np.asarray(base, np.float64), level)


def relative_difference(ours: Values, base: Values, level: float = 0.95) -> Interval:
    """mean(ours) / mean(base) - 1, with the delta method's interval for a ratio of paired means.

    The ratio of the means, not the mean of the ratios: it is the difference between the two numbers that are reported.
    """
    a, b = np.asarray(ours, np.float64), np.asarray(base, np.float64)
    ratio = float(a.mean() / b.mean())
    residual = of_replications((a - ratio * b) / b.mean(), level)
    half = residual.half_width
    if not math.isfinite(half):
        return Interval(ratio - 1, -math.inf, math.inf, level)
    return Interval(ratio - 1, ratio - 1 - half, ratio - 1 + half, level, len(a) - 1)


def over_common_seeds(
    ours: Mapping[int, float],
    base: Mapping[int, float],
    compare: Callable[[Values, Values], Interval] = relative_difference,
) -> Interval | None:
    """How values by seed differ, over the seeds that both have; None without any."""
    seeds = sorted(ours.keys() & base.keys())
    return compare([ours[seed] for seed in seeds], [base[seed] for seed in seeds]) if seeds else None

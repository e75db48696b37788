"""How sure are we? Confidence intervals for means, and for differences between two policies on one log.

Independent replications and batch means use Student's t. One log has no replications: a paired moving-block bootstrap
over weeks resamples stretches of the log that keep the dependence between neighbouring jobs (Künsch 1989).
"""

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Interval(msgspec.Struct, frozen=True):
    """A mean and its confidence interval; infinite bounds mean that there is too little to say."""

    mean: float
    low: float
    high: float
    level: float = 0.95
    #: Degrees of freedom of Student's t behind the bounds; None where the bounds are not of that kind.
    degrees_of_freedom: int | None = None

    def at_level(self, level: float) -> "Interval":
        """The same mean with an interval of at least this level.

        Bounds of Student's t become those of the wanted level exactly. Others (of a bootstrap) are widened on each side
        by the ratio of the normal distribution's quantiles: an approximation, since what was resampled is not kept.
        """
        if level <= self.level or not math.isfinite(self.half_width):
            return self
        from scipy.stats import norm, t  # noqa: PLC0415 (as below)

        wanted, had = ((1 + each) / 2 for each in (level, self.level))
        wider = norm.ppf(wanted) / norm.ppf(had)
        if self.degrees_of_freedom is not None:
            wider = t.ppf(wanted, self.degrees_of_freedom) / t.ppf(had, self.degrees_of_freedom)
        low, high = self.mean - wider * (self.mean - self.low), self.mean + wider * (self.high - self.mean)
        return Interval(self.mean, float(low), float(high), level, self.degrees_of_freedom)

    @property
    def half_width(self) -> float:
        """Half of the interval's width."""
        return (self.high - self.low) / 2


def of_replications(values: Sequence[float] | Floats, level: float = 0.95) -> Interval:
    """The mean of independent replications and its interval by Student's t. One value alone has an infinite one."""
    sample = np.asarray(values, np.float64)
    mean = float(sample.mean())
    if len(sample) < 2:
        return Interval(mean, -math.inf, math.inf, level)
    from scipy.stats import t  # noqa: PLC0415 (0.4 s of CPU that most commands do without)

    half = float(t.ppf((1 + level) / 2, len(sample) - 1) * sample.std(ddof=1) / math.sqrt(len(sample)))
    return Interval(mean, mean - half, mean + half, level, len(sample) - 1)


def difference_of_independent(first: Interval, second: Interval) -> Interval:
    """One mean less another that comes of other replications (Welch); of intervals by Student's t, of one level.

    Its bounds are infinite where one of the two has none.
    """
    mean, level = first.mean - second.mean, first.level
    if first.degrees_of_freedom is None or second.degrees_of_freedom is None:
        return Interval(mean, -math.inf, math.inf, level)
    from scipy.stats import t  # noqa: PLC0415 (as above)

    degrees = np.array([first.degrees_of_freedom, second.degrees_of_freedom])
    halves = np.array([first.half_width, second.half_width])
    variances = (halves / t.ppf((1 + level) / 2, degrees)) ** 2
    total, spread = float(variances.sum()), float((variances**2 / degrees).sum())
    together = max(1, math.floor(total**2 / spread)) if spread else 1
    half = float(t.ppf((1 + level) / 2, together)) * math.sqrt(total)
    return Interval(mean, mean - half, mean + half, level, together)


def by_batch_means(values: Floats, batches: int = 30, level: float = 0.95) -> Interval:
    """The mean of one dependent series and its interval, from the means of ``batches`` consecutive stretches.

    Values that are left over after equal batches are dropped from the front, where a run warms up. Sound when a batch
    is much longer than the correlation in the series; ask :func:`lag_one` of the batch means when in doubt.
    """
    if len(values) < 2 * batches:
        return Interval(float(np.mean(values)), -math.inf, math.inf, level)
    return of_replications(batch_means(values, batches), level)


def batch_means(values: Floats, batches: int) -> Floats:
    """Means of ``batches`` equal consecutive stretches, shape (batches,)."""
    size = len(values) // batches
    means: Floats = values[len(values) - size * batches :].reshape(batches, size).mean(axis=1)
    return means


def lag_one(values: Floats) -> float:
    """Correlation of neighbours in a series; near 0 for batch means that are long enough."""
    centred = values - values.mean()
    total = float(np.dot(centred, centred))
    return float(np.dot(centred[:-1], centred[1:])) / total if total else 0.0


def block_bootstrap(
    blocks: NDArray[np.int64],
    statistic: Callable[[Floats], float],
    values: Floats,
    rng: np.random.Generator,
    *,
    run: int = 4,
    samples: int = 1000,
    level: float = 0.95,
) -> Interval:
    """A statistic of jobs and its percentile interval, from resampled stretches of ``run`` neighbouring blocks.

    ``values`` has shape (n, …), one row per job: put the measures of two policies side by side to keep them paired.
    ``blocks`` (n,) numbers each job's block (a week), not decreasing. Stretches wrap around the end. With fewer than
    three stretches' worth of blocks there is nothing to resample: the interval is infinite.
    """
    numbers, first = np.unique(blocks, return_index=True)
    rows = np.split(values, first[1:])
    count = len(numbers)
    if count < 3 * run:
        return Interval(float(statistic(values)), -math.inf, math.inf, level)
    estimates = np.empty(samples)
    for i in range(samples):
        begin = rng.integers(0, count, -(-count // run))
        chosen = ((begin[:, None] + np.arange(run)) % count).ravel()[:count]
        estimates[i] = statistic(np.concatenate([rows[k] for k in chosen]))
    tail = (1 - level) / 2
    low, high = np.quantile(estimates, [tail, 1 - tail])
    return Interval(float(statistic(values)), float(low), float(high), level)


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Rank correlation of two series of equal length."""
    from scipy.stats import spearmanr  # noqa: PLC0415

    return float(spearmanr(first, second).statistic)

"""How long must a run be? Means of one long run, in steady state, to a relative precision that is asked for.

Three rules, none of which looks at what the means say:

1. *The transient* is what MSER-5 deletes of the measure of all jobs, in order of submission: of the means of each five
   jobs so many at the front that the variance of the rest, over its length, is the least (K. P. White, M. J. Cobb and
   S. C. Spratt, "A comparison of five steady-state truncation heuristics for simulation", WSC 2000). If that is more
   than half, the run is too short.
2. *The end* is left out from the first job on that still waits at the last submission: behind it, nobody comes to pass
   or to delay a job.
3. *The length* is by the rule of A. M. Law and J. S. Carson, "A sequential procedure for determining the length of a
   steady-state simulation", Operations Research 27, 1979: where neighbours among short batches have a correlation of
   0.4 or more, the run is too short, else batches ten times as long are as good as independent, and these make an
   interval by Student's t. They have 400 and 40; here it is 200 and 20, between the 10 and 30 of B. Schmeiser, "Batch
   size effects in the analysis of simulation output", Operations Research 30, 1982, and their second test is left out.
   The run is long enough when half the width of each interval, over its mean, is at most what is asked for. Else it
   is carried on: half as long again, or as long as the precision wants, but at most four times. It is looked at
   seldom, since a look too many finds an interval too narrow by chance.

A group's mean is a ratio: the sum of its jobs in a batch over their number, with the delta method's interval. All
groups have the same batches, those of all jobs, in which the lag-one correlation of each is looked at. Where a run
has control variates (:mod:`cosched.metrics.controls`), means, intervals and correlations are those corrected by them.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from cosched.metrics.controls import corrected
from cosched.metrics.intervals import Floats, Interval, lag_one
from cosched.workload.schedule import Schedule

#: Jobs of a block, the least that a batch is made of.
BLOCK: Final = 100
BATCHES: Final = 20
#: Batches in which the correlation is looked at, and where it is too high.
SHORT_BATCHES: Final = 200
CORRELATED: Final = 0.4
#: Of all intervals.
LEVEL: Final = 0.95
_MSER: Final = 5
_SHORTEST_STEP: Final = 1.5
_LONGEST_STEP: Final = 4.0

Run = TypeVar("Run")


@dataclass(frozen=True)
class Blocks:
    """A measure of one run, by blocks of ``BLOCK`` jobs in order of submission and by column.

    ``sums`` and ``counts`` have shape (blocks, columns), ``squares`` (blocks,), over all columns. ``controls`` has the
    mean of each control variate in each block, shape (blocks, controls). Blocks from ``begin`` up to ``end`` are in
    steady state; ``begin`` == ``end``: none is.
    """

    sums: Floats
    counts: NDArray[np.int64]
    squares: Floats
    controls: Floats
    begin: int
    end: int

    def mean(self, columns: NDArray[np.bool_], batches: int = BATCHES) -> "Estimate | None":
        """The mean of the jobs of these columns in steady state; None: there are fewer blocks than batches."""
        return self.mean_within(columns, self.begin, self.end, batches)

    def mean_within(
        self, columns: NDArray[np.bool_], begin: int, end: int, batches: int = BATCHES
    ) -> "Estimate | None":
        """As :meth:`mean`, from blocks ``begin`` up to ``end``; what is over after equal batches is left out in front.

        Undefined where there are no such jobs.
        """
        size = (end - begin) // batches
        if size < 1:
            return None
        span = slice(end - size * batches, end)
        total, number = (
            each[span][:, columns].sum(axis=1).reshape(batches, size).sum(axis=1).astype(np.float64)
            for each in (self.sums, self.counts)
        )
        if not number.any():
            return Estimate(math.nan, np.zeros(batches), batches - 1)
        mean = float(total.sum() / number.sum())
        residuals = (total - mean * number) / number.mean()
        if not self.controls.shape[1]:
            return Estimate(mean, residuals, batches - 1)
        controls = self.controls[span].reshape(batches, size, -1).mean(axis=1)
        return Estimate(*corrected(mean, residuals, controls))


@dataclass(frozen=True)
class Estimate:
    """A value, and how far each batch is from it: what the delta method reckons with.

    ``residuals`` has shape (batches,) and a mean of 0; ``degrees`` are the degrees of freedom of Student's t. Values of
    the same batches may be subtracted and divided, which keeps them paired.
    """

    value: float
    residuals: Floats
    degrees: int

    def __sub__(self, other: "Estimate") -> "Estimate":
        degrees = min(self.degrees, other.degrees)
        return Estimate(self.value - other.value, self.residuals - other.residuals, degrees)

    def __truediv__(self, other: "Estimate") -> "Estimate":
        ratio = self.value / other.value if other.value else math.nan
        residuals = (self.residuals - ratio * other.residuals) / (other.value or math.nan)
        return Estimate(ratio, residuals, min(self.degrees, other.degrees))

    def against(self, base: "Estimate") -> "Estimate":
        """The relative difference to a base."""
        ratio = self / base
        return replace(ratio, value=ratio.value - 1)

    def interval(self) -> Interval:
        """The value and its 95 % interval; without bounds where there is no value."""
        if not math.isfinite(self.value):
            return Interval(math.nan, -math.inf, math.inf)
        from scipy.stats import t  # noqa: PLC0415 (0.4 s of CPU that most commands do without)

        error = float(self.residuals.std(ddof=1)) / math.sqrt(len(self.residuals))
        half = float(t.ppf((1 + LEVEL) / 2, self.degrees)) * error
        return Interval(self.value, self.value - half, self.value + half, LEVEL, self.degrees)


class Reached(NamedTuple):
    """How far a run has come: the worst relative precision of its groups, the highest lag-one correlation, its jobs.

    ``steady``: the transient ended within half of the run, and neighbouring batches are as good as independent.
    """

    precision: float
    correlation: float
    jobs: int
    steady: bool

    def enough(self, wanted: float) -> bool:
        """Whether that is as precise as is wanted."""
        return self.steady and self.precision <= wanted


class Lengths(NamedTuple):
    """How precise the means are to be, and how many jobs a run has at first and at most."""

    precision: float
    first: int
    most: int


def mser_5(values: Floats) -> int | None:
    """How many values at the front MSER-5 deletes, None where that is more than half of them."""
    means = values[: len(values) // _MSER * _MSER].reshape(-1, _MSER).mean(axis=1)
    if len(means) < 2:
        return None
    left = np.arange(len(means), 0, -1)
    sums, squares = (np.cumsum(each[::-1])[::-1] for each in (means, means**2))
    error = (squares - sums**2 / left)[:-1] / left[:-1] ** 2
    # the last ones are too few to say anything
    deleted = int(np.argmin(error[: max(1, len(means) - len(means) // 20)]))
    return None if deleted > len(means) // 2 else deleted * _MSER


def before_the_end(schedule: Schedule) -> int:
    """How many jobs were submitted before the first one that still waits at the last submission."""
    submit_us = schedule.workload.submit_us
    waiting = np.flatnonzero(schedule.start_us > submit_us[-1])
    return int(waiting[0]) if len(waiting) else len(submit_us)


def blocks(
    schedule: Schedule, values: Floats, columns: NDArray[np.int64], width: int, controls: Floats | None = None
) -> Blocks:
    """A measure of each job, shape (n,), by blocks and by the job's column, of 0 up to ``width``.

    ``controls``, shape (n, k), has its control variates, each with a mean of 0.
    """
    count = len(values) // BLOCK
    jobs = count * BLOCK
    at = np.repeat(np.arange(count), BLOCK) * width + columns[:jobs]
    sums = np.bincount(at, values[:jobs], count * width).reshape(count, width).astype(np.float64)
    counts = np.bincount(at, minlength=count * width).reshape(count, width)
    squares = (values[:jobs] ** 2).reshape(count, BLOCK).sum(axis=1)
    known = np.empty((jobs, 0)) if controls is None else controls[:jobs]
    known = known.reshape(count, BLOCK, known.shape[1]).mean(axis=1)
    last = before_the_end(schedule)
    deleted = mser_5(values[:last])
    end = last // BLOCK
    return Blocks(sums, counts, squares, known, end if deleted is None else min(end, -(-deleted // BLOCK)), end)


def reached(run: Blocks, groups: Mapping[str, NDArray[np.bool_]]) -> Reached:
    """How precise a run's means are; ``groups`` says which columns are of each group, those without jobs left out."""
    precision, correlation = 0.0, -1.0
    jobs = len(run.squares) * BLOCK
    for chosen in groups.values():
        if not run.counts[:, chosen].any():
            continue
        long, short = run.mean(chosen), run.mean(chosen, SHORT_BATCHES)
        if long is None or short is None:
            return Reached(math.inf, 1.0, jobs, steady=False)
        interval = long.interval()
        precision = max(precision, interval.half_width / abs(interval.mean) if interval.mean else math.inf)
        correlation = max(correlation, lag_one(short.residuals))
    return Reached(precision, correlation, jobs, steady=correlation < CORRELATED)


def until_precise(
    simulate: Callable[[int], Run],
    look: Callable[[Run], Reached],
    lengths: Lengths,
    give_up: Callable[[Run], bool] = lambda _run: False,
) -> Run:
    """A longer and longer run until it is precise enough, has as many jobs as it may have, or is given up.

    ``simulate`` is asked for the first so many jobs of it, each time for more.
    """
    jobs = min(lengths.first, lengths.most)
    while True:
        run = simulate(jobs)
        found = look(run)
        if found.enough(lengths.precision) or jobs >= lengths.most or give_up(run):
            return run
        jobs = min(lengths.most, BLOCK * math.ceil(jobs * _step(found, lengths.precision) / BLOCK))


def _step(found: Reached, wanted: float) -> float:
    """How many times as long the run is at the next look: a tenth longer than the precision wants."""
    if not found.steady:
        return _SHORTEST_STEP
    return min(_LONGEST_STEP, max(_SHORTEST_STEP, 1.1 * (found.precision / wanted) ** 2))

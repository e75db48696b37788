"""Lublin and Feitelson's model of rigid jobs.

U. Lublin and D. G. Feitelson, "The workload on parallel supercomputers: modeling the characteristics of rigid jobs",
J. Parallel and Distributed Computing 63(11), pp. 1105-1122, 2003. The constants are those the authors give with their
program, for a machine of 128 nodes: one set for all jobs, and one each for batch and interactive jobs.

- **Size**: serial with some probability; else 2^u, with u from a two-stage uniform distribution on [low, med] and
  [med, high], high being log2 of the machine; for a fixed share of the jobs u is first rounded, which makes the size a
  power of two.
- **Run time** in seconds: e^h, with h hyper-gamma, a mixture of two gamma distributions. The probability of the first
  (short) one falls linearly with the size: p = pa * size + pb, held in [0, 1]. h above 12 (45 h) is drawn again.
- **Arrivals**: gaps e^g, with g gamma and at most 13, are paid in "points" that each half hour of the day sells at its
  own rate: the weights of the 48 half hours follow the density of another gamma distribution, the day starting at 5:30.

Three departures, all small: times keep their fraction of a second (the program truncates to whole seconds); a size is
never larger than the machine (rounding u on 100 processors would give 128); where the machine is so small that the
stages would cross, they are clipped. The log starts at midnight.
"""

import math
from typing import Annotated, ClassVar, NamedTuple

import msgspec
import numpy as np

from cosched.workload.generators.base import Drawn, Floats, Ints, Model
from cosched.workload.log import Field

MAX_LOG_RUN = 12.0
MAX_LOG_GAP = 13.0
SLOTS = 48
SLOT_S = 1800
#: The slot, counted from 1, at which the day of the model begins: the half hour from 5:00 to 5:30.
FIRST_SLOT = 11


class Kind(NamedTuple):
    """The constants of one kind of job. ``med`` and ``high`` are distances below log2 of the machine's size."""

    serial: float
    power_of_two: float
    low: float
    med_below: float
    high_below: float
    low_share: float
    a1: float
    b1: float
    a2: float
    b2: float
    pa: float
    pb: float
    gap_a: float
    gap_b: float
    day_a: float
    day_b: float
    rush_to_all: float


ALL = Kind(
    *(0.244, 0.576, 0.8, 2.5, 0.0, 0.86),
    *(4.2, 0.94, 312.0, 0.03, -0.0054, 0.78),
    *(10.2303, 0.4871, 8.1737, 3.9631, 1.0225),
)
BATCH = Kind(
    *(0.2927, 0.6686, 1.2, 2.0, 0.0, 0.875),
    *(6.57, 0.823, 639.1, 0.0156, -0.003, 0.6986),
    *(6.0415, 0.8531, 6.1271, 5.2740, 1.0519),
)
INTERACTIVE = Kind(
    *(0.1541, 0.625, 1.0, 4.0, 1.5, 0.705),
    *(3.8351, 0.6605, 7.073, 0.6856, -0.0118, 0.9156),
    *(6.5510, 0.6621, 8.9186, 3.6680, 0.9797),
)


class Lublin03(Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model; with ``job_types``, batch (queue 1) and interactive jobs (queue 0) have constants of their own."""

    paper: ClassVar[str] = "Lublin and Feitelson, The workload on parallel supercomputers, JPDC 63(11), 2003"
    epoch: ClassVar[tuple[str, ...]] = ("UnixStartTime: 0", "TimeZoneString: UTC")

    job_types: bool = False
    gap_factor: Annotated[float, msgspec.Meta(gt=0)] = 1.0

    def draw(self, jobs: int, procs: int, rng: np.random.Generator) -> Drawn:
        """Draw one stream of jobs, or two and merge them by time."""
        kinds = (INTERACTIVE, BATCH) if self.job_types else (ALL,)
        submit = np.concatenate([arrivals(kind, jobs, self.gap_factor, rng) for kind in kinds])
        order = np.argsort(submit, kind="stable")[:jobs]
        of_kind = order // jobs
        size = np.empty(jobs, np.int64)
        run_s = np.empty(jobs)
        for number, kind in enumerate(kinds):
            mine = of_kind == number
            size[mine] = sizes(kind, int(mine.sum()), procs, rng)
            run_s[mine] = run_times(kind, size[mine], rng)
        more: dict[Field, Floats | Ints] = {Field.QUEUE: of_kind} if self.job_types else {}
        return Drawn(submit[order], run_s, size, more)


def stages(kind: Kind, procs: int) -> tuple[float, float, float]:
    """The bounds low, med and high of the two uniform stages, in log2 of processors."""
    high = max(0.0, math.log2(procs) - kind.high_below)
    low = min(kind.low, high)
    return low, min(max(low, math.log2(procs) - kind.med_below), high), high


def sizes(kind: Kind, n: int, procs: int, rng: np.random.Generator) -> Ints:
    """Sizes of ``n`` jobs."""
    low, med, high = stages(kind, procs)
    first = rng.random(n) < kind.low_share
    u = np.where(first, rng.uniform(low, med, n), rng.uniform(med, high, n))
    which = rng.random(n)
    power = which < kind.serial + kind.power_of_two
    u[power] = np.minimum(np.floor(u[power] + 0.5), math.floor(math.log2(procs)))
    size = np.minimum(np.floor(2.0**u + 0.5), procs).astype(np.int64)
    size[which < kind.serial] = 1
    return size


def run_times(kind: Kind, size: Ints, rng: np.random.Generator) -> Floats:
    """Run times in seconds of jobs of the given sizes."""
    p = np.clip(kind.pa * size + kind.pb, 0, 1)
    log_run = np.empty(len(size))
    todo = np.arange(len(size))
    while len(todo):
        first = rng.random(len(todo)) < p[todo]
        shape, scale = np.where(first, kind.a1, kind.a2), np.where(first, kind.b1, kind.b2)
        log_run[todo] = rng.gamma(shape, scale)
        todo = todo[log_run[todo] > MAX_LOG_RUN]
    run_s: Floats = np.exp(log_run)
    return run_s


def arrivals(kind: Kind, n: int, gap_factor: float, rng: np.random.Generator) -> Floats:
    """Times of ``n`` arrivals in seconds from midnight.

    The day sells 48 half hours of points at varying rates, so an arrival lies where the points sold since midnight
    reach the sum of the gaps: the inverse of a piecewise linear function.
    """
    log_gap = rng.gamma(kind.gap_a * kind.rush_to_all, kind.gap_b, n)
    while (late := log_gap > MAX_LOG_GAP).any():
        log_gap[late] = rng.gamma(kind.gap_a * kind.rush_to_all, kind.gap_b, int(late.sum()))
    points = np.cumsum(np.exp(log_gap)) * (gap_factor / SLOT_S)
    sold = np.concatenate(([0.0], np.cumsum(daily_cycle(kind))))
    days, rest = np.divmod(points, SLOTS)
    times: Floats = (days * SLOTS + np.interp(rest, sold, np.arange(SLOTS + 1))) * SLOT_S
    return times


def daily_cycle(kind: Kind) -> Floats:
    """Weight of each half hour from midnight on, shape (48,), of mean 1."""
    slot = np.arange(1, SLOTS + 1)
    at = np.where(slot < FIRST_SLOT, slot + SLOTS, slot)
    # The gamma density over each slot, by Simpson's rule: smooth there, so 32 intervals are exact to 1e-12.
    x = at[:, None] + np.linspace(-0.5, 0.5, 33)
    density = np.exp((kind.day_a - 1) * np.log(x) - x / kind.day_b)
    simpson = np.array([1, *([4, 2] * 15), 4, 1])
    weight = density @ simpson
    weights: Floats = weight / weight.mean()
    return weights

"""Models of what users say about their jobs' run times: from a workload to the same workload with other estimates.

``user``
    What the log has (a log without estimates has exact ones; see ``rules``).
``exact``
    The run time itself.
``factor:F``
    Uniform in [r, F·r], r being the run time and F ≥ 1 the "badness" of the estimates: Feitelson and Weil 1998,
    section 3.3 and Table 3.
``predicted``
    What the log has; the scheduler goes by predictions of its own (``space_scheduler.simulator.predicting``).
``tsafrir`` or ``tsafrir:MAX_S``
    D. Tsafrir, Y. Etsion and D. G. Feitelson, "Modeling user runtime estimates", JSSPP 2005, LNCS 3834, pp. 1-35. Users
    pick from few values: 20 popular ones cover 89 % of the jobs, the most popular is the largest that is allowed.

The reconstruction of ``tsafrir``. The sizes by popularity rank (an exponential for ranks 2 to 20, the rest of the 89 %
for rank 1, a power law from rank 21), the number of values (their power law of the number of jobs) and the spread of
the values over [0, maximum] have the constants the authors publish with their program. Simplified or ours: the popular
values are a fixed list, by their popularity in the KTH, LANL CM-5 and RICC logs, where the authors' program wants the
site's own; the other values are rounded to minutes and given ranks at random; no value depends on the user, so the
repetition within a user's session, part of their analysis but not of their generator, is absent. Values are dealt to
jobs from the longest job down, each at random among those left that are long enough, which keeps the distribution of
the values; a job longer than all values left estimates its own run time.
"""

import math
from dataclasses import replace
from enum import StrEnum
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from cosched.errors import BadInput, nearest
from cosched.model.time import US_PER_S, plain_seconds, us
from cosched.workload.rules import Times, Workload

Floats = NDArray[np.float64]


#: No estimate goes beyond this: the longest time a log may hold, in microseconds (see ``swf``).
MAX_US: Final = 10**18


class EstimateModel(StrEnum):
    """Who says how long a job will run."""

    USER = "user"
    EXACT = "exact"
    FACTOR = "factor"
    PREDICTED = "predicted"
    TSAFRIR = "tsafrir"


class Estimates(msgspec.Struct, frozen=True):
    """A model of estimates; ``factor`` is for the model of that name, ``max_us``, the largest, for ``tsafrir``."""

    model: EstimateModel
    factor: float = 1.0
    max_us: int | None = None

    def __str__(self) -> str:
        if self.model is EstimateModel.FACTOR:
            return f"factor:{self.factor:g}"
        if self.max_us is not None:
            return f"tsafrir:{plain_seconds(self.max_us)}"
        return self.model.value


_SPECS: Final = "user, exact, predicted, factor:F with F of at least 1, tsafrir or tsafrir:MAX_SECONDS"


def parse(spec: str) -> Estimates:
    """Read ``user``, ``exact``, ``factor:4``, ``tsafrir`` or ``tsafrir:216000``."""
    name, colon, text = spec.strip().partition(":")
    try:
        model = EstimateModel(name)
    except ValueError:
        near = nearest(name, [model.value for model in EstimateModel])
        raise BadInput("estimates", f"{spec!r} is not known", _SPECS, nearest=near) from None
    if model in (EstimateModel.USER, EstimateModel.EXACT, EstimateModel.PREDICTED):
        if colon:
            raise BadInput("estimates", f"{spec!r}: {name} takes no value", _SPECS, nearest=name)
        return Estimates(model)
    if model is EstimateModel.TSAFRIR and not colon:
        return Estimates(model)
    lowest = 1.0 if model is EstimateModel.FACTOR else 1e-6
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not lowest <= value <= 1e12:
        near = "factor:4" if model is EstimateModel.FACTOR else "tsafrir:216000"
        raise BadInput("estimates", f"{spec!r}: {text!r} is no number of at least {lowest:g}", _SPECS, nearest=near)
    return Estimates(model, factor=value) if model is EstimateModel.FACTOR else Estimates(model, max_us=us(value))


def with_estimates(workload: Workload, estimates: Estimates, rng: np.random.Generator) -> Workload:
    """The workload with its jobs' estimates replaced, but by ``user`` and ``predicted``: at least the run time."""
    if estimates.model in (EstimateModel.USER, EstimateModel.PREDICTED):
        return workload
    run_us = workload.run_us
    if estimates.model is EstimateModel.EXACT:
        told = run_us.copy()
    elif estimates.model is EstimateModel.FACTOR:
        more_us = run_us * (rng.random(len(workload)) * (estimates.factor - 1))
        told = np.maximum(run_us, np.minimum(run_us + more_us, MAX_US).astype(np.int64))
    else:
        top_us = estimates.max_us or int(max(workload.request_us.max(), run_us.max()))
        told = deal(run_us, draw_popular(len(workload), top_us, rng), rng)
    return replace(workload, estimate_us=told)


# --- Tsafrir, Etsion and Feitelson 2005 ---------------------------------------------------------------------------

#: Popular estimates in minutes, most popular first; the largest allowed comes before them all.
POPULAR_MIN: Final = (60, 5, 240, 10, 120, 30, 1, 15, 180, 20, 720, 300, 2, 360, 600, 1440, 480, 50, 3)
HEAD: Final = 20
HEAD_PERCENT: Final = 89.0


def number_of_values(jobs: int) -> int:
    """How many distinct estimates that many jobs use."""
    return max(HEAD, round(0.653566 * math.pow(jobs, 0.547761)))


def popularity(values: int) -> Floats:
    """Share of the jobs that use the value of each popularity rank, shape (values,)."""
    rank = np.arange(1, values + 1, dtype=np.float64)
    size = 14.0491 * np.exp(-0.177531 * rank) + 0.462513
    size[0] = HEAD_PERCENT - (14.0491 * np.exp(-0.177531 * np.arange(2, HEAD + 1)) + 0.462513).sum()
    tail = 795.6 * rank[HEAD:] ** -2.267
    if len(tail):
        size[HEAD:] = tail * ((100 - HEAD_PERCENT) / tail.sum())
    shares: Floats = size / size.sum()
    return shares


def values_by_rank(values: int, top_us: int, rng: np.random.Generator) -> Times:
    """Distinct estimates, most popular first: the largest, the popular ones below it, the others in random order.

    The times of K values are (a - 1)x / (a - x) of the largest, x being i / K and a = 1 + 12.1039 K^-0.6026.
    """
    minute = 60 * US_PER_S
    head = [top_us, *(m * minute for m in POPULAR_MIN if m * minute < top_us)]
    x = np.arange(1, values + 1) / values
    a = 1 + 12.1039 * values**-0.6026
    times = np.maximum(1, np.rint((a - 1) * x / (a - x) * (top_us / minute))).astype(np.int64) * minute
    others = np.setdiff1d(times[times < top_us], head)
    return np.concatenate((np.array(head, np.int64), rng.permutation(others)))[:values]


def draw_popular(jobs: int, top_us: int, rng: np.random.Generator) -> Times:
    """An estimate for each of ``jobs`` jobs, not yet knowing their run times."""
    values = values_by_rank(number_of_values(jobs), top_us, rng)
    drawn: Times = rng.choice(values, size=jobs, p=popularity(len(values)))
    return drawn


def deal(run_us: Times, values: Times, rng: np.random.Generator) -> Times:
    """Give each job one of the values, none below its run time; both arrays have shape (n,)."""
    longest_first = np.argsort(-run_us, kind="stable").tolist()
    chance = rng.random(len(run_us)).tolist()
    runs = run_us.tolist()
    waiting = np.sort(values).tolist()
    pool: list[int] = []
    told = run_us.copy()
    for job, u in zip(longest_first, chance, strict=True):
        while waiting and waiting[-1] >= runs[job]:
            pool.append(waiting.pop())
        if pool:
            pick = int(u * len(pool))
            pool[pick], pool[-1] = pool[-1], pool[pick]
            told[job] = pool.pop()
    return told

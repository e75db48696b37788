"""The simulations of Figs 9 and 10: slowdown and backfilling against load, on generated workloads with exact estimates.

The paper's model is Feitelson's of 1996, as used with Jette in 1997; that of Lublin and Feitelson, five years younger
than the paper, is run beside it. Each seed draws the same random numbers for all policies and all loads. The paper
leaves open the machine's size, the length of its runs, how it varied the load, and what it counts as backfilled. Chosen
here: 128 processors, the lengths in ``setup``, the first tenth of the jobs left out of all measures, and a job is
*backfilled* when it starts before one that was submitted earlier.

**Load** is varied by the models' own parameter for the time between arrivals, and brought to the exact value by scaling
the last per cent. Scaling all of a finished log instead, by the factor of 20 that separates the first model's default
from a busy machine, would also compress the distances between the repeated runs of a job, which by that model follow
each other's ends: bursts of twenty copies at a time that no user submits. Twice the jobs are drawn and the first half,
by submission, is kept, since repeated runs thin out at the end of what is drawn.

**No steady state.** A policy is ``unstable`` at a load at which its queue grows (``steady``); its mean is not shown.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from cosched.apps.replicate.backfilling.runs import CONSERVATIVE, EASY
from cosched.apps.replicate.backfilling.setup import Scale
from cosched.apps.replicate.pool import Call
from cosched.apps.replicate.steady import Thirds, Trend, backlog_thirds, trend
from cosched.config.experiment import Experiment
from cosched.metrics.summary import Floats, per_job
from cosched.workload.generators.registry import generate
from cosched.workload.log import Field, Log
from cosched.workload.rules import prepare
from cosched.workload.scaling import offered_load, to_load
from space_scheduler.simulator.experiment import run

#: The parameter of each model that sets the time between arrivals, and where the search for a load begins.
ARRIVALS: Final = {"feitelson96": ("mean_interarrival_s", 30.0), "lublin03": ("gap_factor", 1.0)}
MODELS: Final = {"feitelson96": "Feitelson 1996", "lublin03": "Lublin & Feitelson 2003"}
FCFS: Final = "fcfs"
POLICIES: Final = (FCFS, EASY, CONSERVATIVE)
PROCS: Final = 128
WARM_UP_RATIO: Final = 0.1


class Point(NamedTuple):
    """One simulation: means over the jobs after the warm-up, and the backlog in each third over all work submitted."""

    slowdown: float
    backfilled: float
    backlog: Thirds


@dataclass(frozen=True)
class Series:
    """One model under one policy at one load: a value per seed, shape (seeds,)."""

    slowdown: Floats
    backfilled: Floats
    trend: Trend

    @property
    def unstable(self) -> bool:
        """Whether the queue grows through the run."""
        return self.trend.unstable


#: (model, load, policy) -> what was found.
Sweep = dict[tuple[str, float, str], Series]


def log_at(model: str, jobs: int, load: float, seed: int) -> Log:
    """A generated log of exactly this offered load."""
    parameter, value = ARRIVALS[model]
    for _ in range(20):
        drawn = generate(model, 2 * jobs, PROCS, np.random.default_rng(seed), {parameter: value})
        log = drawn.with_rows(drawn.rows[np.argsort(drawn.column(Field.SUBMIT_S), kind="stable")[:jobs]])
        found = offered_load(log, procs_total=PROCS)
        if abs(found / load - 1) < 0.01:
            break
        value *= found / load
    return to_load(log, load, procs_total=PROCS)


def simulate_point(model: str, jobs: int, load: float, seed: int, policy: str) -> Point:
    """One workload of a model under one policy."""
    workload = prepare(log_at(model, jobs, load, seed))
    schedule = run(Experiment(), policy, workload)
    first = round(jobs * WARM_UP_RATIO)
    return Point(
        float(per_job(schedule).bounded_slowdown[first:].mean()),
        float(schedule.backfilled[first:].mean()),
        backlog_thirds(schedule),
    )


def calls(scale: Scale) -> list[Call]:
    """One for each model, load, policy and seed. High loads and conservative take longest."""
    return [
        Call(
            simulate_point,
            (model, scale.sweep_jobs, load, seed, policy),
            scale.sweep_jobs / 1e4 * load**6 * (20 if policy == CONSERVATIVE else 0.5),
        )
        for model in MODELS
        for load in scale.sweep_loads
        for policy in POLICIES
        for seed in range(1, scale.seeds + 1)
    ]


def gathered(scale: Scale, answers: list[Point]) -> Sweep:
    """The answers by model, load and policy."""
    rest = iter(answers)
    found: Sweep = {}
    for model in MODELS:
        for load in scale.sweep_loads:
            for policy in POLICIES:
                points = [next(rest) for _ in range(scale.seeds)]
                found[model, load, policy] = Series(
                    np.array([point.slowdown for point in points]),
                    np.array([point.backfilled for point in points]),
                    trend([point.backlog for point in points]),
                )
    return found


def stable_loads(scale: Scale, sweep: Sweep, model: str, *policies: str) -> list[float]:
    """The loads at which all these policies have a steady state."""
    return [load for load in scale.sweep_loads if not any(sweep[model, load, policy].unstable for policy in policies)]

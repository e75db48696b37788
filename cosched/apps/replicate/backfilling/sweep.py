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

from collections.abc import Mapping
from itertools import product
from typing import Final, NamedTuple

import numpy as np

from cosched.apps.replicate.backfilling.runs import CONSERVATIVE, EASY
from cosched.apps.replicate.backfilling.setup import Scale
from cosched.apps.replicate.cells import Cells, seeded
from cosched.apps.replicate.pool import Call
from cosched.apps.replicate.steady import Thirds, backlog_thirds
from cosched.config.experiment import Experiment
from cosched.metrics.summary import per_job
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


class Cell(NamedTuple):
    """A model's workloads of so many jobs at one load, under a policy."""

    model: str
    load: float
    policy: str
    jobs: int


Sweep = Cells[Cell]


def cell(scale: Scale, model: str, load: float, policy: str) -> Cell:
    """One of the sweep's."""
    return Cell(model, load, policy, scale.sweep_jobs)


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


def simulated(cell: Cell, seed: int) -> Point:
    """One workload of a model under one policy."""
    workload = prepare(log_at(cell.model, cell.jobs, cell.load, seed))
    schedule = run(Experiment(), cell.policy, workload)
    first = round(cell.jobs * WARM_UP_RATIO)
    return Point(
        float(per_job(schedule).bounded_slowdown[first:].mean()),
        float(schedule.backfilled[first:].mean()),
        backlog_thirds(schedule),
    )


def wanted(scale: Scale) -> dict[Cell, int]:
    """All cells of the sweep, and how many seeds of each."""
    return {cell(scale, *each): scale.seeds for each in product(MODELS, scale.sweep_loads, POLICIES)}


def calls(seeds: Mapping[Cell, int]) -> dict[tuple[Cell, int], Call]:
    """One for each cell and seed. High loads and conservative take longest."""
    return seeded(
        simulated, seeds, lambda each: each.jobs / 1e4 * each.load**6 * (20 if each.policy == CONSERVATIVE else 0.5)
    )


def stable_loads(scale: Scale, sweep: Sweep, model: str, *policies: str) -> list[float]:
    """The loads at which all these policies have a steady state."""
    return [
        load for load in scale.sweep_loads if sweep.steady(*(cell(scale, model, load, policy) for policy in policies))
    ]

"""The paper's machine, workload and schedulers, and one simulated run of them.

Kalé, Kumar & DeSouza 2002, section 4.1: 64 processors; the jobs are those of the generator ``kale02``. Traditional jobs
have one number of processors and go by first fit over the whole queue, without reservations; adaptive ones have the
same number as their minimum and go by equipartition. Both are the same jobs: differences are paired by seed.
"""

import math
from typing import Final, NamedTuple

import msgspec
import numpy as np

from cosched.apps.replicate.steady import Thirds, backlog_thirds
from cosched.model.time import US_PER_S, us
from cosched.workload import shapes
from cosched.workload.generators.kale02 import HALF_EFFICIENT
from cosched.workload.generators.registry import generate_shaped
from cosched.workload.rules import Workload, prepare
from cosched.workload.speedups import UNIT, linear, parse
from space_scheduler.plugins import resolve
from space_scheduler.simulator.host import Outcome, Stuck, simulate

PROCS: Final = 64
#: The paper's experiments on its cluster, and its simulations.
SHORT_JOBS: Final = 50
LONG_JOBS: Final = 10_000

FIRST_FIT: Final = "backfill(0)"
EQUIPARTITION: Final = "equipartition"
#: Selections among rigid jobs; all else is a policy by name.
_SELECTIONS: Final = (FIRST_FIT,)


class Mix(NamedTuple):
    """The shares of jobs that are not malleable."""

    rigid: float = 0.0
    moldable: float = 0.0
    evolving: float = 0.0


class Cell(NamedTuple):
    """What is simulated, for some seeds: a policy on so many jobs at a load factor.

    ``adaptive``: jobs have the widths of the mix, else all are traditional. ``cost_s``: a job does nothing for so long
    after each resize.
    """

    policy: str
    adaptive: bool
    load: float
    jobs: int
    cost_s: float = 0.0
    speed_up: str = HALF_EFFICIENT
    mix: Mix = Mix()


class Measured(NamedTuple):
    """One run: means over all of its jobs; utilisation as allocated, and as work done, from first to last.

    Work done counts a processor that is half efficient as half. ``resizes``: changes of running jobs, for each job.
    """

    response_s: float
    wait_s: float
    allocated: float
    useful: float
    resizes: float
    backlog: Thirds


#: Of a run in which jobs wait for each other for ever: evolving ones do that hold what others have asked for.
STUCK: Final = Measured(math.nan, math.nan, math.nan, math.nan, math.nan, (0.0, 0.0, 0.0))


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """How much is simulated: load factors, and seeds of workloads of ``SHORT_JOBS``, and of ``long_jobs`` jobs.

    The sweeps have ``sweep_jobs`` jobs and ``sweep_seeds`` seeds at each of ``sweep_loads``.
    """

    loads: tuple[float, ...]
    short_seeds: int
    long_jobs: int
    long_seeds: int
    sweep_loads: tuple[float, ...]
    sweep_jobs: int
    sweep_seeds: int
    costs_s: tuple[float, ...]
    thresholds: tuple[int, ...]


FULL: Final = Scale(
    loads=(0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4),
    short_seeds=100,
    long_jobs=LONG_JOBS,
    long_seeds=6,
    sweep_loads=(0.4, 0.6, 0.8, 1.0),
    sweep_jobs=1000,
    sweep_seeds=6,
    costs_s=(1, 5, 10, 20, 40, 80),
    thresholds=(2, 4, 8, 16),
)
QUICK: Final = Scale(
    loads=(0.4, 0.8, 1.4),
    short_seeds=10,
    long_jobs=600,
    long_seeds=3,
    sweep_loads=(0.6,),
    sweep_jobs=300,
    sweep_seeds=3,
    costs_s=(5, 40),
    thresholds=(4,),
)


def workload(cell: Cell, seed: int) -> Workload:
    """The jobs of a seed."""
    parameters = {"load_factor": cell.load, "speed_up": cell.speed_up, **cell.mix._asdict()}
    log, lines = generate_shaped("kale02", cell.jobs, PROCS, np.random.default_rng(seed), parameters)
    load = prepare(log, procs_total=PROCS)
    return shapes.apply(load, lines, speed_up=parse(cell.speed_up)) if cell.adaptive else load


def simulated(cell: Cell, seed: int) -> Outcome:
    """One workload under one policy."""
    policy = resolve(None, select=cell.policy) if cell.policy in _SELECTIONS else resolve(cell.policy)
    return simulate(workload(cell, seed), policy, resize_cost_us=us(cell.cost_s))


def measured(cell: Cell, seed: int) -> Measured:
    """What came out of it."""
    try:
        found = simulated(cell, seed)
    except Stuck:
        return STUCK
    load = found.workload
    submit_us, count = load.submit_us, len(load)
    machine_us = PROCS * float(found.end_us.max() - submit_us.min())
    resizes = 0 if found.holdings is None else len(found.holdings) - count
    return Measured(
        float((found.end_us - submit_us).mean() / US_PER_S),
        float((found.start_us - submit_us).mean() / US_PER_S),
        found.used_us() / machine_us,
        _work_us(cell, load) / machine_us,
        resizes / count,
        backlog_thirds(found),
    )


def _work_us(cell: Cell, load: Workload) -> float:
    """What all jobs do, in microseconds of one process alone."""
    speed_up = parse(cell.speed_up) or linear
    speeds = np.array([speed_up(procs) for procs in load.procs.tolist()], np.float64)
    return float(np.dot(load.run_us, speeds / UNIT))


def traditional(cell: Cell) -> Cell:
    """The same jobs as the paper compares them with: one number of processors each, first fit."""
    return cell._replace(policy=FIRST_FIT, adaptive=False, cost_s=0.0, mix=Mix())

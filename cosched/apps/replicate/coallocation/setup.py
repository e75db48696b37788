"""The paper's system and one simulated run of it.

Ngubiri & van Vliet 2006, sections 2 to 4: five clusters of 20 processors, one queue, jobs of the generator
``ngubiri06``, divided as they are submitted, FPFS(maxJumps) with Worst Fit. Policies meet the same jobs: a job's number
decides when it comes, how long it runs, how wide it is, and of how many components it is where that is drawn, whatever
the other parameters are. Means are corrected by what single servers would have the jobs wait.
"""

from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cosched.apps.replicate.coallocation.shares import (
    CLUSTER_PROCS,
    CLUSTERS,
    CRITERIA,
    GROUPS,
    PAPERS,
    PHASED_BOUNDS,
    PROCS,
    THRESHOLD,
    Kind,
    mean_size,
    moments,
)
from cosched.apps.replicate.steady import Thirds, backlog_thirds, trend
from cosched.metrics import groups
from cosched.metrics.controls import single_servers
from cosched.metrics.intervals import Floats
from cosched.metrics.sequential import Blocks, Lengths, Reached, blocks, reached, until_precise
from cosched.metrics.summary import per_job
from cosched.model.components import MOST_COMPONENTS, Between, Dividing, Partition
from cosched.model.node import Node
from cosched.model.time import US_PER_S
from cosched.model.width import Components, Flexible, Range
from cosched.workload.generators.registry import generate
from cosched.workload.rules import Shaped, Workload, prepare
from space_scheduler.plugins import resolve
from space_scheduler.simulator.host import Outcome, Site, begin, simulate

SEED: Final = 1
FCFS: Final = "coalloc-fcfs"
EASY: Final = "easy"
#: Passes the head as FPFS does, without a limit, and starts moldable jobs in the largest size that is free.
MOLDING: Final = "fjt1+bfa(expired=remain)"
#: The loads of the single servers whose waits are control variates.
CONTROLS: Final = (0.8, 0.9, 0.95, 0.97)
_MEMORY_BYTES: Final = 1 << 40
#: What waits in a run with a steady state is less than the work of so many jobs (2 % of 10 000, as elsewhere).
WAITING_JOBS: Final = 200
#: maxJumps of which nobody is ever jumped as often.
HIGH: Final = 1000
#: A run with that many jobs or more is ended where its queue grows.
_TOLD_UNSTABLE: Final = 100_000


def fpfs(jumps: int) -> str:
    """The paper's scheduler at this maxJumps."""
    return f"coalloc-fpfs({jumps})"


class Cell(NamedTuple):
    """What is simulated: a policy, how jobs are divided, what a job on several clusters is slower by, and D(q).

    Inter-arrival times go with the mean size, so that the load is the paper's at every q. ``mold``: jobs above the
    threshold can run on a part of their size, down to this part, with the same work; they are divided as they start.
    """

    policy: str
    partition: Partition = Partition.RANDOM
    threshold: int = THRESHOLD
    cost_ppm: int = 0
    q: float = PAPERS.q
    mold: int = 1


class Scale(NamedTuple):
    """How much is simulated: lengths of the runs; maxJumps and thres of the figures; what the sweeps go through."""

    lengths: Lengths
    most_fcfs: int
    jumps: tuple[int, ...]
    thresholds: tuple[int, ...]
    costs_ppm: tuple[int, ...]
    qs: tuple[float, ...]


FULL: Final = Scale(
    lengths=Lengths(precision=0.05, first=40_000, most=600_000),
    most_fcfs=240_000,
    jumps=(0, 1, 2, 5, 10, 20, HIGH),
    thresholds=(5, 8, 11, 14, 17, 20),
    costs_ppm=(100_000, 200_000),
    qs=(0.7, 0.8),
)
QUICK: Final = Scale(
    lengths=Lengths(precision=0.05, first=4_000, most=4_000),
    most_fcfs=4_000,
    jumps=(0, 10),
    thresholds=(5, 11),
    costs_ppm=(100_000,),
    qs=(0.7,),
)


class Measured(NamedTuple):
    """One run: response times by kind of job (the columns of ``blocks``), how precise they are, the work that waits."""

    kinds: tuple[Kind, ...]
    blocks: Blocks
    reached: Reached
    backlog: Thirds

    @property
    def unstable(self) -> bool:
        """Whether the queue grows through the run: then a mean would say how long the run was."""
        return trend([self.backlog], WAITING_JOBS / self.reached.jobs).unstable


def workload(cell: Cell, jobs: int, seed: int = SEED) -> Workload:
    """The first jobs of a seed, divided."""
    load = _undivided(cell.q, jobs, seed)
    if cell.mold > 1:
        return replace(load, shapes=_molded(cell, load))
    dividing = Dividing(threshold=cell.threshold, partition=cell.partition, bounds=PHASED_BOUNDS)
    return replace(load, divided=_divided(dividing, load, seed))


@lru_cache(maxsize=1)
def _undivided(q: float, jobs: int, seed: int) -> Workload:
    """The first jobs of a seed, the same for most cells."""
    parameters = {"q": q, "mean_interarrival_s": interarrival_s(q)}
    return prepare(generate("ngubiri06", jobs, PROCS, np.random.default_rng(seed), parameters), procs_total=PROCS)


def _molded(cell: Cell, load: Workload) -> list[Shaped | None]:
    """Each large job's sizes."""
    return [
        Shaped(Range(-(-size // cell.mold), size, components=MOST_COMPONENTS), size * run_us, size * run_us)
        if size > cell.threshold
        else None
        for size, run_us in zip(load.procs.tolist(), load.run_us.tolist(), strict=True)
    ]


def interarrival_s(q: float) -> float:
    """The mean at which the load is the paper's."""
    return PAPERS.mean_interarrival_s * float(mean_size(q) / mean_size())


def _divided(dividing: Dividing, load: Workload, seed: int) -> list[Components | Flexible | None]:
    """Each job's components, drawn for it alone: the same for the same job under other thresholds."""
    return [
        dividing.shape(size, Random(seed << 32 | row)) if size > dividing.threshold else None
        for row, size in enumerate(load.procs.tolist())
    ]


def site(cell: Cell) -> Site:
    """The five clusters, each a node of 20 processors."""
    clusters = [
        Node(str(at), CLUSTER_PROCS, _MEMORY_BYTES, cpus=CLUSTER_PROCS, cluster=str(at))
        for at in range(1, CLUSTERS + 1)
    ]
    return Site(clusters, sharing=None, between=Between({"": cell.cost_ppm}) if cell.cost_ppm else None)


def simulated(cell: Cell, jobs: int) -> Outcome:
    """The first jobs under one policy."""
    return simulate(workload(cell, jobs), resolve(cell.policy), site=site(cell))


def lengths_of(cell: Cell, scale: Scale) -> Lengths:
    """How long the runs of a cell are: FCFS, which is close to instability, has a cap of its own."""
    return scale.lengths._replace(most=scale.most_fcfs) if cell.policy == FCFS else scale.lengths


def measured(cell: Cell, lengths: Lengths) -> Measured:
    """A run as long as the precision of all groups wants, up to its cap, or until its queue is seen to grow."""
    running = begin(workload(cell, lengths.most), resolve(cell.policy), site=site(cell))
    return until_precise(
        lambda jobs: _looked_at(running.until(jobs), cell),
        lambda run: run.reached,
        lengths,
        lambda run: run.unstable and run.reached.jobs >= _TOLD_UNSTABLE,
    )


def of_interest(cell: Cell) -> tuple[str, ...]:
    """The groups whose means are to be precise: all of the paper's in its own figures, those by size in the sweeps."""
    papers = Cell(cell.policy, cell.partition)
    own = cell == papers and cell.partition in (Partition.RANDOM, Partition.PHASED) and cell.policy != EASY
    return tuple(GROUPS) if own else tuple(CRITERIA["S"])


def _looked_at(outcome: Outcome, cell: Cell) -> Measured:
    kinds, columns = _kinds(outcome)
    controls = _controls(outcome.workload, cell.q)
    found = blocks(outcome, per_job(outcome).response_s, columns, len(kinds), controls)
    wanted = {
        "all": np.ones(len(kinds), np.bool_),
        **{name: np.array([GROUPS[name](kind) for kind in kinds]) for name in of_interest(cell)},
    }
    return Measured(kinds, found, reached(found, wanted), backlog_thirds(outcome))


def _controls(load: Workload, q: float) -> Floats:
    """What single servers would have the jobs wait; a job's work is its size times its run time."""
    work = load.procs * (load.run_us / US_PER_S)
    size, squared = moments(q)
    return single_servers(
        load.submit_us / US_PER_S,
        work,
        CONTROLS,
        interarrival_s(q),
        (size * PAPERS.mean_run_s, squared * 2 * PAPERS.mean_run_s**2),
    )


def _kinds(outcome: Outcome) -> tuple[tuple[Kind, ...], NDArray[np.int64]]:
    """The kinds of jobs that there are, and the place of each job's among them."""
    made = (outcome.workload.procs, groups.components(outcome), groups.widest(outcome))
    # of one number for each kind: rows of an array would be sorted as bytes, which takes ten times as long
    found, place = np.unique(np.ravel_multi_index(made, (PROCS + 1,) * 3), return_inverse=True)
    kinds = zip(*(each.tolist() for each in np.unravel_index(found, (PROCS + 1,) * 3)), strict=True)
    return tuple(Kind(*each) for each in kinds), place

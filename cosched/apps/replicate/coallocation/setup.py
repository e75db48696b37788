"""The paper's system and one simulated run of it.

Ngubiri & van Vliet 2006, sections 2 to 4: five clusters of 20 processors, one queue, jobs of the generator
``ngubiri06``, divided as they are submitted, FPFS(maxJumps) with Worst Fit. Policies meet the same jobs: a job's number
decides when it comes, how long it runs, how wide it is, and of how many components it is where that is drawn, whatever
the other parameters are.
"""

from dataclasses import replace
from random import Random
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cosched.apps.replicate.coallocation.shares import (
    CLUSTER_PROCS,
    CLUSTERS,
    GROUPS,
    PAPERS,
    PHASED_BOUNDS,
    PROCS,
    THRESHOLD,
    Kind,
    mean_size,
)
from cosched.apps.replicate.steady import Thirds, backlog_thirds, trend
from cosched.metrics import groups
from cosched.metrics.sequential import Blocks, Lengths, Reached, blocks, reached, until_precise
from cosched.metrics.summary import per_job
from cosched.model.components import MOST_COMPONENTS, Between, Dividing, Partition
from cosched.model.node import Node
from cosched.model.width import Components, Flexible
from cosched.workload.generators.registry import generate
from cosched.workload.rules import Workload, prepare
from space_scheduler.plugins import resolve
from space_scheduler.simulator.host import Outcome, Site, simulate

SEED: Final = 1
FCFS: Final = "coalloc-fcfs"
EASY: Final = "easy"
_MEMORY_BYTES: Final = 1 << 40
#: A run with that many jobs or more is ended where its queue grows.
_TOLD_UNSTABLE: Final = 100_000


def fpfs(jumps: int) -> str:
    """The paper's scheduler at this maxJumps."""
    return f"coalloc-fpfs({jumps})"


class Cell(NamedTuple):
    """What is simulated: a policy, how jobs are divided, what a job on several clusters is slower by, and D(q).

    Inter-arrival times go with the mean size, so that the load is the paper's at every q.
    """

    policy: str
    partition: Partition = Partition.RANDOM
    threshold: int = THRESHOLD
    cost_ppm: int = 0
    q: float = PAPERS.q
    most: int = MOST_COMPONENTS


class Measured(NamedTuple):
    """One run: response times by kind of job (the columns of ``blocks``), how precise they are, the work that waits."""

    kinds: tuple[Kind, ...]
    blocks: Blocks
    reached: Reached
    backlog: Thirds

    @property
    def unstable(self) -> bool:
        """Whether the queue grows through the run: then a mean would say how long the run was."""
        return trend([self.backlog]).unstable


def workload(cell: Cell, jobs: int, seed: int = SEED) -> Workload:
    """The first jobs of a seed, divided."""
    scale = float(mean_size(cell.q) / mean_size())
    parameters = {"q": cell.q, "mean_interarrival_s": PAPERS.mean_interarrival_s * scale}
    load = prepare(generate("ngubiri06", jobs, PROCS, np.random.default_rng(seed), parameters), procs_total=PROCS)
    dividing = Dividing(threshold=cell.threshold, partition=cell.partition, most=cell.most, bounds=PHASED_BOUNDS)
    return replace(load, divided=_divided(dividing, load, seed))


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
    return Site(clusters, sharing=None, between=Between({"": cell.cost_ppm} if cell.cost_ppm else {}))


def simulated(cell: Cell, jobs: int) -> Outcome:
    """The first jobs under one policy."""
    return simulate(workload(cell, jobs), resolve(cell.policy), site=site(cell))


def measured(cell: Cell, lengths: Lengths) -> Measured:
    """A run as long as the precision of all groups wants, up to its cap, or until its queue is seen to grow."""
    return until_precise(
        lambda jobs: _looked_at(simulated(cell, jobs)),
        lambda run: run.reached,
        lengths,
        lambda run: run.unstable and run.reached.jobs >= _TOLD_UNSTABLE,
    )


def _looked_at(outcome: Outcome) -> Measured:
    kinds, columns = _kinds(outcome)
    found = blocks(outcome, per_job(outcome).response_s, columns, len(kinds))
    wanted = {
        "all": np.ones(len(kinds), np.bool_),
        **{name: np.array([chosen(kind) for kind in kinds]) for name, chosen in GROUPS.items()},
    }
    return Measured(kinds, found, reached(found, wanted), backlog_thirds(outcome))


def _kinds(outcome: Outcome) -> tuple[tuple[Kind, ...], NDArray[np.int64]]:
    """The kinds of jobs that there are, and the place of each job's among them."""
    made = np.stack([outcome.workload.procs, groups.components(outcome), groups.widest(outcome)], axis=1)
    found, place = np.unique(made, axis=0, return_inverse=True)
    return tuple(Kind(*each) for each in found.tolist()), place.reshape(-1)

"""Which cells there are: those of the paper's figures, and those of what it leaves for later."""

from itertools import product
from typing import Final

from cosched.apps.replicate.coallocation.setup import EASY, FCFS, MOLDING, Cell, Scale, fpfs
from cosched.apps.replicate.coallocation.shares import CLUSTER_PROCS, THRESHOLD
from cosched.model.components import Partition

#: The paper's scheduler where nothing else is said.
FPFS10: Final = fpfs(10)
RANDOM: Final = Cell(FPFS10)
#: Both ways of dividing that the paper has.
PAPERS: Final = (Partition.RANDOM, Partition.PHASED)
#: maxJumps at which phased partitioning is looked at.
_PHASED_JUMPS: Final = (0, 2, 5, 10)
#: What divides jobs better: the paper's two, its phased one without the remainder, and what is free at the start.
PARTITIONS: Final = (*PAPERS, Partition.BALANCED, Partition.ADAPTIVE)
#: How jobs are divided where it costs something: name -> partition and threshold.
DIVISIONS: Final = {
    "balanced, above 11": (Partition.BALANCED, THRESHOLD),
    "adaptive, above 11": (Partition.ADAPTIVE, THRESHOLD),
    "adaptive, above 20": (Partition.ADAPTIVE, CLUSTER_PROCS),
}
#: By how much large jobs can be narrowed; 1: they are rigid.
MOLDS: Final = (1, 2)
#: Where FCFS has no steady state.
BEYOND: Final = Cell(FCFS, threshold=17)


def at_jumps(jumps: int, partition: Partition = Partition.RANDOM) -> Cell:
    """The paper's jobs at this maxJumps; 0 is FCFS."""
    return Cell(fpfs(jumps) if jumps else FCFS, partition)


def phased_jumps(scale: Scale) -> tuple[int, ...]:
    """maxJumps at which both ways of dividing are there."""
    return tuple(each for each in scale.jumps if each in _PHASED_JUMPS)


def at_threshold(threshold: int) -> Cell:
    """FPFS(10) with random partitioning of jobs above this size."""
    return RANDOM._replace(threshold=threshold)


def at_cost(division: str, cost_ppm: int) -> Cell:
    """FPFS(10) where a job on several clusters is slower by so much."""
    partition, threshold = DIVISIONS[division]
    return Cell(FPFS10, partition, threshold, cost_ppm)


def at_q(q: float, partition: Partition) -> Cell:
    """FPFS(10) with other sizes, at the paper's load."""
    return Cell(FPFS10, partition, q=q)


def easy(partition: Partition) -> Cell:
    """EASY over components, which knows run times."""
    return Cell(EASY, partition)


def molding(mold: int) -> Cell:
    """Large jobs that can run on a part of their size, down to this one; 1: they are rigid."""
    return Cell(MOLDING, Partition.ADAPTIVE, mold=mold)


def every(scale: Scale) -> list[Cell]:
    """All that are simulated."""
    return [
        *(at_jumps(each) for each in scale.jumps),
        *(at_jumps(each, Partition.PHASED) for each in phased_jumps(scale)),
        *(at_threshold(each) for each in scale.thresholds),
        *(at_jumps(jumps, partition) for jumps, partition in product((0, 10), PARTITIONS)),
        *(at_cost(division, cost) for division, cost in product(DIVISIONS, (0, *scale.costs_ppm))),
        *(at_q(q, partition) for q, partition in product(scale.qs, (Partition.RANDOM, Partition.ADAPTIVE))),
        *(easy(partition) for partition in (Partition.RANDOM, Partition.ADAPTIVE)),
        *(molding(mold) for mold in MOLDS),
        BEYOND,
    ]

"""Named nodes that belong to several clusters (labs): where a job's components lie, and how long it takes there.

Each component of a job lies on one cluster, those of one job on different ones. Which is Worst Fit's to say (Ngubiri &
van Vliet 2006, section 3): the i-th widest component goes to the i-th freest cluster. A job of one component lies on
one cluster, too: the link between clusters is slow.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from fractions import Fraction
from heapq import nlargest
from typing import Any, Final, NamedTuple

from cosched.model.components import Between, Placed, narrowest, nearest_division, worst_fit
from cosched.model.job import Job
from cosched.model.width import Components, Flexible, Range

#: Where nobody has said what communication between clusters costs.
FREE_OF_COST: Final = Between()
_PPM: Final = 1_000_000


class Clusters(NamedTuple):
    """The clusters of some nodes: their names in order, and of each node the index of its cluster.

    ``alone``: where each node is a cluster of its own, the index of each cluster's node, else nothing. ``between`` is
    what communication between clusters costs.
    """

    names: tuple[str, ...]
    of: tuple[int, ...]
    between: Between = FREE_OF_COST
    alone: tuple[int, ...] = ()

    @classmethod
    def named(
        cls, clusters: Sequence[str], between: Between | None, key: Callable[[str], Any] | None = None
    ) -> "Clusters | None":
        """The clusters of nodes by the name of each one's cluster, in the order of ``key``; None: there are no two."""
        names = tuple(sorted({*clusters}, key=key))
        if len(names) < 2:
            return None
        index = {name: at for at, name in enumerate(names)}
        of = tuple(index[name] for name in clusters)
        alone = tuple(map(of.index, range(len(names)))) if len(names) == len(of) else ()
        return cls(names, of, between or FREE_OF_COST, alone)

    def fitting(self, tasks: Sequence[int], most_nodes: int) -> list[int]:
        """How many tasks fit on each cluster, by those that fit on each node."""
        if self.alone:
            return [tasks[index] for index in self.alone]
        by_cluster: list[list[int]] = [[] for _ in self.names]
        for index, here in zip(self.of, tasks, strict=True):
            by_cluster[index].append(here)
        return [sum(each if len(each) <= most_nodes else nlargest(most_nodes, each)) for each in by_cluster]

    def placed(self, job: Job, fitting: Sequence[int], share: bool) -> Placed | None:
        """The clusters of the job's components, where so many tasks fit on each; None: they have no place."""
        shape = job.shape
        if shape is None:
            return worst_fit((job.procs,), fitting)
        if isinstance(shape, Components):
            return worst_fit(shape.procs, fitting, share=share)
        most = most_components(job)
        if most == 1:
            return worst_fit((job.procs,), fitting)
        if isinstance(shape, Flexible) and shape.near:
            own = job.crossing_ppm
            between = self.between if own is None else Between({"": own})
            return nearest_division(job.procs, most, fitting, self.names, job.kind, between)
        widths = narrowest(job.procs, most, fitting)
        return None if widths is None else worst_fit(widths, fitting)

    def laid(
        self,
        placed: Placed,
        tasks: Sequence[int],
        lay: Callable[[int, Sequence[int]], list[tuple[int, int]] | None],
    ) -> list[tuple[int, int]] | None:
        """(index of a node, tasks) of a job's components on their clusters, the widest first; None: no place there.

        So many ``tasks`` fit on each node; ``lay`` lays so many of them on some nodes, where so many fit on each.
        """
        if self.alone and len(placed.widths) == 1:
            return [(self.alone[placed.clusters[0]], placed.widths[0])]
        widths: dict[int, int] = {}
        for width, cluster in zip(*placed, strict=True):
            widths[cluster] = widths.get(cluster, 0) + width  # two on one cluster are laid together
        if self.alone:
            return [(self.alone[cluster], width) for cluster, width in widths.items()]
        laid: list[tuple[int, int]] = []
        for cluster, width in widths.items():
            fitting = [here if at == cluster else 0 for here, at in zip(tasks, self.of, strict=True)]
            part = lay(width, fitting)
            if part is None:
                return None
            laid += part
        return laid

    def misfit(self, job: Job, indices: Iterable[tuple[int, int]], share: bool) -> str | None:
        """What is wrong with so many tasks on the nodes of these indices for the job's components, in words, or None.

        Where components may ``share`` a cluster, it is looked at how many clusters they have.
        """
        held: dict[int, int] = {}
        for index, tasks in indices:
            held[self.of[index]] = held.get(self.of[index], 0) + tasks
        shape = job.shape
        if isinstance(shape, Components) and not share and sorted(held.values()) != sorted(shape.procs):
            widths = "+".join(map(str, shape.procs))
            return f"components of {widths} as {'+'.join(map(str, held.values()))} on the clusters"
        if len(held) > most_components(job):
            return f"{len(held)} clusters for at most {most_components(job)} components"
        return None

    def cost_ppm(self, job: Job, indices: Iterable[int]) -> int:
        """By how many millionths of its time the job is slower on the nodes of these indices than on one cluster."""
        found = {self.of[index] for index in indices}
        return crossing_ppm(job, [self.names[index] for index in found], self.between)

    def longest_us(self, job: Job) -> int:
        """The longest that the job can be predicted to take, whichever clusters it lies on."""
        if most_components(job) == 1:
            return job.estimate_us
        own = job.crossing_ppm
        return lasts_us(job, self.between.most_ppm(job.kind) if own is None else own)


def crossing_ppm(job: Job, clusters: Collection[str], between: Between | None) -> int:
    """By how many millionths of its time the job is slower on these clusters than on one; None: nobody has said."""
    if len(clusters) < 2:
        return 0
    if job.crossing_ppm is not None:
        return job.crossing_ppm
    return between.cost_ppm(job.kind, clusters) if between is not None else 0


def most_components(job: Job) -> int:
    """How many components the job can have."""
    shape = job.shape
    if isinstance(shape, Components):
        return len(shape.procs)
    if isinstance(shape, Flexible):
        return min(shape.most, shape.procs)
    return shape.components if isinstance(shape, Range) else 1


def lasts_us(job: Job, cost_ppm: int) -> int:
    """How long the job is predicted to take where it is slower by so many millionths; rounded up."""
    return job.estimate_us if not cost_ppm else -(-job.alone_us * (_PPM + cost_ppm) // _PPM)


def slowed(speed: int | Fraction, cost_ppm: int) -> int | Fraction:
    """That speed where the job is slower by so many millionths of its time."""
    if not cost_ppm:
        return speed
    exact = Fraction(speed) * _PPM / (_PPM + cost_ppm)
    return exact.numerator if exact.denominator == 1 else exact

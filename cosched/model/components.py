"""Jobs of components: how a wide job is divided, and on which clusters its components lie (design, sections 3 and 7).

A *component* is a part of a job that lies on one cluster (a lab); a job of several is *co-allocated*: they start
together or not at all. The ways of dividing are those of Ngubiri & van Vliet, "Group-wise performance evaluation of
processor co-allocation in multi-cluster systems" (2006), section 2.2, and two of our own, ``balanced`` and
``adaptive``.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from itertools import combinations
from typing import Final, NamedTuple, Protocol

import msgspec

from cosched.model.width import Components, Flexible

#: Into how many components a job is divided at most, where nobody says (the paper's section 4.1).
MOST_COMPONENTS: Final = 4
#: Among so many clusters the nearest division is looked for: 4 095 sets of them.
NEAR_CLUSTERS: Final = 12


class Partition(StrEnum):
    """Into how many components a job wider than the threshold is divided, and who decides it when."""

    RANDOM = "random"
    PHASED = "phased"
    BALANCED = "balanced"
    ADAPTIVE = "adaptive"
    NEAR = "near"
    USER = "user"


def divided(procs: int, count: int) -> tuple[int, ...]:
    """``count`` components as in the paper: all but the last have ⌊procs / count⌋, the last has the whole remainder."""
    part = procs // count
    return (*[part] * (count - 1), procs - (count - 1) * part)


def balanced(procs: int, count: int) -> tuple[int, ...]:
    """``count`` components of which no two differ by more than one, the widest first."""
    part, wider = divmod(procs, count)
    return (*[part + 1] * wider, *[part] * (count - wider))


def phased_bounds(jobs: Mapping[int, float | Fraction], threshold: int, most: int) -> tuple[int, ...]:
    """The largest size of 2, 3, … and ``most - 1`` components, so that each count has as many of the large jobs.

    ``jobs`` is the number (or probability) of jobs of each size; the large ones are wider than ``threshold``. Sizes
    being whole, each bound is the one after which the part of the large jobs is nearest to its target, the lower of
    two. With up to four components two bounds separate three ranges: the paper's own indices are off by one.
    """
    sizes = sorted(size for size, number in jobs.items() if size > threshold and number > 0)
    total = sum(jobs[size] for size in sizes)
    bounds: list[int] = []
    for part in range(1, most - 1):
        target, passed = Fraction(part, most - 1), Fraction(0)
        best, found = None, threshold
        for size in sizes:
            passed += Fraction(jobs[size]) / Fraction(total)
            off = abs(passed - target)
            if best is None or off < best:
                best, found = off, size
        bounds.append(found)
    return tuple(bounds)


class Chance(Protocol):
    """What numbers are drawn from: a ``random.Random``."""

    def randint(self, a: int, b: int) -> int:
        """A whole number from ``a`` to ``b``, both included."""
        ...


class Dividing(msgspec.Struct, frozen=True, kw_only=True):
    """How jobs are divided: those wider than ``threshold`` processes, into at most ``most`` components.

    ``bounds`` are those of ``phased`` and ``balanced`` (:func:`phased_bounds`).
    """

    threshold: int
    partition: Partition = Partition.RANDOM
    most: int = MOST_COMPONENTS
    bounds: tuple[int, ...] = ()

    def shape(self, procs: int, chance: Chance) -> Components | Flexible | None:
        """The components of a job so wide, by ``chance`` where they are drawn; None: it is a single one."""
        if procs <= self.threshold or self.partition is Partition.USER or self.most < 2:
            return None
        if self.partition in (Partition.ADAPTIVE, Partition.NEAR):
            return Flexible(procs, self.most, near=self.partition is Partition.NEAR)
        if self.partition is Partition.RANDOM:
            return Components(divided(procs, min(procs, chance.randint(2, self.most))))
        count = min(procs, 2 + bisect_left(self.bounds, procs))
        return Components((balanced if self.partition is Partition.BALANCED else divided)(procs, count))


class Between(msgspec.Struct, frozen=True, omit_defaults=True):
    """What communication between clusters costs: by how many millionths of its time a job on several is slower.

    ``ppm`` is by the job's orientation ("cpu", "comm"; "" for all others). ``links`` has the same for pairs of
    clusters, their names in order with a space between; a job pays for the worst pair that it lies on.
    """

    ppm: Mapping[str, int] = {}
    links: Mapping[str, Mapping[str, int]] = {}

    def cost_ppm(self, kind: str, clusters: Collection[str]) -> int:
        """What a job of that orientation on these clusters, each named once, is slower by."""
        if len(clusters) < 2:
            return 0
        if not self.links:
            return _by_kind(self.ppm, kind)
        pairs = combinations(sorted(clusters), 2)
        return max(_by_kind(self.links.get(" ".join(pair), self.ppm), kind) for pair in pairs)

    def most_ppm(self, kind: str) -> int:
        """The most that a job of that orientation can be slower by."""
        return max(_by_kind(each, kind) for each in (self.ppm, *self.links.values()))


def _by_kind(ppm: Mapping[str, int], kind: str) -> int:
    return ppm.get(kind, ppm.get("", 0))


class Placed(NamedTuple):
    """The widths of a job's components, the widest first, and the index of the cluster of each."""

    widths: tuple[int, ...]
    clusters: tuple[int, ...]


def worst_fit(widths: Sequence[int], free: Sequence[int], *, share: bool = False) -> Placed | None:
    """Worst Fit (the paper's section 3): the i-th widest component to the i-th freest cluster; None: one has no place.

    ``free`` is by cluster; of clusters as free the lower index comes first. ``share``: each component in turn, the
    widest first, goes to the cluster that is freest then, so that two may lie on one.
    """
    if len(widths) == 1:
        freest = max(free, default=0)
        return Placed((widths[0],), (free.index(freest),)) if widths[0] <= freest else None
    widest_first = tuple(sorted(widths, reverse=True))
    if share:
        return _in_turn(widest_first, [*free])
    if len(widest_first) > len(free):
        return None
    order = sorted(range(len(free)), key=lambda index: (-free[index], index))
    chosen = tuple(order[: len(widest_first)])
    fits = all(width <= free[index] for width, index in zip(widest_first, chosen, strict=True))
    return Placed(widest_first, chosen) if fits else None


def _in_turn(widths: tuple[int, ...], free: list[int]) -> Placed | None:
    chosen = []
    for width in widths:
        index = max(range(len(free)), key=lambda at: (free[at], -at), default=-1)
        if index < 0 or width > free[index]:
            return None
        free[index] -= width
        chosen.append(index)
    return Placed(widths, tuple(chosen))


def narrowest(procs: int, most: int, free: Sequence[int]) -> tuple[int, ...] | None:
    """The best division of a job among those of at most ``most`` components that Worst Fit can place on what is free.

    The best has the narrowest widest component, then the fewest components, then the narrowest second widest, and so
    on. None: there is none. Its components lie on clusters of their own, also where those of others may share one.
    """
    usable = sorted((each for each in free if each > 0), reverse=True)[:most]
    widest = _least_level(procs, usable)
    if widest is None:
        return None
    held, count = 0, 0
    while held < procs:
        held += min(widest, usable[count])
        count += 1
    widths = [widest]
    left = procs - widest
    for at in range(1, count):
        level = _least_level(left, usable[at:count])
        assert level is not None
        widths.append(level)
        left -= level
    return tuple(widths)


def _least_level(procs: int, free: Sequence[int]) -> int | None:
    """The least width up to which clusters (the freest first) have to be filled to hold so many; None: they cannot."""
    for count in range(len(free), 0, -1):  # the last ones are filled to the brim, the first ``count`` to one level
        rest = procs - sum(free[count:])
        level = -(-rest // count)
        if rest > 0 and (count == len(free) or level >= free[count]) and level <= free[count - 1]:
            return level
    return None


def nearest_division(
    procs: int, most: int, free: Sequence[int], names: Sequence[str], kind: str, between: Between
) -> Placed | None:
    """As :func:`narrowest`, but among the divisions whose communication between clusters costs the job the least.

    Of divisions that cost the same and are as wide it takes the one on the freest clusters. Of more clusters than
    :data:`NEAR_CLUSTERS` the freest are looked at: each set of them is a division of its own.
    """
    best: tuple[tuple[int, tuple[int, ...]], Placed] | None = None
    freest = sorted(range(len(free)), key=lambda at: (-free[at], at))[:NEAR_CLUSTERS]
    for count in range(1, min(most, len(freest)) + 1):
        for chosen in combinations(freest, count):
            widths = narrowest(procs, count, [free[index] for index in chosen])
            if widths is None or len(widths) < count:
                continue
            cost = between.cost_ppm(kind, [names[index] for index in chosen])
            rank = (cost, (widths[0], len(widths), *widths[1:]))
            if best is not None and rank >= best[0]:
                continue
            placed = worst_fit(widths, [free[index] for index in chosen])
            assert placed is not None
            best = rank, Placed(widths, tuple(chosen[at] for at in placed.clusters))
        if best is not None and best[0][0] == 0:
            break
    return best[1] if best else None

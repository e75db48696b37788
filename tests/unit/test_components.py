"""Jobs of components: how they are divided, where Worst Fit puts them, and what the link between clusters costs."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from random import Random

import pytest

from cosched.model.components import (
    Between,
    Dividing,
    Partition,
    Placed,
    balanced,
    divided,
    narrowest,
    nearest_division,
    phased_bounds,
    worst_fit,
)
from cosched.model.width import Components, Flexible

RATIO = Fraction(85, 100)
#: D(0.85) on [1, 38]: the paper's sizes (section 2.2, equation 1), not normalised.
SIZES = {size: RATIO**size * (1 if size & (size - 1) else 3) for size in range(1, 39)}


@pytest.mark.parametrize(
    ("procs", "parts"),
    [
        (12, [(6, 6), (4, 4, 4), (3, 3, 3, 3)]),
        (15, [(7, 8), (5, 5, 5), (3, 3, 3, 6)]),
        (23, [(11, 12), (7, 7, 9), (5, 5, 5, 8)]),
        (38, [(19, 19), (12, 12, 14), (9, 9, 9, 11)]),
    ],
)
def test_the_last_component_takes_the_remainder(procs: int, parts: list[tuple[int, ...]]) -> None:
    assert [divided(procs, count) for count in (2, 3, 4)] == parts


def test_balanced_components_differ_by_one_at_most() -> None:
    assert balanced(15, 4) == (4, 4, 4, 3)
    assert balanced(12, 3) == (4, 4, 4)


def test_phases_have_as_many_jobs() -> None:
    bounds = phased_bounds(SIZES, 11, 4)
    assert bounds == (14, 17)
    large = {size: part for size, part in SIZES.items() if size > 11}
    total = sum(large.values())
    edges = [11, *bounds, 38]
    parts = [sum(large[size] for size in large if low < size <= high) for low, high in pairwise(edges)]
    assert [round(float(100 * part / total)) for part in parts] == [33, 34, 33]


def test_phased_counts_go_by_size() -> None:
    phased = Dividing(threshold=11, partition=Partition.PHASED, bounds=(14, 17))
    counts = {procs: phased.shape(procs, Random(1)) for procs in range(1, 39)}
    assert all(counts[procs] is None for procs in range(1, 12))
    for low, high, count in ((12, 14, 2), (15, 17, 3), (18, 38, 4)):
        assert all(counts[procs] == Components(divided(procs, count)) for procs in range(low, high + 1))


def test_random_counts_are_drawn_evenly_and_again_from_the_same_seed() -> None:
    dividing = Dividing(threshold=11)
    drawn = [dividing.shape(20, chance) for chance in [Random(7)] for _ in range(3000)]
    again = [dividing.shape(20, chance) for chance in [Random(7)] for _ in range(3000)]
    assert drawn == again
    for count in (2, 3, 4):
        assert 900 < sum(shape == Components(divided(20, count)) for shape in drawn) < 1100


def test_worst_fit_puts_the_widest_where_most_is_free() -> None:
    assert worst_fit((3, 3, 2), (5, 3, 4)) == Placed((3, 3, 2), (0, 2, 1))
    assert worst_fit((5, 4, 4), (5, 3, 4)) is None
    assert worst_fit((2, 2), (4, 4)) == Placed((2, 2), (0, 1)), "of clusters as free, the first"
    assert worst_fit((1, 1, 1), (9, 9)) is None, "each component on a cluster of its own"
    assert worst_fit((1, 3, 2), (9, 4), share=True) == Placed((3, 2, 1), (0, 0, 0))


def test_the_narrowest_division_is_found_where_a_balanced_one_has_no_place() -> None:
    free = (7, 3, 3, 3, 3)
    assert worst_fit(balanced(15, 4), free) is None
    assert narrowest(15, 4, free) == (6, 3, 3, 3)
    assert narrowest(15, 3, free) is None


def partitions(procs: int, count: int, widest: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a sum of at most so many others, the largest first."""
    if not procs:
        yield ()
    elif count:
        for part in range(min(procs, widest), 0, -1):
            for rest in partitions(procs - part, count - 1, part):
                yield (part, *rest)


def test_no_division_that_has_a_place_is_better() -> None:
    chance = Random(3)
    for _ in range(1500):
        free = [chance.randint(0, 8) for _ in range(chance.randint(1, 5))]
        procs, most = chance.randint(1, 25), chance.randint(1, 5)
        possible = [each for each in partitions(procs, most, procs) if worst_fit(each, free)]
        best = min(possible, key=lambda each: (each[0], len(each), each[1:]), default=None)
        assert narrowest(procs, most, free) == best, (procs, most, free)


def test_the_near_division_avoids_the_slow_link() -> None:
    names = ("a", "b", "c")
    between = Between({"": 100_000}, {"a b": {"": 900_000}})
    assert nearest_division(6, 3, (6, 5, 5), names, "", between) == Placed((6,), (0,))
    assert nearest_division(8, 2, (6, 5, 5), names, "", between) == Placed((4, 4), (0, 2))
    assert nearest_division(17, 3, (6, 5, 5), names, "", between) is None


def test_among_very_many_clusters_the_freest_are_looked_at() -> None:
    names, free = [f"c{at}" for at in range(1000)], [5] * 1000
    free[900] = free[901] = 9
    assert nearest_division(18, 4, free, names, "", Between({"": 1})) == Placed((5, 5, 4, 4), (900, 901, 0, 1))
    assert nearest_division(9, 4, free, names, "", Between({"": 1})) == Placed((9,), (900,))


def test_a_job_pays_for_its_kind_and_for_the_worst_link_it_uses() -> None:
    between = Between({"": 50_000, "comm": 200_000}, {"a b": {"": 10_000, "comm": 700_000}})
    assert between.cost_ppm("comm", ["a"]) == 0
    assert between.cost_ppm("comm", ["b", "a"]) == 700_000
    assert between.cost_ppm("cpu", ["b", "a"]) == 10_000
    assert between.cost_ppm("comm", ["a", "c"]) == 200_000
    assert between.cost_ppm("cpu", ["c", "a", "b"]) == 50_000
    assert between.most_ppm("comm") == 700_000


def test_adaptive_leaves_the_division_to_the_start() -> None:
    assert Dividing(threshold=11, partition=Partition.ADAPTIVE).shape(12, Random(1)) == Flexible(12, 4)
    assert Dividing(threshold=11, partition=Partition.NEAR, most=2).shape(12, Random(1)) == Flexible(12, 2, near=True)
    assert Dividing(threshold=11, partition=Partition.USER).shape(12, Random(1)) is None

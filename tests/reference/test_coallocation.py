"""The plain simulator of co-allocation, by hand: the examples that its issue, paper and design give, exact."""

from fractions import Fraction
from typing import Any

import pytest

from reference.coallocation import (
    Clusters,
    Conservative,
    Divided,
    Easy,
    Split,
    adaptive,
    balanced,
    by_floor,
    given,
    phased,
    simulate,
    splits,
    worst_fit,
)
from reference.rules import Fpfs, JustTheHead
from reference.world import Rule

SECOND = 1_000_000
QUARTER = Fraction(1, 4)


def job(number: int, components: Split, run_s: int, *, at_s: int = 0, estimate_s: int | None = None) -> Divided:
    return given(number, at_s * SECOND, components, run_s * SECOND, estimate_s and estimate_s * SECOND)


def starts(sizes: Split, jobs: list[Divided], rule: Rule[Clusters], **more: Any) -> dict[int, float]:
    """In seconds, by number."""
    ran = simulate(Clusters(sizes, jobs, **more), rule)
    return {number: start / SECOND for number, (start, _) in ran.items()}


def ends(sizes: Split, jobs: list[Divided], rule: Rule[Clusters], **more: Any) -> list[int]:
    """In microseconds."""
    simulate(Clusters(sizes, jobs, **more), rule)
    return [each.end for each in jobs]


# partitions


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (12, [(6, 6), (4, 4, 4), (3, 3, 3, 3)]),
        (15, [(7, 8), (5, 5, 5), (3, 3, 3, 6)]),
        (23, [(11, 12), (7, 7, 9), (5, 5, 5, 8)]),
        (38, [(19, 19), (12, 12, 14), (9, 9, 9, 11)]),
    ],
)
def test_the_last_component_takes_the_remainder(size: int, expected: list[Split]) -> None:
    assert [by_floor(size, n) for n in (2, 3, 4)] == expected


def test_balanced_components_differ_by_one() -> None:
    assert [balanced(15, n) for n in (1, 2, 3, 4)] == [(15,), (8, 7), (5, 5, 5), (4, 4, 4, 3)]
    assert balanced(38, 4) == (10, 10, 9, 9)


def test_phased_goes_by_the_size() -> None:
    numbers = {size: phased(size, 11, (14, 17)) for size in range(1, 39)}
    assert [size for size in numbers if numbers[size] == 1] == list(range(1, 12))
    assert [size for size in numbers if numbers[size] == 2] == [12, 13, 14]
    assert [size for size in numbers if numbers[size] == 3] == [15, 16, 17]
    assert [size for size in numbers if numbers[size] == 4] == list(range(18, 39))


def test_every_split_in_the_order_of_adaptive() -> None:
    assert splits(6, 3) == ((2, 2, 2), (3, 3), (3, 2, 1), (4, 2), (4, 1, 1), (5, 1), (6,))
    assert len(splits(15, 4)) == 54  # partitions of 15 into at most four parts


# Worst Fit


def test_the_widest_goes_to_the_freest() -> None:
    assert worst_fit((3, 3, 2), (5, 3, 4)) == ((1, 3), (3, 3), (2, 2))
    assert worst_fit((5, 4, 4), (5, 3, 4)) is None
    assert worst_fit((2, 3), (4, 4, 4)) == ((1, 3), (2, 2))  # of equals the lower number
    assert worst_fit((1, 1, 1), (9, 9)) is None  # distinct clusters


def test_components_may_share_clusters() -> None:
    assert worst_fit((3, 3, 2), (9, 3), share=True) == ((1, 3), (1, 3), (1, 2))
    assert worst_fit((3, 3, 2), (5, 3, 4), share=True) == ((1, 3), (3, 3), (2, 2))
    assert worst_fit((2, 2, 2), (4, 3), share=True) == ((1, 2), (2, 2), (1, 2))
    assert worst_fit((3, 2, 2), (4, 3), share=True) is None  # 3 to the first, 2 to the second


def test_a_job_that_no_empty_cluster_is_wide_enough_for_is_refused() -> None:
    jobs = [job(1, (21,), 5), job(2, (11, 10), 5), job(3, (20,), 5), adaptive(4, 0, 41, 9, SECOND)]
    assert starts((20, 20), jobs, JustTheHead()) == {2: 0, 3: 5}


@pytest.mark.parametrize(
    ("most", "expected"), [(4, ((1, 6), (2, 3), (3, 3), (4, 3))), (5, ((1, 3), (2, 3), (3, 3), (4, 3), (5, 3)))]
)
def test_adaptive_request_fits_where_a_balanced_one_does_not(most: int, expected: object) -> None:
    sizes = (7, 3, 3, 3, 3)
    assert simulate(Clusters(sizes, [job(1, balanced(15, 4), 1)]), JustTheHead()) == {}
    assert simulate(Clusters(sizes, [adaptive(1, 0, 15, most, SECOND)]), JustTheHead()) == {1: (0, expected)}


def test_adaptive_takes_what_is_free_when_it_starts() -> None:
    """On 4, 4, 4 beside a job of 2 on the first: not 3 + 3 + 3, since 2, 4, 4 are free, but 4 + 3 + 2."""
    ran = simulate(Clusters((4, 4, 4), [job(1, (2,), 9), adaptive(2, 0, 9, 3, SECOND)]), JustTheHead())
    assert ran[2] == (0, ((2, 4), (3, 3), (1, 2)))


# the paper's policies, and EASY

FOUR = [job(1, (3,), 10), job(2, (4, 4), 10), job(3, (1,), 10), job(4, (1,), 11)]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (JustTheHead(), {1: 0, 2: 10, 3: 20, 4: 20}),
        (Fpfs(0), {1: 0, 2: 10, 3: 20, 4: 20}),
        (Fpfs(1), {1: 0, 2: 10, 3: 0, 4: 20}),
        (Fpfs(10), {1: 0, 2: 11, 3: 0, 4: 0}),
        (Easy(), {1: 0, 2: 10, 3: 0, 4: 20}),
        (Conservative("arrival"), {1: 0, 2: 10, 3: 0, 4: 20}),
        (Conservative("none"), {1: 0, 2: 10, 3: 0, 4: 20}),
    ],
)
def test_two_clusters_of_four(rule: Rule[Clusters], expected: dict[int, float]) -> None:
    """Job 4 on the freest cluster would still be there at 10, when the head is to have both clusters."""
    jobs = [job(each.number, each.splits[0], each.run // SECOND) for each in FOUR]
    assert starts((4, 4), jobs, rule) == expected


def test_a_job_may_pass_where_the_head_will_not_lie() -> None:
    """The head lies on two clusters, so the third one is anybody's; then on all, with one processor of it to spare."""
    jobs = [job(1, (4, 4), 10), job(2, (4, 3), 10), job(3, (2,), 20), job(4, (2,), 20)]
    assert starts((4, 4, 4), jobs, Easy()) == {1: 0, 2: 10, 3: 0, 4: 0}
    jobs = [job(1, (4, 4), 10), job(2, (4, 3, 3), 10), job(3, (1,), 20), job(4, (1,), 20), job(5, (1,), 10)]
    assert starts((4, 4, 4), jobs, Easy()) == {1: 0, 2: 10, 3: 0, 4: 10, 5: 0}


def test_a_start_may_make_another_one_harmless() -> None:
    """The head is to have all of cluster 1 at 10. Job 3 would stay there until 30, but after job 4 it lies on 2."""
    jobs = [job(1, (1,), 10), job(2, (6, 3), 10), job(3, (1,), 30), job(4, (1,), 10), job(5, (1,), 30)]
    world = Clusters((6, 5), jobs)
    assert simulate(world, Easy())[3] == (0, ((2, 1),))
    assert [each.start for each in jobs] == [0, 10 * SECOND, 0, 0, 10 * SECOND]


# conservative


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("none", {1: (0, 1), 2: (0, 2), 3: (20, 2)}), ("arrival", {1: (0, 1), 2: (0, 2), 3: (10, 1)})],
)
def test_a_reservation_has_its_clusters(choice: str, expected: dict[int, tuple[int, int]]) -> None:
    """Job 3 is to follow job 2 on cluster 2. When job 1 ends early cluster 1 is the freer one: for who moves alone."""
    jobs = [job(1, (4,), 10, estimate_s=25), job(2, (4,), 20), job(3, (2,), 10)]
    ran = simulate(Clusters((5, 4), jobs), Conservative(choice))
    assert {number: (start // SECOND, placed[0].cluster) for number, (start, placed) in ran.items()} == expected


def test_a_reservation_that_cannot_be_earlier_stays_as_it_is() -> None:
    """From 10 on cluster 1 is free, but not the 1 beside it; so job 3 keeps 3 on cluster 2, the less free one at 20."""
    jobs = [job(1, (4,), 10, estimate_s=25), job(2, (4,), 20), job(3, (3, 1), 10)]
    assert simulate(Clusters((5, 4), jobs), Conservative("arrival"))[3] == (20 * SECOND, ((2, 3), (1, 1)))


@pytest.mark.parametrize(("sizes", "at_s"), [((4,), 0), ((4, 1), 20)])
def test_a_reservation_is_as_long_as_it_can_be(sizes: Split, at_s: int) -> None:
    """Job 3 needs 9 s on one cluster and 11.25 on two; cluster 1 is job 2's from 10 to 20, cluster 2 has room for 1."""
    jobs = [job(1, (1,), 10), job(2, (4,), 10), adaptive(3, 0, 2, 2, 9 * SECOND)]
    world = Clusters(sizes, jobs, cost=QUARTER)
    assert simulate(world, Conservative("arrival"))[3][0] == at_s * SECOND


def test_an_adaptive_job_does_not_share_clusters_with_itself() -> None:
    for share in (False, True):
        world = Clusters((4, 1), [adaptive(1, 0, 2, 2, SECOND)], share=share)
        assert simulate(world, JustTheHead())[1] == (0, ((1, 1), (2, 1)))


@pytest.mark.parametrize(
    ("rule", "expected"), [(Easy(), {1: 0, 2: 10, 3: 25, 4: 1}), (Conservative("arrival"), {1: 0, 2: 10, 3: 20, 4: 30})]
)
def test_conservative_delays_no_job_where_easy_delays_the_second(
    rule: Rule[Clusters], expected: dict[int, float]
) -> None:
    """Job 3 is to have both clusters at 20; job 4 ends at 25 and is in the way of that one only."""
    jobs = [job(1, (4,), 10), job(2, (4, 3), 10, at_s=1), job(3, (4, 4), 10, at_s=1), job(4, (1,), 24, at_s=1)]
    assert starts((4, 4), jobs, rule) == expected


def test_a_reservation_lies_where_it_is_free_all_the_time() -> None:
    """4 and 4 are free, but at 10 job 3 is to have all of cluster 1."""
    jobs = [job(1, (2,), 10), job(2, (1,), 40), job(3, (6,), 10), job(4, (2,), 11)]
    ran = simulate(Clusters((6, 5), jobs), Conservative("arrival"))
    assert ran[3] == (10 * SECOND, ((1, 6),))
    assert ran[4] == (0, ((2, 2),))


# communication and limits


def test_more_than_one_cluster_costs_time() -> None:
    jobs = [job(1, (2, 2), 10), job(2, (2,), 10), given(3, 0, (1, 1), 3, 5)]
    assert ends((8, 8), jobs, JustTheHead(), cost=QUARTER) == [12_500_000, 10_000_000, 4]  # 3.75 rounded up


def test_a_limit_counts_progress() -> None:
    jobs = [job(1, (2, 2), 10, estimate_s=8), job(2, (2,), 10, estimate_s=8)]
    assert ends((8, 8), jobs, JustTheHead(), cost=QUARTER) == [10_000_000, 8_000_000]
    assert ends((8, 8), jobs, JustTheHead(), cost=QUARTER, kill=False) == [12_500_000, 10_000_000]


def test_components_that_share_a_cluster_cost_nothing() -> None:
    assert ends((8, 2), [job(1, (2, 2, 2), 10)], JustTheHead(), cost=QUARTER, share=True) == [10_000_000]


def test_reservations_know_of_the_cost() -> None:
    """Until 12.5 the head waits; who ends by then may pass it."""
    jobs = [job(1, (4, 2), 10), job(2, (4, 4), 10), job(3, (1,), 12), job(4, (1,), 13)]
    assert starts((4, 4), jobs, Easy(), cost=QUARTER) == {1: 0, 2: 12.5, 3: 0, 4: 25}

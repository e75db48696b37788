"""The plain simulator of equipartition, by hand: the examples that its paper and the design give, exact."""

from fractions import Fraction
from typing import Any

import pytest

from reference.equipartition import Policy, shares, simulate
from reference.shaped import SECOND, Change, Job, Outcome

EQUAL = Policy()
HALF = Fraction(1, 2)


def rigid(number: int, cpus: int, work_s: float, *, at_s: float = 0, **more: Any) -> Job:
    return Job(number, round(at_s * SECOND), (cpus,), round(work_s * SECOND), **more)


def malleable(number: int, least: int, most: int, work_s: float, *, at_s: float = 0, **more: Any) -> Job:
    sizes = tuple(range(least, most + 1))
    return Job(number, round(at_s * SECOND), sizes, round(work_s * SECOND), malleable=True, **more)


# shares


@pytest.mark.parametrize(("strategy", "expected"), [("equal", [26, 16, 22]), ("waterfill", [24, 16, 24])])
def test_the_shares_of_three(strategy: str, expected: list[int]) -> None:
    ranges = [(4, 64), (8, 16), (1, 64)]
    assert shares(64, ranges, strategy) == expected
    jobs = [malleable(number, least, most, 1000) for number, (least, most) in enumerate(ranges, 1)]
    ran = simulate(64, jobs, Policy(strategy=strategy))
    assert [outcome.changes[0] for outcome in ran.values()] == [Change(0, cpus, cpus) for cpus in expected]


def test_what_does_not_divide_goes_to_the_earliest_started() -> None:
    assert shares(11, [(1, 9)] * 4, "equal") == [3, 3, 3, 2]
    assert shares(11, [(1, 9)] * 4, "waterfill") == [3, 3, 3, 2]
    jobs = [malleable(2, 1, 9, 90), malleable(1, 1, 9, 90, at_s=1), malleable(3, 1, 9, 90, at_s=1)]
    ran = simulate(11, jobs, EQUAL)
    assert [dict(ran[number].held)[1] for number in (2, 1, 3)] == [4, 4, 3]


def test_waterfill_may_leave_a_high_minimum_where_it_is() -> None:
    assert shares(10, [(6, 10), (1, 10)], "waterfill") == [6, 4]
    assert shares(10, [(6, 10), (1, 10)], "equal") == [8, 2]


# who runs when


def test_two_jobs_share_while_both_are_there() -> None:
    ran = simulate(64, [malleable(1, 1, 64, 6400), malleable(2, 1, 64, 6400, at_s=10)], EQUAL)
    assert ran[1].held == [(0, 64), (10, 32)]
    assert ran[2].held == [(10, 32), (190, 64)]
    assert [outcome.times_s for outcome in ran.values()] == [(0, 190), (10, 200)]


def test_the_introduction_s_example() -> None:
    ran = simulate(100, [malleable(1, 32, 64, 6400), rigid(2, 40, 1200, at_s=10)], EQUAL)
    assert ran[1].held == [(0, 64), (10, 60), (40, 64)]
    assert [outcome.times_s for outcome in ran.values()] == [(0, 101.875), (10, 40)]


def test_the_introduction_s_example_with_rigid_jobs() -> None:
    ran = simulate(100, [rigid(1, 64, 6400), rigid(2, 40, 1200, at_s=10)], EQUAL)
    assert [outcome.times_s for outcome in ran.values()] == [(0, 100), (100, 130)]


def test_who_fits_may_pass_who_does_not() -> None:
    jobs = [malleable(1, 6, 10, 100), rigid(2, 5, 10, at_s=1), malleable(3, 4, 10, 8, at_s=2), rigid(4, 11, 1, at_s=3)]
    ran = simulate(10, jobs, EQUAL)
    assert ran[3].times_s == (2, 4)
    assert ran[1].held[:3] == [(0, 10), (2, 6), (4, 10)]
    assert ran[2].times_s[0] == ran[1].times_s[1] == 10.8
    assert ran[4] == Outcome()  # the machine is too small for it


def test_a_moldable_job_keeps_the_size_that_it_starts_with() -> None:
    """Its share of 12 is 6, so it has 4, and the malleable one 8; alone, it does not grow."""
    jobs = [malleable(1, 1, 12, 80), Job(2, 0, (1, 2, 4, 8), 80 * SECOND)]
    ran = simulate(12, jobs, EQUAL)
    assert [outcome.held for outcome in ran.values()] == [[(0, 8)], [(0, 4)]]
    assert [outcome.times_s for outcome in ran.values()] == [(0, 10), (0, 20)]


def test_moldable_jobs_that_start_together_leave_to_each_other_what_sizes_leave() -> None:
    """11 CPUs: 6 and 5 would be 4 and 4; the first has 4, so the second has 7 to choose from, and takes 7."""
    jobs = [Job(1, 0, (1, 4, 8), 80 * SECOND), Job(2, 0, (1, 4, 7), 70 * SECOND)]
    assert [outcome.held for outcome in simulate(11, jobs, EQUAL).values()] == [[(0, 4)], [(0, 7)]]


def test_speeds_say_how_much_is_done() -> None:
    """1, 3, 4 for 1, 2, 3 processes: 30 alone at 4, then 2 beside 1 until the newcomer has done 10."""
    jobs = [Job(1, 0, (1, 2, 3), 80 * SECOND, malleable=True, speeds=(1, 3, 4)), rigid(2, 1, 10, at_s=5)]
    ran = simulate(3, jobs, EQUAL)
    assert ran[1].held == [(0, 3), (5, 2), (15, 3)]
    assert ran[1].times_s == (0, 22.5)


# costs


def test_a_resize_costs_its_time_and_a_second_one_starts_it_anew() -> None:
    """Job 1 does no work from 10 to 17, as it is resized at 10 and at 12, nor after it grows at 20 and at 32."""
    jobs = [malleable(1, 1, 10, 300), rigid(2, 5, 50, at_s=10), rigid(3, 2, 40, at_s=12)]
    ran = simulate(10, jobs, Policy(resize_cost=5 * SECOND))
    assert ran[1].held == [(0, 10), (10, 5), (12, 3), (20, 8), (32, 10)]
    assert [ran[number].times_s for number in (2, 3)] == [(10, 20), (12, 32)]
    # 100, 3 × 3, (32 - 25) × 8 = 165; from 37 on 135 at 10
    assert ran[1].times_s == (0, 50.5)


def test_a_threshold_leaves_out_small_growth_and_shrinks_where_somebody_needs_it() -> None:
    """The newcomer's 2 come from the two that started last, 1 each; under a threshold of 2 these do not get it back."""
    jobs = [*(malleable(number, 1, 4, 400) for number in (1, 2, 3)), rigid(4, 2, 2, at_s=1)]
    every = simulate(12, jobs, EQUAL)
    assert [every[number].held[:3] for number in (1, 2)] == [[(0, 4)], [(0, 4), (1, 3), (2, 4)]]
    large = simulate(12, jobs, Policy(threshold=2))
    assert [large[number].held for number in (1, 2, 3)] == [[(0, 4)], [(0, 4), (1, 3)], [(0, 4), (1, 3)]]


def test_a_threshold_leaves_out_a_small_shrink_that_nobody_needs() -> None:
    """From 10 on 4 and 4 would be fair instead of 3 and 5: the one does not grow by 1, so the other may keep its 5."""
    jobs = [malleable(1, 1, 3, 60, evolve=((HALF, 1),)), malleable(2, 1, 8, 500)]
    every = simulate(8, jobs, EQUAL)
    assert [outcome.held[:2] for outcome in every.values()] == [[(0, 3), (10, 4)], [(0, 5), (10, 4)]]
    large = simulate(8, jobs, Policy(threshold=2))
    assert [outcome.held for outcome in large.values()] == [[(0, 3)], [(0, 5), (20, 8)]]


# evolving jobs

GROWS = rigid(1, 4, 80, evolve=((HALF, 4),))


def test_an_evolving_job_gets_what_it_asks_for() -> None:
    ran = simulate(10, [GROWS], EQUAL)
    assert ran[1].held == [(0, 4), (10, 8)]
    assert ran[1].times_s == (0, 15)


@pytest.mark.parametrize(
    ("refused", "end", "rows"),
    [("keep", 20, [(0, 4)]), ("part", 16.666667, [(0, 4), (10, 6)]), ("wait", 105, [(0, 4), (100, 8)])],
)
def test_an_evolving_job_is_refused(refused: str, end: float, rows: list[tuple[float, int]]) -> None:
    ran = simulate(10, [GROWS, rigid(2, 4, 400)], Policy(refused=refused))
    assert ran[1].times_s == (0, end)
    assert ran[1].held == rows
    assert ran[2].times_s == (0, 100)


@pytest.mark.parametrize("refused", ["keep", "wait"])
def test_what_the_machine_does_not_have_is_refused_in_any_case(refused: str) -> None:
    ran = simulate(10, [rigid(1, 4, 80, evolve=((HALF, 7),))], Policy(refused=refused))
    assert ran[1].times_s == (0, 20)


def test_who_asked_first_is_answered_first() -> None:
    """Job 2 asks at 5, job 1 at 10; at 20 there is enough for one of them."""
    jobs = [rigid(1, 3, 60, evolve=((HALF, 3),)), rigid(2, 3, 60, evolve=((Fraction(1, 4), 3),)), rigid(3, 4, 80)]
    ran = simulate(10, jobs, Policy(refused="wait"))
    assert ran[2].held == [(0, 3), (20, 6)]
    assert ran[1].held == [(0, 3), (27.5, 6)]


def test_malleable_jobs_shrink_for_an_evolving_one() -> None:
    ran = simulate(10, [GROWS, malleable(2, 1, 10, 90)], EQUAL)
    assert ran[2].held == [(0, 6), (10, 2), (15, 10)]
    assert ran[2].times_s == (0, 17)


def test_an_evolving_job_gives_back() -> None:
    ran = simulate(10, [rigid(1, 8, 80, evolve=((HALF, -6),)), rigid(2, 8, 8)], EQUAL)
    assert ran[1].held == [(0, 8), (5, 2)]
    assert [outcome.times_s for outcome in ran.values()] == [(0, 25), (5, 6)]


def test_jobs_that_wait_for_each_other_never_end() -> None:
    ran = simulate(8, [GROWS, rigid(2, 4, 80, evolve=((HALF, 4),))], Policy(refused="wait"))
    assert [outcome.times_s for outcome in ran.values()] == [(0, None), (0, None)]


def test_an_evolving_malleable_job_moves_its_range() -> None:
    """1 to 4 of 12, from half of its work on 3 to 6."""
    ran = simulate(12, [malleable(1, 1, 4, 80, evolve=((HALF, 2),)), rigid(2, 6, 600)], EQUAL)
    assert ran[1].held == [(0, 4), (10, 6)]


# EASY among malleable jobs


def easy(jobs: list[Job], admits: str) -> dict[int, float | None]:
    ran = simulate(10, jobs, Policy(admits=admits))
    return {number: outcome.times_s[0] for number, outcome in ran.items()}


def test_easy_admits_who_does_not_delay_the_head() -> None:
    """Job 1 has 10 CPUs, and is done by 20 at the latest: on its minimum of 5. The head (8) leaves 2 then."""
    jobs = [
        malleable(1, 5, 10, 100, estimate=100 * SECOND),
        rigid(2, 8, 80, estimate=80 * SECOND),
        malleable(3, 1, 10, 21, estimate=21 * SECOND),  # until 21 on its minimum, but within the 2
        rigid(4, 2, 42, estimate=42 * SECOND),  # until 21, and there is one left
        rigid(5, 2, 40, estimate=40 * SECOND),  # until 20
    ]
    assert easy(jobs, "easy") == {1: 0, 2: 15.125, 3: 0, 4: 20, 5: 0}
    assert easy(jobs, "first-fit") == {1: 0, 2: 20.125, 3: 0, 4: 0, 5: 0}  # later than 20


def test_easy_among_rigid_jobs_is_easy() -> None:
    jobs = [
        rigid(1, 6, 60, estimate=60 * SECOND),
        rigid(2, 8, 80, estimate=80 * SECOND),
        rigid(3, 4, 44, estimate=44 * SECOND),
        rigid(4, 4, 40, estimate=40 * SECOND),
    ]
    assert easy(jobs, "easy") == {1: 0, 2: 10, 3: 20, 4: 0}

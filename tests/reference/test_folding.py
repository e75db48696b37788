"""The plain simulator of folding, by hand: the examples that its paper and the design give, exact."""

from fractions import Fraction
from typing import Any

import pytest

from reference.folding import PRESETS, Policy, folded, simulate
from reference.shaped import SECOND, Change, Job

BFM, BFA = PRESETS["fjt1+bfm"], PRESETS["fjt1+bfa"]


def job(number: int, sizes: list[int], work_s: float, *, at_s: float = 0, **more: Any) -> Job:
    return Job(number, round(at_s * SECOND), tuple(sizes), round(work_s * SECOND), **more)


def powers(most: int) -> list[int]:
    return [1 << k for k in range(most.bit_length())]


def squares(most: int) -> list[int]:
    return [k * k for k in range(1, most) if k * k <= most]


@pytest.mark.parametrize(
    ("tasks", "cpus"),
    [((49,), 13), ((32,), 8), ((60,), 15), ((7,), 2), ((4,), 1), ((3,), 1), ((2,), 1), ((1,), 1), ((2, 2), 2)],
)
def test_a_fold_by_four(tasks: tuple[int, ...], cpus: int) -> None:
    assert folded(*tasks) == cpus


def test_a_window_that_does_not_expire_folds_nobody() -> None:
    jobs = [job(1, [2], 200), job(2, [6], 60), job(3, [12], 120), job(4, list(range(1, 9)), 160)]
    ran = simulate(16, jobs, BFM)
    assert {number: outcome.times_s for number, outcome in ran.items()} == {
        1: (0, 100),
        2: (0, 10),
        3: (20, 30),
        4: (0, 20),
    }
    assert [len(outcome.changes) for outcome in ran.values()] == [1, 1, 1, 1]


def test_the_largest_sizes_of_the_paper_s_programs() -> None:
    jobs = [
        job(1, squares(60), 2441, long=True),
        job(2, powers(60), 4385, long=True),
        job(3, powers(60), 177),
        job(4, list(range(1, 61)), 50),
    ]
    ran = simulate(60, jobs, BFM)
    assert [outcome.held for outcome in ran.values()] == [[(0, 49)], [(0, 8)], [(0, 2)], [(0, 1)]]
    assert [outcome.times_s[1] for outcome in ran.values()] == [49.816327, 548.125, 88.5, 50]


# The four schedules of the paper's Figure 1, as its text describes them: 16 CPUs, four jobs at once, 1, 3, 4 Short and
# 2 Long. Sizes and times are ours; the text says what happens to whom, not when. Its last two labels both say (c).

FIGURE_1 = [job(1, [10], 100), job(2, [14, 16], 448, long=True), job(3, list(range(1, 7)), 80), job(4, [2], 80)]


def test_figure_1a_fifo_leaves_a_hole_that_the_long_job_cannot_use() -> None:
    ran = simulate(16, FIGURE_1, PRESETS["fifo"])
    assert [ran[number].times_s for number in (1, 2, 3, 4)] == [(0, 10), (10, 38), (38, 51.333334), (38, 78)]


def test_figure_1b_a_backfilled_job_is_aborted_when_its_window_expires() -> None:
    ran = simulate(16, FIGURE_1, BFA)
    assert ran[3].held == [(0, 6), (10, 0), (38, 6)]
    assert [ran[number].times_s for number in (1, 2, 3, 4)] == [(0, 10), (10, 38), (38, 51.333334), (38, 78)]


def test_figure_1c_the_long_job_starts_folded_and_expands_when_others_end() -> None:
    ran = simulate(16, FIGURE_1, PRESETS["fjt4"])
    assert ran[2].changes[0] == Change(0, processes=16, cpus=6)
    assert ran[2].held == [(0, 6), (10, 8), (23.333334, 14), (50, 16)]
    assert [ran[number].times_s for number in (1, 3, 4)] == [(0, 10), (10, 23.333334), (10, 50)]
    # 16/3 until 10, 8 (two processes on the fullest CPU) until 50, then 16: 448 - 53.333 - 320 = 74.667 = 4.667 × 16
    assert ran[2].times_s == (0, 54.666667)


def test_figure_1d_a_backfilled_job_is_folded_and_the_long_one_starts_at_once() -> None:
    ran = simulate(16, FIGURE_1, BFM)
    assert ran[3].held == [(0, 6), (10, 2)]
    assert ran[2].held == [(10, 14)]  # fewer than in the others
    assert ran[3].times_s == (0, 20)  # 60 done by 10, and 20 more at 2
    assert [ran[number].times_s for number in (2, 4)] == [(10, 42), (20, 60)]


def test_the_biggest_partition_is_free_soonest_with_malleability() -> None:
    free_from = {}
    for name in ("fifo", "fjt1+bfa", "fjt4", "fjt1+bfm"):
        ends = [outcome.times_s[1] for outcome in simulate(16, FIGURE_1, PRESETS[name]).values()]
        free_from[name] = sorted(ends)[-2]  # all but the two CPUs of job 4
    assert min(free_from, key=free_from.__getitem__) == "fjt1+bfm"


# who is folded, and by how much


def test_folded_for_the_head_and_unfolded_with_what_it_leaves() -> None:
    """8 and 3 backfilled behind a rigid 12: at 10 both are folded, to 2 and 1, and of the 1 left the older gets all."""
    jobs = [job(1, [5], 50), job(2, [12], 120), job(3, [8], 400), job(4, [3], 300)]
    ran = simulate(16, jobs, BFM)
    assert ran[2].times_s == (10, 20)
    assert ran[3].held == [(0, 8), (10, 3), (20, 8)]
    assert ran[4].held == [(0, 3), (10, 1), (20, 3)]
    assert ran[3].times_s == (0, 56.666667)  # 80, then 10 s at 8/3, then 293.333 at 8
    assert ran[4].times_s == (0, 106.666667)  # 30, then 10 s at 1, then 260 at 3


def test_nobody_is_folded_in_vain() -> None:
    """A job of one process and one that is told not to be folded give too little, so the next is backfilled."""
    jobs = [
        job(1, [4], 40),
        job(2, [14], 140),
        job(3, [11], 1100, foldable=False),
        job(4, [1], 90),
        job(5, [2], 8, at_s=11),
    ]
    ran = simulate(16, jobs, BFM)
    assert ran[3].held == [(0, 11)]
    assert ran[5].times_s == (11, 15)
    assert ran[2].times_s == (100, 110)


def test_the_younger_stays_as_it_is_where_the_older_suffices() -> None:
    jobs = [job(1, [8], 80), job(2, [12], 120), job(3, [6], 600), job(4, [2], 200)]
    ran = simulate(16, jobs, BFM)
    assert ran[3].held[:2] == [(0, 6), (10, 2)]
    assert ran[4].held == [(0, 2)]


def test_the_oldest_is_who_started_first_not_who_was_submitted_first() -> None:
    """Job 4 since 0, job 3 since 5; at 10 the head lacks 1."""
    jobs = [job(0, [5], 25), job(1, [9], 90), job(2, [10], 100), job(3, [5], 500), job(4, [2], 200)]
    ran = simulate(16, jobs, BFM)
    assert ran[2].held == [(10, 10)]
    assert ran[3].held == [(5, 5)]
    assert ran[4].held == [(0, 2), (10, 1), (20, 2)]


def test_a_partial_fold_is_as_small_as_suffices() -> None:
    jobs = [job(1, [6], 60), job(2, [11], 110), job(3, [10], 1000), job(4, [16], 16)]
    assert simulate(16, jobs, Policy(partial=True))[3].held[:2] == [(0, 10), (10, 5)]
    assert simulate(16, jobs, BFM)[3].held[:2] == [(0, 10), (10, 3)]


def test_a_fold_costs_what_is_said() -> None:
    """80 done by 10, then 16 (8/4 less a fifth), then 4 at 8."""
    jobs = [job(1, [8], 80), job(2, [14], 140), job(3, [8], 100)]
    ran = simulate(16, jobs, Policy(fold_cost=Fraction(1, 5)))
    assert ran[3].held == [(0, 8), (10, 2), (20, 8)]
    assert ran[3].times_s == (0, 20.5)


def test_aborted_for_a_head_that_came_later() -> None:
    """Job 3 passed job 2 and is aborted for job 4, behind which it stands no longer: job 4 starts all the same."""
    jobs = [job(1, [8], 80), job(2, [10], 10), job(3, [6], 600), job(4, [12], 120)]
    ran = simulate(16, jobs, BFA)
    assert ran[2].times_s == (10, 11)
    assert ran[3].held == [(0, 6), (11, 0), (21, 6)]
    assert ran[4].times_s == (11, 21)


def test_aborted_and_started_again_in_one_instant() -> None:
    jobs = [job(1, [8], 80), job(2, [12], 120), job(3, list(range(1, 9)), 800)]
    ran = simulate(16, jobs, BFA)
    assert ran[3].held == [(0, 8), (10, 0), (10, 4)]
    assert ran[3].times_s == (10, 210)


def test_aborted_jobs_wait_at_their_old_rank() -> None:
    jobs = [job(1, [8], 80), job(2, [12], 120), job(3, [8], 800), job(4, [12], 12)]
    ran = simulate(16, jobs, BFA)
    assert ran[3].held == [(0, 8), (10, 0), (20, 8)]
    assert ran[4].times_s == (120, 121)


def test_suspended_with_its_work_and_its_processes() -> None:
    jobs = [job(1, [8], 80), job(2, [12], 120), job(3, list(range(1, 9)), 800)]
    ran = simulate(16, jobs, Policy(expired="suspend"))
    assert ran[3].changes == [Change(0, 8, 8), Change(10 * SECOND, 8, 0), Change(20 * SECOND, 8, 8)]
    assert ran[3].times_s == (20, 110)


@pytest.mark.parametrize(("closes", "start"), [(False, 11), (True, 100)])
def test_remaining_jobs_let_others_pass_or_not(closes: bool, start: int) -> None:
    jobs = [job(1, [8], 80), job(2, [12], 120), job(3, [8], 800), job(4, [4], 40, at_s=11)]
    ran = simulate(16, jobs, Policy(expired="remain", remain_closes=closes))
    assert ran[3].held == [(0, 8)]
    assert ran[4].times_s[0] == start


def test_only_short_jobs_are_backfilled_where_that_is_said() -> None:
    jobs = [job(1, [4], 40), job(2, [12], 120), job(3, [4], 16, long=True)]
    assert simulate(15, jobs, BFM)[3].times_s[0] == 0
    assert simulate(15, jobs, Policy(candidates="short"))[3].times_s[0] == 20


def test_a_minimum_for_long_jobs() -> None:
    jobs = [job(1, [12], 120), job(2, powers(16), 160, long=True)]
    assert simulate(16, jobs, BFM)[2].times_s == (0, 40)
    assert simulate(16, jobs, Policy(long_minimum=8))[2].times_s == (10, 20)
    assert simulate(16, jobs, Policy(long_minimum=32))[2].times_s == (10, 20)


@pytest.mark.parametrize(("beside", "rows"), [(False, [(0, 6)]), (True, [(0, 6), (10, 14)])])
def test_expanding_while_somebody_waits(beside: bool, rows: list[tuple[float, int]]) -> None:
    jobs = [job(1, [8], 80), job(2, [2], 40), job(3, [16], 96, long=True), job(4, [14], 14)]
    ran = simulate(16, jobs, Policy(long_folds=4, backfills=False, expand_beside_queue=beside))
    assert ran[3].held == rows


# limits and estimates


def test_a_limit_counts_progress() -> None:
    """Folded from 10 to 20, it has done 80, 20, and is ended at 150 of 400."""
    jobs = [job(1, [8], 80), job(2, [14], 140), job(3, [8], 400, estimate=150 * SECOND)]
    assert simulate(16, jobs, BFM)[3].times_s == (0, 26.25)
    assert simulate(16, jobs, BFM, kill=False)[3].times_s == (0, 57.5)


def test_with_estimates_only_who_does_not_delay_the_head_passes() -> None:
    """The head can start at 10, with 4 CPUs left over."""
    jobs = [
        job(1, [10], 100, estimate=100 * SECOND),
        job(2, [12], 120, estimate=120 * SECOND),
        job(3, [2], 22, estimate=22 * SECOND),  # until 11, on two of the extra CPUs
        job(4, list(range(1, 5)), 42, estimate=42 * SECOND),  # on 4 until 10.5; on 2 it has the other extra ones
        job(5, [2], 21, estimate=21 * SECOND),  # too long
        job(6, [2], 20, estimate=20 * SECOND),  # until 10
    ]
    ran = simulate(16, jobs, Policy(window="estimates"))
    assert {number: outcome.times_s[0] for number, outcome in ran.items()} == {1: 0, 2: 10, 3: 0, 4: 0, 5: 11, 6: 0}
    assert ran[4].held == [(0, 2)]


def test_with_estimates_a_window_is_that_of_the_job_that_overran() -> None:
    jobs = [
        job(1, [10], 200, estimate=200 * SECOND),
        job(2, [12], 120, estimate=120 * SECOND),
        job(3, [6], 600, estimate=60 * SECOND),
        job(4, [2], 20, at_s=19, estimate=20 * SECOND),
    ]
    ran = simulate(16, jobs, Policy(window="estimates"), kill=False)
    assert ran[2].times_s[0] == 20  # and not at 10, as job 1 still has its CPUs
    assert ran[3].held[:2] == [(0, 6), (20, 2)]


def test_with_estimates_a_job_that_overruns_is_predicted_anew() -> None:
    """Job 1 until 10 by its estimate, then until 70, then until 370: who would end by then may pass."""
    jobs = [
        job(1, [10], 2000, estimate=100 * SECOND),
        job(2, [12], 12, estimate=12 * SECOND),
        job(3, [6], 360, at_s=11, estimate=360 * SECOND),
        job(4, [6], 354, at_s=11, estimate=354 * SECOND),
    ]
    ran = simulate(16, jobs, Policy(window="estimates"), kill=False)
    assert [outcome.times_s for outcome in ran.values()] == [(0, 200), (200, 201), (70, 130), (11, 70)]

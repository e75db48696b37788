"""Sequential confidence control, against series whose truth is known."""

import math
from dataclasses import replace

import numpy as np
import pytest
from kit.loads import J, workload

from cosched.metrics.sequential import (
    BLOCK,
    Blocks,
    Estimate,
    Lengths,
    Reached,
    before_the_end,
    blocks,
    mser_5,
    reached,
    until_precise,
)
from cosched.workload.schedule import Schedule


def noise(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(10, 1, count)


def correlated(count: int, memory: float, seed: int = 1) -> np.ndarray:
    """First-order autoregressive about 10, each value ``memory`` times the one before and a draw."""
    made = np.empty(count)
    value = 0.0
    for at, draw in enumerate(np.random.default_rng(seed).normal(0, 1, count)):
        value = memory * value + draw
        made[at] = value
    return made + 10


def run(values: np.ndarray, columns: np.ndarray | None = None, width: int = 1) -> Blocks:
    load = workload(1, [J(0, 1, 1, 1)] * 2)
    count = len(values)
    submit_us = np.arange(count, dtype=np.int64)
    load = replace(load, submit_us=submit_us)
    plan = Schedule(load, submit_us, submit_us + 1, np.full(count, -1, np.int64))
    return blocks(plan, values, np.zeros(count, np.int64) if columns is None else columns, width)


ALL = {"all": np.array([True])}


def look(made: Blocks) -> Reached:
    return reached(made, ALL)


def test_mser_5_deletes_the_transient() -> None:
    values = noise(4000)
    values[:500] += np.linspace(40, 0, 500)
    deleted = mser_5(values)
    assert deleted is not None
    assert 400 <= deleted <= 600
    assert deleted % 5 == 0
    assert mser_5(noise(4000)) in range(200)


def test_mser_5_says_where_the_transient_is_most_of_the_run() -> None:
    assert mser_5(noise(4000) + np.minimum(np.arange(4000), 3000) / 50) is None
    assert mser_5(noise(9)) is None


def test_the_end_is_left_out_from_the_first_job_on_that_waits_then() -> None:
    load = workload(4, [J(0, 1, 9, 9), J(1, 1, 9, 9), J(2, 1, 9, 9), J(3, 1, 9, 9)])
    for starts, before in (([0, 5, 2, 3], 1), ([0, 1, 2, 8], 3), ([0, 1, 2, 3], 4)):
        start_us = np.array(starts, np.int64) * 1_000_000
        assert before_the_end(Schedule(load, start_us, start_us + 1, np.full(4, -1))) == before


def test_blocks_keep_sums_and_counts_of_each_column() -> None:
    values = np.arange(250, dtype=np.float64)
    found = run(values, (np.arange(250) % 2).astype(np.int64), 2)
    assert found.counts.tolist() == [[50, 50], [50, 50]]
    assert found.sums[0].tolist() == [sum(range(0, 100, 2)), sum(range(1, 100, 2))]
    assert found.squares[1] == sum(each**2 for each in range(100, 200))


def made_of(sums: list[float], counts: list[int], begin: int, end: int) -> Blocks:
    rows = len(sums)
    return Blocks(np.array(sums)[:, None], np.array(counts)[:, None], np.zeros(rows), np.empty((rows, 0)), begin, end)


def test_batches_have_the_same_length_and_what_is_over_is_left_out_in_front() -> None:
    sums = [float(each) for each in range(45)]
    found = made_of(sums, [1] * 45, 3, 45).mean(ALL["all"])
    assert found is not None
    assert found.value == np.mean(sums[5:])
    assert found.residuals.tolist() == [at + 0.5 - found.value for at in range(5, 45, 2)]
    assert made_of(sums, [1] * 45, 30, 45).mean(ALL["all"]) is None


def test_a_groups_mean_is_over_its_jobs() -> None:
    found = made_of([30.0, 0.0, 10.0], [2, 0, 2], 0, 3).mean(ALL["all"], 3)
    assert found is not None
    assert found.value == 10
    assert found.residuals == pytest.approx([7.5, 0, -7.5])
    nobody = made_of([0.0] * 20, [0] * 20, 0, 20).mean(ALL["all"])
    assert nobody is not None
    assert math.isnan(nobody.interval().mean)


def test_what_is_reckoned_of_paired_means_stays_paired() -> None:
    draws = np.random.default_rng(3).normal(0, 1, 20)
    draws -= draws.mean()
    one, twice = Estimate(10.0, draws, 19), Estimate(20.0, 2 * draws, 19)
    assert (twice - one).value == 10
    assert twice.against(one).value == 1
    assert twice.against(one).interval().half_width == pytest.approx(0)  # always exactly twice as much
    other = Estimate(20.0, np.roll(draws, 7), 16)
    assert other.against(one).interval().half_width > 0
    assert other.against(one).interval().degrees_of_freedom == 16
    assert math.isnan((one / Estimate(0.0, draws, 19)).interval().mean)


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    held = 0
    for seed in range(200):
        made = run(correlated(20 * BLOCK, 0.8, seed)).mean_within(ALL["all"], 0, 20)
        assert made is not None
        interval = made.interval()
        held += interval.low <= 10 <= interval.high
    assert 180 <= held <= 199  # of 200, at 95 %


def test_a_groups_interval_is_that_of_its_own_jobs() -> None:
    values = noise(40 * BLOCK)
    rare = np.random.default_rng(5).random(40 * BLOCK) < 0.05
    values[rare] += 100
    found = run(values, rare.astype(np.int64), 2)
    made = found.mean_within(np.array([False, True]), 0, 40)
    assert made is not None
    interval = made.interval()
    assert interval.mean == pytest.approx(values[rare].mean())
    assert interval.half_width == pytest.approx(1.96 / math.sqrt(rare.sum()), rel=0.35)


def test_what_is_correlated_over_batches_is_not_steady() -> None:
    assert reached(run(noise(50_000)), ALL).steady
    slow = reached(run(correlated(50_000, 0.9995)), ALL)
    assert slow.correlation > 0.4
    assert not slow.steady
    assert reached(run(noise(5000)), ALL) == Reached(math.inf, 1.0, 5000, steady=False)  # fewer than 200 blocks


def test_a_group_without_jobs_is_left_out() -> None:
    found = run(noise(50_000), None, 2)
    groups = {"all": np.array([True, False]), "nobody": np.array([False, True])}
    assert reached(found, groups) == reached(found, {"all": groups["all"]})


def test_runs_grow_until_they_are_precise() -> None:
    asked: list[int] = []

    def simulate(jobs: int) -> Blocks:
        asked.append(jobs)
        return run(np.random.default_rng(1).exponential(10, jobs))

    last = until_precise(simulate, look, Lengths(0.005, 50_000, 1_000_000))
    found = look(last)
    assert found.enough(0.005)
    assert asked[0] == 50_000
    assert asked == sorted(asked)
    assert len(asked) > 1
    assert len(last.squares) * BLOCK == asked[-1] == found.jobs
    # a mean of exponential values has a relative error of 1.96 / sqrt(n); 20 batches know that to a quarter or so
    assert 80_000 <= asked[-1] <= 400_000


def test_a_cap_ends_it_with_what_was_reached() -> None:
    made = until_precise(lambda jobs: run(correlated(jobs, 0.9999)), look, Lengths(1e-6, 40_000, 100_000))
    assert look(made).jobs == len(made.squares) * BLOCK == 100_000
    assert not look(made).enough(1e-6)


def test_what_is_given_up_is_not_made_longer() -> None:
    made = until_precise(lambda jobs: run(noise(jobs)), look, Lengths(1e-9, 40_000, 10**9), lambda _run: True)
    assert look(made).jobs == 40_000

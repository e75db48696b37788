"""Sequential confidence control, against series whose truth is known."""

import math
from dataclasses import replace

import numpy as np
import pytest
from kit.loads import J, workload

from cosched.metrics.sequential import (
    BATCHES,
    BLOCK,
    Batches,
    Blocks,
    Lengths,
    Reached,
    batches,
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


def test_batches_have_the_same_length_and_drop_from_the_front() -> None:
    sums = np.arange(85, dtype=np.float64)
    found = batches(sums, np.full(85, BLOCK), 3, 85)
    assert found is not None
    assert found.sums.tolist() == [2 * at + 1 for at in range(5, 85, 2)]
    assert batches(sums, np.full(85, BLOCK), 50, 85) is None


def test_a_groups_mean_is_over_its_jobs() -> None:
    one = Batches(np.array([30.0, 0.0, 10.0]), np.array([3.0, 0.0, 1.0]))
    assert one.mean == 10
    assert one.residuals().sum() == pytest.approx(0)
    assert math.isnan(Batches(np.zeros(3), np.zeros(3)).interval().mean)


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    held = 0
    for seed in range(200):
        found = run(correlated(40 * BLOCK, 0.8, seed))
        made = batches(found.sums[:, 0], found.counts[:, 0], 0, 40)
        assert made is not None
        interval = made.interval()
        held += interval.low <= 10 <= interval.high
    assert 180 <= held <= 199  # of 200, at 95 %


def test_a_groups_interval_is_that_of_its_own_jobs() -> None:
    values = noise(40 * BLOCK)
    rare = np.random.default_rng(5).random(40 * BLOCK) < 0.05
    values[rare] += 100
    found = run(values, rare.astype(np.int64), 2)
    made = batches(found.sums[:, 1], found.counts[:, 1], 0, 40)
    assert made is not None
    interval = made.interval()
    assert interval.mean == pytest.approx(values[rare].mean())
    assert interval.half_width == pytest.approx(1.96 / math.sqrt(rare.sum()), rel=0.35)


def test_what_is_correlated_over_batches_is_not_steady() -> None:
    assert reached(run(noise(50_000)), ALL).steady
    slow = reached(run(correlated(50_000, 0.9995)), ALL)
    assert slow.correlation > 0.4
    assert not slow.steady
    assert reached(run(noise(5000)), ALL) == Reached(math.inf, 1.0, 5000, steady=False)


def test_a_group_without_jobs_is_left_out() -> None:
    found = run(noise(50_000), None, 2)
    groups = {"all": np.array([True, False]), "nobody": np.array([False, True])}
    assert reached(found, groups) == reached(found, {"all": groups["all"]})


def test_runs_grow_until_they_are_precise() -> None:
    asked: list[int] = []

    def simulate(jobs: int) -> Blocks:
        asked.append(jobs)
        return run(np.random.default_rng(1).exponential(10, jobs))

    last, found = until_precise(simulate, lambda made: reached(made, ALL), Lengths(0.005, 50_000, 1_000_000))
    assert found.enough(0.005)
    assert asked[0] == 50_000
    assert asked == sorted(asked)
    assert len(asked) > 1
    assert len(last.squares) * BLOCK == asked[-1] == found.jobs
    # a mean of exponential values has a relative error of 1.96 / sqrt(n); 40 batches know that to a quarter or so
    assert 100_000 <= asked[-1] <= 300_000
    assert BATCHES == 40


def test_a_cap_ends_it_with_what_was_reached() -> None:
    made, found = until_precise(
        lambda jobs: run(correlated(jobs, 0.9999)), lambda made: reached(made, ALL), Lengths(1e-6, 40_000, 100_000)
    )
    assert found.jobs == len(made.squares) * BLOCK == 100_000
    assert not found.enough(1e-6)

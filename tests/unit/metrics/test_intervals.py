"""Intervals against tables, and their coverage by simulation with fixed seeds."""

import math

import numpy as np
import pytest
from scipy.stats import ttest_ind

from cosched.metrics.intervals import (
    batch_means,
    block_bootstrap,
    by_batch_means,
    difference_of_independent,
    lag_one,
    of_replications,
    spearman,
)


def test_students_t_with_nine_degrees_of_freedom() -> None:
    """Ten values of mean 5.5 and standard deviation 3.0277: 2.2622 × 3.0277 / √10."""
    found = of_replications(range(1, 11))
    assert found.mean == 5.5
    assert found.half_width == pytest.approx(2.2622 * 3.0277 / math.sqrt(10), rel=1e-4)


def test_one_value_says_nothing_about_its_error() -> None:
    assert of_replications([3.0]).half_width == math.inf
    assert by_batch_means(np.arange(20.0), batches=30).high == math.inf


def test_the_difference_of_independent_means_is_welchs() -> None:
    """The textbook's example of unequal variances and numbers, against scipy's test of the same samples."""
    first, second = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9], [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0]
    found = difference_of_independent(of_replications(first), of_replications(second))
    expected = ttest_ind(first, second, equal_var=False)
    assert found.mean == pytest.approx(np.mean(first) - np.mean(second))
    assert found.degrees_of_freedom == math.floor(expected.df)
    at_its_df = expected.confidence_interval(0.95)
    assert found.low == pytest.approx(at_its_df.low, rel=0.02)  # degrees of freedom are rounded down: a little wider
    assert found.low <= at_its_df.low
    assert found.high >= at_its_df.high


def test_the_difference_of_independent_means_needs_two_intervals() -> None:
    assert difference_of_independent(of_replications([1.0]), of_replications([1.0, 2.0])).low == -math.inf
    certain = difference_of_independent(of_replications([3.0, 3.0]), of_replications([1.0, 1.0]))
    assert (certain.low, certain.mean, certain.high) == (2.0, 2.0, 2.0)


def test_batch_means_drop_the_rest_from_the_front() -> None:
    assert batch_means(np.array([100.0, 1, 3, 5, 7]), 2).tolist() == [2, 6]


def test_batch_means_cover_the_mean_of_a_correlated_series() -> None:
    """Of 95 % intervals for the mean of an autoregressive series most hold it; naive ones are far too narrow."""
    rng = np.random.default_rng(5)
    held = naive = 0
    for _ in range(200):
        noise, series = rng.normal(size=6000), np.empty(6000)
        series[0] = noise[0]
        for i in range(1, 6000):
            series[i] = 0.9 * series[i - 1] + noise[i]
        found, single = by_batch_means(series), of_replications(series)
        held += found.low <= 0 <= found.high
        naive += single.low <= 0 <= single.high
    assert held >= 180  # 190 expected, 180 is three standard errors below
    assert naive < 120


def test_lag_one() -> None:
    assert lag_one(np.tile([1.0, -1.0], 500)) == pytest.approx(-1, abs=0.01)
    assert abs(lag_one(np.random.default_rng(1).normal(size=5000))) < 0.05
    assert lag_one(np.ones(5)) == 0.0


def test_block_bootstrap_keeps_pairs_and_covers() -> None:
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(100):
        weekly = np.repeat(rng.normal(size=52), 20)  # jobs of a week share its level
        found = block_bootstrap(
            np.repeat(np.arange(52), 20), lambda rows: float(rows.mean()), weekly, rng, run=1, samples=200
        )
        assert found.mean == pytest.approx(weekly.mean())
        held += found.low <= 0 <= found.high
    assert held >= 84  # 95 expected, percentile intervals of 52 blocks are a little narrow


def test_too_few_blocks_have_no_interval() -> None:
    rng = np.random.default_rng(7)
    assert block_bootstrap(np.arange(11), lambda rows: float(rows.mean()), np.arange(11.0), rng).low == -math.inf


def test_spearman() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 30, 25]) == pytest.approx(0.8)

"""Differences between policies that met the same workloads."""

import math

import numpy as np
import pytest

from cosched.apps.replicate.paired import difference, relative_difference


def test_pairing_takes_out_what_the_workloads_have_in_common() -> None:
    workloads = np.array([10.0, 200.0, 3000.0])
    gap = difference(workloads + 2, workloads)
    assert gap.mean == pytest.approx(2)
    assert gap.half_width == pytest.approx(0, abs=1e-9)


def test_the_relative_difference_is_that_of_the_means() -> None:
    base = np.array([1.0, 9.0])
    relative = relative_difference(base * 1.1, base)
    assert (relative.mean, relative.low, relative.high) == pytest.approx((0.1, 0.1, 0.1))
    assert relative_difference(np.array([2.0, 9.0]), base).mean == pytest.approx(0.1)  # 11 / 10, not (2 + 1) / 2


def test_its_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(500):
        base = rng.exponential(10, 20) + 5
        ours = base * 1.2 + rng.normal(0, 3, 20)
        relative = relative_difference(ours, base)
        hits += relative.low <= 0.2 <= relative.high
    assert 0.9 <= hits / 500 <= 0.99


def test_one_pair_has_no_interval() -> None:
    relative = relative_difference([2.0], [1.0])
    assert (relative.mean, relative.low, relative.high) == (1.0, -math.inf, math.inf)

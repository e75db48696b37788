"""Latencies are counted in buckets that lose at most 3.2 %, and nothing at all at the 400 ms line."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosched.monitoring.local import BOUNDS_S, NOTICED_S
from local_load.export import buckets
from local_load.histogram import Histogram, fine_bounds_ns, fine_index

ns = st.integers(1_024, 9_999_999_999)


def filled(values_ns: list[int]) -> Histogram:
    histogram = Histogram()
    for value in values_ns:
        histogram.add(value)
    return histogram


@given(ns)
def test_a_value_is_in_its_bucket_and_buckets_are_narrow(value_ns: int) -> None:
    low, high = fine_bounds_ns(fine_index(value_ns))
    assert low <= value_ns < high
    assert (high - low) / low <= 1 / 32


def test_buckets_follow_each_other_without_a_gap() -> None:
    bounds = [fine_bounds_ns(index) for index in range(fine_index(10**10) + 1)]
    assert bounds[0] == (0, 1024)
    assert all(before[1] == after[0] for before, after in pairwise(bounds))
    assert bounds[-1][1] > 10**10


@given(st.lists(ns, min_size=1, max_size=300), st.sampled_from([0.5, 0.95, 0.99]))
def test_quantiles_are_within_a_buckets_width(values: list[int], share: float) -> None:
    exact = float(np.quantile(values, share, method="inverted_cdf")) / 1e9
    assert filled(values).quantile_s(share) == pytest.approx(exact, rel=0.032)


@given(st.lists(st.integers(-5, 10**11), max_size=100))
def test_the_share_above_400_ms_is_exact(values: list[int]) -> None:
    share = sum(value > 400_000_000 for value in values) / len(values) if values else 0.0
    assert filled(values).share_above(NOTICED_S) == pytest.approx(share)


def test_what_is_shorter_or_longer_than_the_range_is_kept_at_its_ends() -> None:
    histogram = filled([-7, 0, 500, 10**12])
    assert histogram.count == 4
    assert histogram.coarse[0] == 3
    assert histogram.coarse[-1] == 1
    assert histogram.max_ns == 10**12
    assert histogram.sum_ns == 500 + 10**12
    assert histogram.quantile_s(1.0) == pytest.approx(10, rel=0.04)


def test_nothing_measured_is_no_error() -> None:
    assert Histogram().summary()["count"] == 0
    assert set(Histogram().summary().values()) == {0}


def test_prometheus_buckets_are_cumulative_and_have_the_400_ms_line() -> None:
    assert NOTICED_S in BOUNDS_S
    assert (BOUNDS_S[0], BOUNDS_S[-1]) == (1e-6, 10.0)
    shown = buckets(filled([400_000_000, 400_000_001, 10**11]))
    assert dict(shown)["0.4"] == 1
    assert dict(shown)["0.63"] == 2
    assert dict(shown)["10"] == 2
    assert shown[-1:] == [("+Inf", 3)]
    assert [count for _, count in shown] == sorted(count for _, count in shown)

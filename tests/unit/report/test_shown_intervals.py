"""Means with their bounds, in rows of tables and as bars of plots."""

import math

import pytest

from cosched.metrics.intervals import Interval
from cosched.report.intervals import columns, in_row, reach, three


def test_unknown_mean_or_bound_is_none_in_a_row() -> None:
    assert three(Interval(2.0, 1.0, 4.0)) == [2.0, 1.0, 4.0]
    assert three(Interval(2.0, -math.inf, math.inf)) == [2.0, None, None]
    assert three(Interval(math.nan, math.nan, math.nan)) == [None, None, None]
    assert columns("EASY", "cons") == ["EASY", "EASY low", "EASY high", "cons", "cons low", "cons high"]


def test_bars_reach_from_the_mean_to_each_bound_and_nowhere_without() -> None:
    row = {"long": -0.2, "long low": -0.3, "long high": -0.15}
    middles, (below, above) = reach([in_row(row, "long", "long "), [0.5, None, None]], 100)
    assert middles == [-20, 50]
    assert (below, above) == (pytest.approx([10, 0]), pytest.approx([5, 0]))
    assert math.isnan(reach([[None, None, None]])[0][0])

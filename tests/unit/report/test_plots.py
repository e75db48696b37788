"""What the plots show, as numbers; that every plot is drawn, with the same bytes each time."""

from pathlib import Path

import numpy as np
import pytest
from kit.loads import J, workload

from cosched.report.plots import _mean_over, all_plots
from cosched.workload.schedule import Schedule

DAY_US = 86_400_000_000


def test_means_over_days_by_hand() -> None:
    """Weight 2 from noon of day 1 to noon of day 3, weight 1 on day 2 only."""
    begin, end = np.array([1.5, 2.0]) * DAY_US, np.array([3.5, 3.0]) * DAY_US
    since, mean = _mean_over(1, begin.astype(np.int64), end.astype(np.int64), np.array([2.0, 1.0]))
    assert since.tolist() == [1, 2, 3]
    assert mean == pytest.approx([1, 3, 1])


def test_every_plot_is_drawn_with_the_same_bytes(tmp_path: Path) -> None:
    load = workload(4, [J(0, 4, 20), J(10, 4, 200, 100), J(15, 2, 5)])
    start_us = np.array([0, 110, 20]) * 1_000_000
    schedule = Schedule(load, start_us, start_us + load.run_us, np.full(3, -1))
    drawn = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        drawn.append(all_plots({"one": schedule, "two": schedule}, tmp_path / folder))
    assert {path.name for path in drawn[0]} == {
        f"{stem}.{ending}"
        for stem in ("slowdown", "queue", "utilization", "gantt-one", "gantt-two")
        for ending in ("png", "svg")
    }
    assert [path.read_bytes() for path in drawn[0]] == [path.read_bytes() for path in drawn[1]]

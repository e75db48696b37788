"""What the plots show, as numbers; that every plot is drawn, with the same bytes each time."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from kit.loads import J, workload
from matplotlib.figure import Figure

from cosched.model.node import Node
from cosched.report.gantt import _by_node, _by_processor, common_window, gantt
from cosched.report.plots import _mean_over, all_plots, over_time
from cosched.workload import shapes
from cosched.workload.schedule import Holding, Schedule
from space_scheduler.plugins import resolve
from space_scheduler.simulator.host import Site, simulate

DAY_US = 86_400_000_000


def test_means_over_days_by_hand() -> None:
    """Weight 2 from noon of day 1 to noon of day 3, weight 1 on day 2 only."""
    begin, end = np.array([1.5, 2.0]) * DAY_US, np.array([3.5, 3.0]) * DAY_US
    since, mean = _mean_over(DAY_US, begin.astype(np.int64), end.astype(np.int64), np.array([2.0, 1.0]))
    assert (since / DAY_US).tolist() == [1, 2, 3]
    assert mean == pytest.approx([1, 3, 1])


@pytest.mark.slow
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


@pytest.mark.parametrize("run_s", [1, 60, 3600, 20 * 3600])
@pytest.mark.parametrize("what", ["queue", "utilization"])
def test_a_log_shorter_than_a_day_is_seen(run_s: int, what: str) -> None:
    """What is drawn covers most of the axis, and shows the machine busy and a job waiting."""
    load = workload(4, [J(0, 4, run_s), J(0, 4, run_s)])
    start_us = np.array([0, run_s]) * 1_000_000
    schedules = {"one": Schedule(load, start_us, start_us + load.run_us, np.full(2, -1))}

    axes = Figure().subplots()
    over_time(axes, schedules, what)
    (line,) = axes.lines
    times, level = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
    low, high = axes.get_xlim()
    assert len(times) >= 20
    assert times[-1] - times[0] > 0.8 * (high - low)
    assert level.max() == pytest.approx(1, abs=0.01)


def test_charts_that_are_compared_show_one_window() -> None:
    """Each policy has its longest queue at another time; a short log is shown whole, to its last end."""
    load = workload(4, [J(at, 4, 20) for at in range(0, 60, 10)])
    early = np.arange(6) * 20_000_000
    one, two = (Schedule(load, at, at + load.run_us, np.full(6, -1)) for at in (early, early + 50_000_000))
    assert common_window([one, two]) == (0, 170_000_000)
    many = workload(4, [J(at, 4, 20) for at in range(1000)])
    starts = np.arange(1000, dtype=np.int64) * 20_000_000
    long = [Schedule(many, at, at + many.run_us, np.full(1000, -1)) for at in (starts, starts[::-1].copy())]
    begin_us, end_us = common_window(long)
    assert 0 < end_us - begin_us <= 400 * 20_000_000


def test_on_named_nodes_a_job_is_drawn_on_its_nodes_and_those_who_share_one_have_lanes() -> None:
    load = workload(2, [J(0, 2, 100), J(0, 2, 100)])
    done = simulate(load, resolve("normal"), site=Site([Node(f"node{n}", 2, 1 << 30, 1) for n in (1, 2)]))
    assert done.placed is not None
    drawn = _by_node(done, done.stretches())
    assert len(drawn) == 4
    for job in (0, 1):
        rows = sorted(int(low) for stretch, low, _ in drawn if stretch.job == job)
        expected = sorted(int(node[4:]) - 1 for node, tasks in done.placed[job] for _ in range(tasks))
        assert rows == expected
    lanes = sorted((low, low + height) for _, low, height in drawn)
    assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(lanes))  # none upon another


@pytest.fixture
def reshaped() -> Schedule:
    """On 16: 0 has 8 until 50; 1 has 12 from 50 to 110; 2 is folded from 50 to 110, 3 was ended at 50 to wait."""
    load = workload(16, [J(0, 8, 50), J(1, 12, 60), J(2, 6, 150), J(3, 2, 40)])
    held = [
        (0, 0, 8, 8), (2, 2, 6, 6), (3, 3, 2, 2),
        (3, 50, 0, 0), (2, 50, 6, 2), (1, 50, 12, 12), (3, 50, 2, 2),
        (2, 110, 6, 6),
    ]  # fmt: skip
    holdings = [Holding(job, at_s * 1_000_000, processes, procs, "") for job, at_s, processes, procs in held]
    start_us, end_us = (np.array(each) * 1_000_000 for each in ([0, 50, 2, 50], [50, 110, 182, 90]))
    return Schedule(load, start_us, end_us, np.full(4, -1), holdings=holdings)


def test_a_bar_has_the_height_of_what_its_job_holds(reshaped: Schedule) -> None:
    """It keeps its rows as far as it holds as many, and takes the lowest that are free."""
    bars = [
        (each.stretch.job, each.stretch.begin_us // 1_000_000, each.stretch.end_us // 1_000_000, each.low, each.height)
        for each in _by_processor(16, reshaped.stretches())
    ]
    assert sorted(bars) == [
        (0, 0, 50, 0, 8),
        (1, 50, 110, 0, 8),
        (1, 50, 110, 10, 4),
        (2, 2, 50, 8, 6),
        (2, 50, 110, 8, 2),
        (2, 110, 182, 0, 4),
        (2, 110, 182, 8, 2),
        (3, 3, 50, 14, 2),
        (3, 50, 90, 14, 2),
    ]
    assert {(each.job, each.begin_us) for each in reshaped.stretches() if each.folded} == {(2, 50_000_000)}
    assert {(each.job, each.begin_us) for each in reshaped.stretches() if each.lost} == {(3, 3_000_000)}
    assert reshaped.used_us() == 1e6 * (8 * 50 + 12 * 60 + 6 * 48 + 2 * 60 + 6 * 72 + 2 * 47 + 2 * 40)


def test_a_resident_job_is_as_high_as_its_processors_and_not_folded() -> None:
    """It has 8 processes, of which 8 are enabled until 10, and 3 from then on; another starts with 5 of 8."""
    load = shapes.apply(
        workload(8, [J(0, 8, 50), J(10, 8, 50)]),
        {number: shapes.Line(least=1, most=8, resident=True) for number in (0, 1)},
    )
    held = [Holding(0, 0, 8, 8, ""), Holding(0, 10_000_000, 8, 3, ""), Holding(1, 10_000_000, 8, 5, "")]
    start_us, end_us = np.array([0, 10_000_000]), np.array([60_000_000, 60_000_000])
    made = Schedule(load, start_us, end_us, np.full(2, -1), holdings=held)
    assert [(each.procs, each.folded) for each in made.stretches()] == [(8, False), (3, False), (5, False)]
    assert made.processes.tolist() == [8, 5]
    assert made.used_us() == 1e6 * (8 * 10 + 8 * 50)

    axes = Figure().subplots()
    gantt(axes, made, "a policy")
    assert not [each for each in axes.collections if each.get_hatch()]


def test_what_is_drawn_says_what_became_of_a_job(reshaped: Schedule) -> None:
    axes = Figure().subplots()
    gantt(axes, reshaped, "a policy")
    legend = axes.get_legend()
    assert legend is not None
    told = [text.get_text() for text in legend.get_texts()]
    assert {"folded: processes share processors", "ended, and waits again"} <= {*told}
    hatched = [each for each in axes.collections if each.get_hatch() and each.get_label() not in told]
    assert [len(each.get_paths()) for each in hatched] == [1]
    assert sorted(text.get_text() for text in axes.texts) == sorted("0112222" + "33")


def test_utilisation_over_time_is_of_what_jobs_hold(reshaped: Schedule) -> None:
    """Never more than the machine has, though jobs asked for more than that all together."""

    axes = Figure().subplots()
    over_time(axes, {"one": reshaped}, "utilization")
    (line,) = axes.lines
    level = np.asarray(line.get_ydata(), float)
    assert level.max() == 1
    area = sum(each.procs * (each.end_us - each.begin_us) for each in reshaped.stretches()) / 16e6
    assert level[:-2].sum() == pytest.approx(area, rel=0.02)

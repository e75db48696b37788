"""Plots of a schedule, each as PNG and SVG: Gantt chart, queue and utilisation over time, distribution of slowdowns.

The same input gives the same bytes: no dates, fixed identifiers.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cosched.errors import BadInput
from cosched.metrics.summary import per_job
from cosched.model.time import US_PER_S
from cosched.report.gantt import common_window, gantt
from cosched.report.intervals import framed
from cosched.report.palette import COLOURS, DAY_US, HOUR_US, MINUTE_US, span_unit
from cosched.workload.schedule import Schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STRETCHES = (
    (US_PER_S, "1 s"),
    (10 * US_PER_S, "10 s"),
    (MINUTE_US, "1 min"),
    (10 * MINUTE_US, "10 min"),
    (HOUR_US, "1 h"),
    (6 * HOUR_US, "6 h"),
    (DAY_US, "1 day"),
    (7 * DAY_US, "1 week"),
)


def figure(draw: Callable[["Axes"], None], stem: Path, size_in: tuple[float, float] = (8.0, 4.5)) -> list[Path]:
    """Draw on one pair of axes and save as ``stem.png`` and ``stem.svg``."""
    try:
        from matplotlib import rc_context  # noqa: PLC0415 (an extra: heavy, and only for this)
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise BadInput(str(stem), "plots need the package matplotlib", "the extra 'results' to be installed") from None
    with rc_context({"svg.hashsalt": "cosched", "font.size": 10, "axes.spines.top": False}):
        fig = Figure(figsize=size_in, layout="constrained")
        draw(fig.subplots())
        paths = [stem.with_name(stem.name + ending) for ending in (".png", ".svg")]
        fig.savefig(paths[0], dpi=130, metadata={"Software": None})
        fig.set_layout_engine(None)  # it is laid out: what is left of each side is the same in both files
        fig.savefig(paths[1], metadata={"Date": None, "Creator": None})
    return paths


def all_plots(schedules: dict[str, Schedule], directory: Path) -> list[Path]:
    """Every plot of one or more schedules of the same workload, by policy name."""
    paths = figure(lambda axes: slowdown_distribution(axes, schedules), directory / "slowdown")
    paths += figure(lambda axes: over_time(axes, schedules, "queue"), directory / "queue")
    paths += figure(lambda axes: over_time(axes, schedules, "utilization"), directory / "utilization")
    window = common_window(schedules.values())
    for name, schedule in schedules.items():
        stem = "gantt" if len(schedules) == 1 else f"gantt-{file_name(name)}"
        size_in = (9.0, max(5.5, min(20.0, 1.5 + 0.2 * len(schedule.nodes))))
        paths += figure(partial(gantt, schedule=schedule, name=name, window=window), directory / stem, size_in)
    return paths


def file_name(policy: str) -> str:
    """A policy's name as part of a file name."""
    return "".join(char if char.isalnum() or char in "-_" else "_" for char in policy)


def slowdown_distribution(axes: "Axes", schedules: dict[str, Schedule]) -> None:
    """Share of jobs whose bounded slowdown is at least x, both axes logarithmic."""
    for colour, (name, schedule) in zip(_cycle(schedules), schedules.items(), strict=True):
        slowdown = np.sort(per_job(schedule).bounded_slowdown)
        at_least = 1.0 - np.arange(len(slowdown)) / len(slowdown)
        axes.plot(slowdown, at_least, color=colour, label=f"{name} (mean {slowdown.mean():.4g})")
    axes.set(xscale="log", yscale="log")
    labels = ("bounded slowdown (threshold 10 s)", "share of jobs that have it")
    framed(axes, *labels, f"Slowdown: {_title(schedules)}")


def over_time(axes: "Axes", schedules: dict[str, Schedule], what: str) -> None:
    """Queued jobs, or the share of busy processors, over time: means over stretches that suit the log's length.

    A day at most for one policy, a week for several. Queues of several policies differ by orders of magnitude: their
    axis is logarithmic above one job.
    """
    several = len(schedules) > 1
    begin_us = min(int(schedule.workload.submit_us.min()) for schedule in schedules.values())
    span_us = max(int(schedule.end_us.max()) for schedule in schedules.values()) - begin_us
    width_us, width = _stretch(span_us, most_us=(7 if several else 1) * DAY_US)
    unit_us, unit = span_unit(span_us)
    for colour, (name, schedule) in zip(_cycle(schedules), schedules.items(), strict=True):
        load = schedule.workload
        if what == "queue":
            begin, end, weight = schedule.eligible_us, schedule.start_us, np.ones(len(load))
        else:
            _, begin, end, procs, *_ = (np.array(each) for each in zip(*schedule.stretches(), strict=True))
            weight = procs / load.procs_total
        since_us, mean = _mean_over(width_us, begin, end, weight)
        last_us = int(since_us[-1]) + width_us  # nothing is left from then on
        edges = np.append(since_us, [last_us, max(last_us, begin_us + span_us)]) / unit_us
        level = np.append(mean, [0.0, 0.0])
        axes.step(edges, level, where="post", color=colour, label=name, linewidth=1.3 if several else 1.0)
    label = "jobs waiting" if what == "queue" else "share of processors busy"
    axes.set(xlabel=f"{unit} since the start of the log", ylabel=f"{label} (means over {width})")
    axes.set_title(f"{'Queue' if what == 'queue' else 'Utilisation'}: {_title(schedules)}", loc="left")
    axes.grid(alpha=0.3)
    if several and what == "queue":
        axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=0, top=max(1.0, axes.get_ylim()[1]))
    for line in axes.lines:  # an empty queue is a line, too: on the axis
        line.set(clip_on=False, zorder=3)
    if several:
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=4)


def _mean_over(
    width_us: int, begin_us: NDArray[np.int64], end_us: NDArray[np.int64], weight: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Mean over stretches of time of the sum of the weights of the intervals [begin, end) that cover them.

    Gives where the stretches begin, in microseconds, and the means, both of shape (stretches,).
    """
    edges = np.arange(int(begin_us.min()) // width_us, -(-int(end_us.max()) // width_us) + 1, dtype=np.int64) * width_us
    if len(edges) == 1:
        edges = np.append(edges, edges + width_us)
    times = np.concatenate([begin_us, end_us])
    order = np.argsort(times, kind="stable")
    times = times[order]
    level = np.cumsum(np.concatenate([weight, -weight])[order])
    area = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(times))])
    before = np.searchsorted(times, edges, side="right") - 1
    at_edge = np.where(before >= 0, area[before] + level[before] * (edges - times[before]), 0.0)
    return edges[:-1], np.maximum(0.0, np.diff(at_edge) / width_us)


def _stretch(span_us: int, most_us: int) -> tuple[int, str]:
    """The longest of the usual stretches of time of which at least forty fit, and its name."""
    fitting = [each for each in _STRETCHES if each[0] <= min(most_us, span_us // 40)]
    return fitting[-1] if fitting else (max(1, span_us // 40), f"{max(1, span_us // 40) / US_PER_S:g} s")


def _cycle(schedules: dict[str, Schedule]) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(len(schedules))]


def _title(schedules: dict[str, Schedule]) -> str:
    names = {schedule.workload.name for schedule in schedules.values()}
    policy = next(iter(schedules)) + " on " if len(schedules) == 1 else ""
    return policy + ", ".join(sorted(names))

"""Plots of a schedule, each as PNG and SVG: Gantt chart, queue and utilisation over time, distribution of slowdowns.

The same input gives the same bytes: no dates, fixed identifiers.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cosched.errors import BadInput
from cosched.metrics.summary import per_job
from cosched.model.time import US_PER_S
from cosched.workload.schedule import Schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DAY_US = 86_400 * US_PER_S
_GANTT_JOBS = 400

#: One colour per policy or series, distinguishable without colour vision (Okabe & Ito 2008).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def figure(draw: Callable[["Axes"], None], stem: Path, size_in: tuple[float, float] = (8.0, 4.5)) -> list[Path]:
    """Draw on one pair of axes and save as ``stem.png`` and ``stem.svg``."""
    pyplot = _pyplot(stem)
    with pyplot.rc_context({"svg.hashsalt": "cosched", "font.size": 10, "axes.spines.top": False}):
        fig, axes = pyplot.subplots(figsize=size_in, layout="constrained")
        draw(axes)
        paths = [stem.with_name(stem.name + ending) for ending in (".png", ".svg")]
        fig.savefig(paths[0], dpi=130, metadata={"Software": None})
        fig.savefig(paths[1], metadata={"Date": None, "Creator": None})
        pyplot.close(fig)
    return paths


def _pyplot(where: Path) -> Any:
    try:
        import matplotlib  # noqa: PLC0415 (an extra: heavy, and only for this)
    except ImportError:
        raise BadInput(str(where), "plots need the package matplotlib", "the extra 'results' to be installed") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    return pyplot


def all_plots(schedules: dict[str, Schedule], directory: Path) -> list[Path]:
    """Every plot of one or more schedules of the same workload, by policy name."""
    paths = figure(lambda axes: slowdown_distribution(axes, schedules), directory / "slowdown")
    paths += figure(lambda axes: over_time(axes, schedules, "queue"), directory / "queue")
    paths += figure(lambda axes: over_time(axes, schedules, "utilization"), directory / "utilization")
    for name, schedule in schedules.items():
        stem = "gantt" if len(schedules) == 1 else f"gantt-{file_name(name)}"
        paths += figure(lambda axes, s=schedule, n=name: gantt(axes, s, n), directory / stem, (9.0, 5.5))  # type: ignore[misc]
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
    axes.set(
        xscale="log", yscale="log", xlabel="bounded slowdown (threshold 10 s)", ylabel="share of jobs that have it"
    )
    axes.set_title(f"Slowdown: {_title(schedules)}", loc="left")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)


def over_time(axes: "Axes", schedules: dict[str, Schedule], what: str) -> None:
    """Queued jobs, or the share of busy processors, over time: daily means of one policy, weekly ones of several.

    Queues of several policies differ by orders of magnitude: their axis is logarithmic above one job.
    """
    several = len(schedules) > 1
    days = 7 if several else 1
    for colour, (name, schedule) in zip(_cycle(schedules), schedules.items(), strict=True):
        load = schedule.workload
        if what == "queue":
            begin, end, weight = load.submit_us, schedule.start_us, np.ones(len(load))
        else:
            begin, end, weight = schedule.start_us, schedule.end_us, load.procs / load.procs_total
        since, mean = _mean_over(days, begin, end, weight)
        axes.step(since, mean, where="post", color=colour, label=name, linewidth=1.3 if several else 1.0)
    label = "jobs waiting" if what == "queue" else "share of processors busy"
    axes.set(xlabel="days since the start of the log", ylabel=f"{label} ({'weekly' if several else 'daily'} mean)")
    axes.set_title(f"{'Queue' if what == 'queue' else 'Utilisation'}: {_title(schedules)}", loc="left")
    axes.grid(alpha=0.3)
    if several and what == "queue":
        axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=0)
    if several:
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=4)


def _mean_over(
    days: int, begin_us: NDArray[np.int64], end_us: NDArray[np.int64], weight: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean over stretches of so many days of the sum of the weights of the intervals [begin, end) that cover them."""
    width_us = days * _DAY_US
    edges = np.arange(int(begin_us.min()) // width_us, int(end_us.max()) // width_us + 2) * width_us
    times = np.concatenate([begin_us, end_us])
    order = np.argsort(times, kind="stable")
    times = times[order]
    level = np.cumsum(np.concatenate([weight, -weight])[order])
    area = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(times))])
    before = np.searchsorted(times, edges, side="right") - 1
    at_edge = np.where(before >= 0, area[before] + level[before] * (edges - times[before]), 0.0)
    return edges[:-1] / _DAY_US, np.maximum(0.0, np.diff(at_edge) / width_us)


def gantt(axes: "Axes", schedule: Schedule, name: str) -> None:
    """Jobs as rectangles of processors × time, around the time when most jobs wait.

    A dedicated machine's processors are a pool with a count; the rows are given out for the drawing alone, lowest free
    row first, and a job may be drawn in several pieces. Where tasks share processors there are more rows, one for each
    task, and a line at the processors.
    """
    load = schedule.workload
    begin_us, end_us = _busiest_window(schedule)
    shown = np.flatnonzero((schedule.start_us < end_us) & (schedule.end_us > begin_us))
    shown = shown[np.argsort(schedule.start_us[shown], kind="stable")]
    backfilled = schedule.backfilled
    free_at = np.zeros(load.procs_total, np.int64)
    for index in shown.tolist():
        start_us, stop_us = int(schedule.start_us[index]), int(schedule.end_us[index])
        rows = np.flatnonzero(free_at <= start_us)[: int(load.procs[index])]
        if (more := int(load.procs[index]) - len(rows)) > 0:
            rows = np.append(rows, np.arange(len(free_at), len(free_at) + more))
            free_at = np.append(free_at, np.zeros(more, np.int64))
        free_at[rows] = stop_us
        left, right = (max(start_us, begin_us) - begin_us) / _HOUR_US, (min(stop_us, end_us) - begin_us) / _HOUR_US
        for piece in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):
            axes.broken_barh(
                [(left, right - left)],
                (float(piece[0]), float(len(piece))),
                facecolor=COLOURS[1] if backfilled[index] else COLOURS[0],
                edgecolor="white",
                linewidth=0.3,
                alpha=0.85,
            )
    axes.set(xlim=(0, (end_us - begin_us) / _HOUR_US), ylim=(0, len(free_at)), ylabel="processors")
    if len(free_at) > load.procs_total:
        axes.set_ylabel("tasks")
        axes.axhline(load.procs_total, color="0.2", linestyle="--", linewidth=1, label="processors")
    axes.set_xlabel(f"hours since day {begin_us / _DAY_US:.2f} of the log")
    axes.set_title(f"{name} on {load.name}: {len(shown)} jobs around the longest queue", loc="left")
    for colour, label in ((COLOURS[0], "started in order"), (COLOURS[1], "backfilled past an earlier job")):
        axes.plot([], [], color=colour, linewidth=6, label=label)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)


_HOUR_US = 3600 * US_PER_S


def _busiest_window(schedule: Schedule) -> tuple[int, int]:
    """A stretch of time with at most some hundred jobs, around the moment when most jobs wait."""
    load = schedule.workload
    times = np.concatenate([load.submit_us, schedule.start_us])
    order = np.argsort(times, kind="stable")
    change = np.concatenate([np.ones(len(load)), -np.ones(len(load))])[order]
    peak_us = int(times[order][np.cumsum(change).argmax()])
    starts = np.sort(schedule.start_us)
    at = int(np.searchsorted(starts, peak_us))
    low, high = max(0, at - _GANTT_JOBS // 2), min(len(starts) - 1, at + _GANTT_JOBS // 2)
    begin_us, end_us = int(starts[low]), max(int(starts[high]), int(starts[low]) + 60 * US_PER_S)
    half_us = 3 * _DAY_US
    return max(begin_us, peak_us - half_us), max(min(end_us, peak_us + half_us), begin_us + 60 * US_PER_S)


def _cycle(schedules: dict[str, Schedule]) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(len(schedules))]


def _title(schedules: dict[str, Schedule]) -> str:
    names = {schedule.workload.name for schedule in schedules.values()}
    policy = next(iter(schedules)) + " on " if len(schedules) == 1 else ""
    return policy + ", ".join(sorted(names))

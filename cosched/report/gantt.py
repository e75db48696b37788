"""Gantt charts: jobs as rectangles of processors × time; on named nodes a row for each node, with a lane for each task.

A dedicated machine's processors are a pool with a count; the rows are given out for the drawing alone, lowest free row
first, and a job may be drawn in several pieces.
"""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import numpy as np

from cosched.model.time import US_PER_S
from cosched.report.palette import COLOURS, DAY_US, span_unit
from cosched.workload.schedule import Schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_JOBS = 400
#: From and until when a chart is drawn, in microseconds since the start of the log.
Window = tuple[int, int]


def gantt(axes: "Axes", schedule: Schedule, name: str, window: Window | None = None) -> None:
    """The jobs that execute in a window of time, by default around the time when most jobs wait."""
    begin_us, end_us = window or common_window([schedule])
    shown = np.flatnonzero((schedule.start_us < end_us) & (schedule.end_us > begin_us))
    shown = shown[np.argsort(schedule.start_us[shown], kind="stable")]
    unit_us, unit = span_unit(end_us - begin_us)
    backfilled = schedule.backfilled
    rows = _by_node(schedule, shown.tolist()) if schedule.nodes else _by_processor(schedule, shown.tolist())
    for index, low, height in rows:
        left = (max(int(schedule.start_us[index]), begin_us) - begin_us) / unit_us
        right = (min(int(schedule.end_us[index]), end_us) - begin_us) / unit_us
        axes.broken_barh(
            [(left, right - left)],
            (low, height),
            facecolor=COLOURS[1] if backfilled[index] else COLOURS[0],
            edgecolor="white",
            linewidth=0.3,
            alpha=0.85,
        )
    axes.set(xlim=(0, (end_us - begin_us) / unit_us))
    if schedule.nodes:
        _name_nodes(axes, schedule.nodes)
    else:
        axes.set(ylim=(0, schedule.workload.procs_total), ylabel="processors")
    since_us, since = (unit_us, unit[:-1]) if begin_us < DAY_US else (DAY_US, "day")
    axes.set_xlabel(f"{unit} since {since} {begin_us / since_us:.2f} of the log")
    whole = "" if len(shown) == len(schedule.start_us) else " around the longest queue"
    jobs = "1 job" if len(shown) == 1 else f"{len(shown)} jobs"
    axes.set_title(f"{name} on {schedule.workload.name}: {jobs}{whole}", loc="left")
    for colour, label in ((COLOURS[0], "started in order"), (COLOURS[1], "backfilled past an earlier job")):
        axes.plot([], [], color=colour, linewidth=6, label=label)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)


def common_window(schedules: Iterable[Schedule]) -> Window:
    """One window for several schedules of one workload, so that their charts can be laid side by side.

    All of a short log; of others a stretch with some hundred jobs around the moment when most jobs of the first
    schedule wait, three days to each side at most.
    """
    every = list(schedules)
    first = every[0]
    starts = np.sort(first.start_us)
    begin_us = min(int(each.start_us.min()) for each in every)
    end_us = max(int(each.end_us.max()) for each in every)
    if len(starts) > _MOST_JOBS or end_us - begin_us > 6 * DAY_US:
        peak_us = _most_wait_us(first)
        at = int(np.searchsorted(starts, peak_us))
        low, high = max(0, at - _MOST_JOBS // 2), min(len(starts) - 1, at + _MOST_JOBS // 2)
        begin_us = max(int(starts[low]), peak_us - 3 * DAY_US)
        if high < len(starts) - 1:
            end_us = int(starts[high])
        end_us = min(end_us, peak_us + 3 * DAY_US)
    return begin_us, max(end_us, begin_us + US_PER_S)


def _most_wait_us(schedule: Schedule) -> int:
    submit_us = schedule.workload.submit_us
    times = np.concatenate([submit_us, schedule.start_us])
    order = np.argsort(times, kind="stable")
    change = np.concatenate([np.ones(len(submit_us)), -np.ones(len(submit_us))])[order]
    return int(times[order][np.cumsum(change).argmax()])


def _by_processor(schedule: Schedule, shown: list[int]) -> list[tuple[int, float, float]]:
    """(job, lowest row, rows) of each rectangle."""
    free_at = np.zeros(schedule.workload.procs_total, np.int64)
    drawn = []
    for index in shown:
        rows = np.flatnonzero(free_at <= int(schedule.start_us[index]))[: int(schedule.workload.procs[index])]
        free_at[rows] = int(schedule.end_us[index])
        pieces = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
        drawn += [(index, float(piece[0]), float(len(piece))) for piece in pieces]
    return drawn


def _by_node(schedule: Schedule, shown: list[int]) -> list[tuple[int, float, float]]:
    """(job, where its lane begins, how high it is): a node's row is 1 high, cut into as many lanes as it ever needs."""
    assert schedule.placed is not None
    free_at: dict[str, list[int]] = {node: [] for node in schedule.nodes}
    found: list[tuple[int, str, int]] = []
    for index in shown:
        for node, tasks in schedule.placed[index]:
            lanes = free_at[node]
            for _ in range(tasks):
                lane = next((at for at, until in enumerate(lanes) if until <= schedule.start_us[index]), len(lanes))
                lanes[lane : lane + 1] = [int(schedule.end_us[index])]
                found.append((index, node, lane))
    row = {node: at for at, node in enumerate(schedule.nodes)}
    return [
        (index, row[node] + 0.06 + 0.88 * lane / len(free_at[node]), 0.88 / len(free_at[node]))
        for index, node, lane in found
    ]


def _name_nodes(axes: "Axes", nodes: Collection[str]) -> None:
    """A row for each node, the first on top, named as far as names fit."""
    step = -(-len(nodes) // 40)
    axes.set(ylim=(len(nodes), 0), ylabel="nodes (a lane for each task)")
    axes.set_yticks([at + 0.5 for at in range(0, len(nodes), step)], [*nodes][::step], fontsize=8)
    axes.set_yticks(range(len(nodes) + 1), minor=True)
    axes.grid(axis="y", which="minor", alpha=0.4)
    axes.tick_params(axis="y", which="both", length=0)

"""Gantt charts: jobs as rectangles of processors × time; on named nodes a row for each node, with a lane for each task.

A dedicated machine's processors are a pool with a count; the rows are given out for the drawing alone, lowest free row
first, and a job may be drawn in several pieces. A job that changes shape keeps as many of its rows as it can; where its
processes share processors its bar is hatched, and what it did before it was ended to wait again is pale.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cosched.model.time import US_PER_S
from cosched.report.palette import COLOURS, DAY_US, span_unit
from cosched.workload.schedule import Schedule, Stretch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_JOBS = 400
#: Of jobs that change shape so many have their numbers in their bars.
_MOST_NUMBERED = 25
_FULL, _PALE = 0.85, 0.35
_HATCH = "////"
_NO_ROWS: Final = np.array([], np.int64)
#: From and until when a chart is drawn, in microseconds since the start of the log.
Window = tuple[int, int]


class Bar(NamedTuple):
    """A stretch of a job, or a part of it, as it is drawn: from which row on, and how many rows."""

    stretch: Stretch
    low: float
    height: float


def gantt(axes: "Axes", schedule: Schedule, name: str, window: Window | None = None) -> None:
    """The jobs that execute in a window of time, by default around the time when most jobs wait."""
    from matplotlib.collections import PolyCollection  # noqa: PLC0415 (an extra: heavy, and only for this)

    begin_us, end_us = window or common_window([schedule])
    held = replace(schedule, holdings=None) if schedule.nodes else schedule  # on nodes: where it was started
    stretches = [each for each in held.stretches() if each.begin_us < end_us and each.end_us > begin_us]
    unit_us, unit = span_unit(end_us - begin_us)
    backfilled = schedule.backfilled
    bars = _by_node(schedule, stretches) if schedule.nodes else _by_processor(schedule.workload.procs_total, stretches)
    numbered = schedule.holdings is not None and len({each.job for each in stretches}) <= _MOST_NUMBERED
    looks = dict[tuple[str, float, str | None], list[list[tuple[float, float]]]]()
    for stretch, low, height in bars:
        left = (max(stretch.begin_us, begin_us) - begin_us) / unit_us
        right = (min(stretch.end_us, end_us) - begin_us) / unit_us
        colour = COLOURS[1] if backfilled[stretch.job] else COLOURS[0]
        look = colour, _PALE if stretch.lost else _FULL, _HATCH if stretch.folded else None
        looks.setdefault(look, []).append([(left, low), (left, low + height), (right, low + height), (right, low)])
        if numbered:
            number = str(schedule.workload.job_id[stretch.job])
            axes.text((left + right) / 2, low + height / 2, number, ha="center", va="center", fontsize=8, color="white")
    for (colour, alpha, hatch), corners in looks.items():  # one artist of many bars: each artist costs a millisecond
        axes.add_collection(
            PolyCollection(corners, facecolor=colour, edgecolor="white", linewidth=0.3, alpha=alpha, hatch=hatch)
        )
    axes.set(xlim=(0, (end_us - begin_us) / unit_us))
    if schedule.nodes:
        _name_nodes(axes, schedule.nodes)
    else:
        axes.set(ylim=(0, schedule.workload.procs_total), ylabel="processors")
    since_us, since = (unit_us, unit[:-1]) if begin_us < DAY_US else (DAY_US, "day")
    axes.set_xlabel(f"{unit} since {since} {begin_us / since_us:.2f} of the log")
    shown = len({each.job for each in stretches})
    whole = "" if shown == len(schedule.start_us) else " around the longest queue"
    jobs = "1 job" if shown == 1 else f"{shown} jobs"
    axes.set_title(f"{name} on {schedule.workload.name}: {jobs}{whole}", loc="left")
    for colour, label in ((COLOURS[0], "started in order"), (COLOURS[1], "backfilled past an earlier job")):
        axes.plot([], [], color=colour, linewidth=6, label=label)
    if any(each.folded for each in stretches):
        label = "folded: processes share processors"
        axes.fill_between([], [], [], facecolor="grey", edgecolor="white", hatch=_HATCH, label=label)
    if any(each.lost for each in stretches):
        axes.plot([], [], color="grey", alpha=_PALE, linewidth=6, label="ended, and waits again")
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)


def common_window(schedules: Iterable[Schedule]) -> Window:
    """One window for several schedules of one workload, so that their charts can be laid side by side.

    All of a short log; of others a stretch with some hundred jobs around the moment when most jobs of the first
    schedule wait, three days to each side at most.
    """
    every = list(schedules)
    first = every[0]
    starts = np.sort(first.start_us)
    begin_us = min(_first_us(each) for each in every)
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
    submit_us = schedule.eligible_us
    times = np.concatenate([submit_us, schedule.start_us])
    order = np.argsort(times, kind="stable")
    change = np.concatenate([np.ones(len(submit_us)), -np.ones(len(submit_us))])[order]
    return int(times[order][np.cumsum(change).argmax()])


def _first_us(schedule: Schedule) -> int:
    """When the first job started, be it a start that came to nothing."""
    return min([int(schedule.start_us.min()), *(each.at_us for each in (schedule.holdings or ())[:1])])


def _by_processor(procs_total: int, stretches: list[Stretch]) -> Iterator[Bar]:
    """The bars on rows that are processors: a job keeps what it held until then, the others have the lowest free."""
    free_at = np.zeros(procs_total, np.int64)
    held: dict[int, tuple[int, NDArray[np.int64]]] = {}  # of each job: until when, and which rows
    for begin_us, group in groupby(stretches, key=lambda each: each.begin_us):
        together, kept = [*group], dict[int, NDArray[np.int64]]()
        for each in together:
            until_us, rows = held.get(each.job, (-1, _NO_ROWS))
            kept[each.job] = rows[: each.procs] if until_us == begin_us else _NO_ROWS
            free_at[kept[each.job]] = each.end_us
        for each in together:
            more = np.flatnonzero(free_at <= begin_us)[: each.procs - len(kept[each.job])]
            free_at[more] = each.end_us
            rows = np.sort(np.concatenate([kept[each.job], more]))
            held[each.job] = each.end_us, rows
            for piece in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):
                yield Bar(each, float(piece[0]), float(len(piece)))


def _by_node(schedule: Schedule, stretches: list[Stretch]) -> list[Bar]:
    """The bars in lanes: a node's row is 1 high, cut into as many lanes as it ever needs."""
    assert schedule.placed is not None
    free_at: dict[str, list[int]] = {node: [] for node in schedule.nodes}
    found: list[tuple[Stretch, str, int]] = []
    for each in stretches:
        for node, tasks in schedule.placed[each.job]:
            lanes = free_at[node]
            for _ in range(tasks):
                lane = next((at for at, until in enumerate(lanes) if until <= each.begin_us), len(lanes))
                lanes[lane : lane + 1] = [each.end_us]
                found.append((each, node, lane))
    row = {node: at for at, node in enumerate(schedule.nodes)}
    return [
        Bar(each, row[node] + 0.06 + 0.88 * lane / len(free_at[node]), 0.88 / len(free_at[node]))
        for each, node, lane in found
    ]


def _name_nodes(axes: "Axes", nodes: Collection[str]) -> None:
    """A row for each node, the first on top, named as far as names fit."""
    step = -(-len(nodes) // 40)
    axes.set(ylim=(len(nodes), 0), ylabel="nodes (a lane for each task)")
    axes.set_yticks([at + 0.5 for at in range(0, len(nodes), step)], [*nodes][::step], fontsize=8)
    axes.set_yticks(range(len(nodes) + 1), minor=True)
    axes.grid(axis="y", which="minor", alpha=0.4)
    axes.tick_params(axis="y", which="both", length=0)

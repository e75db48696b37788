"""The paper's figures 7 to 10, and the sweep, drawn from their tables, of simulated and of real runs alike."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from cosched.apps.replicate.cisne.setup import POLICIES, WORKLOADS
from cosched.apps.replicate.paired import Values
from cosched.apps.replicate.result import Plot, Result
from cosched.metrics.intervals import Interval, of_replications
from cosched.report.intervals import columns
from cosched.report.palette import COLOURS
from cosched.report.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BAR = 0.38
#: Figure 8's columns, by the measure of a run that each has.
USERS: Final = {"wait": "wait_s", "execution": "execution_s", "turnaround": "turnaround_s"}
#: (workload, policy) -> for each measure a value of each seed, in one order.
Cells = Mapping[tuple[str, str], Mapping[str, Values]]


def execution(axes: "Axes", table: Table) -> None:
    """Fig. 7: execution times under both time-sharing models, the workloads side by side."""
    rows = table.as_dicts()
    for at, model in enumerate(("plain Linux", "CCS")):
        places = [index + (at - 0.5) * _BAR for index in range(len(rows))]
        axes.bar(places, [row[model] for row in rows], _BAR, label=model, color=COLOURS[at])
    _by_workload(axes, rows, "mean execution time (s)")


def modes(axes: "Axes", table: Table) -> None:
    """Fig. 7 of real runs: execution times by coscheduling mode, with their intervals."""
    rows = table.as_dicts()
    every = list(dict.fromkeys(row["mode"] for row in rows))
    for mode in every:
        places = [at for at, row in enumerate(rows) if row["mode"] == mode]
        axes.bar(places, [rows[at]["mean"] for at in places], 0.7, label=mode, color=COLOURS[every.index(mode)])
    _errors(axes, [(row["mean"], row["low"], row["high"]) for row in rows])
    _by_workload(axes, rows, "mean execution time (s)")


def users(axes: "Axes", table: Table) -> None:
    """Fig. 8: wait and execution, one on the other, which is the turnaround, with its interval."""
    rows = table.as_dicts()
    places = range(len(rows))
    waits = [row["wait"] for row in rows]
    axes.bar(places, waits, 0.7, label="wait", color=COLOURS[5])
    axes.bar(places, [row["execution"] for row in rows], 0.7, waits, label="execution", color=COLOURS[0])
    _errors(axes, [(row["turnaround"], row["turnaround low"], row["turnaround high"]) for row in rows])
    _by_workload(axes, rows, "mean turnaround (s)")


def makespans(axes: "Axes", table: Table) -> None:
    """Fig. 9: makespans with their intervals."""
    rows = table.as_dicts()
    axes.bar(range(len(rows)), [row["makespan"] for row in rows], 0.7, color=COLOURS[2], label="makespan")
    _errors(axes, [(row["makespan"], row["low"], row["high"]) for row in rows])
    _by_workload(axes, rows, "makespan (s)")


def report(cells: Cells, result: Result) -> Table:
    """Add figures 8 and 9, tables and, where there are cells, plots; gives the table of the first."""
    waited = _users_table("Fig. 8: mean wait, execution and turnaround under CCS, s, with 95 % intervals", cells)
    whole = _makespans_table("Fig. 9: makespan under CCS, s", cells)
    result.tables |= {"figure8": waited, "figure9": whole}
    if cells:
        result.plots["figure8"] = Plot(partial(users, table=waited), (9.0, 5.0))
        result.plots["figure9"] = Plot(partial(makespans, table=whole), (9.0, 4.5))
    return waited


def _users_table(caption: str, cells: Cells) -> Table:
    """Fig. 8: what users wait for, means with 95 % intervals."""
    table = Table(caption, ["workload", "policy", *columns(*USERS)])
    for (workload, policy), found in cells.items():
        table.add(workload, policy, *(value for what in USERS.values() for value in _three(found[what])))
    return table


def _makespans_table(caption: str, cells: Cells) -> Table:
    """Fig. 9: makespans with 95 % intervals, and against Basic's on the same workload (None where it was not run)."""
    table = Table(caption, ["workload", "policy", "makespan", "low", "high", "against Basic"])
    for (workload, policy), found in cells.items():
        middle, low, high = _three(found["makespan_s"])
        basic = cells.get((workload, "basic"))
        against = None if basic is None else middle / _three(basic["makespan_s"])[0] - 1
        table.add(workload, policy, middle, low, high, against)
    return table


def _three(values: Values) -> tuple[float, float, float]:
    interval: Interval = of_replications(values)
    return interval.mean, interval.low, interval.high


def waits(axes: "Axes", table: Table) -> None:
    """Fig. 10: what an owner waits by the number of tasks on his CPU, a line for each mode; and the paper's line."""
    rows = table.as_dicts()
    for at, mode in enumerate(dict.fromkeys(row["mode"] for row in rows)):
        mine = [row for row in rows if row["mode"] == mode]
        axes.plot(
            [row["tasks"] for row in mine], [row["mean"] for row in mine], marker="o", label=mode, color=COLOURS[at]
        )
    axes.axhline(400.0, color="0.4", linestyle="--", linewidth=1, label="noticed (the paper's 400 ms)")
    axes.set(yscale="log", xlabel="computing tasks on the owner's CPU", ylabel="wake-up, 99th percentile (ms)")
    axes.set_xticks(sorted({row["tasks"] for row in rows}))
    axes.legend(fontsize=8)


def sweep(axes: "Axes", table: Table) -> None:
    """Turnaround against Basic's by the ratio of inter-arrival to execution time."""
    rows = table.as_dicts()
    for at, policy in enumerate(POLICIES[1:]):
        mine = [row for row in rows if row["policy"] == policy]
        style = "--" if policy == "2dbf" else "-"
        axes.plot(
            [row["ratio"] for row in mine], [100 * row["turnaround"] for row in mine], style, marker="o", label=policy,
            color=COLOURS[at],
        )  # fmt: skip
    axes.axhline(0, color="grey", linewidth=0.8)
    for name, ratio in WORKLOADS.items():
        axes.annotate(name, (ratio, axes.get_ylim()[1]), ha="center", va="bottom", fontsize=8)
    axes.set_xlabel("mean time between arrivals / mean execution time")
    axes.set_ylabel("turnaround against Basic (%)")
    axes.legend(fontsize=8)


def _errors(axes: "Axes", values: Sequence[tuple[float, float, float]]) -> None:
    """Intervals, where there are any: one seed has none."""
    known = [(at, *each) for at, each in enumerate(values) if math.isfinite(each[2])]
    below = [middle - max(0.0, low) for _, middle, low, _ in known]
    above = [min(high, 10 * middle) - middle for _, middle, _, high in known]
    places, middles = [at for at, *_ in known], [middle for _, middle, *_ in known]
    axes.errorbar(places, middles, [below, above], fmt="none", ecolor="black", capsize=3, linewidth=1)


def _by_workload(axes: "Axes", rows: Sequence[Mapping[str, Any]], what: str) -> None:
    axes.set_xticks(range(len(rows)), [row["policy"] for row in rows], rotation=40, ha="right")
    begin = 0
    for name, group in groupby(rows, key=lambda row: str(row["workload"])):
        count = len(list(group))
        middle = (begin + count / 2) / len(rows)
        axes.text(middle, 0.98, name, transform=axes.transAxes, ha="center", va="top", fontweight="bold")
        begin += count
        if begin < len(rows):
            axes.axvline(begin - 0.5, color="grey", linewidth=0.8)
    axes.set_xlim(-0.5, len(rows) - 0.5)
    axes.set_ylabel(what)
    axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend(fontsize=8, loc="upper right")

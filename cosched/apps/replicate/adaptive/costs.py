"""What a reconfiguration may cost: stalls after each resize, and the threshold below which no job is resized."""

from itertools import product
from typing import TYPE_CHECKING, Final

from cosched.apps.replicate.adaptive import claims
from cosched.apps.replicate.adaptive.runs import RESPONSE, Runs
from cosched.apps.replicate.adaptive.setup import Cell, Scale, traditional
from cosched.apps.replicate.adaptive.sweep import Sweep, adaptive
from cosched.apps.replicate.claims import Measured, judge_every
from cosched.apps.replicate.result import Plot, Result
from cosched.report.intervals import framed, in_row, line
from cosched.report.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The yardstick of the paper's reference [3], a stall of five seconds.
YARDSTICK_S: Final = 5.0
#: Where the plot ends: beyond that it does not matter how much slower jobs are.
_MOST_PERCENT: Final = 110


def _costs(scale: Scale) -> dict[tuple[float, float], Cell]:
    return {
        (load, cost): adaptive(scale, load)._replace(cost_s=cost)
        for load in scale.sweep_loads
        for cost in (0.0, *scale.costs_s)
    }


def sweeps(scale: Scale) -> dict[str, Sweep]:
    """All stalls; and thresholds, without a stall and with one of five seconds."""
    thresholds = {}
    for cost_s, load, threshold in product((0.0, YARDSTICK_S), scale.sweep_loads, (0, *scale.thresholds)):
        base = adaptive(scale, load)._replace(cost_s=cost_s)
        cell = base._replace(policy=f"equipartition(threshold={threshold})") if threshold else base
        thresholds[load, f"{threshold or 'none'}, stall {cost_s:g} s"] = cell, base
    return {
        "cost": Sweep(
            f"A stall after each resize: {scale.sweep_jobs} adaptive jobs against traditional ones, response time, s",
            "stall, s",
            {(load, f"{cost:g}"): (cell, traditional(cell)) for (load, cost), cell in _costs(scale).items()},
        ),
        "threshold": Sweep(
            "A threshold below which no job is resized, against none at the same stall: response time, s",
            "threshold",
            thresholds,
        ),
    }


def report(scale: Scale, runs: Runs, result: Result) -> None:
    """Add the notes and the plot to the table of stalls, and the claims on five seconds."""
    costs = result.tables["cost"]
    costs.notes += _gone(scale, runs)
    result.plots["cost"] = Plot(lambda axes: _draw(axes, scale, costs))
    _judge(scale, runs, result)


def _judge(scale: Scale, runs: Runs, result: Result) -> None:
    faster: dict[str, Measured] = {}
    slower: dict[str, Measured] = {}
    for load in scale.sweep_loads:
        without = adaptive(scale, load)
        cell, rigid = without._replace(cost_s=YARDSTICK_S), traditional(without)
        if runs.steady(cell, rigid, without):
            faster[f"load factor {load:g}"] = runs.relative(cell, rigid, RESPONSE)
            slower[f"load factor {load:g}"] = runs.relative(cell, without, RESPONSE)
    result.claims.append(judge_every(claims.COST, faster, f"{scale.sweep_jobs} jobs"))
    result.claims.append(judge_every(claims.COST_SMALL, slower, f"{scale.sweep_jobs} jobs"))


def _gone(scale: Scale, runs: Runs) -> list[str]:
    """From which of the stalls on the gain is gone, at each load factor."""
    cells, told = _costs(scale), []
    for load in scale.sweep_loads:
        gone = [cost for cost in scale.costs_s if runs.against_traditional(cells[load, cost]).high >= 0]
        when = f"from {gone[0]:g} s on no gain is left that is sure" if gone else "a gain is left at all of these"
        told.append(f"load factor {load:g}: {when}")
    return told


def _draw(axes: "Axes", scale: Scale, table: Table) -> None:
    """Against traditional jobs, by the stall; a line for each load factor."""
    for at, load in enumerate(scale.sweep_loads):
        rows = [row for row in table.as_dicts() if row["load factor"] == load]
        line(axes, {float(row["stall, s"]): in_row(row, "against") for row in rows}, at, f"{load:g}", unit=100)
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xticks([0, *scale.costs_s], [f"{each:g}" for each in (0, *scale.costs_s)])
    axes.set_xlim(left=-0.1)
    axes.set_ylim(-90, _MOST_PERCENT)
    axes.minorticks_off()
    labels = ("stall after each resize (s)", "response time against traditional jobs (%)")
    framed(axes, *labels, "What a reconfiguration may cost", title="load factor")

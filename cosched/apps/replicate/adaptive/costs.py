"""What a reconfiguration may cost: stalls after each resize, and the threshold below which nobody is resized."""

from typing import TYPE_CHECKING, Final

from cosched.apps.replicate.adaptive import claims, sweep
from cosched.apps.replicate.adaptive.runs import Runs, Wanted
from cosched.apps.replicate.adaptive.setup import Cell, Scale, traditional
from cosched.apps.replicate.claims import Measured, judge_every
from cosched.apps.replicate.result import Plot, Result
from cosched.report.palette import COLOURS
from cosched.report.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The yardstick of the paper's reference [3], a stall of five seconds.
YARDSTICK_S: Final = 5.0


def _costs(scale: Scale) -> dict[tuple[float, float], Cell]:
    return {
        (load, cost): sweep.adaptive(scale, load)._replace(cost_s=cost)
        for load in scale.sweep_loads
        for cost in (0.0, *scale.costs_s)
    }


def _thresholds(scale: Scale, cost_s: float) -> dict[tuple[float, int], Cell]:
    return {
        (load, threshold): sweep.adaptive(scale, load)._replace(
            policy=f"equipartition(threshold={threshold})" if threshold else "equipartition", cost_s=cost_s
        )
        for load in scale.sweep_loads
        for threshold in (0, *scale.thresholds)
    }


def wanted(scale: Scale) -> list[Wanted]:
    """All costs, and thresholds with and without a cost of five seconds, in the sweeps."""
    cells = [*_costs(scale).values()]
    for cost_s in (0.0, YARDSTICK_S):
        cells += _thresholds(scale, cost_s).values()
    return [sweep.wanted(scale, cells)]


def report(scale: Scale, runs: Runs, result: Result) -> None:
    """Add the tables, the plot, and the claims on five seconds."""
    costs = sweep.table(
        f"A stall after each resize: {scale.sweep_jobs} adaptive jobs against traditional ones, response time, s",
        "stall, s",
        {(load, f"{cost:g}"): (cell, traditional(cell)) for (load, cost), cell in _costs(scale).items()},
        runs,
    )
    costs.notes += _gone(scale, runs)
    result.tables["cost"] = costs
    result.plots["cost"] = Plot(lambda axes: _draw(axes, scale, costs))
    rows = {}
    for cost_s in (0.0, YARDSTICK_S):
        for (load, threshold), cell in _thresholds(scale, cost_s).items():
            name = f"{threshold or 'none'}, stall {cost_s:g} s"
            rows[load, name] = cell, sweep.adaptive(scale, load)._replace(cost_s=cost_s)
    result.tables["threshold"] = sweep.table(
        "A threshold below which nobody is resized, against none at the same stall: response time, s",
        "threshold",
        rows,
        runs,
    )
    _judge(scale, runs, result)


def _judge(scale: Scale, runs: Runs, result: Result) -> None:
    faster: dict[str, Measured] = {}
    slower: dict[str, Measured] = {}
    for load in scale.sweep_loads:
        without = sweep.adaptive(scale, load)
        cell, rigid = without._replace(cost_s=YARDSTICK_S), traditional(without)
        if runs.steady(cell, rigid, without):
            faster[f"load factor {load:g}"] = runs.relative(cell, rigid)
            slower[f"load factor {load:g}"] = runs.relative(cell, without)
    result.claims.append(judge_every(claims.COST, faster, f"{scale.sweep_jobs} jobs"))
    result.claims.append(judge_every(claims.COST_SMALL, slower, f"{scale.sweep_jobs} jobs"))


def _gone(scale: Scale, runs: Runs) -> list[str]:
    """From which of the stalls on the gain is gone, at each load factor."""
    cells, told = _costs(scale), []
    for load in scale.sweep_loads:
        gone = [cost for cost in scale.costs_s if runs.against_traditional(cells[load, cost]).high >= 0]
        when = f"from {gone[0]:g} s on no gain is left that is sure" if gone else "the gain is never gone"
        told.append(f"load factor {load:g}: {when}")
    return told


def _draw(axes: "Axes", scale: Scale, table: Table) -> None:
    """Against traditional jobs, by the stall; a line for each load factor."""
    for at, load in enumerate(scale.sweep_loads):
        rows = [row for row in table.as_dicts() if row["load factor"] == load]
        stalls = [float(row["stall, s"]) for row in rows]
        axes.plot(stalls, [100 * row["against"] for row in rows], marker="o", color=COLOURS[at], label=f"{load:g}")
        known = [(stall, row) for stall, row in zip(stalls, rows, strict=True) if row["low"] is not None]
        low, high = ([100 * row[end] for _, row in known] for end in ("low", "high"))
        axes.vlines([stall for stall, _ in known], low, high, color=COLOURS[at], linewidth=1)
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xticks([0, *scale.costs_s], [f"{each:g}" for each in (0, *scale.costs_s)])
    axes.set_xlim(left=-0.1)
    axes.minorticks_off()
    axes.set(xlabel="stall after each resize (s)", ylabel="response time against traditional jobs (%)")
    axes.set_title("What a reconfiguration may cost", loc="left")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, title="load factor")

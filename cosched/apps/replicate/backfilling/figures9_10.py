"""Figs 9 and 10: mean bounded slowdown, and the share of backfilled jobs, against load. See ``sweep``.

EASY and conservative backfilling, in Fig. 9 with FCFS for reference; ``sweep`` says what counts as backfilled.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from cosched.apps.replicate.backfilling import claims
from cosched.apps.replicate.backfilling.runs import CONSERVATIVE, EASY
from cosched.apps.replicate.backfilling.setup import Scale
from cosched.apps.replicate.backfilling.sweep import FCFS, MODELS, POLICIES, PROCS, Sweep, cell, stable_loads
from cosched.apps.replicate.claims import Measured, cannot_judge, judge, judge_every
from cosched.apps.replicate.result import Plot, Result
from cosched.report.intervals import Three, columns, crosses, framed, line, three
from cosched.report.palette import COLOURS
from cosched.report.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: How far policies stand apart in the plots, so that their intervals can be told from each other.
_DODGE: Final = {FCFS: -0.004, EASY: 0.0, CONSERVATIVE: 0.004}
#: A legend under the plot.
_BELOW: Final[dict[str, Any]] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13)}
#: How policies are called in the tables, and in the plots.
_NAMES: Final = {FCFS: "FCFS", EASY: "EASY", CONSERVATIVE: "cons"}
_LONG_NAMES: Final = _NAMES | {CONSERVATIVE: "conservative"}
_NONE_STABLE: Final = "no load of the sweep is stable"


def figure9(scale: Scale, sweep: Sweep, result: Result) -> None:
    """Add a table, a plot and the claims for each model."""
    for model in MODELS:
        result.tables[f"figure9-{model}"] = _slowdowns(scale, sweep, model)
        result.plots[f"figure9-{model}"] = Plot(partial(_draw_slowdowns, scale=scale, sweep=sweep, model=model))
        of = partial(cell, scale, model)
        both = stable_loads(scale, sweep, model, EASY, CONSERVATIVE)
        relative: dict[str, Measured] = {
            f"load {load:g}": sweep.relative(of(load, CONSERVATIVE), of(load, EASY), "slowdown") for load in both
        }
        result.claims.append(judge_every(claims.IDENTICAL[model], relative))
        highest = f"load {both[-1]:g}" if both else ""
        result.claims.append(
            judge(claims.ADVANTAGE[model], relative[highest], highest)
            if both
            else cannot_judge(claims.ADVANTAGE[model], _NONE_STABLE)
        )
        gains: dict[str, Measured] = {
            f"load {load:g}": sweep.difference(of(load, EASY), of(load, FCFS), "slowdown")
            for load in stable_loads(scale, sweep, model, FCFS, EASY)
        }
        result.claims.append(judge_every(claims.BEATS_FCFS[model], gains))


def _slowdowns(scale: Scale, sweep: Sweep, model: str) -> Table:
    table = Table(
        f"Fig. 9: mean bounded slowdown by load, {MODELS[model]}, {PROCS} processors, "
        f"{scale.seeds} workloads of {scale.sweep_jobs} jobs",
        ("load", *columns(*_NAMES.values()), "cons/EASY - 1", "low", "high", "unstable"),
        notes=["low, high: 95 % intervals over workloads; unstable: policies whose queue grows through the run"],
    )
    for load in scale.sweep_loads:
        row: list[float | None] = []
        _, easy, conservative = cells = [cell(scale, model, load, policy) for policy in POLICIES]
        for each in cells:
            row += three(sweep.mean(each, "slowdown")) if sweep.steady(each) else [None] * 3
        both = sweep.steady(easy, conservative)
        row += three(sweep.relative(conservative, easy, "slowdown")) if both else [None] * 3
        table.add(load, *row, _unstable(scale, sweep, model, load))
    return table


def figure10(scale: Scale, sweep: Sweep, result: Result) -> None:
    """Add a table, a plot and the claims for each model."""
    for model, about in MODELS.items():
        table = Table(
            f"Fig. 10: share of backfilled jobs by load, {about}, {PROCS} processors",
            ("load", *columns(_NAMES[EASY], _NAMES[CONSERVATIVE]), "cons - EASY", "low", "high", "unstable"),
            notes=["backfilled: started before a job that was submitted earlier; shown at unstable loads too"],
        )
        gaps: dict[float, Measured] = {}
        for load in scale.sweep_loads:
            easy, conservative = (cell(scale, model, load, policy) for policy in (EASY, CONSERVATIVE))
            gaps[load] = gap = sweep.difference(conservative, easy, "backfilled")
            shares = [each for share in (easy, conservative) for each in three(sweep.mean(share, "backfilled"))]
            table.add(load, *shares, *three(gap), _unstable(scale, sweep, model, load))
        result.tables[f"figure10-{model}"] = table
        result.plots[f"figure10-{model}"] = Plot(partial(_draw_shares, scale=scale, sweep=sweep, model=model))
        both = stable_loads(scale, sweep, model, EASY, CONSERVATIVE)
        if not both:
            judged = (claims.NEARLY_ALL[model], claims.BIT_MORE[model])
            result.claims += [cannot_judge(each, _NONE_STABLE) for each in judged]
            continue
        high = both[-1]
        shares_high: dict[str, Measured] = {
            f"{_NAMES[policy]} at load {high:g}": sweep.mean(cell(scale, model, high, policy), "backfilled")
            for policy in (EASY, CONSERVATIVE)
        }
        result.claims.append(judge_every(claims.NEARLY_ALL[model], shares_high))
        more = {f"load {load:g}": gaps[load] for load in both if load >= claims.FROM_LOAD}
        result.claims.append(judge_every(claims.BIT_MORE[model], more))


def _unstable(scale: Scale, sweep: Sweep, model: str, load: float) -> str:
    """The policies that have no steady state at this load."""
    return ", ".join(_NAMES[policy] for policy in POLICIES if not sweep.steady(cell(scale, model, load, policy)))


def _draw_slowdowns(axes: "Axes", scale: Scale, sweep: Sweep, model: str) -> None:
    """Slowdown, on a logarithmic axis, against load; a cross at the top where a policy is unstable."""
    for policy, colour, marker in zip(POLICIES, (COLOURS[6], COLOURS[0], COLOURS[1]), "^os", strict=True):
        loads = stable_loads(scale, sweep, model, policy)
        points: dict[float, Three] = {}
        for load in scale.sweep_loads:
            mean, low, high = three(sweep.mean(cell(scale, model, load, policy), "slowdown"))
            lowest = None if low is None else max(1.0, low)
            points[load + _DODGE[policy]] = (mean, lowest, high) if load in loads else (None, None, None)
        line(axes, points, 0, _LONG_NAMES[policy], color=colour, marker=marker)
        gone = [load + _DODGE[policy] for load in scale.sweep_loads if load not in loads]
        crosses(axes, gone, 0.96 - 0.045 * POLICIES.index(policy), colour)
    axes.plot([], [], "x", color="grey", label="unstable: the queue grows")
    axes.set(yscale="log")
    axes.set_ylim(top=2.5 * axes.get_ylim()[1])  # room for the crosses
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    title = f"Fig. 9: {MODELS[model]}, exact estimates, {PROCS} processors"
    framed(axes, "offered load", "mean bounded slowdown (threshold 10 s)", title, **_BELOW, ncols=4)


def _draw_shares(axes: "Axes", scale: Scale, sweep: Sweep, model: str) -> None:
    """Share against load; hollow markers where the policy is unstable."""
    grows = False
    for policy, colour, marker in zip((EASY, CONSERVATIVE), COLOURS, "os", strict=False):
        cells = {load + _DODGE[policy]: cell(scale, model, load, policy) for load in scale.sweep_loads}
        points = {x: three(sweep.mean(each, "backfilled")) for x, each in cells.items()}
        line(axes, points, 0, _LONG_NAMES[policy], unit=100, color=colour, marker="")
        for x, each in cells.items():
            steady = sweep.steady(each)
            grows |= not steady
            face = colour if steady else "white"
            axes.plot(x, 100 * sweep.mean(each, "backfilled").mean, marker, color=colour, markerfacecolor=face)
    if grows:
        axes.plot([], [], "o", color="grey", markerfacecolor="white", label="unstable: the queue grows")
    axes.set(ylim=(0, 100))
    title = f"Fig. 10: {MODELS[model]}, exact estimates, {PROCS} processors"
    framed(axes, "offered load", "jobs backfilled, %", title, **_BELOW, ncols=3)

"""Fig. 9: mean bounded slowdown against load under EASY and conservative backfilling, with FCFS for reference."""

from typing import TYPE_CHECKING, Any, Final

from cosched.apps.replicate.backfilling.runs import CONSERVATIVE, EASY
from cosched.apps.replicate.backfilling.setup import Scale
from cosched.apps.replicate.backfilling.sweep import FCFS, MODELS, POLICIES, PROCS, Sweep, cell, stable_loads
from cosched.apps.replicate.claims import Measured, Predicate, Region, cannot_judge, judge, judge_every
from cosched.apps.replicate.result import Plot, Result
from cosched.report.intervals import Three, columns, framed, line, three
from cosched.report.palette import COLOURS
from cosched.report.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

IDENTICAL: Final = {
    model: Predicate(
        id=f"figure9.identical-{model}",
        text=f"EASY and conservative are practically identical at every stable load ({about})",
        quantity="conservative / EASY - 1, mean bounded slowdown, paired by workload",
        region=Region(-0.1, 0.1),
    )
    for model, about in MODELS.items()
}
ADVANTAGE: Final = {
    model: Predicate(
        id=f"figure9.conservative-high-load-{model}",
        text=f"conservative has a slight advantage at very high load ({about})",
        quantity="conservative / EASY - 1 at the highest load at which both are stable",
        region=Region(-0.25, 0, open=True),
    )
    for model, about in MODELS.items()
}
BEATS_FCFS: Final = {
    model: Predicate(
        id=f"figure9.better-than-fcfs-{model}",
        text=f"backfilling is a big improvement over FCFS wherever FCFS is stable ({about})",
        quantity="EASY - FCFS, mean bounded slowdown, paired by workload",
        region=Region(high=0, open=True),
    )
    for model, about in MODELS.items()
}

#: How far policies stand apart in the plots, so that their intervals can be told from each other.
DODGE: Final = {FCFS: -0.004, EASY: 0.0, CONSERVATIVE: 0.004}
#: A legend under the plot.
BELOW: Final[dict[str, Any]] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13)}
#: How policies are called in the table.
NAMES: Final = {FCFS: "FCFS", EASY: "EASY", CONSERVATIVE: "cons"}


def report(scale: Scale, sweep: Sweep, result: Result) -> None:
    """Add a table, a plot and the claims for each model."""
    for model, about in MODELS.items():
        result.tables[f"figure9-{model}"] = _table(scale, sweep, model)
        result.plots[f"figure9-{model}"] = Plot(
            lambda axes, model=model, about=about: draw(axes, scale, sweep, model, about)  # type: ignore[misc]
        )
        both = stable_loads(scale, sweep, model, EASY, CONSERVATIVE)
        relative: dict[str, Measured] = {
            f"load {load:g}": sweep.relative(
                cell(scale, model, load, CONSERVATIVE), cell(scale, model, load, EASY), "slowdown"
            )
            for load in both
        }
        result.claims.append(judge_every(IDENTICAL[model], relative))
        if both:
            highest = f"load {both[-1]:g}"
            result.claims.append(judge(ADVANTAGE[model], relative[highest], highest))
        else:
            result.claims.append(cannot_judge(ADVANTAGE[model], "no load of the sweep is stable"))
        gains: dict[str, Measured] = {
            f"load {load:g}": sweep.difference(
                cell(scale, model, load, EASY), cell(scale, model, load, FCFS), "slowdown"
            )
            for load in stable_loads(scale, sweep, model, FCFS, EASY)
        }
        result.claims.append(judge_every(BEATS_FCFS[model], gains))


def _table(scale: Scale, sweep: Sweep, model: str) -> Table:
    table = Table(
        f"Fig. 9: mean bounded slowdown by load, {MODELS[model]}, {PROCS} processors, "
        f"{scale.seeds} workloads of {scale.sweep_jobs} jobs",
        ("load", *columns(*NAMES.values()), "cons/EASY - 1", "low", "high", "unstable"),
        notes=["low, high: 95 % intervals over workloads; unstable: policies whose queue grows through the run"],
    )
    for load in scale.sweep_loads:
        row: list[float | None] = []
        _, easy, conservative = cells = [cell(scale, model, load, policy) for policy in POLICIES]
        for each in cells:
            row += three(sweep.mean(each, "slowdown")) if sweep.steady(each) else [None] * 3
        both = sweep.steady(easy, conservative)
        row += three(sweep.relative(conservative, easy, "slowdown")) if both else [None] * 3
        table.add(load, *row, unstable(scale, sweep, model, load))
    return table


def unstable(scale: Scale, sweep: Sweep, model: str, load: float) -> str:
    """The policies that have no steady state at this load."""
    return ", ".join(NAMES[policy] for policy in POLICIES if not sweep.steady(cell(scale, model, load, policy)))


def draw(axes: "Axes", scale: Scale, sweep: Sweep, model: str, about: str) -> None:
    """Slowdown, on a logarithmic axis, against load; a cross at the top where a policy is unstable."""
    for policy, colour, marker in zip(POLICIES, (COLOURS[6], COLOURS[0], COLOURS[1]), "^os", strict=True):
        loads = stable_loads(scale, sweep, model, policy)
        points: dict[float, Three] = {}
        for load in scale.sweep_loads:
            mean, low, high = three(sweep.mean(cell(scale, model, load, policy), "slowdown"))
            lowest = None if low is None else max(1.0, low)
            points[load + DODGE[policy]] = (mean, lowest, high) if load in loads else (None, None, None)
        line(axes, points, 0, long_name(policy), color=colour, marker=marker)
        gone = [load + DODGE[policy] for load in scale.sweep_loads if load not in loads]
        row = 0.96 - 0.045 * POLICIES.index(policy)
        axes.plot(gone, [row] * len(gone), "x", color=colour, transform=axes.get_xaxis_transform())
    axes.plot([], [], "x", color="grey", label="unstable: the queue grows")
    axes.set(yscale="log")
    axes.set_ylim(top=2.5 * axes.get_ylim()[1])  # room for the crosses
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    title = f"Fig. 9: {about}, exact estimates, {PROCS} processors"
    framed(axes, "offered load", "mean bounded slowdown (threshold 10 s)", title, **BELOW, ncols=4)


def long_name(policy: str) -> str:
    """How a policy is called in the plots."""
    return NAMES[policy].replace("cons", "conservative")

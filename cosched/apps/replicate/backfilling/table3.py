"""Table 3: the whole KTH log with estimates of varying quality.

Each job's estimate is drawn uniformly from [r, f·r], r being its run time and f the "badness" factor; the last row has
the users' own estimates. The paper made one draw for each f; here there are many, the same random numbers for both
policies and for every f (common random numbers). Intervals speak of the draws, given this log.
"""

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cosched.apps.replicate.backfilling import claims, paper
from cosched.apps.replicate.backfilling.runs import CONSERVATIVE, EASY, slowdowns
from cosched.apps.replicate.backfilling.setup import Setup
from cosched.apps.replicate.claims import Measured, judge_every, judge_some
from cosched.apps.replicate.paired import difference
from cosched.apps.replicate.pool import Call
from cosched.apps.replicate.result import Plot, Result
from cosched.config.experiment import Experiment
from cosched.metrics.intervals import of_replications
from cosched.metrics.summary import Floats, per_job
from cosched.report.intervals import columns, framed, line, three
from cosched.report.palette import COLOURS
from cosched.report.table import Table
from cosched.workload.estimates import EstimateModel, Estimates, with_estimates
from cosched.workload.rules import Workload
from cosched.workload.schedule import Schedule
from space_scheduler.simulator.experiment import run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POLICIES: Final = (EASY, CONSERVATIVE)


def with_factor(load: Workload, factor: float, seed: int) -> tuple[float, ...]:
    """Mean bounded slowdown of each policy with one draw of estimates."""
    drawn = with_estimates(load, Estimates(EstimateModel.FACTOR, factor), np.random.default_rng(seed))
    return tuple(float(per_job(run(Experiment(), policy, drawn)).bounded_slowdown.mean()) for policy in POLICIES)


def seeds_of(setup: Setup, factor: float) -> range:
    """Seeds 1, 2, …; f = 1 leaves nothing to chance."""
    return range(1, 2 if factor == 1 else setup.scale.seeds + 1)


def calls(setup: Setup) -> dict[Hashable, Call]:
    """One for each f and seed."""
    return {
        ("f", factor, seed): Call(with_factor, (setup.load, factor, seed), 1.5)
        for factor in setup.scale.factors
        for seed in seeds_of(setup, factor)
    }


def report(setup: Setup, answers: Mapping[Hashable, Any], schedules: dict[str, Schedule], result: Result) -> None:
    """Add the table, its plot and its claims."""
    drawn: dict[float, Floats] = {
        factor: np.array([answers["f", factor, seed] for seed in seeds_of(setup, factor)])
        for factor in setup.scale.factors
    }
    users = tuple(float(slowdowns(schedules[policy]).mean()) for policy in POLICIES)
    table = Table(
        f"Table 3: mean bounded slowdown of the whole log by quality of the estimates, {setup.load.name}",
        (
            *("f", "draws", *columns("EASY"), "paper's EASY", "reference EASY"),
            *(*columns("cons"), "paper's cons", "reference cons", "cons - EASY", "difference low", "difference high"),
        ),
        notes=[
            "low, high: 95 % intervals over draws of the estimates (none where nothing is drawn); reference: a plain "
            "reading of the paper's algorithms outside this project, one draw"
        ],
    )
    for factor, values in drawn.items():
        _add(table, f"{factor:g}", values)
    _add(table, paper.USERS, np.array([users]))
    result.tables["table3"] = table
    result.plots["table3"] = Plot(lambda axes: draw(axes, drawn, users, setup.load.name))

    inaccurate = {factor: values for factor, values in drawn.items() if factor > 1}
    better: dict[str, Measured] = {f"f = {f:g}": difference(v[:, 1], v[:, 0]) for f, v in inaccurate.items()}
    result.claims.append(judge_every(claims.CONSERVATIVE_BETTER, better))
    level = 1 - 0.05 / max(1, len(inaccurate))
    for column, policy in enumerate(POLICIES):
        perfect = float(drawn[1][0, column]) if 1 in drawn else float("nan")
        gains: dict[str, Measured] = {
            f"f = {f:g}": of_replications(v[:, column] - perfect, level) for f, v in inaccurate.items()
        }
        result.claims.append(judge_some(claims.INACCURACY_HELPS[policy], gains))
        losses: dict[str, Measured] = {
            f"f = {f:g}": users[column] - v[0, column] if f == 1 else of_replications(users[column] - v[:, column])
            for f, v in drawn.items()
        }
        result.claims.append(judge_every(claims.USERS_WORST[policy], losses))


def _add(table: Table, name: str, values: Floats) -> None:
    printed = paper.TABLE_3.get(name)
    row: list[object] = [name, len(values)]
    for column in range(2):
        row += three(of_replications(values[:, column]))
        row += [None, None] if printed is None else [printed[column], printed[2 + column]]
    table.add(*row, *three(difference(values[:, 1], values[:, 0])))


def _printed(name: str, column: int) -> float:
    row = paper.TABLE_3.get(name)
    return float("nan") if row is None else (row.easy, row.conservative)[column]


def draw(axes: "Axes", drawn: dict[float, Floats], users: tuple[float, ...], log: str) -> None:
    """Slowdown against f, with the users' own estimates at the right; the paper's numbers hollow and dashed."""
    names = [f"{factor:g}" for factor in drawn] + [paper.USERS]
    at = np.arange(len(names))
    for column, (name, colour) in enumerate((("EASY", COLOURS[0]), ("conservative", COLOURS[1]))):
        beside = at + (column - 0.5) * 0.12
        ours = [three(of_replications(values[:, column])) for values in drawn.values()]
        points = dict(zip(beside.tolist(), ours, strict=False))
        line(axes, points, column, f"{name}, ours", marker="o", markersize=6, markerfacecolor=colour)
        axes.plot(beside[-1], users[column], "o", color=colour)
        theirs = [_printed(each, column) for each in names]
        look: dict[str, Any] = {"color": colour, "marker": "s", "markerfacecolor": "white", "alpha": 0.8}
        axes.plot(beside[:-1], theirs[:-1], linestyle="--", label=f"{name}, paper", **look)
        axes.plot(beside[-1], theirs[-1], linestyle="none", **look)
    axes.set_xticks(at, [*names[:-1], "users'\nown"])
    axes.set_ylim(bottom=0)
    labels = ("estimates uniform in [r, f·r]: f", "mean bounded slowdown (threshold 10 s)")
    title = f"Table 3: {log}, quality of the estimates (bars: 95 % intervals)"
    framed(axes, *labels, title, ncols=2, loc="lower left")

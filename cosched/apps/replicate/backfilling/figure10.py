"""Fig. 10: the share of the jobs that are backfilled, against load. See ``sweep`` for what counts as backfilled."""

from typing import TYPE_CHECKING, Final

from cosched.apps.replicate.backfilling.figure9 import BELOW, DODGE, NAMES, long_name, unstable
from cosched.apps.replicate.backfilling.runs import CONSERVATIVE, EASY
from cosched.apps.replicate.backfilling.setup import Scale
from cosched.apps.replicate.backfilling.sweep import MODELS, PROCS, Sweep, cell, stable_loads
from cosched.apps.replicate.claims import Measured, Predicate, Region, cannot_judge, judge_every
from cosched.apps.replicate.result import Plot, Result
from cosched.report.intervals import columns, framed, line, three
from cosched.report.palette import COLOURS
from cosched.report.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: From this load on jobs wait often enough for "a bit more" to mean something.
FROM_LOAD: Final = 0.7

NEARLY_ALL: Final = {
    model: Predicate(
        id=f"figure10.nearly-all-{model}",
        text=f"at high load nearly all jobs are backfilled, under both policies ({about})",
        quantity="share of backfilled jobs at the highest load at which both are stable",
        region=Region(low=0.9),
    )
    for model, about in MODELS.items()
}
BIT_MORE: Final = {
    model: Predicate(
        id=f"figure10.conservative-bit-more-{model}",
        text=f"conservative does a bit more backfilling than EASY ({about})",
        quantity=f"share under conservative - share under EASY, at every stable load of at least {FROM_LOAD:g}",
        region=Region(0, 0.1, open=True),
    )
    for model, about in MODELS.items()
}


def report(scale: Scale, sweep: Sweep, result: Result) -> None:
    """Add a table, a plot and the claims for each model."""
    for model, about in MODELS.items():
        table = Table(
            f"Fig. 10: share of backfilled jobs by load, {about}, {PROCS} processors",
            ("load", *columns(NAMES[EASY], NAMES[CONSERVATIVE]), "cons - EASY", "low", "high", "unstable"),
            notes=["backfilled: started before a job that was submitted earlier; shown at unstable loads too"],
        )
        gaps: dict[float, Measured] = {}
        for load in scale.sweep_loads:
            easy, conservative = (cell(scale, model, load, policy) for policy in (EASY, CONSERVATIVE))
            gaps[load] = gap = sweep.difference(conservative, easy, "backfilled")
            shares = [each for share in (easy, conservative) for each in three(sweep.mean(share, "backfilled"))]
            table.add(load, *shares, *three(gap), unstable(scale, sweep, model, load))
        result.tables[f"figure10-{model}"] = table
        result.plots[f"figure10-{model}"] = Plot(
            lambda axes, model=model, about=about: draw(axes, scale, sweep, model, about)  # type: ignore[misc]
        )
        both = stable_loads(scale, sweep, model, EASY, CONSERVATIVE)
        if not both:
            why = "no load of the sweep is stable"
            result.claims += [cannot_judge(NEARLY_ALL[model], why), cannot_judge(BIT_MORE[model], why)]
            continue
        high = both[-1]
        shares_high: dict[str, Measured] = {
            f"{NAMES[policy]} at load {high:g}": sweep.mean(cell(scale, model, high, policy), "backfilled")
            for policy in (EASY, CONSERVATIVE)
        }
        result.claims.append(judge_every(NEARLY_ALL[model], shares_high))
        more = {f"load {load:g}": gaps[load] for load in both if load >= FROM_LOAD}
        result.claims.append(judge_every(BIT_MORE[model], more))


def draw(axes: "Axes", scale: Scale, sweep: Sweep, model: str, about: str) -> None:
    """Share against load; hollow markers where the policy is unstable."""
    grows = False
    for policy, colour, marker in zip((EASY, CONSERVATIVE), COLOURS, "os", strict=False):
        cells = {load + DODGE[policy]: cell(scale, model, load, policy) for load in scale.sweep_loads}
        points = {x: three(sweep.mean(each, "backfilled")) for x, each in cells.items()}
        line(axes, points, 0, long_name(policy), unit=100, color=colour, marker="")
        for x, each in cells.items():
            steady = sweep.steady(each)
            grows |= not steady
            face = colour if steady else "white"
            axes.plot(x, 100 * sweep.mean(each, "backfilled").mean, marker, color=colour, markerfacecolor=face)
    if grows:
        axes.plot([], [], "o", color="grey", markerfacecolor="white", label="unstable: the queue grows")
    axes.set(ylim=(0, 100))
    title = f"Fig. 10: {about}, exact estimates, {PROCS} processors"
    framed(axes, "offered load", "jobs backfilled, %", title, **BELOW, ncols=3)

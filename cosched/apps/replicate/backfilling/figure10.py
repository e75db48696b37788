"""Fig. 10: the share of the jobs that are backfilled, against load. See ``sweep`` for what counts as backfilled."""

from typing import TYPE_CHECKING, Final

import numpy as np

from cosched.apps.replicate.backfilling.figure9 import DODGE, NAMES, bounds, unstable
from cosched.apps.replicate.backfilling.runs import CONSERVATIVE, EASY
from cosched.apps.replicate.backfilling.setup import Scale
from cosched.apps.replicate.backfilling.sweep import MODELS, PROCS, Sweep, stable_loads
from cosched.apps.replicate.claims import Measured, Predicate, Region, cannot_judge, judge_every
from cosched.apps.replicate.paired import difference
from cosched.apps.replicate.result import Plot, Result
from cosched.metrics.intervals import of_replications
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
            (
                "load",
                *(f"{NAMES[policy]}{what}" for policy in (EASY, CONSERVATIVE) for what in ("", " low", " high")),
                "cons - EASY",
                "low",
                "high",
                "unstable",
            ),
            notes=["backfilled: started before a job that was submitted earlier; shown at unstable loads too"],
        )
        for load in scale.sweep_loads:
            easy, conservative = (sweep[model, load, policy].backfilled for policy in (EASY, CONSERVATIVE))
            gap = bounds(difference(conservative, easy))
            shares = [*bounds(of_replications(easy)), *bounds(of_replications(conservative))]
            table.add(load, *shares, *gap, unstable(sweep, model, load))
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
            f"{NAMES[policy]} at load {high:g}": of_replications(sweep[model, high, policy].backfilled)
            for policy in (EASY, CONSERVATIVE)
        }
        result.claims.append(judge_every(NEARLY_ALL[model], shares_high))
        more: dict[str, Measured] = {
            f"load {load:g}": difference(
                sweep[model, load, CONSERVATIVE].backfilled, sweep[model, load, EASY].backfilled
            )
            for load in both
            if load >= FROM_LOAD
        }
        result.claims.append(judge_every(BIT_MORE[model], more))


def draw(axes: "Axes", scale: Scale, sweep: Sweep, model: str, about: str) -> None:
    """Share against load; hollow markers where the policy is unstable."""
    for policy, colour, marker in zip((EASY, CONSERVATIVE), COLOURS, "os", strict=False):
        means = [of_replications(sweep[model, load, policy].backfilled) for load in scale.sweep_loads]
        at = [load + DODGE[policy] for load in scale.sweep_loads]
        errors = [mean.half_width if np.isfinite(mean.half_width) else 0.0 for mean in means]
        axes.errorbar(
            at,
            [100 * mean.mean for mean in means],
            [100 * error for error in errors],
            color=colour,
            capsize=3,
            label=NAMES[policy].replace("cons", "conservative"),
        )
        for load, x, mean in zip(scale.sweep_loads, at, means, strict=True):
            face = "white" if sweep[model, load, policy].unstable else colour
            axes.plot(x, 100 * mean.mean, marker, color=colour, markerfacecolor=face)
    if any(sweep[model, load, policy].unstable for load in scale.sweep_loads for policy in (EASY, CONSERVATIVE)):
        axes.plot([], [], "o", color="grey", markerfacecolor="white", label="unstable: the queue grows")
    axes.set(xlabel="offered load", ylabel="jobs backfilled, %", ylim=(0, 100))
    axes.set_title(f"Fig. 10: {about}, exact estimates, {PROCS} processors", loc="left")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3)

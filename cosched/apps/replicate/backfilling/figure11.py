"""Fig. 11: how much of its request a job used, as the log has it before any rule has touched it.

The subset is all jobs whose run time and request are both above 0. The bins are 1 % wide, [0, 1 %), [1, 2 %), …,
[99, 100 %), then exactly 100 %, then above. The paper does not say how its "exactly 100 %" was rounded, nor which
20 054 of its 28 240 jobs it shows. The claim is judged on the jobs whose ratio *rounds* to 100 % (99.5 to 100.5 %),
since run times include the seconds that killing a job takes; other readings and subsets stand in the table beside it.
One subset comes close to the paper's number: 20 073 jobs of the cleaned log ran for a minute or more. Killed is
what the log's status field calls failed (0) or cancelled (5): it has no code for a job that ran into its limit.
"""

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from cosched.apps.replicate.backfilling import claims, paper
from cosched.apps.replicate.backfilling.setup import Setup
from cosched.apps.replicate.claims import cannot_judge, judge
from cosched.apps.replicate.result import Plot, Result
from cosched.metrics.intervals import block_bootstrap
from cosched.metrics.summary import Floats
from cosched.report.intervals import framed
from cosched.report.palette import COLOURS
from cosched.report.table import Table
from cosched.workload.log import Field, Log

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BOOTSTRAP_SEED: Final = 11
_WEEK_S: Final = 7 * 86_400
SCATTER_UP_TO_S: Final = 7200
LONG: Final = "run of 60 s or more"


def used(log: Log) -> tuple[Floats, NDArray[np.bool_]]:
    """Run time over request of the jobs that have both, and which jobs of the log these are."""
    run_s, request_s = log.column(Field.RUN_S), log.column(Field.REQUEST_S)
    known = (run_s > 0) & (request_s > 0)
    return run_s[known] / request_s[known], known


def histogram(ratio: Floats) -> list[tuple[str, int]]:
    """Jobs per bin: 100 bins of 1 % below 100 %, exactly 100 %, above."""
    below = ratio[ratio < 1]
    counts = np.bincount(np.minimum((below * 100).astype(np.int64), 99), minlength=100).tolist()
    bins = [(f"{i}-{i + 1}", count) for i, count in enumerate(counts)]
    return [*bins, ("exactly 100", int((ratio == 1).sum())), ("above 100", int((ratio > 1).sum()))]


def report(setup: Setup, result: Result) -> None:
    """Add the histogram, the readings of "exactly 100 %", the plots and the claims."""
    ratio, known = used(setup.raw)
    if not len(ratio):
        result.claims += [cannot_judge(each, "the log has no requests") for each in (claims.AT_100, claims.KILLED)]
        return
    status = setup.raw.column(Field.STATUS)[known]
    killed = (status == 0) | (status == 5)
    rounds = np.rint(ratio * 100) == 100
    table = Table(
        f"Fig. 11: jobs at 100 % of their request, {setup.load.name}, of {len(ratio)} that have run time and request",
        ("subset", "jobs", "reading", "at 100 %", "share", "failed or cancelled", "share of them"),
        notes=[
            f"the paper: {paper.FIG_11_AT_100} of {paper.FIG_11_JOBS} jobs (16 %) at exactly 100 %, "
            f"{paper.FIG_11_KILLED} of them killed (99.7 %)",
            "the histogram in bins of 1 % is in figure11-histogram",
        ],
    )
    readings = {
        "exactly 100 %": ratio == 1,
        "rounds to 100 % (99.5 to 100.5)": rounds,
        "99.5 % or more": ratio >= 0.995,
        "100 % or more": ratio >= 1,
    }
    run_s, request_s = setup.raw.column(Field.RUN_S)[known], setup.raw.column(Field.REQUEST_S)[known]
    subsets = {
        "all": ratio > 0,
        "completed": status == 1,
        "request up to 2 h": request_s <= SCATTER_UP_TO_S,
        LONG: run_s >= 60,
    }
    for subset, chosen in subsets.items():
        jobs = int(chosen.sum())
        for reading, member in readings.items():
            count, dead = int((member & chosen).sum()), int((member & chosen & killed).sum())
            table.add(subset, jobs, reading, count, count / max(1, jobs), dead, dead / count if count else None)
    result.tables["figure11"] = table
    bins = Table("Fig. 11: jobs by share of the request used", ("share of request %", "jobs"))
    for name, count in histogram(ratio):
        bins.add(name, count)
    result.tables["figure11-histogram"] = bins

    submit_s = setup.raw.column(Field.SUBMIT_S)[known]
    order = np.argsort(submit_s, kind="stable")
    weeks = ((submit_s[order] - submit_s.min()) // _WEEK_S).astype(np.int64)
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    samples = setup.scale.bootstrap
    share = block_bootstrap(weeks, lambda rows: float(rows.mean()), rounds[order].astype(float), rng, samples=samples)
    long = subsets[LONG]
    at_100, long_at_100, long_jobs = int(rounds.sum()), int((rounds & long).sum()), int(long.sum())
    told = (
        f"{at_100} of {len(ratio)} jobs; of the {long_jobs} that ran 60 s or more, the subset nearest in number to the "
        f"paper's {paper.FIG_11_JOBS}, {long_at_100} ({long_at_100 / max(1, long_jobs):.1%})"
    )
    result.claims.append(judge(claims.AT_100, share, told))
    both = np.column_stack([rounds & killed, rounds])[order].astype(float)
    dead_share = block_bootstrap(
        weeks, lambda rows: float(rows[:, 0].sum() / max(1.0, rows[:, 1].sum())), both, rng, samples=samples
    )
    result.claims.append(judge(claims.KILLED, dead_share, f"{int((rounds & killed).sum())} of {at_100} jobs"))

    result.plots["figure11-histogram"] = Plot(lambda axes: draw_histogram(axes, ratio))
    result.plots["figure11-scatter"] = Plot(lambda axes: draw_scatter(axes, run_s, request_s), (6.5, 6.0))


def draw_histogram(axes: "Axes", ratio: Floats) -> None:
    """Percent of jobs by share of the request used."""
    counts = [count for _, count in histogram(ratio)]
    share = 100 * np.array(counts) / len(ratio)
    axes.bar(np.arange(100) + 0.5, share[:100], 1.0, color=COLOURS[0], label="bins of 1 %")
    axes.bar(101.5, share[100], 1.6, color=COLOURS[1], label="exactly 100 %")
    axes.bar(104.5, share[101], 1.6, color=COLOURS[2], label="above 100 %")
    axes.set(xlim=(0, 106))
    title = f"Fig. 11: how much of the request was used ({len(ratio)} jobs)"
    framed(axes, "run time / request, %", "jobs, %", title, grid="y", loc="upper center")


def draw_scatter(axes: "Axes", run_s: Floats, request_s: Floats) -> None:
    """Run time against request, of requests up to two hours."""
    shown = request_s <= SCATTER_UP_TO_S
    axes.plot(request_s[shown] / 60, run_s[shown] / 60, ".", markersize=1.5, color=COLOURS[0], rasterized=True)
    top = SCATTER_UP_TO_S / 60
    axes.plot([0, top], [0, top], color=COLOURS[1], linewidth=0.8, label="run time = request")
    axes.set(xlabel="request, minutes", ylabel="run time, minutes", xlim=(0, top + 1), ylim=(0, top + 1))
    axes.set_title(f"Fig. 11: {int(shown.sum())} jobs that requested up to 2 h", loc="left")
    axes.legend(frameon=False, loc="upper left")

"""Table 2: mean bounded slowdown on the KTH log by calendar month of submission, EASY against conservative.

The months are those of Stockholm's calendar. The paper compares the numbers as it prints them, rounded to integers, so
that is how months are won and tied here. The counts of months are facts about one log, in which chance has no part; how
far the whole log's difference could be chance is asked of a paired moving-block bootstrap over weeks.

How firm are the counts? The paper's log had 28 240 jobs (its text; the months of its Table 2 add up to 28 290), the
archive's cleaned version has 28 476, and which ones differ is not known. So 236 jobs are left out at random, again and
again. A count that changes from one part to the next says nothing about the policies. No claim is judged there: the
parts explain a finding, and were made after it.
"""

from collections.abc import Hashable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from cosched.apps.replicate.backfilling import claims, paper
from cosched.apps.replicate.backfilling.runs import CONSERVATIVE, EASY, slowdowns
from cosched.apps.replicate.backfilling.setup import Setup
from cosched.apps.replicate.claims import cannot_judge, judge
from cosched.apps.replicate.pool import Call
from cosched.apps.replicate.result import Plot, Result
from cosched.config.experiment import Experiment
from cosched.metrics.intervals import block_bootstrap, spearman
from cosched.metrics.summary import Floats, per_job
from cosched.report.intervals import framed
from cosched.report.palette import COLOURS
from cosched.report.table import Table
from cosched.workload.calendar import month_labels
from cosched.workload.rules import Workload
from cosched.workload.schedule import Schedule
from space_scheduler.simulator.experiment import run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Month -> mean slowdown under EASY and under conservative.
Means = dict[str, tuple[float, float]]

BOOTSTRAP_SEED: Final = 1998


def monthly(load: Workload, labels: NDArray[np.str_], easy: Floats, conservative: Floats) -> tuple[Table, Means]:
    """The table, and the mean slowdown under EASY and conservative of each month; slowdowns have shape (n,)."""
    table = Table(
        f"Table 2: mean bounded slowdown by month, {load.name} ({len(load)} jobs)",
        ("month", "jobs", "paper's jobs", "EASY", "paper's EASY", "EASY/paper", "cons", "paper's cons", "cons/paper",
         "better", "paper's better"),
    )  # fmt: skip
    names = np.unique(labels).tolist()
    means = {name: (float(easy[labels == name].mean()), float(conservative[labels == name].mean())) for name in names}
    for name, (e, c) in means.items():
        jobs = int((labels == name).sum())
        printed = paper.TABLE_2.get(name)
        if printed is None:
            table.add(name, jobs, None, e, None, None, c, None, None, better(e, c), "")
            continue
        table.add(
            name, jobs, printed.jobs, e, printed.easy, e / printed.easy, c, printed.conservative,
            c / printed.conservative, better(e, c), better(printed.easy, printed.conservative),
        )  # fmt: skip
    wins = winners(means)
    table.notes.append(
        f"EASY better in {wins.count('EASY')} months (the paper: 7), conservative in {wins.count('cons')} (4), "
        f"equal in {wins.count('tie')} (1); compared as printed, rounded to integers"
    )
    return table, means


def winners(means: Means) -> list[str]:
    """Who is better in each month."""
    return [better(*mean) for mean in means.values()]


def report(setup: Setup, schedules: dict[str, Schedule], result: Result) -> None:
    """Add the table, its plot and its claims."""
    easy, conservative = slowdowns(schedules[EASY]), slowdowns(schedules[CONSERVATIVE])
    table, means = monthly(setup.load, setup.months, easy, conservative)
    result.tables["table2"] = table
    wins = winners(means)

    pair = np.column_stack([easy, conservative])
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    whole = block_bootstrap(
        setup.weeks, lambda rows: float(rows[:, 1].sum() / rows[:, 0].sum() - 1), pair, rng,
        samples=setup.scale.bootstrap,
    )  # fmt: skip
    result.claims.append(judge(claims.SMALL, whole, f"EASY {easy.mean():.2f}, conservative {conservative.mean():.2f}"))
    if setup.has_paper_months:
        result.claims.append(judge(claims.EASY_WINS, wins.count("EASY")))
        result.claims.append(judge(claims.CONSERVATIVE_WINS, wins.count("cons")))
        for column, predicate in enumerate(claims.RANKS.values()):
            ours = [means[name][column] for name in paper.TABLE_2]
            theirs_ranked = [float(row[1 + column]) for row in paper.TABLE_2.values()]
            result.claims.append(judge(predicate, spearman(ours, theirs_ranked)))
        result.plots["table2"] = Plot(lambda axes: draw(axes, means, setup.load.name), (9.0, 4.8))
    else:
        why = "the log does not cover the months of the paper's table"
        undecided = (claims.EASY_WINS, claims.CONSERVATIVE_WINS, *claims.RANKS.values())
        result.claims += [cannot_judge(each, why) for each in undecided]


def better(easy: float, conservative: float) -> str:
    """Who has the lower mean as the paper prints them, rounded to integers: EASY, cons or tie."""
    e, c = round(easy), round(conservative)
    return "EASY" if e < c else "cons" if c < e else "tie"


def draw(axes: "Axes", means: Means, log: str) -> None:
    """Bars by month: ours solid, the paper's hollow beside them."""
    at = np.arange(len(paper.TABLE_2))
    for column, (name, colour) in enumerate((("EASY", COLOURS[0]), ("conservative", COLOURS[1]))):
        ours = [means[month][column] for month in paper.TABLE_2]
        theirs = [row[1 + column] for row in paper.TABLE_2.values()]
        left = at + (column - 0.5) * 0.42
        axes.bar(left - 0.1, ours, 0.19, color=colour, label=f"{name}, ours")
        axes.bar(left + 0.1, theirs, 0.19, facecolor="white", edgecolor=colour, label=f"{name}, paper")
    axes.set_xticks(at, list(paper.TABLE_2), rotation=45, ha="right")
    labels = ("month of submission", "mean bounded slowdown (threshold 10 s)")
    framed(axes, *labels, f"Table 2: {log} by month, the users' own estimates", grid="y", ncols=2)


def without_some(load: Workload, jobs: int, seed: int) -> Workload:
    """The workload with only that many of its jobs, chosen at random, in their order."""
    kept = np.sort(np.random.default_rng(seed).choice(len(load), jobs, replace=False))
    arrays = [field.name for field in fields(load) if isinstance(getattr(load, field.name), np.ndarray)]
    return replace(load, **{name: getattr(load, name)[kept] for name in arrays})


def simulate_part(load: Workload, seed: int) -> list[tuple[float, float]]:
    """EASY's and conservative's mean bounded slowdown in each of the paper's months, for one part of the log."""
    part = without_some(load, paper.JOBS, seed)
    labels = month_labels(part.submit_us, part.unix_start_s or 0, part.timezone)
    easy, conservative = (per_job(run(Experiment(), policy, part)).bounded_slowdown for policy in (EASY, CONSERVATIVE))
    months = [labels == month for month in paper.TABLE_2]
    return [(float(easy[month].mean()), float(conservative[month].mean())) for month in months]


def calls(setup: Setup) -> dict[Hashable, Call]:
    """One for each part; none where the log is another one."""
    if not setup.has_paper_months or len(setup.load) <= paper.JOBS:
        return {}
    return {("part", seed): Call(simulate_part, (setup.load, seed), 1.5) for seed in range(1, setup.scale.subsets + 1)}


def report_parts(setup: Setup, answers: Mapping[Hashable, Any], result: Result) -> None:
    """Add the table, where there are parts."""
    parts: list[list[tuple[float, float]]] = [answers[key] for key in calls(setup)]
    if not parts:
        return
    found: Floats = np.array(parts)  # part, month, policy
    by_part = [[better(*means) for means in part] for part in parts]
    table = Table(
        f"Table 2 for {len(parts)} random parts of {setup.load.name}, {paper.JOBS} of {len(setup.load)} jobs each",
        ("month", "EASY min", "EASY max", "paper's EASY", "cons min", "cons max", "paper's cons", "EASY better in",
         "cons better in", "paper's better"),
    )  # fmt: skip
    for at, (month, printed) in enumerate(paper.TABLE_2.items()):
        won = [part[at] for part in by_part]
        ends = [[float(means.min()), float(means.max())] for means in found[:, at].T]
        wins, papers = (won.count("EASY"), won.count("cons")), better(printed.easy, printed.conservative)
        table.add(month, *ends[0], printed.easy, *ends[1], printed.conservative, *wins, papers)
    for name, claimed in (("EASY", 7), ("cons", 4)):
        counts = [part.count(name) for part in by_part]
        table.notes.append(
            f"{name} better in {min(counts)} to {max(counts)} of the 12 months, by part (paper: {claimed})"
        )
    result.tables["table2-subsets"] = table

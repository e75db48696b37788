"""Table 2: mean bounded slowdown on the KTH log by calendar month of submission, EASY against conservative.

The months are those of Stockholm's calendar. The paper compares the numbers as it prints them, rounded to integers, so
that is how months are won and tied here. The counts of months are facts about one log, in which chance has no part; how
far the whole log's difference could be chance is asked of a paired moving-block bootstrap over weeks.
"""

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from cosched.apps.replicate.backfilling import paper
from cosched.apps.replicate.backfilling.runs import CONSERVATIVE, EASY, slowdowns
from cosched.apps.replicate.backfilling.setup import Setup
from cosched.apps.replicate.claims import Predicate, Region, cannot_judge, judge
from cosched.apps.replicate.result import Plot, Result
from cosched.metrics.intervals import block_bootstrap, spearman
from cosched.metrics.summary import Floats
from cosched.report.palette import COLOURS
from cosched.report.table import Table
from cosched.workload.rules import Workload
from cosched.workload.schedule import Schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Month -> mean slowdown under EASY and under conservative.
Means = dict[str, tuple[float, float]]

BOOTSTRAP_SEED: Final = 1998

EASY_WINS: Final = Predicate(
    id="table2.easy-months",
    text="EASY is better in 7 of the 12 months",
    quantity="months in which EASY's slowdown, rounded to an integer, is the lower one",
    region=Region(5, 9),
    paper=7,
)
CONSERVATIVE_WINS: Final = Predicate(
    id="table2.conservative-months",
    text="conservative is better in 4 of the 12 months",
    quantity="months in which conservative's slowdown, rounded to an integer, is the lower one",
    region=Region(2, 6),
    paper=4,
)
SMALL: Final = Predicate(
    id="table2.difference-small",
    text="the two policies perform similarly",
    quantity="conservative / EASY - 1, mean bounded slowdown of the whole log",
    region=Region(-0.15, 0.15),
    paper=84 / 81 - 1,
)
RANKS: Final = {
    policy: Predicate(
        id=f"table2.months-rank-{policy}",
        text=f"the months rank as in the paper under {policy}",
        quantity=f"Spearman's rank correlation of {policy}'s 12 monthly slowdowns with the paper's",
        region=Region(low=0.9),
    )
    for policy in (EASY, CONSERVATIVE)
}


def monthly(load: Workload, labels: NDArray[np.str_], easy: Floats, conservative: Floats) -> tuple[Table, Means]:
    """The table, and the mean slowdown under EASY and conservative of each month; slowdowns have shape (n,)."""
    table = Table(
        f"Table 2: mean bounded slowdown by month, {load.name} ({len(load)} jobs)",
        (
            "month",
            "jobs",
            "paper's jobs",
            "EASY",
            "paper's EASY",
            "EASY/paper",
            "cons",
            "paper's cons",
            "cons/paper",
            "better",
            "paper's better",
        ),
    )
    names = np.unique(labels).tolist()
    means = {name: (float(easy[labels == name].mean()), float(conservative[labels == name].mean())) for name in names}
    for name, (e, c) in means.items():
        jobs = int((labels == name).sum())
        printed = paper.TABLE_2.get(name)
        if printed is None:
            table.add(name, jobs, None, e, None, None, c, None, None, better(e, c), "")
            continue
        table.add(
            name,
            jobs,
            printed.jobs,
            e,
            printed.easy,
            e / printed.easy,
            c,
            printed.conservative,
            c / printed.conservative,
            better(e, c),
            better(printed.easy, printed.conservative),
        )
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
        setup.weeks,
        lambda rows: float(rows[:, 1].sum() / rows[:, 0].sum() - 1),
        pair,
        rng,
        samples=setup.scale.bootstrap,
    )
    result.claims.append(judge(SMALL, whole, f"EASY {easy.mean():.2f}, conservative {conservative.mean():.2f}"))
    if setup.has_paper_months:
        result.claims.append(judge(EASY_WINS, wins.count("EASY")))
        result.claims.append(judge(CONSERVATIVE_WINS, wins.count("cons")))
        for column, predicate in enumerate(RANKS.values()):
            ours = [means[name][column] for name in paper.TABLE_2]
            theirs_ranked = [float(row[1 + column]) for row in paper.TABLE_2.values()]
            result.claims.append(judge(predicate, spearman(ours, theirs_ranked)))
        result.plots["table2"] = Plot(lambda axes: draw(axes, means, setup.load.name), (9.0, 4.8))
    else:
        why = "the log does not cover the months of the paper's table"
        result.claims += [cannot_judge(each, why) for each in (EASY_WINS, CONSERVATIVE_WINS, *RANKS.values())]


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
    axes.set(ylabel="mean bounded slowdown (threshold 10 s)", xlabel="month of submission")
    axes.set_title(f"Table 2: {log} by month, the users' own estimates", loc="left")
    axes.grid(alpha=0.3, axis="y")
    axes.set_axisbelow(True)
    axes.legend(frameon=False, ncols=2)

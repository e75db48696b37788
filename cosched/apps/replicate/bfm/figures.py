"""The paper's figures 3 to 6, by class of jobs; and how its main number depends on the reading and on rigid jobs."""

from typing import TYPE_CHECKING, Final

from cosched.apps.replicate.bfm.claims import CLASSES
from cosched.apps.replicate.bfm.setup import POLICIES
from cosched.report.intervals import MARKERS, framed, in_row, line, reach
from cosched.report.palette import COLOURS
from cosched.report.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: How far apart in load two policies' points stand, so that their intervals can be told apart.
_APART: Final = 0.8
#: What the paper says of BFM against BFA at high load, per cent.
_PAPERS: Final = {"long": (-30, -20), "short": (-10, -5)}


def by_load(axes: "Axes", table: Table, kind: str, what: str) -> None:
    """A measure of a class of jobs by load, a line for each policy, with 95 % intervals."""
    rows = sorted((row for row in table.as_dicts() if row["jobs"] == kind), key=lambda row: float(row["load"]))
    for at, policy in enumerate(POLICIES):
        mine = (row for row in rows if row["policy"] == policy)
        line(axes, {100 * row["load"] + (at - 2) * _APART: in_row(row, "mean") for row in mine}, at, policy)
    axes.set_xticks([100 * load for load in dict.fromkeys(row["load"] for row in rows)])
    axes.set_ylim(bottom=0)
    title = f"{kind.capitalize()} jobs (bars: 95 % intervals)"
    framed(axes, "machine utilisation asked for (%)", what, title)


def gains(axes: "Axes", table: Table) -> None:
    """BFM against BFA at high load, a row for each reading, beside what the paper says."""
    rows = table.as_dicts()
    for at, kind in enumerate(CLASSES):
        axes.axvspan(*_PAPERS[kind], color=COLOURS[at], alpha=0.15, label=f"{kind.capitalize()}, paper")
        places = [index + (at - 0.5) * 0.25 for index in range(len(rows))]
        middles, errors = reach([in_row(row, kind, f"{kind} ") for row in rows], 100)
        name, colour = f"{kind.capitalize()}, ours", COLOURS[at]
        axes.errorbar(middles, places, xerr=errors, fmt=MARKERS[at], color=colour, capsize=3, label=name)
    axes.axvline(0, color="grey", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [row["reading"] for row in rows])
    axes.invert_yaxis()
    what = "response, FJT1+BFM against FJT1+BFA at high load (%; bars: 95 % intervals)"
    framed(axes, what, "reading", fontsize=8, ncols=4, loc="lower center", bbox_to_anchor=(0.4, 1.0))
    axes.grid(visible=False, axis="y")


def rigid(axes: "Axes", table: Table, most: int) -> None:
    """BFM against BFA by the share of rigid jobs of at most so many processors, a line for each class and load."""
    rows = [row for row in table.as_dicts() if row["at most"] == most]
    loads = sorted({row["load"] for row in rows}, reverse=True)
    for at, kind in enumerate(CLASSES):
        for style, load in zip(("-", "--"), loads, strict=False):
            mine = {100 * row["rigid"] + at: in_row(row, kind, f"{kind} ") for row in rows if row["load"] == load}
            line(axes, mine, at, f"{kind.capitalize()} at {100 * load:.0f} %", unit=100, linestyle=style)
    axes.axhline(0, color="grey", linewidth=0.8)
    title = f"Rigid jobs of at most {most} processors (bars: 95 % intervals)"
    framed(axes, "rigid jobs (%)", "response, FJT1+BFM against FJT1+BFA (%)", title)

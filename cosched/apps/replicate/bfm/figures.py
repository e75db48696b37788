"""The paper's figures 3 to 6, by class of jobs; and how its main number depends on the reading and on rigid jobs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cosched.apps.replicate.bfm.claims import CLASSES
from cosched.apps.replicate.bfm.setup import POLICIES
from cosched.report.palette import COLOURS
from cosched.report.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKERS: Final = "osD^v"
#: How far apart in load two policies' points stand, so that their intervals can be told apart.
_APART: Final = 0.8
#: What the paper says of BFM against BFA at high load, per cent.
_PAPERS: Final = {"long": (-30, -20), "short": (-10, -5)}
Row = Mapping[str, Any]


def by_load(axes: "Axes", table: Table, kind: str, what: str) -> None:
    """A measure of a class of jobs by load, a line for each policy, with 95 % intervals."""
    rows = [row for row in table.as_dicts() if row["jobs"] == kind]
    for at, policy in enumerate(POLICIES):
        mine = sorted((row for row in rows if row["policy"] == policy), key=lambda row: float(row["load"]))
        places = [100 * row["load"] + (at - 2) * _APART for row in mine]
        heights, errors = _bars(mine, "mean", "", 1)
        axes.errorbar(places, heights, errors, marker=_MARKERS[at], color=COLOURS[at], capsize=3, label=policy)
    axes.set(xlabel="machine utilisation asked for (%)", ylabel=what)
    axes.set_xticks([100 * load for load in sorted({row["load"] for row in rows})])
    axes.set_ylim(bottom=0)
    axes.set_title(f"{kind.capitalize()} jobs (bars: 95 % intervals)", loc="left")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)


def gains(axes: "Axes", table: Table) -> None:
    """BFM against BFA at high load, a row for each reading, beside what the paper says."""
    rows = table.as_dicts()
    for at, kind in enumerate(CLASSES):
        axes.axvspan(*_PAPERS[kind], color=COLOURS[at], alpha=0.15, label=f"{kind.capitalize()}, paper")
        places = [index + (at - 0.5) * 0.25 for index in range(len(rows))]
        middles, errors = _bars(rows, kind, f"{kind} ", 100)
        style: dict[str, Any] = {"linestyle": "none", "marker": _MARKERS[at], "color": COLOURS[at], "capsize": 3}
        axes.errorbar(middles, places, xerr=errors, label=f"{kind.capitalize()}, ours", **style)
    axes.axvline(0, color="grey", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [row["reading"] for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel="response, FJT1+BFM against FJT1+BFA at high load (%; bars: 95 % intervals)", ylabel="reading")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(frameon=False, fontsize=8, ncols=4, loc="lower center", bbox_to_anchor=(0.4, 1.0))


def rigid(axes: "Axes", table: Table, most: int) -> None:
    """BFM against BFA by the share of rigid jobs of at most so many processors, a line for each class and load."""
    rows = [row for row in table.as_dicts() if row["at most"] == most]
    loads = sorted({row["load"] for row in rows}, reverse=True)
    for at, kind in enumerate(CLASSES):
        for style, load in zip(("-", "--"), loads, strict=False):
            mine = [row for row in rows if row["load"] == load]
            heights, errors = _bars(mine, kind, f"{kind} ", 100)
            places = [100 * row["rigid"] + at for row in mine]
            label = f"{kind.capitalize()} at {100 * load:.0f} %"
            marked: dict[str, Any] = {"linestyle": style, "marker": _MARKERS[at], "color": COLOURS[at], "capsize": 3}
            axes.errorbar(places, heights, errors, label=label, **marked)
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set_title(f"Rigid jobs of at most {most} processors (bars: 95 % intervals)", loc="left")
    axes.set(xlabel="rigid jobs (%)", ylabel="response, FJT1+BFM against FJT1+BFA (%)")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)


def _bars(rows: Sequence[Row], middle: str, prefix: str, unit: float) -> tuple[list[float], list[list[float]]]:
    """Means, and how far their intervals reach below and above; not at all where there is none."""
    middles = [unit * row[middle] for row in rows]
    ends = [[row[middle] if (end := row[prefix + name]) is None else end for row in rows] for name in ("low", "high")]
    return middles, [[abs(unit * end - at) for end, at in zip(each, middles, strict=True)] for each in ends]

"""The experiment on a mixed workload for people and programs: a table, JSON, a plot."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import astuple

from cosched.apps.experiments.mixed import FLOOR, MIX, MixedCell, worded
from cosched.report.intervals import reach
from cosched.report.palette import COLOURS
from cosched.report.plots import figure
from cosched.report.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def table(cells: Sequence[MixedCell]) -> Table:
    """One line for each cell; what each program's own time became behind it."""
    names = [name for name, _ in MIX]
    shown = Table(
        "Execution time in a mixed workload against plain Linux's: medians, and in brackets lowest and highest",
        ("at the desks", "mode", "runs", "change", *names),
    )
    for cell in cells:
        own = [f"{cell.programs[name]:+.0%}" for name in names]
        shown.add(worded(cell.desks), cell.mode, str(cell.runs), cell.change.worded("+.0%"), *own)
    return shown


def misses(cells: Sequence[MixedCell], mode: str = "ccs") -> list[str]:
    """A line for each cell of the mode in which jobs are not as much shorter as in the paper."""
    return [
        f"{worded(cell.desks)}: {cell.change.median:+.0%}, not {-FLOOR:+.0%}"
        for cell in cells
        if cell.mode == mode and cell.misses
    ]


def plot(cells: Sequence[MixedCell], directory: Path) -> list[Path]:
    """Bars for each mode, by the number of owners; the dotted lines are the paper's range."""
    return figure(lambda axes: _draw(axes, cells), directory / "mixed") if cells else []


def _draw(axes: "Axes", cells: Sequence[MixedCell]) -> None:
    desks = sorted({cell.desks for cell in cells})
    modes = list(dict.fromkeys(cell.mode for cell in cells))
    width = 0.8 / len(modes)
    for place, (mode, colour) in enumerate(zip(modes, COLOURS, strict=False)):
        here = [cell for cell in cells if cell.mode == mode]
        at = [desks.index(cell.desks) + (place - (len(modes) - 1) / 2) * width for cell in here]
        middle, errors = reach([astuple(cell.change) for cell in here], 100)
        axes.bar(at, middle, 0.9 * width, color=colour, label=mode)
        axes.errorbar(at, middle, yerr=errors, fmt="none", color="#333333", linewidth=0.9, capsize=2)
    for line in (-100 * FLOOR, -24):
        axes.axhline(line, color="#777777", linewidth=0.9, linestyle=":")
    axes.axhline(0, color="#333333", linewidth=0.8)
    axes.set_xticks(range(len(desks)), [worded(each) for each in desks])
    axes.set_ylabel("execution time against plain Linux, %")
    axes.set_title("Four jobs on two nodes (dotted: the paper's 15 and 24 %)")
    axes.legend(fontsize=8)

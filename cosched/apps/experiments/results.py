"""The experiment's results for people and programs: a table, what missed a goal, plots, JSON."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import astuple

from cosched.apps.experiments.matrix import COMPANIES, Cell
from cosched.report.intervals import reach
from cosched.report.palette import COLOURS
from cosched.report.plots import figure
from cosched.report.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_TICKS: Final = (1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 100)


def table(cells: Sequence[Cell]) -> Table:
    """One line for each cell."""
    shown = Table(
        "Coscheduling: medians, and in brackets the interval that holds them with 95 %",
        ("job", "beside", "mode", "runs", "slowdown", "company's rate", "efficiency", "goals"),
    )
    for cell in cells:
        shown.add(
            cell.work,
            cell.company,
            cell.mode,
            str(cell.runs),
            *(each.worded(".2f") for each in (cell.slowdown, cell.rate, cell.efficiency)),
            "missed" if cell.misses else "met",
        )
    return shown


def misses(cells: Sequence[Cell], mode: str = "ccs") -> list[str]:
    """A line for each cell of the mode that misses a goal."""
    return [
        f"{cell.work} | {cell.company}: {'; '.join(cell.misses)}" for cell in cells if cell.mode == mode and cell.misses
    ]


def plot(cells: Sequence[Cell], directory: Path) -> list[Path]:
    """For each kind of company a plot: slowdown against the company's rate, a point for each job and mode."""
    paths = []
    for company in COMPANIES:
        here = [cell for cell in cells if cell.company == company.name]
        if here:
            stem = directory / f"coscheduling-{company.name.replace(' ', '-')}"
            fair = company.fair_slowdown, company.fair_rate
            paths += figure(lambda axes, found=here, at=fair: _draw(axes, found, at), stem)  # type: ignore[misc]
    return paths


def _draw(axes: "Axes", cells: Sequence[Cell], fair: tuple[float, float]) -> None:
    modes = list(dict.fromkeys(cell.mode for cell in cells))
    for mode, colour in zip(modes, COLOURS, strict=False):
        points = [cell for cell in cells if cell.mode == mode]
        x, across = reach([astuple(cell.slowdown) for cell in points])
        y, up = reach([astuple(cell.rate) for cell in points])
        axes.errorbar(x, y, xerr=across, yerr=up, fmt="o", color=colour, label=mode, markersize=4, linewidth=0.8)
    axes.axvline(fair[0], color="#999999", linewidth=0.8, linestyle=":")
    axes.axhline(fair[1], color="#999999", linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    ticks = [each for each in _TICKS if low <= each <= high]
    axes.set_xticks(ticks, [f"{each:g}" for each in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("slowdown of the communicating job against alone (dotted: equal shares)")
    axes.set_ylabel("company's rate on each node")
    axes.set_title(f"beside {cells[0].company}")
    axes.legend(fontsize=8)

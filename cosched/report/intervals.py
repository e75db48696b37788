"""Means with their intervals, in tables and in plots: a mean stands beside its bounds, where there are any."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from cosched.metrics.intervals import Interval
from cosched.report.palette import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: A mean, the low and the high bound of its interval; None: not known.
Three = Sequence[float | None]
Grid = Literal["both", "x", "y"]
MARKERS: Final = "os^Dv<>"


def three(interval: Interval) -> list[float | None]:
    """Mean and bounds, for a row of a table."""
    return [each if math.isfinite(each) else None for each in (interval.mean, interval.low, interval.high)]


def columns(*names: str) -> list[str]:
    """A column for each mean, followed by those of its bounds."""
    return [f"{name} {end}".strip() for name in names for end in ("", "low", "high")]


def in_row(row: Mapping[str, Any], mean: str, prefix: str = "") -> Three:
    """What a row of a table has of a mean and its bounds."""
    return row[mean], row[f"{prefix}low"], row[f"{prefix}high"]


def reach(values: Sequence[Three], unit: float = 1.0) -> tuple[list[float], list[list[float]]]:
    """Means, and how far their intervals reach below and above; not at all where there is none."""
    middles = [unit * (math.nan if mean is None else mean) for mean, *_ in values]
    bounds = [[each[at] for each in values] for at in (1, 2)]
    ends = [[at if end is None else unit * end for end, at in zip(each, middles, strict=True)] for each in bounds]
    return middles, [[abs(end - at) for end, at in zip(each, middles, strict=True)] for each in ends]


def line(
    axes: "Axes", points: Mapping[float, Three], number: int, name: str, *, unit: float = 1.0, **style: Any
) -> None:
    """A line through means with a bar for each interval, in the look of the so-many-th of a plot's lines."""
    look = {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)], "markersize": 5}
    look |= {"markerfacecolor": "white", "capsize": 3, "linestyle": "-" if number < len(COLOURS) else "--"}
    axes.errorbar(list(points), *reach(list(points.values()), unit), label=name, **(look | style))


def crosses(axes: "Axes", at: Sequence[float], height: float, colour: str) -> None:
    """Crosses at a height of the plot from 0 to 1: here there is no mean that could be shown."""
    axes.plot(at, [height] * len(at), "x", color=colour, transform=axes.get_xaxis_transform())


def framed(axes: "Axes", x: str, y: str, title: str = "", /, *, grid: Grid = "both", **legend: Any) -> None:
    """Name the axes, and add title, grid (of one axis: behind what is drawn) and legend."""
    axes.set(xlabel=x, ylabel=y)
    if title:
        axes.set_title(title, loc="left")
    axes.grid(alpha=0.3, axis=grid)
    if grid != "both":
        axes.set_axisbelow(True)
    axes.legend(frameon=False, **legend)


def lines(
    axes: "Axes",
    series: Mapping[str, Mapping[float, Interval]],
    labels: tuple[str, str],
    *,
    places: Sequence[float] = (),
) -> None:
    """A line for each series, from 0; at ``places`` the values stand as far apart as each other."""
    at = {value: float(index) for index, value in enumerate(places)}
    for number, (name, points) in enumerate(series.items()):
        known = {at.get(x, x): found for x, each in points.items() if (found := three(each))[0] is not None}
        line(axes, known, number, name)
    if places:
        axes.set_xticks(range(len(places)), [f"{each:g}" for each in places])
    axes.set_ylim(bottom=0)
    framed(axes, *labels)


def bars(axes: "Axes", series: Mapping[str, Mapping[str, Interval]], label: str) -> None:
    """Bars with intervals, side by side for each name."""
    names = list(next(iter(series.values())))
    width = 0.8 / len(series)
    for number, (name, values) in enumerate(series.items()):
        places = [at + (number - (len(series) - 1) / 2) * width for at in range(len(names))]
        middles, errors = reach([three(values[each]) for each in names])
        colour = COLOURS[number % len(COLOURS)]
        axes.bar(places, middles, width, yerr=errors, color=colour, capsize=2, label=name)
    axes.set_xticks(range(len(names)), names)
    framed(axes, "", label, grid="y", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(series))

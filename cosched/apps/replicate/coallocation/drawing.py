"""Lines with intervals, over places that are not all as far apart as they are drawn."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from cosched.metrics.intervals import Interval
from cosched.report.palette import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKERS: Final = "os^Dv<>"
RESPONSE: Final = "mean response time (s)"


def bounds(interval: Interval) -> list[float | None]:
    """Mean and bounds, None where there is none."""
    if interval.degrees_of_freedom is None:
        return [None, None, None]
    return [interval.mean, interval.low, interval.high]


def lines(
    axes: "Axes",
    series: Mapping[str, Mapping[float, Interval]],
    labels: tuple[str, str],
    *,
    places: Sequence[float] = (),
) -> None:
    """A line for each series, with its intervals; at ``places`` the values stand as far apart as each other."""
    at = {value: float(index) for index, value in enumerate(places)}
    for number, (name, points) in enumerate(series.items()):
        known = {x: each for x, each in points.items() if each.degrees_of_freedom is not None}
        axes.errorbar(
            [at.get(x, x) for x in known],
            [each.mean for each in known.values()],
            [each.half_width for each in known.values()],
            color=COLOURS[number % len(COLOURS)],
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=5,
            markerfacecolor="white",
            capsize=3,
            linestyle="-" if number < len(COLOURS) else "--",
            label=name,
        )
    if places:
        axes.set_xticks(range(len(places)), [f"{each:g}" for each in places])
    axes.set(xlabel=labels[0], ylabel=labels[1])
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)


def bars(axes: "Axes", series: Mapping[str, Mapping[str, Interval]], label: str) -> None:
    """Bars with intervals, side by side for each name."""
    names = list(next(iter(series.values())))
    width = 0.8 / len(series)
    for number, (name, values) in enumerate(series.items()):
        found = [values[each] for each in names]
        axes.bar(
            [at + (number - (len(series) - 1) / 2) * width for at in range(len(names))],
            [each.mean for each in found],
            width,
            yerr=[each.half_width if each.degrees_of_freedom is not None else 0.0 for each in found],
            color=COLOURS[number % len(COLOURS)],
            capsize=2,
            label=name,
        )
    axes.set_xticks(range(len(names)), names)
    axes.set(ylabel=label)
    axes.grid(alpha=0.3, axis="y")
    axes.set_axisbelow(True)
    axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(series))

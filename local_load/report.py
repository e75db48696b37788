"""What a run's samples say: percentiles, a plot of their distribution, and how two runs differ.

Neighbouring samples are not independent (one busy moment delays several), so intervals come from a block bootstrap:
whole stretches of :data:`_STRETCH_S` seconds are drawn anew, in each run by itself (Künsch 1989).
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cosched.metrics.intervals import Interval
from cosched.monitoring.local import NOTICED_S
from cosched.report.palette import COLOURS
from cosched.report.plots import figure
from cosched.report.table import Table
from local_load.samples import Samples

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
_STRETCH_S: Final = 2.0
_LEAST_STRETCHES: Final = 10
_DRAWN: Final = 400
ALL: Final = "all"

QUANTILES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
_COMPARED: Final = ("p50", "p95", "p99")
_ABOVE: Final = "above 400 ms"


class Difference(NamedTuple):
    """A figure of one call in two runs, and the second's less the first's; seconds, or a share."""

    call: str
    what: str
    first: float
    second: float
    difference: Interval

    @property
    def verdict(self) -> str:
        """Whether the interval leaves a doubt."""
        if not math.isfinite(self.difference.low):
            return "too short to say"
        if self.difference.low > 0:
            return "higher"
        return "lower" if self.difference.high < 0 else "no difference seen"


def table(samples: Samples, caption: str) -> Table:
    """Percentiles of each call's response, in milliseconds, and the share above the paper's 400 ms."""
    drawn = Table(caption, ["call", "samples", *(f"{name} ms" for name in QUANTILES), "max ms", "above 400 ms"])
    for call, values in _by_call(samples):
        quantiles = (np.quantile(values, list(QUANTILES.values())) * 1000).tolist()
        drawn.add(call, len(values), *quantiles, float(values.max() * 1000), float(np.mean(values > NOTICED_S)))
    skipped = int(np.sum(~samples.made))
    if skipped:
        drawn.notes.append(f"{skipped} calls were more than a second late and not made: their lateness is what counts")
    return drawn


def _by_call(samples: Samples) -> Iterator[tuple[str, Floats]]:
    for call in samples.calls():
        yield call, samples.of(call).response_s
    if len(samples.response_s):
        yield ALL, samples.response_s


def differences(first: Samples, second: Samples, seed: int = 1) -> list[Difference]:
    """How the second run's figures differ from the first's, call by call, for calls that both have."""
    random = np.random.default_rng(seed)
    found = []
    for call in [*(each for each in first.calls() if each in second.calls()), ALL]:
        one, two = (run if call == ALL else run.of(call) for run in (first, second))
        before, after = (_figures(run.response_s) for run in (one, two))
        drawn = [[_figures(values) for values in _redrawn(run, random)] for run in (one, two)]
        if all(drawn):
            low, high = np.quantile(np.array(drawn[1]) - np.array(drawn[0]), [0.025, 0.975], axis=0)
        else:
            low, high = np.full(len(before), -math.inf), np.full(len(before), math.inf)
        rows = (each.tolist() for each in (before, after, after - before, low, high))
        for what, was, now, change, least, most in zip((*_COMPARED, _ABOVE), *rows, strict=True):
            found.append(Difference(call, what, was, now, Interval(change, least, most)))
    return found


def _figures(values: Floats) -> Floats:
    """What is compared: quantiles, and the share above 400 ms."""
    quantiles = np.quantile(values, [QUANTILES[name] for name in _COMPARED])
    return np.append(quantiles, np.mean(values > NOTICED_S))


def _redrawn(samples: Samples, random: np.random.Generator) -> Iterator[Floats]:
    """Responses of runs that could have been: stretches of this one, drawn with replacement. None if it is short."""
    stretches = np.floor(samples.at_s / _STRETCH_S).astype(np.int64)
    numbers, first = np.unique(stretches, return_index=True)
    if len(numbers) < _LEAST_STRETCHES:
        return
    parts = np.split(samples.response_s, first[1:])
    for _ in range(_DRAWN):
        yield np.concatenate([parts[k] for k in random.integers(0, len(parts), len(parts))])


def comparison(found: list[Difference], names: tuple[str, str]) -> Table:
    """The differences as a table; times in milliseconds."""
    drawn = Table(
        f"{names[1]} against {names[0]}", ["call", "figure", names[0], names[1], "difference [95 %]", "verdict"]
    )
    for each in found:
        scale, digits = (1.0, 4) if each.what == _ABOVE else (1000.0, 3)
        low, high = (each.difference.low * scale, each.difference.high * scale)
        change = f"{each.difference.mean * scale:+.{digits}f} [{low:+.{digits}f} … {high:+.{digits}f}]"
        unit = each.what if scale == 1 else f"{each.what} ms"
        drawn.add(each.call, unit, each.first * scale, each.second * scale, change, each.verdict)
    return drawn


def plot(runs: dict[str, Samples], stem: Path, call: str = ALL) -> list[Path]:
    """Share of samples that took longer than x, both axes logarithmic, and the 400 ms line; PNG and SVG."""

    def draw(axes: "Axes") -> None:
        for i, (name, samples) in enumerate(runs.items()):
            values = np.sort(samples.response_s if call == ALL else samples.of(call).response_s) * 1000
            if len(values):
                longer = 1.0 - np.arange(len(values)) / len(values)
                axes.step(
                    values, longer, where="post", color=COLOURS[i % len(COLOURS)], label=f"{name} ({len(values)})"
                )
        axes.axvline(NOTICED_S * 1000, color="0.4", linestyle="--", linewidth=1)
        axes.annotate(
            "400 ms: noticed", (NOTICED_S * 1000, 1), xytext=(-3, -4), textcoords="offset points", rotation=90,
            va="top", ha="right", fontsize=8, color="0.3",
        )  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel="response, ms (from the moment it was due)")
        axes.set(ylabel="share that takes at least as long")
        axes.set_title(f"Latency at the desk: {'all calls' if call == ALL else call}", loc="left")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8, loc="lower left")

    return figure(draw, stem)

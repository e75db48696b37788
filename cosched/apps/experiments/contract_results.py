"""The contract's experiment for people and programs: one line for each desk, which goals it misses, plots, JSON.

The goals: wake-ups' p99 at most 0.05 ms above the idle desk's, 99 of 100 bursts of 1 ms within 1.1 ms, parallel CPU
what the owner's contract leaves within 2 %, and at least 98 % of what there is when nobody is there. Where the
unprotected desk felt less than 2 ms, the cell is void. Runs that were disturbed in all tries count for nothing.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import astuple

from cosched.apps.experiments.contract import (
    ABSENT,
    ABSENT_UNPROTECTED,
    HARM_S,
    IDLE,
    UNPROTECTED,
    WAKE_UPS,
    Felt,
    Measured,
    Runs,
)
from cosched.apps.experiments.matrix import Spread, grouped, spread
from cosched.report.intervals import framed, reach
from cosched.report.palette import COLOURS
from cosched.report.plots import figure
from cosched.report.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WAKE_S: Final = 0.000_05
_BURST_S: Final = 0.001_1
_SHARE: Final = 0.02
_LEAST_ABSENT: Final = 0.98
_CONTROLS: Final = (IDLE, UNPROTECTED, ABSENT_UNPROTECTED)
_NO_CONTROL: Final = "void: the unprotected desk felt no harm"


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A desk beside so many tasks. Spreads are of the runs' own figures; seconds, CPUs; None where there are none."""

    tasks: int
    condition: str
    runs: int
    wake_up_p99_s: Spread | None
    burst_p99_s: Spread | None
    key_p99_s: Spread | None
    parallel_cpus: Spread
    steal: Spread
    misses: list[str]


def by_cell(campaigns: Iterable[Sequence[Measured]]) -> Runs:
    """The runs of all campaigns, by tasks and condition; not those that were disturbed in all tries."""
    runs = (each for each in chain.from_iterable(campaigns) if not each.felt.disturbed)
    return grouped(((each.tasks, each.condition), each.felt) for each in runs)


def disturbed(campaigns: Iterable[Sequence[Measured]]) -> list[Measured]:
    """The runs that don't count: too much was taken of the machine in all tries."""
    return [each for each in chain.from_iterable(campaigns) if each.felt.disturbed]


def cells(found: Runs) -> list[Cell]:
    """What came out, by tasks and condition."""
    made = []
    for (tasks, condition), runs in sorted(found.items()):
        made.append(
            Cell(
                tasks=tasks,
                condition=condition,
                runs=len(runs),
                wake_up_p99_s=_over(runs, WAKE_UPS),
                burst_p99_s=_over(runs, ("burst",)),
                key_p99_s=_over(runs, ("key",)),
                parallel_cpus=spread([run.parallel_cpus for run in runs]),
                steal=spread([run.steal for run in runs]),
                misses=_missed(tasks, condition, found),
            )
        )
    return made


def _over(runs: Sequence[Felt], calls: Sequence[str]) -> Spread | None:
    """The worse of the calls in each run."""
    return spread([max(run.p99_s[call] for call in calls) for run in runs]) if runs[0].p99_s else None


def _missed(tasks: int, condition: str, found: Runs) -> list[str]:
    """Which goals a condition misses, in medians; controls have none."""
    runs = found[tasks, condition]
    if condition in _CONTROLS:
        return []
    if condition.startswith(ABSENT):
        whole = found.get((tasks, ABSENT_UNPROTECTED))
        if whole is None:
            return ["no control"]
        ratio = spread([r.parallel_cpus for r in runs]).median / spread([r.parallel_cpus for r in whole]).median
        return [f"{ratio:.1%} of what there is without a contract"] if ratio < _LEAST_ABSENT else []
    idle, harmed = (found.get((tasks, control)) for control in (IDLE, UNPROTECTED))
    if idle is None or harmed is None:
        return ["no control"]
    most, felt = _over(harmed, WAKE_UPS), _over(runs, WAKE_UPS)
    least, burst = _over(idle, WAKE_UPS), _over(runs, ("burst",))
    assert most is not None
    assert felt is not None
    assert least is not None
    assert burst is not None
    if most.median < HARM_S:
        return [_NO_CONTROL]
    cpus = spread([run.parallel_cpus for run in runs]).median
    promised = spread([run.promised for run in runs]).median
    beyond_s = felt.median - least.median
    goals = [
        (beyond_s <= _WAKE_S, f"wake-up p99 {1000 * beyond_s:.3f} ms above the idle desk's"),
        (burst.median <= _BURST_S, f"burst p99 {1000 * burst.median:.3f} ms"),
        (abs(cpus - promised) <= _SHARE, f"parallel CPU {cpus:.1%}, of {promised:.0%}"),
    ]
    return [words for met, words in goals if not met]


def waits_ms(campaigns: Iterable[Sequence[Measured]]) -> dict[tuple[int, str], list[float]]:
    """How long the owner waited for wake-ups under the contract: each run's 99th percentile, by tasks and mode."""
    return {
        (tasks, condition): [1000 * max(run.p99_s[call] for call in WAKE_UPS) for run in runs]
        for (tasks, condition), runs in sorted(by_cell(campaigns).items())
        if condition not in _CONTROLS and not condition.startswith(ABSENT)
    }


def table(made: Sequence[Cell]) -> Table:
    """One line for each cell."""
    shown = Table(
        "The contract: medians of the runs' 99th percentiles in ms, and in brackets their interval",
        ("tasks", "desk", "runs", "wake-up", "1 ms burst", "key", "parallel CPUs", "stolen", "goals"),
    )
    for cell in made:
        goals = "; ".join(cell.misses) or ("met" if cell.condition not in _CONTROLS else "")
        spreads = (cell.wake_up_p99_s, cell.burst_p99_s, cell.key_p99_s)
        shown.add(
            cell.tasks, cell.condition, cell.runs, *(each.worded(unit=1000) if each else "" for each in spreads),
            cell.parallel_cpus.worded(), f"{cell.steal.median:.1%}", goals,
        )  # fmt: skip
    return shown


def plot(made: Sequence[Cell], directory: Path) -> list[Path]:
    """The paper's Figure 10: what the owner waits for by the number of tasks, a line for each desk."""

    def draw(axes: "Axes") -> None:
        conditions = [c for c in dict.fromkeys(cell.condition for cell in made) if not c.startswith(ABSENT)]
        for number, (condition, colour) in enumerate(zip(conditions, COLOURS * 2, strict=False)):
            points = [cell for cell in made if cell.condition == condition]
            beside = 0.04 * (number - (len(conditions) - 1) / 2)  # side by side, so that intervals are seen
            at = [cell.tasks + beside for cell in points]
            middle, errors = reach([astuple(cell.wake_up_p99_s) for cell in points if cell.wake_up_p99_s], 1000)
            axes.errorbar(at, middle, yerr=errors, fmt="o-", color=colour, label=condition, capsize=3, linewidth=1)
        axes.axhline(400.0, color="0.4", linestyle="--", linewidth=1)
        axes.annotate("400 ms: noticed", (1, 400.0), xytext=(0, -11), textcoords="offset points", fontsize=8)
        axes.set(yscale="log")
        axes.set_xticks(sorted({cell.tasks for cell in made}))
        labels = ("computing tasks on the owner's CPU", "wake-up, 99th percentile, ms", "What the owner waits for")
        framed(axes, *labels, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))

    return figure(draw, directory / "contract-wake-up")

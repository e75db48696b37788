"""What is measured: kinds of jobs, their company, the modes; and what the measurements of one cell come to.

A *cell* is a kind of job beside a kind of company under one mode. Its slowdown is held against runs of the same job
alone that were made in between; the company's rate is what it did meanwhile, against what it does alone. Goals are
those of ``docs/guide/coscheduling.md``; a cell that misses one says which.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from cosched.apps.experiments.interference import WatchedRun

Key = TypeVar("Key")
Value = TypeVar("Value")
ALONE: Final = "alone"
MODES: Final = ("plain", "none", "ccs", "gang", "dcs", "spin")


class Work(msgspec.Struct, frozen=True):
    """A communicating job: seconds of computing between exchanges, and how it waits for messages."""

    name: str
    grain_ms: float
    exchanges: int
    receive: str  # poll, yield, block, pvm


class Company(msgspec.Struct, frozen=True):
    """Who shares the nodes: tasks that compute on each, or a second communicating job."""

    name: str
    computing: int  # on each node
    communicating: bool = False

    @property
    def others(self) -> int:
        """How many tasks share a CPU with the job's own."""
        return self.computing + self.communicating

    @property
    def fair_slowdown(self) -> float:
        """What equal shares make of the job."""
        return 1.0 + self.others

    @property
    def fair_rate(self) -> float:
        """What equal shares leave to the company, all of it together, on each node."""
        return self.others / (1.0 + self.others)


GRAINS: Final = (("0.1 ms", 0.1, 1), ("1 ms", 1.0, 1), ("20 ms", 20.0, 1), ("bursty", 20.0, 60))
RECEIVES: Final = ("poll", "yield", "block", "pvm")
WORKS: Final = tuple(Work(f"{how}, {name}", grain, count, how) for how in RECEIVES for name, grain, count in GRAINS)
COMPANIES: Final = (
    Company("one computing task", 1),
    Company("two computing tasks", 2),
    Company("a second such job", 0, communicating=True),
)


class Run(WatchedRun, frozen=True):
    """One run: how long the job took, and the company's rate, summed over its tasks, on each node (0 without).

    ``mode`` is :data:`ALONE` where the company it is held against was not there.
    """

    work: str
    company: str
    mode: str
    seconds: float
    rate: float = 0.0


class Spread(msgspec.Struct, frozen=True):
    """A median with the interval that holds it with 95 % (by order statistics; with few runs, all of them)."""

    median: float
    low: float
    high: float

    def worded(self, how: str = ".3f", unit: float = 1.0) -> str:
        """For a table: the median, and the interval in brackets."""
        median, low, high = (format(unit * each, how) for each in (self.median, self.low, self.high))
        return f"{median} [{low}, {high}]"


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """What came out. ``misses`` names the goals that it does not meet, for every mode; they are set for ``ccs``."""

    work: str
    company: str
    mode: str
    runs: int
    slowdown: Spread
    rate: Spread
    efficiency: Spread
    misses: list[str] = []


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """The values of each key, in the order in which they come."""
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def spread(values: Sequence[float]) -> Spread:
    """The median of some values. Raises ValueError for none."""
    ordered = sorted(values)
    count = len(ordered)
    cut = 0
    # the widest cut at both ends for which the rest still holds the median with 95 %
    while cut + 1 <= (count - 1) // 2 and _outside(count, cut + 1) <= 0.05:
        cut += 1
    return Spread(statistics.median(ordered), ordered[cut], ordered[count - 1 - cut])


def _outside(count: int, cut: int) -> float:
    """How likely the median lies below the ``cut``-th of so many ordered values, or above its counterpart."""
    below = 0.0
    ways = 1
    for at in range(cut):
        below += ways
        ways = ways * (count - at) // (at + 1)
    return float(min(1.0, 2 * (below + ways) / 2**count))


def judged(campaigns: Iterable[Sequence[Run]]) -> list[Cell]:
    """The cells of all campaigns: each run against those of the same job alone in its campaign.

    In the order of :data:`WORKS`, :data:`COMPANIES` and :data:`MODES`. A run without one alone is left out, and one
    that was disturbed however often it was made.
    """
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for campaign in campaigns:
        runs = [run for run in campaign if not run.disturbed]
        alone = grouped(((run.work, run.company), run.seconds) for run in runs if run.mode == ALONE)
        for run in runs:
            if run.mode != ALONE and (seconds := alone.get((run.work, run.company))):
                slowdown = run.seconds / statistics.median(seconds)
                found.setdefault((run.work, run.company, run.mode), []).append((slowdown, run.rate))
    return [cell for work in WORKS for company in COMPANIES for cell in _cells(work, company, found)]


def _cells(
    work: Work, company: Company, found: Mapping[tuple[str, str, str], Sequence[tuple[float, float]]]
) -> list[Cell]:
    cells = {
        mode: Cell(
            work=work.name,
            company=company.name,
            mode=mode,
            runs=len(runs),
            slowdown=spread([slowdown for slowdown, _ in runs]),
            rate=spread([rate for _, rate in runs]),
            efficiency=spread([1 / slowdown + rate for slowdown, rate in runs]),
        )
        for mode in MODES
        if (runs := found.get((work.name, company.name, mode)))
    }
    plain = cells.get("plain", cells.get("none"))  # PVM's tasks and mpirun's can't be started in one group
    return [msgspec.structs.replace(cell, misses=missed(cell, company, plain)) for cell in cells.values()]


def missed(cell: Cell, company: Company, plain: Cell | None) -> list[str]:
    """Which of the goals a cell misses, with the numbers; ``plain`` is what it is held against, itself or not."""
    slowdown, rate, efficiency = cell.slowdown.median, cell.rate.median, cell.efficiency.median
    goals = [
        (slowdown <= 1.2 * company.fair_slowdown, f"slowdown {slowdown:.2f} > {1.2 * company.fair_slowdown:.2f}"),
        (rate >= 0.9 * company.fair_rate, f"company's rate {rate:.2f} < {0.9 * company.fair_rate:.2f}"),
        (efficiency >= 0.93, f"efficiency {efficiency:.2f} < 0.93"),
    ]
    if plain is not None and cell.mode != plain.mode:
        most, least = 1.03 * plain.slowdown.median, plain.efficiency.median - 0.03
        goals.append((slowdown <= most, f"slowdown {slowdown:.2f} > {plain.mode}'s {most:.2f}"))
        goals.append((efficiency >= least, f"efficiency {efficiency:.2f} < {plain.mode}'s {least:.2f}"))
    return [words for met, words in goals if not met]

"""Figures 1 to 4 redrawn, with intervals, the fairness among groups, and how precise each run is."""

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import product
from typing import Final

from cosched.apps.replicate.coallocation.cells import RANDOM, at_jumps, at_threshold, every, phased_jumps
from cosched.apps.replicate.coallocation.runs import ALL, RESPONSE, Runs
from cosched.apps.replicate.coallocation.setup import Cell, Scale
from cosched.apps.replicate.coallocation.shares import CRITERIA, GROUPS
from cosched.apps.replicate.result import Plot, Result
from cosched.metrics.groups import jain
from cosched.metrics.intervals import Interval
from cosched.metrics.sequential import BLOCK
from cosched.model.components import Partition
from cosched.report.intervals import bars, lines, three
from cosched.report.table import Table

_BY: Final = {"size": "S", "widest": "W"}
_ENDS: Final = ("S1", "S4")
_MEAN: Final = ("mean response, s", "low", "high")


def report(scale: Scale, runs: Runs, result: Result) -> None:
    """Add the tables and the plots."""
    result.tables["figure1"] = _figure1(runs)
    by_jumps = {each: at_jumps(each) for each in scale.jumps}
    caption = "Fig. 2: mean response time by maxJumps, s; random partitioning, thres = 11"
    result.tables["figure2"] = _means(runs, caption, "maxJumps", by_jumps, GROUPS)
    result.tables["fairness"] = _fairness(scale, runs)
    result.tables["figure3"] = _figure3(scale, runs)
    by_thres = {each: at_threshold(each) for each in scale.thresholds}
    caption = "Fig. 4: mean response time under FPFS(10) by thres, s; random partitioning"
    result.tables["figure4"] = _means(runs, caption, "thres", by_thres, CRITERIA["S"])
    result.tables["runs"] = _runs(scale, runs)
    _draw(scale, runs, result)


def _figure1(runs: Runs) -> Table:
    table = Table(
        "Fig. 1: mean response time of each group under FCFS and FPFS(10), s; random partitioning, thres = 11",
        ("group", "FCFS", "low", "high", "FPFS(10)", "its low", "its high", "difference", "from", "to"),
        notes=["difference: FPFS(10)'s to FCFS's, as a part of it, of the same jobs"],
    )
    fcfs = at_jumps(0)
    for name in (ALL, *GROUPS):
        both = [*three(runs.mean(fcfs, name)), *three(runs.mean(RANDOM, name))]
        table.add(name, *both, *three(runs.relative(RANDOM, fcfs, name)))
    return table


def _means(runs: Runs, caption: str, what: str, cells: Mapping[int, Cell], names: Iterable[str]) -> Table:
    """The mean response time of groups in each cell."""
    table = Table(caption, (what, "group", *_MEAN))
    for (value, cell), name in product(cells.items(), (ALL, *names)):
        table.add(value, name, *three(runs.mean(cell, name)))
    return table


def _fairness(scale: Scale, runs: Runs) -> Table:
    table = Table(
        "Fairness by maxJumps and partitioning: S4's mean response over S1's, and Jain's index of S1 to S4",
        ("maxJumps", "partitioning", "S4 over S1", "low", "high", "Jain's index"),
        notes=["1 is even, in both"],
    )
    for jumps in scale.jumps:
        for partition in (Partition.RANDOM, Partition.PHASED):
            if partition is Partition.PHASED and jumps not in phased_jumps(scale):
                continue
            one = runs.together(at_jumps(jumps, partition))
            means = {name: one.mean(at_jumps(jumps, partition), name) for name in CRITERIA["S"]}
            ratio = (means["S4"] / means["S1"]).interval()
            table.add(jumps, partition.value, *three(ratio), jain([each.value for each in means.values()]))
    return table


def _figure3(scale: Scale, runs: Runs) -> Table:
    table = Table(
        "Fig. 3: mean response time by partitioning and maxJumps, s; thres = 11",
        ("maxJumps", "group", "random", "low", "high", "phased", "its low", "its high", "difference", "from", "to"),
        notes=["difference: phased to random, as a part of it, of the same jobs"],
    )
    for jumps in phased_jumps(scale):
        cells = at_jumps(jumps), at_jumps(jumps, Partition.PHASED)
        for name in (ALL, *CRITERIA["S"]):
            both = [each for cell in cells for each in three(runs.mean(cell, name))]
            table.add(jumps, name, *both, *three(runs.relative(cells[1], cells[0], name)))
    return table


def _runs(scale: Scale, runs: Runs) -> Table:
    table = Table(
        "The runs: how long each is, and how precise the means of its groups are",
        (
            *("policy", "partitioning", "thres", "cost, %", "q", "moldable"),
            *("jobs", "transient", "precision, %", "correlation", "precise", "unstable"),
        ),
        notes=[
            f"precise: half of each 95 % interval is at most {100 * scale.lengths.precision:g} % of the mean, and "
            "neighbouring batches are as good as independent; unstable: the queue grows, so that a mean says how long "
            "the run was"
        ],
    )
    for cell in dict.fromkeys(every(scale)):
        run = runs[cell]
        jobs, precision, correlation = run.reached.jobs, run.reached.precision, run.reached.correlation
        what = (cell.policy, cell.partition.value, cell.threshold, cell.cost_ppm / 1e4, cell.q, cell.mold > 1)
        percent = 100 * precision if precision < 10 else None
        enough = run.reached.enough(scale.lengths.precision)
        table.add(*what, jobs, run.blocks.begin * BLOCK, percent, correlation, enough, run.unstable)
    return table


def _draw(scale: Scale, runs: Runs, result: Result) -> None:
    policies = {"FCFS": at_jumps(0), "FPFS(10)": RANDOM}
    figure1 = {name: {group: runs.mean(cell, group) for group in GROUPS} for name, cell in policies.items()}
    result.plots["figure1"] = Plot(lambda axes: bars(axes, figure1, RESPONSE))
    for what, letter in _BY.items():
        series = {name: _over(scale, runs, name) for name in CRITERIA[letter]}
        result.plots[f"figure2-{what}"] = Plot(
            partial(lines, series=series, labels=("maxJumps", RESPONSE), places=scale.jumps)
        )
    figure3 = {
        f"{name}, {partition.value}": {
            float(jumps): runs.mean(at_jumps(jumps, partition), name) for jumps in phased_jumps(scale)
        }
        for name in _ENDS
        for partition in (Partition.RANDOM, Partition.PHASED)
    }
    result.plots["figure3"] = Plot(
        partial(lines, series=figure3, labels=("maxJumps", RESPONSE), places=phased_jumps(scale))
    )
    figure4 = {
        name: {float(each): runs.mean(at_threshold(each), name) for each in scale.thresholds}
        for name in (ALL, *CRITERIA["S"])
    }
    result.plots["figure4"] = Plot(partial(lines, series=figure4, labels=("thres", RESPONSE)))


def _over(scale: Scale, runs: Runs, name: str) -> Mapping[float, Interval]:
    return {float(jumps): runs.mean(at_jumps(jumps), name) for jumps in scale.jumps}


def relative_row(runs: Runs, cell: Cell, bases: tuple[Cell, ...], name: str) -> list[float | None]:
    """A group's mean in a cell, then what that is against each base, each with its bounds."""
    found = three(runs.mean(cell, name))
    for base in bases:
        found += three(runs.relative(cell, base, name)) if base != cell else [None, None, None]
    return found

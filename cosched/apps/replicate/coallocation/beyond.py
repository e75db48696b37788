"""What the paper leaves for later (section 9): better partitions, communication, smaller groups, size, moldability.

And EASY, which knows how long jobs run, as a comparison.
"""

from functools import partial
from typing import Final

from cosched.apps.replicate.coallocation import cells
from cosched.apps.replicate.coallocation.cells import DIVISIONS, PARTITIONS, RANDOM, at_cost, at_jumps, at_q
from cosched.apps.replicate.coallocation.figures import relative_row
from cosched.apps.replicate.coallocation.runs import ALL, RESPONSE, Runs
from cosched.apps.replicate.coallocation.setup import Scale
from cosched.apps.replicate.coallocation.shares import CRITERIA, PAPERS, THRESHOLD, mean_size
from cosched.apps.replicate.result import Plot, Result
from cosched.metrics.intervals import Interval
from cosched.model.components import MOST_COMPONENTS, Partition
from cosched.report.intervals import bars, lines, three
from cosched.report.table import Table

_MEAN: Final = ("mean response, s", "low", "high")
_GROUPS: Final = (ALL, "S1", "S4")
#: Of kinds with fewer jobs than that a run says little.
_LEAST_JOBS: Final = 200


def report(scale: Scale, runs: Runs, result: Result) -> None:
    """Add the tables and the plots."""
    _partitions(runs, result)
    _costs(scale, runs, result)
    _finer(runs, result)
    _average_size(scale, runs, result)
    _easy(runs, result)
    _moldable(runs, result)


def _partitions(runs: Runs, result: Result) -> None:
    table = Table(
        "A better partition (9): mean response time by how jobs are divided, s; thres = 11",
        ("policy", "partitioning", "group", *_MEAN, "to phased", "low ", "high ", "to balanced", " low", " high"),
        notes=[
            "balanced: the phased counts of components, without the remainder in the last; adaptive: decided at the "
            "start, on what is free then, with the narrowest widest component; differences are parts, of the same jobs"
        ],
    )
    for jumps in (0, 10):
        bases = at_jumps(jumps, Partition.PHASED), at_jumps(jumps, Partition.BALANCED)
        for partition in PARTITIONS:
            for name in _GROUPS:
                row = relative_row(runs, at_jumps(jumps, partition), bases, name)
                table.add(f"FPFS({jumps})" if jumps else "FCFS", partition.value, name, *row)
    result.tables["partitions"] = table
    drawn = {
        partition.value: {
            f"{'FPFS(10)' if jumps else 'FCFS'}, {name}": runs.mean(at_jumps(jumps, partition), name)
            for jumps in (0, 10)
            for name in _GROUPS
        }
        for partition in PARTITIONS
    }
    result.plots["partitions"] = Plot(lambda axes: bars(axes, drawn, RESPONSE))


def _costs(scale: Scale, runs: Runs, result: Result) -> None:
    table = Table(
        "What communication between clusters costs (9): mean response time under FPFS(10) where a job on several "
        "clusters runs longer, s",
        ("longer by, %", "divided", "group", *_MEAN, "to no cost", "low ", "high ", "unstable"),
    )
    drawn: dict[str, dict[float, Interval]] = {name: {} for name in DIVISIONS}
    for cost in (0, *scale.costs_ppm):
        for name in DIVISIONS:
            cell = at_cost(name, cost)
            for group in _GROUPS:
                row = relative_row(runs, cell, (at_cost(name, 0),), group)
                table.add(cost / 1e4, name, group, *row, runs[cell].unstable)
            drawn[name][cost / 1e4] = runs.mean(cell)
    result.tables["costs"] = table
    labels = ("a job on several clusters runs longer by (%)", RESPONSE)
    result.plots["costs"] = Plot(partial(lines, series=drawn, labels=labels))


def _finer(runs: Runs, result: Result) -> None:
    """Smaller groups than quartiles: each size, and each width of the widest component by number of components."""
    run = runs[RANDOM]
    jobs = dict(zip(run.kinds, run.blocks.counts[run.blocks.begin : run.blocks.end].sum(axis=0).tolist(), strict=True))
    for what in ("size", "widest"):
        table = Table(
            f"Smaller groups (9): mean response time under FPFS(10), s, by {what} and number of components",
            (what, "components", "jobs", *_MEAN),
            notes=[f"groups of at least {_LEAST_JOBS} jobs"],
        )
        drawn: dict[str, dict[float, Interval]] = {}
        for count in range(1, MOST_COMPONENTS + 1):
            for value in sorted({getattr(kind, what) for kind in run.kinds if kind.components == count}):
                kinds = [kind for kind in run.kinds if kind.components == count and getattr(kind, what) == value]
                number = sum(jobs[kind] for kind in kinds)
                if number < _LEAST_JOBS:
                    continue
                mean = runs.mean(RANDOM, lambda kind, kinds=kinds: kind in kinds)  # type: ignore[misc]
                table.add(value, count, number, *three(mean))
                drawn.setdefault(f"{count} component{'s' if count > 1 else ''}", {})[float(value)] = mean
        result.tables[f"by-{what}"] = table
        label = "size" if what == "size" else "width of the widest component"
        result.plots[f"by-{what}"] = Plot(partial(lines, series=drawn, labels=(label, RESPONSE)))


def _average_size(scale: Scale, runs: Runs, result: Result) -> None:
    table = Table(
        "The average size (9): mean response time under FPFS(10) by q of D(q), at the paper's load, s",
        ("q", "mean size", "partitioning", "group", *_MEAN, "adaptive to random", "low ", "high "),
    )
    drawn: dict[str, dict[float, Interval]] = {}
    for q in sorted((*scale.qs, PAPERS.q)):
        for partition in (Partition.RANDOM, Partition.ADAPTIVE):
            for name in (ALL, *CRITERIA["S"]):
                cell = at_q(q, partition)
                against = relative_row(runs, cell, (at_q(q, Partition.RANDOM),), name)
                table.add(q, float(mean_size(q)), partition.value, name, *against)
            for name in (ALL, "S4"):
                drawn.setdefault(f"{name}, {partition.value}", {})[float(mean_size(q))] = runs.mean(cell, name)
    result.tables["average-size"] = table
    result.plots["average-size"] = Plot(partial(lines, series=drawn, labels=("mean size", RESPONSE)))


def _easy(runs: Runs, result: Result) -> None:
    table = Table(
        f"EASY over components, which knows run times: mean response time, s; thres = {THRESHOLD}",
        ("partitioning", "group", *_MEAN, "to FPFS(10)", "low ", "high "),
        notes=["difference: a part of FPFS(10)'s, of the same jobs"],
    )
    for partition in (Partition.RANDOM, Partition.ADAPTIVE):
        for name in (ALL, *CRITERIA["S"]):
            row = relative_row(runs, cells.easy(partition), (at_jumps(10, partition),), name)
            table.add(partition.value, name, *row)
    result.tables["easy"] = table


def _moldable(runs: Runs, result: Result) -> None:
    table = Table(
        "Moldable jobs (9): mean response time where jobs above 11 can run on half of their size, s",
        ("jobs", "group", *_MEAN, "to rigid", "low ", "high ", "to FPFS(10)", " low", " high"),
        notes=[
            "first fit over the whole queue; jobs are divided as they start; a moldable job starts in the largest size "
            "that is free; its speed-up is linear, so that its work is the same; FPFS(10) with adaptive partitioning"
        ],
    )
    bases = cells.molding(1), at_jumps(10, Partition.ADAPTIVE)
    for mold in cells.MOLDS:
        for name in (ALL, *CRITERIA["S"]):
            table.add("moldable" if mold > 1 else "rigid", name, *relative_row(runs, cells.molding(mold), bases, name))
    result.tables["moldable"] = table

"""The tables that several verbs print."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cosched.config.experiment import Experiment
from cosched.metrics.summary import BatchMeans, Group, Summary
from cosched.model.time import humanised, us
from cosched.report.table import Table
from cosched.workload.rules import Workload
from space_scheduler.plugins import resolve
from space_scheduler.policy.interface import traits_of


def policy_label(experiment: Experiment, name: str | None) -> str:
    """What a policy is called in tables and file names: its name, and what was changed about it."""
    parts = [name] if name else []
    parts += [part for part in (experiment.order, experiment.select) if part]
    return " ".join(parts)


def without_nodes(experiment: Experiment) -> list[str]:
    """What to say of policies that choose nodes where processors are counted: there they cannot."""
    names = [name for name in experiment.policies if traits_of(resolve(name, experiment.order)).place]
    if experiment.site is not None or experiment.clusters or not names:
        return []
    return [
        f"{', '.join(names)}: processors are counted here, so no nodes are chosen and none are shared; "
        "--site FILE gives the machine nodes"
    ]


def summaries(by_policy: dict[str, Summary], load: Workload, notes: Iterable[str] = ()) -> Table:
    """The measures of one or more policies over one workload, a row each, with what the reader left out."""
    rows: list[Sequence[Any]] = [
        (
            name,
            humanised(us(summary.mean_wait_s)),
            humanised(us(summary.median_wait_s)),
            humanised(us(summary.p95_wait_s)),
            humanised(us(summary.mean_execution_s)),
            humanised(us(summary.mean_response_s)),
            summary.mean_bounded_slowdown,
            f"{summary.utilization:.4f}",
            humanised(us(summary.makespan_s)),
            f"{summary.backfilled_ratio:.1%}",
        )
        for name, summary in by_policy.items()
    ]
    provider = f"log provided by {load.provider} through the Parallel Workloads Archive"
    return Table(
        f"{load.name}: {len(load)} jobs on {load.procs_total} processors ({load.procs_total_from})",
        (
            "policy",
            "mean wait",
            "median wait",
            "95 % wait",
            "mean execution",
            "mean turnaround",
            "bounded slowdown",
            "utilisation",
            "makespan",
            "backfilled",
        ),
        rows,
        [
            "bounded slowdown: mean over jobs of max(1, turnaround / max(time alone, 10 s))",
            *counts(load.skipped, load.adjusted),
            *notes,
            *([provider] if load.provider else []),
        ],
    )


def counts(skipped: Mapping[str, int], adjusted: Mapping[str, int]) -> list[str]:
    """What the reader left out, and what it had to interpret, a line each where there is any."""
    return [
        f"{what}: " + ", ".join(f"{n} {cause.replace('_', ' ')}" for cause, n in causes.items())
        for what, causes in (("skipped", skipped), ("of note", adjusted))
        if causes
    ]


def intervals(batches: dict[str, BatchMeans], jobs: int) -> Table:
    """Means with their intervals by batch means, of so many jobs."""
    columns = ("measure", "mean", "95 % interval", "batches", "correlation of neighbours")
    rows: list[Sequence[Any]] = [
        (name, of.mean, f"{of.low:.4g} … {of.high:.4g}", each.batches, each.lag_one)
        for name, each, of in ((name, each, each.interval) for name, each in batches.items())
    ]
    notes = ["trust an interval where the correlation of neighbouring batches is near 0"]
    count = next((each.batches for each in batches.values()), 1)
    if left_out := jobs % count:
        notes.append(f"batches are equally long: the first {left_out} of {jobs} jobs are in none of them")
    return Table("Means of this one run", columns, rows, notes)


def groups(what: str, policy: str, rows: list[Group]) -> Table:
    """Measures by group of jobs."""
    columns = (
        what,
        "jobs",
        "mean wait s",
        "mean execution s",
        "mean turnaround s",
        "bounded slowdown",
        "processor hours",
    )
    measures: list[Sequence[Any]] = [
        (
            row.group,
            row.jobs,
            row.mean_wait_s,
            row.mean_execution_s,
            row.mean_response_s,
            row.mean_bounded_slowdown,
            row.processor_hours,
        )
        for row in rows
    ]
    return Table(f"{policy}, by {what}", columns, measures)

"""Table 1's form: a log without user estimates, by month, on machines of several sizes, estimates exact.

The paper's log, of the IUCC in Tel Aviv, is not public. This is the same table for another one, NASA Ames' iPSC/860 of
1993: a different machine and another year, so no number of the paper stands beside ours and no claim is judged. Its
header says that submissions are really starts, since waits were not recorded. Jobs wider than a machine are left out
and counted, as the paper must have done.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from cosched.apps.replicate.backfilling.runs import CONSERVATIVE, EASY
from cosched.apps.replicate.backfilling.setup import RULES
from cosched.apps.replicate.pool import Call
from cosched.apps.replicate.result import Result
from cosched.metrics.summary import grouped, per_job
from cosched.report.table import Table
from cosched.workload import catalogue
from cosched.workload.calendar import month_labels
from space_scheduler.simulator.experiment import prepare_workload, run

LOG: Final = "NASA-iPSC-1993-3.1-cln"
#: The whole machine, three quarters and half of it: the paper's 58, 49 and 33 of 64 nodes in spirit.
SIZES: Final = (64, 96, 128)


@dataclass(frozen=True)
class Monthly:
    """One policy on one machine: (jobs, mean bounded slowdown) by month and of the whole log, and the jobs left out."""

    months: dict[str, tuple[int, float]]
    whole: tuple[int, float]
    left_out: int


def simulate_size(path: Path, procs: int, policy: str) -> Monthly:
    """The log on a machine of that size."""
    experiment = msgspec.structs.replace(RULES, procs=procs, estimates="exact")
    load = prepare_workload(experiment, path)
    schedule = run(experiment, policy, load)
    labels = (
        np.full(len(load), "whole log")
        if load.unix_start_s is None
        else month_labels(load.submit_us, load.unix_start_s, load.timezone)
    )
    months = {group.group: (group.jobs, group.mean_bounded_slowdown) for group in grouped(schedule, labels)}
    whole = len(load), float(per_job(schedule).bounded_slowdown.mean())
    return Monthly(months, whole, load.skipped.get("wider_than_machine", 0))


def find() -> Path | None:
    """The log's file, where it is here."""
    return catalogue.find(LOG)


def calls(path: Path | None) -> dict[Hashable, Call]:
    """One for each size and policy; none where the log is absent."""
    if path is None:
        return {}
    return {(each := (path, *size)): Call(simulate_size, each) for size in product(SIZES, (EASY, CONSERVATIVE))}


def report(path: Path | None, answers: Mapping[Hashable, Any], result: Result) -> None:
    """Add the table, or the note that says why there is none."""
    if path is None:
        result.notes.append(
            f"Table 1 was left out: its form is shown on {LOG}, which is not here "
            f"('cosched workload fetch {LOG}' brings it, or a folder with it in COSCHED_TRACES)"
        )
        return
    result.inputs.append(path)
    found: dict[int, tuple[Monthly, Monthly]] = {
        procs: (answers[path, procs, EASY], answers[path, procs, CONSERVATIVE]) for procs in SIZES
    }
    table = Table(
        f"Table 1's form on {LOG}: mean bounded slowdown by month and machine size, exact estimates",
        ("month", *(f"{procs}: {what}" for procs in SIZES for what in ("jobs", "EASY", "cons"))),
        notes=["the paper's log (IUCC) is not public; another machine's log stands in its place, to show the form"],
    )
    months = sorted({month for pair in found.values() for month in pair[0].months})
    for month in months:
        row: list[float | None] = []
        for easy, conservative in found.values():
            jobs, slowdown = easy.months.get(month, (0, None))
            row += [jobs, slowdown, conservative.months.get(month, (0, None))[1]]
        table.add(month, *row)
    table.add("whole log", *(x for easy, cons in found.values() for x in (easy.whole[0], easy.whole[1], cons.whole[1])))
    table.notes += [
        f"{procs} processors: {easy.left_out} jobs wider than the machine left out"
        for procs, (easy, _) in found.items()
    ]
    result.tables["table1"] = table

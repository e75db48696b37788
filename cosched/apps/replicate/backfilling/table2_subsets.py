"""How firm are Table 2's counts? The same table for random parts of the log, as many jobs as the paper's version had.

The paper's log had 28 240 jobs (its text; the months of its Table 2 add up to 28 290), the archive's cleaned version
has 28 476, and which ones differ is not known. So 236 jobs are left out at random, again and again. A count that
changes from one part to the next says nothing about the policies. No claim is judged here: this explains a finding, and
was made after it.
"""

from collections.abc import Hashable, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from cosched.apps.replicate.backfilling import paper
from cosched.apps.replicate.backfilling.runs import CONSERVATIVE, EASY
from cosched.apps.replicate.backfilling.setup import Setup
from cosched.apps.replicate.backfilling.table2 import better
from cosched.apps.replicate.pool import Call
from cosched.apps.replicate.result import Result
from cosched.config.experiment import Experiment
from cosched.metrics.summary import Floats, per_job
from cosched.report.table import Table
from cosched.workload.calendar import month_labels
from cosched.workload.rules import Workload
from space_scheduler.simulator.experiment import run


def without_some(load: Workload, jobs: int, seed: int) -> Workload:
    """The workload with only that many of its jobs, chosen at random, in their order."""
    kept = np.sort(np.random.default_rng(seed).choice(len(load), jobs, replace=False))
    arrays = [field.name for field in fields(load) if isinstance(getattr(load, field.name), np.ndarray)]
    return replace(load, **{name: getattr(load, name)[kept] for name in arrays})


def simulate_part(load: Workload, seed: int) -> list[tuple[float, float]]:
    """EASY's and conservative's mean bounded slowdown in each of the paper's months, for one part of the log."""
    part = without_some(load, paper.JOBS, seed)
    labels = month_labels(part.submit_us, part.unix_start_s or 0, part.timezone)
    easy, conservative = (per_job(run(Experiment(), policy, part)).bounded_slowdown for policy in (EASY, CONSERVATIVE))
    months = [labels == month for month in paper.TABLE_2]
    return [(float(easy[month].mean()), float(conservative[month].mean())) for month in months]


def calls(setup: Setup) -> dict[Hashable, Call]:
    """One for each part; none where the log is another one."""
    if not setup.has_paper_months or len(setup.load) <= paper.JOBS:
        return {}
    return {("part", seed): Call(simulate_part, (setup.load, seed), 1.5) for seed in range(1, setup.scale.subsets + 1)}


def report(setup: Setup, answers: Mapping[Hashable, Any], result: Result) -> None:
    """Add the table, where there are parts."""
    parts: list[list[tuple[float, float]]] = [answers[key] for key in calls(setup)]
    if not parts:
        return
    found: Floats = np.array(parts)  # part, month, policy
    winners = [[better(*means) for means in part] for part in parts]
    table = Table(
        f"Table 2 for {len(parts)} random parts of {setup.load.name}, {paper.JOBS} of {len(setup.load)} jobs each",
        (
            "month",
            "EASY min",
            "EASY max",
            "paper's EASY",
            "cons min",
            "cons max",
            "paper's cons",
            "EASY better in",
            "cons better in",
            "paper's better",
        ),
    )
    for at, (month, printed) in enumerate(paper.TABLE_2.items()):
        who = [part[at] for part in winners]
        easy, conservative = found[:, at, 0], found[:, at, 1]
        table.add(
            month,
            float(easy.min()),
            float(easy.max()),
            printed.easy,
            float(conservative.min()),
            float(conservative.max()),
            printed.conservative,
            who.count("EASY"),
            who.count("cons"),
            better(printed.easy, printed.conservative),
        )
    for name, claimed in (("EASY", 7), ("cons", 4)):
        counts = [part.count(name) for part in winners]
        table.notes.append(
            f"{name} better in {min(counts)} to {max(counts)} of the 12 months, by part (paper: {claimed})"
        )
    result.tables["table2-subsets"] = table

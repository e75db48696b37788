"""The tables: the mix of the workloads, Figs 3 to 6, what backfilling did, the readings, and the sweeps."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from cosched.apps.replicate.bfm.claims import ALL, CLASSES
from cosched.apps.replicate.bfm.judging import Found, relative
from cosched.apps.replicate.bfm.measures import Measured
from cosched.apps.replicate.bfm.setup import BFA, BFM, LOADS, POLICIES, PROCS, workload
from cosched.apps.replicate.claims import Claim
from cosched.metrics.intervals import of_replications
from cosched.report.intervals import columns, three
from cosched.report.table import Table
from cosched.workload.generators.utrera05 import PROGRAMS, Utrera05

#: Table -> the measure that it shows, what that is, and whether against BFA in its unit.
FIGURES: Final = {
    "figure3": ("response_s", "Fig. 3: mean response, s"),
    "figure4": ("execution_s", "Fig. 4: mean execution time, s"),
    "figure5": ("wait_s", "Fig. 5: mean queue wait, s"),
    "figure6-deviation": ("deviation_s", "Fig. 6 (first): standard deviation of the queue wait, s"),
    "figure6-partition": ("procs", "Fig. 6 (second): mean partition, processors"),
}
_DIFFERENCE: Final = ("difference low", "difference high")


def mix(jobs: int) -> Table:
    """Tables 1 and 2: who comes at which load."""
    table = Table(
        f"Tables 1 and 2: {jobs} jobs on {PROCS} processors; of their work, Short always 20 points of the load",
        ["load", "Long of the work", "Long of the jobs", *(each.name for each in PROGRAMS), "minutes of arrivals"],
    )
    for load in LOADS:
        made = workload(load, 1, jobs=jobs)
        work = made.procs * made.run_us.astype(np.float64)
        is_long = np.array([shaped is not None and shaped.long for shaped in made.shapes])
        linear_s = np.array([0 if shaped is None else shaped.work_us for shaped in made.shapes]) / 1e6
        counts = (int((np.rint(linear_s) == each.linear_s).sum()) for each in PROGRAMS)
        minutes = float(work.sum()) / 60e6 / (load * PROCS)
        table.add(
            load, float(work[is_long].sum() / work.sum()), Utrera05(utilisation=load).long_ratio, *counts, minutes
        )
    table.notes.append("minutes: of arrivals on average; the paper's ten cannot follow from its other numbers")
    return table


def figure(name: str, found: Found) -> Table:
    """One of the paper's figures as numbers: means over seeds with 95 % intervals, and against FJT1+BFA's."""
    measure, caption = FIGURES[name]
    table = Table(
        f"{caption}, by class of jobs, {found.reading.jobs} jobs, {found.seeds} seeds",
        ["jobs", "load", "policy", "mean", "low", "high", "against FJT1+BFA", *_DIFFERENCE, "steady"],
    )
    for kind in CLASSES:
        for load in found.reading.loads:
            base = found.column(BFA, load, kind, measure)
            for policy in POLICIES:
                ours = found.column(policy, load, kind, measure)
                steady = not found.unstable(policy, load) if found.reading.steady else None
                against = [None] * 3 if policy == BFA else three(relative(ours, base))
                table.add(kind, load, policy, *three(of_replications(ours)), *against, steady)
    return table


def events(found: Found) -> Table:
    """What backfilling did: starts behind the head, folds and aborts for each hundred jobs, and work lost."""
    table = Table(
        f"Backfilling: events for each hundred jobs, {found.reading.jobs} jobs, {found.seeds} seeds; work lost of all",
        ["load", "policy", "backfilled", "folded", "aborted", "work lost", "Long jobs shrunk", "Short jobs shrunk"],
    )
    for load in found.reading.loads:
        for policy in POLICIES:
            runs = found.all_of(policy, load)
            shrunk = (float(found.column(policy, load, kind, "shrunk").mean()) for kind in CLASSES)
            table.add(load, policy, *_counts(runs, found.reading.jobs), _mean(runs, "lost"), *shrunk)
    table.notes.append("shrunk: the part of their execution time with fewer processors than processes")
    return table


def gains(readings: Sequence[Found]) -> Table:
    """BFM against BFA at high load in each reading."""
    table = Table(
        "FJT1+BFM against FJT1+BFA at high load, by reading: response (relative), queue wait of all jobs (s)",
        ["reading", "seeds", "load", *columns(*CLASSES, ALL), "wait", "folded", "aborted", "steady"],
    )
    for found in readings:
        load = found.reading.high
        changes: list[float | None] = []
        for kind in (*CLASSES, ALL):
            changes += three(relative(*(found.column(each, load, kind, "response_s") for each in (BFM, BFA))))
        wait = float((found.column(BFM, load, ALL, "wait_s") - found.column(BFA, load, ALL, "wait_s")).mean())
        folded = _counts(found.all_of(BFM, load), found.reading.jobs)[1]
        aborted = _counts(found.all_of(BFA, load), found.reading.jobs)[2]
        steady = not (found.unstable(BFM, load) or found.unstable(BFA, load)) if found.reading.steady else None
        table.add(found.reading.name, found.seeds, load, *changes, wait, folded, aborted, steady)
    table.notes += [f"{found.reading.name}: {found.reading.about}" for found in readings]
    return table


def verdicts(claims: Sequence[Claim], names: Sequence[str]) -> Table:
    """Readings × claims."""
    table = Table("Verdicts of the claims, by reading", ["claim", *names])
    for claim in claims:
        if claim.readings:
            table.add(claim.id, *(claim.readings[name].value.replace("_", " ") for name in names))
    return table


def expired(readings: Mapping[str, Mapping[str, Found]]) -> Table:
    """What becomes of a backfilled job whose window has expired, under FJT1: against an abort."""
    names = [f"{kind} {what}".strip() for kind in CLASSES for what in ("", "low", "high", "response", "execution")]
    table = Table(
        "Expired windows under FJT1, by what becomes of backfilled jobs: response against an abort; means, s",
        ["reading", "load", "expired", *names],
    )
    for name, fates in readings.items():
        for load in fates["abort"].reading.loads:
            for fate, found in fates.items():
                policy = BFM if fate == "fold" else BFA
                row: list[float | None] = []
                for kind in CLASSES:
                    base = fates["abort"].column(BFA, load, kind, "response_s")
                    ours = found.column(policy, load, kind, "response_s")
                    change = (None, None, None) if fate == "abort" else three(relative(ours, base))
                    means = float(ours.mean()), float(found.column(policy, load, kind, "execution_s").mean())
                    row += [*change, *means]
                table.add(name, load, fate, *row)
    table.notes.append("a suspended job's execution lasts from its start to its end")
    return table


def rigid(shares: Sequence[Found]) -> Table:
    """The paper's future work: some jobs have one size only."""
    table = Table(
        "Rigid jobs: FJT1+BFM against FJT1+BFA, response, by their share and width; events for each hundred jobs",
        ["at most", "rigid", "load", *columns(*CLASSES), "backfilled", "folded under BFM", "aborted under BFA",
         "work lost under BFA", "Long under BFM, s", "Short under BFM, s"],
    )  # fmt: skip
    for found in shares:
        for load in found.reading.loads:
            row: list[float | None] = []
            for kind in CLASSES:
                row += three(relative(*(found.column(each, load, kind, "response_s") for each in (BFM, BFA))))
            ours, theirs = (found.all_of(each, load) for each in (BFM, BFA))
            backfilled, folded, _ = _counts(ours, found.reading.jobs)
            aborted = _counts(theirs, found.reading.jobs)[2]
            means = (float(found.column(BFM, load, kind, "response_s").mean()) for kind in CLASSES)
            counted = backfilled, folded, aborted, _mean(theirs, "lost")
            table.add(found.reading.mix["rigid_procs"], found.reading.mix["rigid"], load, *row, *counted, *means)
    table.notes.append("at most: processors of a rigid job; the whole machine cannot be had by folding anybody")
    return table


def _counts(runs: Sequence[Measured], jobs: int) -> tuple[float, float, float]:
    backfilled, folds, aborts = (_mean(runs, what) * 100 / jobs for what in ("backfilled", "folds", "aborts"))
    return backfilled, folds, aborts


def _mean(runs: Sequence[Measured], what: str) -> float:
    return float(np.mean([getattr(each, what) for each in runs]))

"""What is in a log: the numbers that ``cosched workload stats`` prints.

They describe the jobs that the input rules admit (``rules``), with one exception: the accuracy of the users' estimates
compares what the log itself says, the run time with the request, before any rule has touched them.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from cosched.errors import BadInput
from cosched.model.time import US_PER_S
from cosched.workload.calendar import clock_of, month_labels
from cosched.workload.log import Field, Log
from cosched.workload.rules import InputRules, Workload, prepare

BINS = 20


class Quantiles(msgspec.Struct, frozen=True):
    """Where a quantity lies. Quantiles are values that occur (the smallest that so many do not exceed)."""

    min: float
    q25: float
    median: float
    q75: float
    q90: float
    q99: float
    max: float
    mean: float


class Accuracy(msgspec.Struct, frozen=True):
    """How much of its request a job used: run time / request, as in Fig. 11 of Feitelson and Weil 1998.

    ``histogram`` counts the ratios in 20 equal bins over [0, 1), lower edge included; ``exactly_100`` and ``above_100``
    are beside it, ``rounds_to_100`` overlaps (99.5 % to 100.5 %).
    """

    subset: str
    jobs: int
    histogram: list[int]
    exactly_100: int
    above_100: int
    rounds_to_100: int
    mean_ratio: float | None


class UserShare(msgspec.Struct, frozen=True):
    """One user's part of the workload."""

    user: int
    jobs: int
    work_ratio: float


class LogStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a log; serialises to JSON as it stands. ``None`` where a log does not tell."""

    name: str
    jobs: int
    procs_total: int
    procs_total_from: str
    span_s: float
    offered_load: float | None
    run_s: Quantiles
    procs: Quantiles
    request_s: Quantiles | None
    interarrival_s: Quantiles | None
    serial_ratio: float
    power_of_two_ratio: float
    accuracy: Accuracy
    months: dict[str, int]
    months_by: str
    users: int
    top_users: list[UserShare]
    skipped: dict[str, int]
    adjusted: dict[str, int]


def statistics(
    log: Log, *, rules: InputRules | None = None, procs_total: int | None = None, top_users: int = 10
) -> LogStatistics:
    """Describe a log as the rules admit its jobs. Serial jobs count among the powers of two."""
    workload = prepare(log, rules, procs_total=procs_total)
    if not len(workload):
        causes = ", ".join(f"{cause} {count}" for cause, count in workload.skipped.items())
        raise BadInput(log.name, f"no job is left ({causes})", "jobs with a size and a run time that fit the machine")
    span_us = int(workload.submit_us[-1] - workload.submit_us[0])
    work = workload.run_us / US_PER_S * workload.procs
    request_s = log.column(Field.REQUEST_S)
    months, months_by = _months(log, workload)
    users = np.unique(workload.user[workload.user >= 0])
    return LogStatistics(
        name=log.name,
        jobs=len(workload),
        procs_total=workload.procs_total,
        procs_total_from=workload.procs_total_from,
        span_s=span_us / US_PER_S,
        offered_load=workload.offered_load if span_us else None,
        run_s=quantiles(workload.run_us / US_PER_S),
        procs=quantiles(workload.procs),
        request_s=quantiles(request_s[request_s > 0]) if (request_s > 0).any() else None,
        interarrival_s=quantiles(np.diff(workload.submit_us) / US_PER_S) if len(workload) > 1 else None,
        serial_ratio=float((workload.procs == 1).mean()),
        power_of_two_ratio=float((workload.procs & (workload.procs - 1) == 0).mean()),
        accuracy=accuracy(log),
        months=months,
        months_by=months_by,
        users=len(users),
        top_users=_top_users(workload, work, top_users),
        skipped=dict(workload.skipped),
        adjusted=dict(workload.adjusted),
    )


def quantiles(values: NDArray[np.float64] | NDArray[np.int64]) -> Quantiles:
    """Quantiles of at least one value."""
    points = np.quantile(values, [0, 0.25, 0.5, 0.75, 0.9, 0.99, 1], method="inverted_cdf")
    lowest, q25, median, q75, q90, q99, highest = points.astype(np.float64).tolist()
    return Quantiles(lowest, q25, median, q75, q90, q99, highest, float(values.mean()))


def accuracy(log: Log) -> Accuracy:
    """How accurate the users' requests were, of the jobs that have both a run time and a request."""
    run_s, request_s = log.column(Field.RUN_S), log.column(Field.REQUEST_S)
    known = (run_s > 0) & (request_s > 0)
    ratio = run_s[known] / request_s[known]
    below = ratio[ratio < 1]
    counts = np.bincount(np.minimum((below * BINS).astype(np.int64), BINS - 1), minlength=BINS)
    return Accuracy(
        subset="jobs whose run time and request are both above 0, as logged",
        jobs=len(ratio),
        histogram=[int(count) for count in counts],
        exactly_100=int((ratio == 1).sum()),
        above_100=int((ratio > 1).sum()),
        rounds_to_100=int((np.rint(ratio * 100) == 100).sum()),
        mean_ratio=float(ratio.mean()) if len(ratio) else None,
    )


def _months(log: Log, workload: Workload) -> tuple[dict[str, int], str]:
    if workload.unix_start_s is None:
        return {}, "no UnixStartTime in the header"
    entries = log.header.entries
    try:
        labels = month_labels(
            workload.submit_us,
            workload.unix_start_s,
            entries.get("TimeZoneString"),
            offset_s=log.header.integer("TimeZone"),
        )
    except BadInput as error:
        return {}, str(error)
    names, counts = np.unique(labels, return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True)), clock_of(log.header).origin


def _top_users(workload: Workload, work: NDArray[np.float64], most: int) -> list[UserShare]:
    """The users with the most work; at equal work the one with more jobs, then the lower number."""
    known = workload.user >= 0
    users, which = np.unique(workload.user[known], return_inverse=True)
    jobs, worked = np.bincount(which), np.bincount(which, weights=work[known])
    order = np.lexsort((users, -jobs, -worked))[:most]
    total = float(work.sum())
    return [UserShare(int(users[i]), int(jobs[i]), float(worked[i]) / total) for i in order]

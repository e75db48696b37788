"""The measures of one schedule, whole and by group.

Definitions (docs/glossary.md): *wait* is start - submission; *execution* end - start; *response* (turnaround) end -
submission; of a job that follows another, both count from when it is eligible (``Schedule.eligible_us``). *Bounded
slowdown* is max(1, response / max(time alone, threshold)), with a threshold of 10 s (Feitelson & Weil 1998, section
3.1, never below 1). *Time alone* is what the job did until it ended or was killed, as time on idle nodes: the time
executed on a dedicated machine, less where jobs share nodes and stretch each other. *Makespan* is the last end - the
first submission; *utilisation* the processor-seconds used over those of the machine during the makespan.
``utilization_arrivals`` looks at the time between the first and the last submission only,
without the drain at the end.
"""

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from cosched.metrics.intervals import Interval, batch_means, by_batch_means, lag_one
from cosched.model.time import US_PER_S
from cosched.workload.schedule import Schedule

Floats = NDArray[np.float64]
BOUND_S = 10.0


@dataclass(frozen=True)
class PerJob:
    """Measures of each job, arrays of shape (n,), in seconds (the slowdown without unit)."""

    wait_s: Floats
    execution_s: Floats
    response_s: Floats
    bounded_slowdown: Floats


def per_job(schedule: Schedule, bound_s: float = BOUND_S) -> PerJob:
    """Wait, execution, response and bounded slowdown of each job."""
    eligible_us = schedule.eligible_us
    wait_s = (schedule.start_us - eligible_us) / US_PER_S
    response_s = (schedule.end_us - eligible_us) / US_PER_S
    execution_s = (schedule.end_us - schedule.start_us) / US_PER_S
    slowdown = np.maximum(1.0, response_s / np.maximum(bound_s, schedule.alone_us / US_PER_S))
    return PerJob(wait_s, execution_s, response_s, slowdown)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The measures of a schedule. The first six are those that other programs rely on."""

    jobs: int
    mean_wait_s: float
    mean_bounded_slowdown: float
    utilization: float
    makespan_s: float
    utilization_arrivals: float
    median_wait_s: float
    p95_wait_s: float
    max_wait_s: float
    mean_execution_s: float
    mean_response_s: float
    median_bounded_slowdown: float
    p95_bounded_slowdown: float
    backfilled_ratio: float
    timed_out: int


def summarise(schedule: Schedule, bound_s: float = BOUND_S) -> Summary:
    """All measures of a schedule of at least one job."""
    load = schedule.workload
    jobs = per_job(schedule, bound_s)
    end_us = schedule.end_us
    first_us, last_us = int(load.submit_us.min()), int(load.submit_us.max())
    makespan_us = int(end_us.max()) - first_us
    used = schedule.used_us()
    arrivals_us = last_us - first_us
    used_arrivals = schedule.used_us(last_us)
    return Summary(
        jobs=len(load),
        mean_wait_s=float(jobs.wait_s.mean()),
        mean_bounded_slowdown=float(jobs.bounded_slowdown.mean()),
        utilization=used / (load.procs_total * makespan_us),
        makespan_s=makespan_us / US_PER_S,
        utilization_arrivals=used_arrivals / (load.procs_total * arrivals_us) if arrivals_us else 0.0,
        median_wait_s=float(np.median(jobs.wait_s)),
        p95_wait_s=float(np.quantile(jobs.wait_s, 0.95)),
        max_wait_s=float(jobs.wait_s.max()),
        mean_execution_s=float(jobs.execution_s.mean()),
        mean_response_s=float(jobs.response_s.mean()),
        median_bounded_slowdown=float(np.median(jobs.bounded_slowdown)),
        p95_bounded_slowdown=float(np.quantile(jobs.bounded_slowdown, 0.95)),
        backfilled_ratio=float(schedule.backfilled.mean()),
        timed_out=int(load.timed_out.sum()),
    )


class BatchMeans(msgspec.Struct, frozen=True, kw_only=True):
    """A mean of one run with its interval by batch means, and the correlation of neighbouring batches.

    The interval is to be trusted where ``lag_one`` is near 0: then the batches are long enough to be independent.
    """

    interval: Interval
    batches: int
    lag_one: float


def with_intervals(schedule: Schedule, batches: int = 30) -> dict[str, BatchMeans]:
    """Mean wait and mean bounded slowdown of one run, jobs in order of submission, with intervals by batch means."""
    jobs = per_job(schedule)
    return {
        name: BatchMeans(
            interval=by_batch_means(values, batches),
            batches=batches,
            lag_one=lag_one(batch_means(values, batches)) if len(values) >= 2 * batches else 0.0,
        )
        for name, values in (("mean_wait_s", jobs.wait_s), ("mean_bounded_slowdown", jobs.bounded_slowdown))
    }


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Mean measures of one group of jobs."""

    group: str
    jobs: int
    mean_wait_s: float
    mean_execution_s: float
    mean_response_s: float
    mean_bounded_slowdown: float
    processor_hours: float


def grouped(schedule: Schedule, labels: NDArray[np.str_], bound_s: float = BOUND_S) -> list[Group]:
    """Mean measures by group, in order of the labels; ``labels`` has shape (n,), one per job."""
    jobs = per_job(schedule, bound_s)
    area = schedule.workload.procs * ((schedule.end_us - schedule.start_us) / (3600 * US_PER_S))
    names, member = np.unique(labels, return_inverse=True)
    counts = np.bincount(member, minlength=len(names))
    means = {
        name: np.bincount(member, values, len(names)) / np.maximum(1, counts)
        for name, values in (
            ("wait", jobs.wait_s),
            ("execution", jobs.execution_s),
            ("response", jobs.response_s),
            ("sld", jobs.bounded_slowdown),
        )
    }
    areas = np.bincount(member, area, len(names))
    return [
        Group(
            group=str(name),
            jobs=int(counts[i]),
            mean_wait_s=float(means["wait"][i]),
            mean_execution_s=float(means["execution"][i]),
            mean_response_s=float(means["response"][i]),
            mean_bounded_slowdown=float(means["sld"][i]),
            processor_hours=float(areas[i]),
        )
        for i, name in enumerate(names)
    ]


def class_labels(schedule: Schedule, *, short_s: float = 3600, narrow_procs: int = 8) -> NDArray[np.str_]:
    """Short/long × narrow/wide of each job, shape (n,): up to an hour, up to 8 processors.

    The classes of Srinivasan et al. 2002, "Characterization of backfilling strategies for parallel job scheduling".
    """
    load = schedule.workload
    short = np.where(load.run_us <= short_s * US_PER_S, "short", "long")
    narrow = np.where(load.procs <= narrow_procs, "narrow", "wide")
    return np.char.add(np.char.add(short, " "), narrow)


def user_labels(schedule: Schedule) -> NDArray[np.str_]:
    """The user of each job, padded so that labels sort as numbers, shape (n,)."""
    users = schedule.workload.user
    width = len(str(int(users.max()))) if len(users) else 1
    return np.array([f"{user:>{width}}" if user >= 0 else "unknown" for user in users.tolist()])

"""The order of the queue (Hanzich et al. 2005, section 2, "Job Order"): by arrival, or by the estimated run time.

A key sorts the queue. It depends on the estimate and the arrival rank only and grows with the rank, so jobs of one
shape (processors, estimate) stand in order of arrival whatever the order: the queue relies on it.
"""

from collections.abc import Callable
from typing import Final

from cosched.model.job import Job

Key = tuple[int, int]
Order = Callable[[Job, int], Key]


def fcfs(job: Job, rank: int) -> Key:
    """First come, first served: by arrival."""
    return (0, rank)


def sjf(job: Job, rank: int) -> Key:
    """Shortest job first: by increasing estimate, then arrival."""
    return (job.estimate_us, rank)


def ljf(job: Job, rank: int) -> Key:
    """Longest job first: by decreasing estimate, then arrival."""
    return (-job.estimate_us, rank)


ORDERS: Final[dict[str, Order]] = {"fcfs": fcfs, "sjf": sjf, "ljf": ljf}

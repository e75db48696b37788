"""What selections have in common: start the heads of the queue, and find the next job of a scan that may start."""

from collections.abc import Collection, Iterator
from typing import Final

from cosched.model.job import Job
from space_scheduler.policy.future import CountedFuture, Future
from space_scheduler.policy.interface import PlannedStart
from space_scheduler.policy.queue import JobQueue, LongScan, Scan
from space_scheduler.reasons import Reason, Why

_FITS: Final = Why.FITS  # as in ``feasibility``: slow to look up in its class


def start_heads(jobs: Iterator[Job], future: Future, starts: list[PlannedStart]) -> Job | None:
    """Start jobs in order while they fit, and add them to ``starts``; the first that does not fit, or None."""
    now = future.now
    for job in jobs:
        if not now(job):
            return job
        starts.append(future.start(job, Reason(_FITS, {"free_procs": future.free_procs})))
    return None


def walk(
    queue: JobQueue, future: Future, *, shortest_first: bool = False, widest_first: bool = False
) -> Scan | LongScan:
    """A scan of the jobs that may be narrow enough; on counted processors, of those alone that may start."""
    longest_us = future.longest_us if isinstance(future, CountedFuture) else None
    return queue.scan(
        future.free_procs, longest_us=longest_us, shortest_first=shortest_first, widest_first=widest_first
    )


def next_fitting(scan: Scan | LongScan, future: Future, taken: Collection[int]) -> Job | None:
    """The next job of the scan that may start now and is none of ``taken``; the scan stands at it. None: no more."""
    peek, now = scan.peek, future.now
    while (job := peek()) is not None:
        if job.id in taken:
            scan.advance()
        elif now(job):
            return job
        else:
            scan.drop()
    return None

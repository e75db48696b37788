"""What selections have in common: start the heads of the queue, and find the next job of a scan that may start."""

from collections.abc import Collection, Sequence

from cosched.model.job import Job
from space_scheduler.policy.future import Future
from space_scheduler.policy.interface import PlannedStart, Snapshot
from space_scheduler.policy.queue import Scan
from space_scheduler.reasons import Reason, Why


def start_heads(snapshot: Snapshot, future: Future, begun: Sequence[PlannedStart] = ()) -> list[PlannedStart]:
    """Start jobs in order while they fit. ``begun`` are starts of this pass, which come first."""
    starts = [*begun]
    taken = {start.job.id for start in begun}
    for start in begun:
        future.begin(start)
    now = future.now
    for job in snapshot.queue:
        if job.id in taken:
            continue
        if not now(job):
            break
        starts.append(future.start(job, Reason(Why.FITS, {"free_procs": future.free_procs})))
    return starts


def next_fitting(scan: Scan, future: Future, taken: Collection[int]) -> Job | None:
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

"""Fit processors first served: FPFS(maxJumps) (Ngubiri & van Vliet 2006, section 3).

The queue is searched from the head for the first job that fits. A job started from further back *jumps* the head; each
jump adds one to the head's count, and when the count has reached ``max_jumps`` nobody passes until the head has
started. A new head starts with a count of zero. ``max_jumps = 0`` is FCFS. No estimates are used.

Where a start can make room for another job, the head may fit after it: the search begins again at the head.
"""

from dataclasses import dataclass
from typing import ClassVar

from space_scheduler.policy.future import Future, future_of
from space_scheduler.policy.interface import Plan, PlannedStart, Snapshot
from space_scheduler.policy.order import Order, fcfs
from space_scheduler.policy.select.scan import next_fitting, start_heads, walk
from space_scheduler.reasons import Reason, Why


@dataclass(frozen=True)
class Jumps:
    """The memory: how often the present head has been passed."""

    head_id: int
    count: int


@dataclass(frozen=True)
class FitProcessorsFirstServed:
    """First fit with a bound on how often the head is passed. ``place`` and ``mpl`` as for ``JustFirst``."""

    max_jumps: int
    order: Order = fcfs
    place: str = ""
    mpl: int | None = None
    memory_type: ClassVar = Jumps
    shares: ClassVar = True

    def plan(self, snapshot: Snapshot) -> Plan:
        """Start heads while they fit, then let others past the blocked head as far as its count allows."""
        if (plan := self._short_cut(snapshot)) is not None:
            return plan
        future = future_of(snapshot)
        starts: list[PlannedStart] = []
        head = start_heads(iter(snapshot.queue), future, starts)
        jumps = snapshot.memory if isinstance(snapshot.memory, Jumps) else None
        while True:
            if head is None:
                return Plan(starts)
            if jumps is None or jumps.head_id != head.id:
                jumps = Jumps(head.id, 0)
            if future.by_company and future.now(head):  # the last jump has made room for it
                starts.append(future.start(head, Reason(Why.FITS, {"free_procs": future.free_procs})))
                taken = {start.job.id for start in starts}
                head = next((job for job in snapshot.queue if job.id not in taken), None)
                continue
            before = jumps
            jumps = self._past(snapshot, future, starts, before)
            if not future.by_company or jumps == before:
                return Plan(starts, jumps)

    def _short_cut(self, snapshot: Snapshot) -> Plan | None:
        """The plan of a pass before which nothing but submissions has happened, or None.

        Who waited before that does not fit now, or may not pass the head: the newcomers alone are asked.
        """
        jumps, head = snapshot.memory, snapshot.queue.head()
        if not isinstance(jumps, Jumps) or head is None or head.id != jumps.head_id:
            return None
        newcomers = snapshot.changes.submitted
        if not snapshot.changes.only_submissions or head in newcomers:
            return None
        if jumps.count >= self.max_jumps:
            return Plan((), jumps)
        future = future_of(snapshot)
        if future.by_company:
            return None
        starts: list[PlannedStart] = []
        for job in sorted(newcomers, key=lambda job: snapshot.queue.key(job.id)):
            if jumps.count < self.max_jumps and future.now(job):
                jumps = Jumps(jumps.head_id, jumps.count + 1)
                starts.append(future.start(job, _jumped(jumps)))
        return Plan(starts, jumps)

    def _past(self, snapshot: Snapshot, future: Future, starts: list[PlannedStart], jumps: Jumps) -> Jumps:
        """Let others past the blocked head, one alone where it might fit after that; returns the count then."""
        taken = {start.job.id for start in starts}
        scan = walk(snapshot.queue, future)
        while jumps.count < self.max_jumps and (job := next_fitting(scan, future, taken)) is not None:
            jumps = Jumps(jumps.head_id, jumps.count + 1)
            starts.append(future.start(job, _jumped(jumps)))
            if future.by_company:
                break
            scan.advance()
        return jumps


def _jumped(jumps: Jumps) -> Reason:
    return Reason(Why.JUMPED, {"head": jumps.head_id, "jumps": jumps.count})

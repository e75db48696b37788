"""Best fit (BFI, Hanzich et al. 2005, section 2): always the job that leaves the fewest processors unused.

Among equally wide jobs the first in order. No reservation is made, so wide jobs can starve. Where a start can make room
for another job, a wider one may fit after it: the search begins again.
"""

from dataclasses import dataclass
from typing import ClassVar

from space_scheduler.policy.future import future_of
from space_scheduler.policy.interface import Plan, PlannedStart, Snapshot
from space_scheduler.policy.order import Order, fcfs
from space_scheduler.policy.select.scan import next_fitting, walk
from space_scheduler.reasons import Reason, Why


@dataclass(frozen=True)
class BestFit:
    """The widest job that fits, again and again. ``place`` and ``mpl`` as for ``JustFirst``."""

    order: Order = fcfs
    place: str = ""
    mpl: int | None = None
    shares: ClassVar = True

    def plan(self, snapshot: Snapshot) -> Plan:
        """Fill the machine, widest first."""
        future, queue = future_of(snapshot), snapshot.queue
        starts: list[PlannedStart] = []
        taken: set[int] = set()
        scan = walk(queue, future, widest_first=True)
        while (job := next_fitting(scan, future, taken)) is not None:
            left_procs = future.free_procs - job.procs
            starts.append(future.start(job, Reason(Why.BEST_FIT, {"left_procs": left_procs})))
            taken.add(job.id)
            if future.by_company:
                scan = walk(queue, future, widest_first=True)
            else:
                scan.advance()
        return Plan(starts)

"""Just first (JFirst, Hanzich et al. 2005, section 2): only the head of the queue is tried; it starts if it fits."""

from dataclasses import dataclass

from space_scheduler.feasibility import obstacle
from space_scheduler.policy.interface import Plan, PlannedStart, Snapshot
from space_scheduler.policy.order import Order, fcfs
from space_scheduler.reasons import Reason, Why


def start_heads(snapshot: Snapshot) -> tuple[list[PlannedStart], int]:
    """Start jobs in order while they fit. Returns them and the processors still free."""
    free_procs = snapshot.free_procs
    starts: list[PlannedStart] = []
    for job in snapshot.queue:
        if obstacle(job.procs, job.estimate_us, snapshot.now_us, free_procs):
            break
        starts.append(PlannedStart(job, Reason(Why.FITS, {"free_procs": free_procs})))
        free_procs -= job.procs
    return starts, free_procs


@dataclass(frozen=True)
class JustFirst:
    """The head or nobody. With the order fcfs this is FCFS, with sjf or ljf those policies."""

    order: Order = fcfs

    def plan(self, snapshot: Snapshot) -> Plan:
        """Start heads while they fit."""
        return Plan(start_heads(snapshot)[0])

"""A policy of one's own: start whatever fits, the job with the least work (processors × estimate) first."""

from space_scheduler.feasibility import obstacle
from space_scheduler.policy.interface import Plan, PlannedStart, Snapshot
from space_scheduler.policy.order import fcfs
from space_scheduler.reasons import Reason, Why


class LeastWorkFirst:
    """Greedy, without any promise: wide and long jobs may wait for ever behind a stream of small ones."""

    order = staticmethod(fcfs)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Whatever fits, least work first."""
        free_procs, starts = snapshot.free_procs, []
        for job in sorted(snapshot.queue, key=lambda job: (job.procs * job.estimate_us, job.id)):
            if obstacle(job.procs, job.estimate_us, snapshot.now_us, free_procs) is None:
                starts.append(PlannedStart(job, Reason(Why.FITS, {"free_procs": free_procs})))
                free_procs -= job.procs
        return Plan(starts)

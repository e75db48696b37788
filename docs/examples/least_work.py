"""A policy of one's own: start whatever fits, the job with the least work (processors × estimate) first."""

from space_scheduler.policy.interface import Plan, Snapshot
from space_scheduler.policy.order import fcfs
from space_scheduler.policy.room import room_of
from space_scheduler.reasons import Reason, Why


class LeastWorkFirst:
    """Greedy, without any promise: wide and long jobs may wait for ever behind a stream of small ones."""

    order = staticmethod(fcfs)
    shares = True  # no promise that an end could break, so it can be had where jobs share nodes

    def plan(self, snapshot: Snapshot) -> Plan:
        """Whatever fits, least work first."""
        room, starts = room_of(snapshot), []
        for job in sorted(snapshot.queue, key=lambda job: (job.procs * job.estimate_us, job.id)):
            if room.obstacle(job):
                continue
            starts.append(room.start(job, Reason(Why.FITS, {"free_procs": room.free_procs})))
        return Plan(starts)

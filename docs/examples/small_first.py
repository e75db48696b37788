"""A policy of one's own: EASY, but of the jobs that may pass the head the smallest goes first."""

from space_scheduler.policy.future import shadow_of
from space_scheduler.policy.interface import Plan, Snapshot
from space_scheduler.policy.order import fcfs
from space_scheduler.policy.room import room_of
from space_scheduler.reasons import Reason, Why


class SmallFirst:
    """The head has a reservation; the others go by their work, processors × estimate, where they do not delay it."""

    order = staticmethod(fcfs)

    def plan(self, snapshot: Snapshot) -> Plan:
        """In order of arrival until somebody is blocked, then past it."""
        room, starts, waiting = room_of(snapshot), [], list(snapshot.queue)
        while waiting and not room.obstacle(waiting[0]):
            starts.append(room.start(waiting.pop(0), Reason(Why.FITS)))
        if not waiting:
            return Plan(starts)
        head = waiting.pop(0)
        ends = [(snapshot.now_us + each.job.estimate_us, each.job.id, each.job.procs) for each in starts]
        shadow_us, extra = shadow_of(head, room.free_procs, sorted([*snapshot.ends, *ends]))
        for job in sorted(waiting, key=lambda job: (job.procs * job.estimate_us, job.id)):
            in_time = snapshot.now_us + job.estimate_us <= shadow_us
            if room.obstacle(job) or not (in_time or job.procs <= extra):
                continue
            extra -= 0 if in_time else job.procs
            why = Why.BACKFILLED_BEFORE_SHADOW if in_time else Why.BACKFILLED_ON_EXTRA
            starts.append(room.start(job, Reason(why)))
        return Plan(starts)

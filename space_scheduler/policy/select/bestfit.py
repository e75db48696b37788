"""Best fit (BFI, Hanzich et al. 2005, section 2): always the job that leaves the fewest processors unused.

Among equally wide jobs the first in order. No reservation is made, so wide jobs can starve.
"""

from dataclasses import dataclass
from typing import ClassVar

from cosched.model.job import Job
from space_scheduler.policy.interface import Plan, PlannedStart, Snapshot
from space_scheduler.policy.order import Order, fcfs
from space_scheduler.policy.room import room_of
from space_scheduler.reasons import Reason, Why


@dataclass(frozen=True)
class BestFit:
    """The widest job that fits, again and again."""

    order: Order = fcfs
    shares: ClassVar = True

    def plan(self, snapshot: Snapshot) -> Plan:
        """Fill the machine, widest first."""
        room = room_of(snapshot)
        fitting: dict[int, list[Job]] = {}  # jobs by width, each in order
        scan = snapshot.queue.scan(room.free_procs)
        while (job := scan.peek()) is not None:
            fitting.setdefault(job.procs, []).append(job)
            scan.advance()
        starts: list[PlannedStart] = []
        for procs in sorted(fitting, reverse=True):
            for job in fitting[procs]:
                if why := room.obstacle(job):
                    if why is Why.NOT_ENOUGH_FREE:
                        break
                    continue  # another of this width may need less memory
                starts.append(room.start(job, Reason(Why.BEST_FIT, {"left_procs": room.free_procs - procs})))
        return Plan(starts)

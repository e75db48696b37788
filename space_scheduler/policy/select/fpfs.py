"""Fit processors first served: FPFS(maxJumps) (Ngubiri & van Vliet 2006, section 3).

The queue is searched from the head for the first job that fits. A job started from further back *jumps* the head; each
jump adds one to the head's count, and when the count has reached ``max_jumps`` nobody passes until the head has
started. A new head starts with a count of zero. ``max_jumps = 0`` is FCFS. No estimates are used.
"""

from dataclasses import dataclass
from typing import ClassVar

from space_scheduler.policy.interface import Plan, Snapshot
from space_scheduler.policy.order import Order, fcfs
from space_scheduler.policy.room import room_of
from space_scheduler.policy.select.jfirst import start_heads
from space_scheduler.reasons import Reason, Why


@dataclass(frozen=True)
class Jumps:
    """The memory: how often the present head has been passed."""

    head_id: int
    count: int


@dataclass(frozen=True)
class FitProcessorsFirstServed:
    """First fit with a bound on how often the head is passed."""

    max_jumps: int
    order: Order = fcfs
    memory_type: ClassVar = Jumps
    shares: ClassVar = True

    def plan(self, snapshot: Snapshot) -> Plan:
        """Start heads while they fit, then let others past the blocked head as far as its count allows."""
        room = room_of(snapshot)
        starts = start_heads(snapshot, room)
        queue = snapshot.queue
        if len(starts) == len(queue):
            return Plan(starts)
        started = len(starts)
        head = next(job for i, job in enumerate(queue) if i == started)
        memory = snapshot.memory
        count = memory.count if isinstance(memory, Jumps) and memory.head_id == head.id else 0
        taken = {start.job.id for start in starts}
        scan = queue.scan(room.free_procs)
        while count < self.max_jumps and (job := scan.peek()) is not None:
            if job.id in taken:
                scan.advance()
            elif room.obstacle(job):
                scan.drop()
            else:
                count += 1
                starts.append(room.start(job, Reason(Why.JUMPED, {"head": head.id, "jumps": count})))
                scan.advance()
        return Plan(starts, Jumps(head.id, count))

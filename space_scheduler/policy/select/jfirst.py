"""Just first (JFirst, Hanzich et al. 2005, section 2): only the head of the queue is tried; it starts if it fits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from space_scheduler.policy.interface import Plan, PlannedStart, Snapshot
from space_scheduler.policy.order import Order, fcfs
from space_scheduler.policy.room import NamedPool, Pool, room_of
from space_scheduler.reasons import Reason, Why


def start_heads(snapshot: Snapshot, room: Pool | NamedPool, begun: Sequence[PlannedStart] = ()) -> list[PlannedStart]:
    """Start jobs in order while they fit into the room. ``begun`` are starts of this pass, which come first."""
    starts = [*begun]
    taken = {start.job.id for start in begun}
    for start in begun:
        room.take(start)
    for job in snapshot.queue:
        if job.id in taken:
            continue
        if room.obstacle(job):
            break
        starts.append(room.start(job, Reason(Why.FITS, {"free_procs": room.free_procs})))
    return starts


@dataclass(frozen=True)
class JustFirst:
    """The head or nobody. With the order fcfs this is FCFS, with sjf or ljf those policies.

    ``place`` is how tasks are laid on named nodes, a name in ``policy.place``; empty: as the machine has it. ``mpl`` is
    how many of them may share a CPU; None: as many as nodes offer.
    """

    order: Order = fcfs
    place: str = ""
    mpl: int | None = None
    shares: ClassVar = True

    def plan(self, snapshot: Snapshot) -> Plan:
        """Start heads while they fit."""
        return Plan(start_heads(snapshot, room_of(snapshot)))

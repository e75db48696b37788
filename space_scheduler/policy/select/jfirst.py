"""Just first (JFirst, Hanzich et al. 2005, section 2): only the head of the queue is tried; it starts if it fits."""

from dataclasses import dataclass
from typing import ClassVar

from space_scheduler.policy.future import future_of
from space_scheduler.policy.interface import Plan, PlannedStart, Snapshot
from space_scheduler.policy.order import Order, fcfs
from space_scheduler.policy.select.scan import start_heads


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
        """Start heads while they fit; none, if the head did not fit before and nothing but submissions has happened."""
        if snapshot.changes.only_submissions and snapshot.queue.head() not in snapshot.changes.submitted:
            return Plan()
        starts: list[PlannedStart] = []
        start_heads(iter(snapshot.queue), future_of(snapshot), starts)
        return Plan(starts)

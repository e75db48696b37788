"""What may be read of a machine by whoever checks a plan, explains a job or walks the invariants."""

from typing import Protocol

from space_scheduler.machine.capacity import Capacity
from space_scheduler.machine.jobs import JobBook
from space_scheduler.machine.named_capacity import NamedCapacity
from space_scheduler.machine.rates import Rates
from space_scheduler.machine.rules import MachineRules


class MachineView(Protocol):
    """A machine at ``now_us``, to be looked at: its rules, its jobs, what it has and what they hold of it."""

    @property
    def now_us(self) -> int:
        """The time of the last event."""
        ...

    @property
    def rules(self) -> MachineRules:
        """What holds there."""
        ...

    @property
    def jobs(self) -> JobBook:
        """The live jobs."""
        ...

    @property
    def capacity(self) -> Capacity:
        """What there is, and what is held of it."""
        ...

    @property
    def nodes(self) -> NamedCapacity | None:
        """The same where nodes have names, else None."""
        ...

    @property
    def rates(self) -> Rates | None:
        """How fast jobs go, where they share nodes, else None."""
        ...

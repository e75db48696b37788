"""What will be free, where and when: one protocol, three futures (``protocol`` has what a selection may ask)."""

from space_scheduler.policy.future import counted, named
from space_scheduler.policy.future.counted import CountedFuture, Schedule, shadow_of
from space_scheduler.policy.future.named import NamedFuture, Timetable
from space_scheduler.policy.future.protocol import Future, KeepingFuture
from space_scheduler.policy.future.shared import SharedFuture
from space_scheduler.policy.interface import Snapshot

__all__ = [
    "CountedFuture",
    "Future",
    "KeepingFuture",
    "NamedFuture",
    "Schedule",
    "SharedFuture",
    "Timetable",
    "contradiction",
    "future_of",
    "keeping",
    "memory_of",
    "resumed",
    "shadow_of",
]


def future_of(snapshot: Snapshot, reservations: int = 1) -> Future:
    """The future of a snapshot, before anything is started or reserved in this pass.

    For more than one of ``reservations`` predicted ends are taken to stay, also where jobs share nodes.
    """
    nodes = snapshot.nodes
    if nodes is None:
        return CountedFuture(snapshot)
    return NamedFuture(snapshot) if nodes.occupancy is None or reservations > 1 else SharedFuture(snapshot)


def keeping(snapshot: Snapshot) -> CountedFuture | NamedFuture:
    """A future whose reservations will be kept, before there are any; predicted ends are taken to stay."""
    return CountedFuture.keeping(snapshot) if snapshot.nodes is None else NamedFuture(snapshot)


def memory_of(snapshot: Snapshot) -> Schedule | Timetable | None:
    """What was kept of a future of this kind, or None."""
    memory = snapshot.memory
    return memory if isinstance(memory, Schedule if snapshot.nodes is None else Timetable) else None


def resumed(snapshot: Snapshot, memory: Schedule | Timetable) -> CountedFuture | NamedFuture:
    """The future with what was kept, less what has ended or been withdrawn since."""
    if isinstance(memory, Schedule):
        return CountedFuture.resumed(snapshot, memory)
    return NamedFuture.resumed(snapshot, memory)


def contradiction(snapshot: Snapshot) -> str | None:
    """What is wrong with what is kept, in words, or None."""
    memory = memory_of(snapshot)
    if isinstance(memory, Schedule):
        return counted.contradiction(snapshot, memory)
    return None if memory is None else named.contradiction(snapshot, memory)

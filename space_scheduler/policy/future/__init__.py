"""What will be free, where and when: one protocol, three futures (``protocol`` has what a selection may ask)."""

from collections.abc import Iterable

from space_scheduler.policy.future import kept, named
from space_scheduler.policy.future.counted import CountedFuture, shadow_of
from space_scheduler.policy.future.kept import KeptFuture
from space_scheduler.policy.future.named import NamedFuture, Timetable
from space_scheduler.policy.future.protocol import Future, KeepingFuture
from space_scheduler.policy.future.reservations import Schedule, Version
from space_scheduler.policy.future.shared import SharedFuture
from space_scheduler.policy.interface import Snapshot

__all__ = [
    "CountedFuture",
    "Future",
    "KeepingFuture",
    "KeptFuture",
    "NamedFuture",
    "Schedule",
    "SharedFuture",
    "Timetable",
    "Version",
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


def keeping(snapshot: Snapshot, job_ids: Iterable[int]) -> KeptFuture | NamedFuture:
    """A future whose reservations will be kept, with none yet; predicted ends are taken to stay.

    ``job_ids`` are those that will be placed, in the order in which promises are told.
    """
    return KeptFuture.anew(snapshot, job_ids) if snapshot.nodes is None else NamedFuture.anew(snapshot, job_ids)


def memory_of(snapshot: Snapshot) -> Version | Schedule | Timetable | None:
    """What was kept of a future of this kind, or None."""
    memory = snapshot.memory
    if snapshot.nodes is None:
        return memory if isinstance(memory, Version | Schedule) else None
    return memory if isinstance(memory, Timetable) else None


def resumed(snapshot: Snapshot, memory: Version | Schedule | Timetable) -> KeptFuture | NamedFuture:
    """The future with what was kept, less what has ended or been withdrawn since."""
    if isinstance(memory, Timetable):
        return NamedFuture.resumed(snapshot, memory)
    return KeptFuture.resumed(snapshot, memory)


def contradiction(snapshot: Snapshot) -> str | None:
    """What is wrong with what is kept, in words, or None."""
    memory = memory_of(snapshot)
    if isinstance(memory, Timetable):
        return named.contradiction(snapshot, memory)
    return None if memory is None else kept.contradiction(snapshot, memory)

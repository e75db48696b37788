"""What a node says of its contract, of what its owner's processes feel, and of how it is woken; who may know what."""

from enum import StrEnum
from typing import Annotated, Final

import msgspec

from cosched.model.quantities import Count, Cpus, Micros, Seconds, ShareOrUnknown

#: Buckets of a histogram that travels, at most.
MOST_BUCKETS: Final = 32
#: Spans in which a machine may be woken, at most.
MOST_SPANS: Final = 64
_OCTET: Final = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"


class ContractReason(StrEnum):
    """Which contract is in force at a desk, and why."""

    PRESENT = "present"  # the ceiling holds: somebody is there
    UNKNOWN = "unknown"  # it holds: who is there is not known
    PRESSURE = "pressure"  # it is lowered: somebody is there, and waits all the same
    SCHEDULER_SILENT = "scheduler_silent"  # it holds: the scheduler has not been heard within its lease
    NOT_RELAXED = "not_relaxed"  # it holds: the guard has not lifted it, or has armed by itself
    RELAXED = "relaxed"  # there is no ceiling: nobody is there
    PAUSED = "paused"  # nothing runs: by its owner's word
    NO_GUARD = "no_guard"  # not known: the guard does not answer
    AGENT_SILENT = "agent_silent"  # the agent is not heard; its guard has armed, if it is there
    ASLEEP = "asleep"  # the machine is suspended
    CLOSED = "closed"  # nothing runs: by its owner's hours. Not sent: agents say that it is paused, and when it opens


#: Those that tell whether somebody is at the desk. To others than operators they are one.
_PERSONAL: Final = frozenset({ContractReason.PRESENT, ContractReason.UNKNOWN, ContractReason.PRESSURE})
_ARMED: Final = "armed"
#: What everybody may know, in the order of the enumeration.
PUBLIC_REASONS: Final = (_ARMED, *(each.value for each in ContractReason if each not in _PERSONAL))


def public_reason(reason: ContractReason) -> str:
    """A reason without what it says of a person; one of :data:`PUBLIC_REASONS`."""
    return _ARMED if reason in _PERSONAL else reason.value


class Availability(StrEnum):
    """What everybody may know of a desk: all of it is free, parallel work is limited there, or nothing starts there."""

    FREE = "free"
    LIMITED = "limited"
    NOT_AVAILABLE = "not_available"


class Pressure(msgspec.Struct, frozen=True, gc=False):
    """For which share of the time since the last look somebody waited for it, 0 to 1; -1 where the kernel says nothing.

    Of the owner's processes with version 2 of the control groups, else of the whole machine's, and without the CPU,
    for which parallel work waits all the time.
    """

    cpu: ShareOrUnknown = -1.0
    memory: ShareOrUnknown = -1.0
    io: ShareOrUnknown = -1.0


class Wakeups(msgspec.Struct, frozen=True, gc=False):
    """How late a process of the owner's weight woke since its node's guard started (``cosched.linux.wakeups``).

    ``counts`` are by bucket, and last those beyond all; ``late_us`` is the sum of all.
    """

    counts: Annotated[tuple[Count, ...], msgspec.Meta(max_length=MOST_BUCKETS)]
    late_us: Micros


class Wakeable(msgspec.Struct, frozen=True, omit_defaults=True):
    """A machine that is about to sleep may be woken for jobs that wait, by its owner's word, and how.

    ``mac`` is the Ethernet address of the interface by which others reach it, ``broadcast`` the IPv4 address of all
    machines of that network. ``spans``: from when until when it may be woken, in seconds from this report.
    """

    mac: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{2}:){5}[0-9a-f]{2}\Z")]
    broadcast: Annotated[str, msgspec.Meta(pattern=rf"^({_OCTET}\.){{3}}{_OCTET}\Z")]
    spans: Annotated[tuple[tuple[Seconds, Seconds], ...], msgspec.Meta(max_length=MOST_SPANS)] = ()


class DeskReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """With a heartbeat. ``contract_cpus``: the contract's ceiling in CPUs while somebody is there; None: it has none.

    ``pauses``: how often parallel work was paused since the guard started. ``pressure``, ``wakeups``: None where they
    cannot be had, or are not wanted. ``wakeable``: with the last report before a sleep; None: it is not to be woken.
    ``opens_s``: it is paused for the hour alone, by its owner's hours, which begin again in so many seconds.
    ``disk``: why no new work can be written there; empty where it can.
    """

    reason: ContractReason
    contract_cpus: Cpus | None = None
    pauses: Count = 0
    pressure: Pressure | None = None
    wakeups: Wakeups | None = None
    wakeable: Wakeable | None = None
    opens_s: Seconds | None = None
    disk: str = ""

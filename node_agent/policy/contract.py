"""The contract at one desk: from signs of a person to who is there, and from that to the limits (pure).

Somebody counts as present at his first sign, and until no source has had one for the quiet time of the preset that the
administrator has chosen (:mod:`cosched.model.presets`), and in working hours, where it says so. A source that fails
makes it unknown whether somebody is there, and unknown counts as present: the owner comes first. So does a node on
which there is nothing to watch, and an agent that has just started: it has not looked for long enough.

Limits are relaxed only while the owner is away *and* the scheduler was heard lately, and never for longer than until
the next few looks: an agent that hangs or is cut off leaves a desk that arms by itself.
"""

from collections.abc import Iterable
from typing import NamedTuple

from cosched.linux.presence_reading import Reading
from cosched.model.desk import ContractReason
from cosched.model.node import Presence
from cosched.model.presets import Habit

_US_PER_S = 1_000_000
_STARTED = "just started"
_HOURS = "working hours"
_NOBODYS = "dedicated"


class Watched(NamedTuple):
    """Who is at the desk, which source says so, and when a person was last seen there (microseconds, since boot)."""

    presence: Presence
    source: str
    last_sign_us: int
    last_source: str


def unwatched(now_us: int) -> Watched:
    """What an agent knows when it starts: nothing, so somebody may be there."""
    return Watched(Presence.UNKNOWN, _STARTED, now_us, _STARTED)


def judged(before: Watched, readings: Iterable[Reading], now_us: int, habit: Habit) -> Watched:
    """Who is at the desk now, after what was known ``before`` and what the sources say. Times in microseconds."""
    if not habit.watched:
        return Watched(Presence.AWAY, _NOBODYS, before.last_sign_us, before.last_source)
    away_after_us = round(min(habit.away_after_s, 1e9) * _US_PER_S)
    last_us, last_source = before.last_sign_us, before.last_source
    failed, watching = "", False
    for reading in readings:
        if reading.error:
            failed = failed or f"{reading.source}: {reading.error}"
        elif reading.idle_s is not None:
            watching = True
            sign_us = now_us - round(min(max(reading.idle_s, 0.0), 1e9) * _US_PER_S)
            if sign_us > last_us:
                last_us, last_source = sign_us, reading.source
    if now_us - last_us < away_after_us:
        presence = Presence.UNKNOWN if last_source == _STARTED else Presence.PRESENT
        source = last_source
    elif failed:
        presence, source = Presence.UNKNOWN, failed
    elif not watching:
        presence, source = Presence.UNKNOWN, "no source of presence"
    else:
        presence, source = Presence.AWAY, last_source
    if habit.expected and presence is not Presence.PRESENT:
        presence, source = Presence.PRESENT, _HOURS
    return Watched(presence, source, last_us, last_source)


class Arm(NamedTuple):
    """The contract's ceiling holds from now on."""

    why: str
    reason: ContractReason = ContractReason.SCHEDULER_SILENT


class Relax(NamedTuple):
    """No ceiling until then (microseconds since boot), unless renewed."""

    until_us: int


def decided(presence: Presence, heard_us: int | None, lease_us: int, now_us: int, keep_us: int) -> Arm | Relax:
    """Whether parallel work may use the whole CPU.

    ``heard_us``: when the scheduler was heard last, None for never; ``keep_us``: for how long a decision lasts.
    """
    if presence.counts_as_present:
        if presence is Presence.PRESENT:
            return Arm("somebody is there", ContractReason.PRESENT)
        return Arm("who is there is unknown", ContractReason.UNKNOWN)
    if heard_us is None:
        return Arm("no scheduler has been heard yet")
    until_us = min(now_us + keep_us, heard_us + lease_us)
    if until_us <= now_us:
        return Arm(f"the scheduler has not been heard for {(now_us - heard_us) / _US_PER_S:.0f} s")
    return Relax(until_us)


def reason_of(wanted: Arm | Relax, *, armed: bool, tight: bool, paused: bool, guarded: bool) -> ContractReason:
    """Which contract is in force and why: of what is wanted of the guard, and what it says of its limits.

    ``tight``: the ceiling is lowered because of pressure; ``guarded``: the guard answers.
    """
    if not guarded:
        return ContractReason.NO_GUARD
    if paused:
        return ContractReason.PAUSED
    if not armed:
        return ContractReason.RELAXED
    if isinstance(wanted, Relax):
        return ContractReason.NOT_RELAXED
    return ContractReason.PRESSURE if tight and wanted.reason is ContractReason.PRESENT else wanted.reason

"""The contract at one desk: from signs of a person to who is there, and from that to the limits (pure).

Somebody counts as present at his first sign, and until no source has had one for the quiet time of the preset that the
administrator has chosen (:mod:`cosched.model.presets`), and in working hours, where it says so. A source that fails
makes it unknown whether somebody is there, and unknown counts as present: the owner comes first. So does a node on
which there is nothing to watch, and an agent that has just started: it has not looked for long enough.

Limits are relaxed only while the owner is away *and* the scheduler was heard lately, and never for longer than until
the next few looks: an agent that hangs or is cut off leaves a desk that arms by itself.
"""

from collections.abc import Collection
from typing import NamedTuple

from cosched.linux.presence_reading import Reading
from cosched.model.desk import ContractReason
from cosched.model.node import Presence
from cosched.model.presets import Habit
from cosched.model.time import US_PER_S
from node_agent.policy.cases import first_true

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


def judged(before: Watched, readings: Collection[Reading], now_us: int, habit: Habit) -> Watched:
    """Who is at the desk now, after what was known ``before`` and what the sources say. Times in microseconds."""
    if not habit.watched:
        return Watched(Presence.AWAY, _NOBODYS, before.last_sign_us, before.last_source)
    away_after_us = round(min(habit.away_after_s, 1e9) * US_PER_S)
    failed = next((f"{each.source}: {each.error}" for each in readings if each.error), "")
    signs = [
        (now_us - round(min(max(each.idle_s, 0.0), 1e9) * US_PER_S), each.source)
        for each in readings
        if not each.error and each.idle_s is not None
    ]
    # the first of equally late ones
    last_us, last_source = max([(before.last_sign_us, before.last_source), *signs], key=lambda sign: sign[0])
    seen = Presence.UNKNOWN if last_source == _STARTED else Presence.PRESENT
    cases = [
        ((seen, last_source), now_us - last_us < away_after_us),
        ((Presence.UNKNOWN, failed), failed),
        ((Presence.UNKNOWN, "no source of presence"), not signs),
    ]
    presence, source = first_true(cases, (Presence.AWAY, last_source))
    if habit.expected and presence is not Presence.PRESENT:
        presence, source = Presence.PRESENT, _HOURS
    return Watched(presence, source, last_us, last_source)


class Arm(NamedTuple):
    """The contract's ceiling holds from now on."""

    why: str
    reason: ContractReason = ContractReason.SCHEDULER_SILENT


class Relax(NamedTuple):
    """No ceiling until then (microseconds since boot), unless renewed.

    ``reason`` is reported for a ceiling that is there in spite of it.
    """

    until_us: int
    reason: ContractReason = ContractReason.NOT_RELAXED


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
        return Arm(f"the scheduler has not been heard for {(now_us - heard_us) / US_PER_S:.0f} s")
    return Relax(until_us)


def reason_of(wanted: Arm | Relax, *, armed: bool, tight: bool, paused: bool, guarded: bool) -> ContractReason:
    """Which contract is in force and why: of what is wanted of the guard, and what it says of its limits.

    ``tight``: the ceiling is lowered because of pressure; ``guarded``: the guard answers.
    """
    reasons = [
        (ContractReason.NO_GUARD, not guarded),
        (ContractReason.PAUSED, paused),
        (ContractReason.RELAXED, not armed),
        (ContractReason.PRESSURE, tight and wanted.reason is ContractReason.PRESENT),
    ]
    return first_true(reasons, wanted.reason)

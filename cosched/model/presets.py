"""What an administrator says of a desk in one word, and what that means at one moment (pure).

``desktop``        somebody's workstation: back to parallel work after five quiet minutes.
``desktop-hours``  the same, and in working hours somebody counts as being there whatever the sources say.
``lab-night``      a students' lab: ``desktop`` in working hours; outside them a quarter of a minute without a key is
                   enough, and a session that somebody forgot to end is nobody.
``dedicated``      nobody sits there: nothing is watched, and the contract's ceiling is never in force.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

_DAY_QUIET_S: Final = 300.0
_OUTSIDE_QUIET_S: Final = 60.0
_NIGHT_QUIET_S: Final = 15.0

DESKTOP: Final = "desktop"
DESKTOP_HOURS: Final = "desktop-hours"
LAB_NIGHT: Final = "lab-night"
DEDICATED: Final = "dedicated"
PRESETS: Final = (DESKTOP, DESKTOP_HOURS, LAB_NIGHT, DEDICATED)

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MINUTES: Final = 24 * 60


class Hours(NamedTuple):
    """Working hours: minutes since midnight, from ``begin`` until before ``end`` (an end before the begin is the next
    day's), on ``days`` (0 is Monday) by the day on which they begin.
    """

    begin: int
    end: int
    days: frozenset[int]

    def include(self, weekday: int, minute: int) -> bool:
        """Whether a moment of local time lies within."""
        if self.begin < self.end:
            return weekday in self.days and self.begin <= minute < self.end
        return (weekday in self.days and minute >= self.begin) or ((weekday - 1) % 7 in self.days and minute < self.end)


class Habit(NamedTuple):
    """What holds at one moment: after how much quiet a desk is free, and whether it is asked at all.

    ``expected``: somebody counts as present whatever is seen; ``watched``: False where nobody ever is;
    ``forgotten_sessions``: a graphical session alone is nobody.
    """

    away_after_s: float
    expected: bool = False
    watched: bool = True
    forgotten_sessions: bool = False


def habit(preset: str, hours: Hours, weekday: int, minute: int, away_after_s: float | None = None) -> Habit:
    """What a preset means at a moment of local time. ``away_after_s`` replaces the preset's own quiet times."""
    at_work = hours.include(weekday, minute)
    if preset == DEDICATED:
        return Habit(0.0, watched=False)
    quiet_s = _DAY_QUIET_S
    if not at_work and preset == DESKTOP_HOURS:
        quiet_s = _OUTSIDE_QUIET_S
    elif not at_work and preset == LAB_NIGHT:
        quiet_s = _NIGHT_QUIET_S
    return Habit(
        quiet_s if away_after_s is None else away_after_s,
        expected=at_work and preset == DESKTOP_HOURS,
        forgotten_sessions=not at_work and preset == LAB_NIGHT,
    )


def hours_of(span: str, days: Collection[str]) -> Hours:
    """Working hours as they are written: "08:00-20:00", ["mon", "fri"]. Raises ValueError that says what is wrong."""
    parts = span.split("-")
    if len(parts) != 2:
        raise ValueError("two times such as 08:00-20:00")
    begin, end = (_minute(part.strip()) for part in parts)
    if begin == end:
        raise ValueError("two different times (00:00-24:00 for the whole day)")
    for day in days:
        if day not in DAYS:
            raise ValueError(f"days of {', '.join(DAYS)}, not {day!r}")
    return Hours(begin, end, frozenset(DAYS.index(day) for day in days))


def _minute(text: str) -> int:
    hour, colon, minute = text.partition(":")
    if not (colon and hour.isdecimal() and minute.isdecimal() and len(minute) == 2):
        raise ValueError(f"a time such as 08:00, not {text!r}")
    if int(minute) > 59 or int(hour) * 60 + int(minute) > _MINUTES:
        raise ValueError(f"a time from 00:00 to 24:00, not {text!r}")
    return int(hour) * 60 + int(minute)

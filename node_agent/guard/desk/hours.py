"""Hours of the week in which parallel work may run at a desk, by the machine's local time."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

MINUTES: Final = 24 * 60
MOST_WINDOWS: Final = 8
_DAYS: Final = 7
_NAMES: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Window(NamedTuple):
    """Minutes since midnight, from ``begin`` until before ``end`` (an end that is not later is the next day's).

    ``days`` (0 is Monday) are those on which it begins. (A test compares it with ``cosched.model.presets.Hours``.)
    """

    begin: int
    end: int
    days: tuple[int, ...]

    def __str__(self) -> str:
        span = f"{_clock(self.begin)}-{_clock(self.end)}"
        return span if len(self.days) == _DAYS else f"{','.join(_NAMES[day] for day in self.days)} {span}"


def windows_of(value: object) -> tuple[Window, ...]:
    """Windows as a request or a record has them: ``[[begin, end, [days]]]``. Raises ValueError, with what is wrong."""
    if not isinstance(value, list) or not 0 < len(value) <= MOST_WINDOWS:
        raise ValueError(f"expected 1 to {MOST_WINDOWS} windows")
    return tuple(_window(each) for each in value)


def _window(value: object) -> Window:
    if not isinstance(value, list) or len(value) != len(Window._fields):
        raise ValueError("expected windows of [begin, end, days]")
    begin, end, days = value
    if not _whole(begin, MINUTES - 1) or not _whole(end, MINUTES) or begin == end:
        raise ValueError(f"expected two different minutes of the day, 0 to {MINUTES}")
    if not isinstance(days, list) or not 0 < len(days) <= _DAYS or not all(_whole(day, _DAYS - 1) for day in days):
        raise ValueError("expected days from 0 (Monday) to 6")
    return Window(begin, end, tuple(sorted(set(days))))


def _whole(value: Any, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def opens_in(windows: Sequence[Window], weekday: int, minute: int) -> int:
    """In how many minutes of local time the next of them begins: 0 within one."""
    return open_spans(windows, weekday, minute, _DAYS * MINUTES)[0][0]


def open_spans(windows: Sequence[Window], weekday: int, minute: int, within: int) -> list[tuple[int, int]]:
    """From when until when some of them hold, in minutes of local time from now, up to ``within``; none: always."""
    if not windows:
        return [(0, within)]
    week = _DAYS * MINUTES
    now = weekday * MINUTES + minute
    found: list[tuple[int, int]] = []
    each_of_them = (
        (day * MINUTES + each.begin + weeks * week - now, (each.end - each.begin) % MINUTES or MINUTES)
        for weeks in range(-1, within // week + 2)
        for each in windows
        for day in each.days
    )
    for begin, length in sorted(each_of_them):
        end = min(begin + length, within)
        if end <= max(begin, 0):
            continue
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((max(begin, 0), end))
    return found


def _clock(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"

"""The calendar of a log: which month, at the machine's site, a job was submitted in.

SWF counts seconds from ``UnixStartTime``; ``TimeZoneString`` names the site's zone. The calendar goes by the zone's
*standard* time all year, as the standard's fixed offset ``TimeZone`` does, so that logs with either entry count alike.
(On the KTH log summer time would move 12 of 28 476 jobs, those of the last hour before a month's first midnight.)
Where the zone's name says nothing here, the offset ``TimeZone`` is used, else UTC, and the answer says which.
"""

from datetime import UTC, datetime, timedelta, timezone
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from cosched.errors import BadInput
from cosched.model.time import US_PER_S
from cosched.workload.log import Header
from cosched.workload.rules import Times

_DAY_S: Final = 86_400

#: Names that logs use and that systems with a small zone database lack.
_RENAMED: Final = {
    "US/Eastern": "America/New_York",
    "US/Central": "America/Chicago",
    "US/Mountain": "America/Denver",
    "US/Pacific": "America/Los_Angeles",
}


class Clock(NamedTuple):
    """A site's standard time, in seconds ahead of UTC, and how it was found."""

    offset_s: int
    origin: str


def clock(zone: str | None, offset_s: int | None, at_s: int) -> Clock:
    """The standard time of the zone at that Unix time, else the fixed offset, else UTC."""
    why = "no TimeZoneString"
    for known in (zone, _RENAMED.get(zone or "")):
        if not known:
            continue
        why = f"TimeZoneString {zone!r} is unknown here"
        try:
            when = datetime.fromtimestamp(at_s, ZoneInfo(known))
        except (ValueError, OverflowError, OSError, LookupError):
            continue
        standard = (when.utcoffset() or timedelta()) - (when.dst() or timedelta())
        return Clock(int(standard.total_seconds()), f"{zone}, standard time")
    if offset_s is not None and abs(offset_s) < _DAY_S:
        return Clock(offset_s, f"the fixed offset TimeZone, {offset_s} s ({why})")
    return Clock(0, f"UTC ({why}, no TimeZone)")


def clock_of(header: Header) -> Clock:
    """The clock that a log's header names."""
    start_s = header.integer("UnixStartTime") or 0
    return clock(header.entries.get("TimeZoneString"), header.integer("TimeZone"), start_s)


def month_labels(
    submit_us: Times, unix_start_s: int, zone: str | None, *, offset_s: int | None = None
) -> NDArray[np.str_]:
    """The month of each submission as ``YYYY-MM``, shape (n,), by the clock that the zone or the offset gives."""
    if not len(submit_us):
        return np.empty(0, "U7")
    site = timezone(timedelta(seconds=clock(zone, offset_s, unix_start_s).offset_s))
    first_s, last_s = (int(edge) // US_PER_S + unix_start_s for edge in (submit_us.min(), submit_us.max()))
    try:
        first, last = (datetime.fromtimestamp(edge, UTC).astimezone(site) for edge in (first_s, last_s))
        months = range(first.year * 12 + first.month - 1, last.year * 12 + last.month)
        starts = [datetime(month // 12, month % 12 + 1, 1, tzinfo=site) for month in months]
    except (ValueError, OverflowError, OSError):
        found = f"submissions from {first_s} to {last_s} s after 1970"
        raise BadInput("UnixStartTime", found, "times between the years 1 and 9999") from None
    names = np.array([f"{month // 12:04d}-{month % 12 + 1:02d}" for month in months])
    bounds_us = np.array([(round(start.timestamp()) - unix_start_s) * US_PER_S for start in starts])
    labels: NDArray[np.str_] = names[np.searchsorted(bounds_us, submit_us, side="right") - 1]
    return labels

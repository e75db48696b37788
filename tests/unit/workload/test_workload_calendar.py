"""Months by the site's standard time."""

from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from cosched.errors import BadInput
from cosched.workload.calendar import Clock, clock, month_labels
from cosched.workload.log import Header

START = int(datetime(1996, 9, 23, 14, 0, 31, tzinfo=ZoneInfo("Europe/Stockholm")).timestamp())


def labels(*seconds: float, zone: str | None = "Europe/Stockholm", offset_s: int | None = None) -> list[str]:
    submit_us = np.array([round(s * 1_000_000) for s in seconds], np.int64)
    return [str(label) for label in month_labels(submit_us, START, zone, offset_s=offset_s)]


def until(year: int, month: int, zone: str = "UTC") -> int:
    return int(datetime(year, month, 1, tzinfo=ZoneInfo(zone)).timestamp()) - START


def test_a_month_begins_at_midnight_of_the_sites_standard_time() -> None:
    november = until(1996, 11) - 3600  # 1 November, 0:00 Central European Time
    edge_us = 0.000001
    assert labels(november - edge_us, november) == ["1996-10", "1996-11"]
    october = until(1996, 10) - 3600  # standard time although clocks show summer time
    assert labels(october - edge_us, october) == ["1996-09", "1996-10"]


def test_labels_keep_the_order_of_the_jobs_and_may_skip_months() -> None:
    assert labels(until(1997, 5), 0, until(1998, 1) + 86_400) == ["1997-05", "1996-09", "1998-01"]
    assert labels() == []
    assert labels(0, until(1996, 12), zone=None) == ["1996-09", "1996-12"]


@pytest.mark.parametrize(
    ("zone", "offset_s", "expected"),
    [
        ("Europe/Stockholm", None, Clock(3600, "Europe/Stockholm, standard time")),
        ("Europe/Stockholm", 9999, Clock(3600, "Europe/Stockholm, standard time")),
        ("US/Pacific", None, Clock(-28_800, "US/Pacific, standard time")),
        ("Asia/Tokyo", None, Clock(32_400, "Asia/Tokyo, standard time")),
        ("Mars/X", 3600, Clock(3600, "the fixed offset TimeZone, 3600 s (TimeZoneString 'Mars/X' is unknown here)")),
        ("Europe", None, Clock(0, "UTC (TimeZoneString 'Europe' is unknown here, no TimeZone)")),
        ("../etc/passwd", None, Clock(0, "UTC (TimeZoneString '../etc/passwd' is unknown here, no TimeZone)")),
        (None, -25_200, Clock(-25_200, "the fixed offset TimeZone, -25200 s (no TimeZoneString)")),
        (None, 10**9, Clock(0, "UTC (no TimeZoneString, no TimeZone)")),
        (None, None, Clock(0, "UTC (no TimeZoneString, no TimeZone)")),
    ],
)
def test_a_clock_says_how_it_was_found(zone: str | None, offset_s: int | None, expected: Clock) -> None:
    assert clock(zone, offset_s, START) == expected


def test_a_renamed_zone_is_found_where_the_old_name_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def small_database(name: str) -> ZoneInfo:
        if name.startswith("US/"):
            raise LookupError(name)
        return ZoneInfo(name)

    monkeypatch.setattr("cosched.workload.calendar.ZoneInfo", small_database)
    assert clock("US/Mountain", None, START) == Clock(-25_200, "US/Mountain, standard time")


def test_times_outside_the_calendar_are_refused() -> None:
    with pytest.raises(
        BadInput, match=r"UnixStartTime: submissions from .* expected times between the years 1 and 9999"
    ):
        labels(1e12)
    assert Header({"UnixStartTime": "soon"}).integer("UnixStartTime") is None

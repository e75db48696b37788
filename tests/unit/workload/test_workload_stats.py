"""Statistics of a log: small logs counted by hand, and the KTH log's published numbers."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from cosched.errors import BadInput
from cosched.workload import swf
from cosched.workload.log import FIELDS, Field, Header, Log
from cosched.workload.rules import InputRules, NeverRan
from cosched.workload.stats import LogStatistics, UserShare, accuracy, statistics

WAIT = InputRules(never_ran=NeverRan.WAIT)
KTH_MONTHS = (94, 2405, 1984, 2308, 2931, 2924, 2081, 2861, 4075, 2703, 2183, 1927)


def log(*jobs: Sequence[float], **entries: str) -> Log:
    """A log of (submit, run, processors, request, user)."""
    rows = np.full((len(jobs), FIELDS), -1.0)
    rows[:, [Field.SUBMIT_S, Field.RUN_S, Field.PROCS_ALLOCATED, Field.REQUEST_S, Field.USER]] = jobs
    return Log(Header(entries), rows, name="small", skipped={"wrong_field_count": 2})


FOUR = [(100, 50, 4, 100, 1), (150, 100, 1, 100, 2), (200, 30, 8, 20, 1), (300, 0, 3, 60, -1)]


def test_a_small_log_by_hand() -> None:
    told = statistics(log(*FOUR, MaxProcs="10", UnixStartTime="0"), rules=WAIT)
    assert (told.name, told.jobs, told.procs_total, told.procs_total_from) == ("small", 4, 10, "MaxProcs in the header")
    assert told.span_s == 200
    assert told.offered_load == pytest.approx((50 * 4 + 100 + 20 * 8 + 1 * 3) / (10 * 200)), (
        "killed at 20 s, 1 s at least"
    )
    assert (told.serial_ratio, told.power_of_two_ratio) == (0.25, 0.75)
    assert (told.run_s.min, told.run_s.median, told.run_s.max) == (1, 20, 100)
    assert told.procs.mean == 4
    assert told.request_s is not None
    assert (told.request_s.min, told.request_s.max) == (20, 100)
    assert told.interarrival_s is not None
    assert (told.interarrival_s.min, told.interarrival_s.max) == (50, 100)
    assert told.users == 2
    assert told.top_users == [UserShare(1, 2, 360 / 463), UserShare(2, 1, 100 / 463)]
    assert told.skipped == {"wrong_field_count": 2}
    assert told.adjusted == {"run_not_positive_runs_1s": 1, "run_beyond_request": 1}
    assert told.months == {"1970-01": 4}
    assert told.months_by == "UTC (no TimeZoneString, no TimeZone)"


def test_accuracy_is_of_the_log_as_it_stands() -> None:
    told = accuracy(log(*FOUR, (0, 5, 1, 100, 1), (0, 99.6, 1, 100, 1), (0, 7, 1, -1, 1)))
    assert told.jobs == 5, "a job without a run time, and one without a request, are in no bin"
    assert [(i, n) for i, n in enumerate(told.histogram) if n] == [(1, 1), (10, 1), (19, 1)]
    assert (told.exactly_100, told.above_100, told.rounds_to_100) == (1, 1, 2)
    assert sum(told.histogram) + told.exactly_100 + told.above_100 == told.jobs
    assert told.mean_ratio == pytest.approx((0.5 + 1 + 1.5 + 0.05 + 0.996) / 5)


def test_what_a_log_does_not_tell_is_none_or_said() -> None:
    told = statistics(log((0, 10, 1, -1, -1)))
    assert told.procs_total_from.startswith("the widest job")
    assert (told.offered_load, told.request_s, told.interarrival_s, told.accuracy.mean_ratio) == (None,) * 4
    assert (told.months, told.months_by) == ({}, "no UnixStartTime in the header")
    assert (told.users, told.top_users) == (0, [])
    late = statistics(log((1e12, 10, 1, -1, -1), UnixStartTime="0"))
    assert late.months == {}
    assert "between the years 1 and 9999" in late.months_by


def test_rules_and_machine_are_the_callers() -> None:
    told = statistics(log(*FOUR, MaxProcs="10"), rules=InputRules(), procs_total=5, top_users=1)
    assert (told.jobs, told.procs_total, told.procs_total_from) == (2, 5, "given")
    assert told.skipped == {"wrong_field_count": 2, "never_ran": 1, "wider_than_machine": 1}
    assert [share.user for share in told.top_users] == [1]
    with pytest.raises(BadInput, match=r"small: no job is left .*wider_than_machine 4"):
        statistics(log(*((0, 5, 9, 9, 1) for _ in range(4))), procs_total=3)


def test_users_are_listed_by_their_work() -> None:
    told = statistics(log((0, 5, 1, -1, 7), (1, 5, 1, -1, 7), (2, 90, 1, -1, 9), (3, 10, 1, -1, 5), (9, 1, 1, -1, -1)))
    assert [(share.user, share.jobs) for share in told.top_users] == [(9, 1), (7, 2), (5, 1)]


def test_statistics_travel_as_json() -> None:
    told = statistics(log(*FOUR, MaxProcs="10", UnixStartTime="0"))
    assert msgspec.json.decode(msgspec.json.encode(told), type=LogStatistics) == told


@pytest.mark.log("KTH-SP2-1996-2.1-cln")
def test_the_kth_log(log_path: Path) -> None:
    told = statistics(swf.read(log_path, strict=True), rules=WAIT)
    assert tuple(told.months.values()) == KTH_MONTHS
    assert list(told.months)[::11] == ["1996-09", "1997-08"]
    assert told.months_by == "Europe/Stockholm, standard time"
    assert (told.jobs, told.procs_total, told.users) == (28_476, 100, 214)
    assert told.offered_load == pytest.approx(0.699, abs=5e-4)
    assert told.accuracy.jobs == 28_468
    assert (told.accuracy.exactly_100, told.accuracy.rounds_to_100, told.accuracy.above_100) == (38, 3_054, 475)
    assert told.adjusted["run_not_positive_runs_1s"] == 8
    assert told.adjusted["run_beyond_request"] == 475
    assert told.adjusted["allocated_differs_from_requested"] == 219

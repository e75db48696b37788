"""From a log's fields to a job: each rule on the line that makes it matter."""

from collections.abc import Mapping

import numpy as np
import pytest

from cosched.errors import BadInput
from cosched.workload.log import FIELDS, Field, Header, Log
from cosched.workload.rules import AtLimit, InputRules, NegativeTimes, NeverRan, ProcsFrom, Workload, prepare


def log(*jobs: Mapping[Field, float], procs: int = 8) -> Log:
    rows = np.full((len(jobs), FIELDS), -1.0)
    for i, job in enumerate(jobs):
        usual = {
            Field.JOB: i + 1,
            Field.SUBMIT_S: 10 * i,
            Field.RUN_S: 50,
            Field.PROCS_ALLOCATED: 2,
            Field.REQUEST_S: 60,
        }
        for field, value in {**usual, **job}.items():
            rows[i, field] = value
    return Log(Header({"MaxProcs": str(procs)}), rows, "made.swf")


def row(load: Workload, job: int = 1) -> dict[str, int]:
    at = load.job_id.tolist().index(job)
    columns = ("submit_us", "run_us", "procs", "estimate_us", "request_us")
    return {name: int(getattr(load, name)[at]) // (1 if name == "procs" else 1_000_000) for name in columns}


BOTH = {Field.PROCS_ALLOCATED: 2, Field.PROCS_REQUESTED: 4}
ONLY_REQUESTED = {Field.PROCS_ALLOCATED: -1, Field.PROCS_REQUESTED: 4}


@pytest.mark.parametrize(
    ("fields", "rule", "procs", "run_s"),
    [
        (BOTH, ProcsFrom.ALLOCATED, 2, 50),
        (BOTH, ProcsFrom.ALLOCATED_ONLY, 2, 50),
        (BOTH, ProcsFrom.REQUESTED, 4, 50),
        (ONLY_REQUESTED, ProcsFrom.ALLOCATED, 4, 50),
        (ONLY_REQUESTED, ProcsFrom.ALLOCATED_ONLY, 1, 1),  # no size: one second on one processor
        (ONLY_REQUESTED, ProcsFrom.REQUESTED, 4, 50),
    ],
)
def test_size(fields: dict[Field, float], rule: ProcsFrom, procs: int, run_s: int) -> None:
    found = row(prepare(log(fields), InputRules(procs_from=rule, never_ran=NeverRan.WAIT)))
    assert (found["procs"], found["run_us"]) == (procs, run_s)


def test_a_job_past_its_request_is_cut_or_runs_on() -> None:
    past = log({Field.RUN_S: 90})
    cut = prepare(past)
    assert row(cut) == {"submit_us": 0, "run_us": 60, "procs": 2, "estimate_us": 90, "request_us": 90}
    assert cut.timed_out.tolist() == [True]
    on = prepare(past, InputRules(at_limit=AtLimit.RUN))
    assert row(on) == {"submit_us": 0, "run_us": 90, "procs": 2, "estimate_us": 60, "request_us": 90}
    assert on.timed_out.tolist() == [False]
    assert cut.adjusted == on.adjusted == {"run_beyond_request": 1}


def test_without_a_request_the_run_time_is_the_estimate() -> None:
    load = prepare(log({Field.REQUEST_S: -1}))
    assert row(load)["estimate_us"] == 50
    assert load.adjusted == {"no_request_uses_run": 1}


NEVER_RAN = [
    {Field.RUN_S: 0, Field.STATUS: 1},
    {Field.RUN_S: -1, Field.STATUS: 5},
    {Field.PROCS_ALLOCATED: -1, Field.PROCS_REQUESTED: 0, Field.STATUS: 0},
]


@pytest.mark.parametrize("never", NEVER_RAN)
def test_job_that_never_ran_is_left_out_or_waits_for_a_second(never: dict[Field, float]) -> None:
    cancelled_while_it_ran = {Field.STATUS: 5}
    made = log(never, cancelled_while_it_ran)
    dropped = prepare(made)
    assert dropped.job_id.tolist() == [2]
    assert dropped.skipped == {"never_ran": 1}
    waits = prepare(made, InputRules(never_ran=NeverRan.WAIT))
    procs = max(1, int(never.get(Field.PROCS_ALLOCATED, 2)))
    assert row(waits) == {"submit_us": 1, "run_us": 1, "procs": procs, "estimate_us": 1, "request_us": 1}
    assert waits.skipped == {}
    assert dropped.never_ran == waits.never_ran == 1


def test_parts_of_an_execution_beside_its_line_are_no_work_of_their_own() -> None:
    whole = {Field.JOB: 1, Field.STATUS: 1}
    parts = [{Field.JOB: 1, Field.STATUS: status} for status in (2, 3, 4)]
    load = prepare(log(whole, *parts, {Field.JOB: 7, Field.STATUS: 3}))
    assert load.job_id.tolist() == [1, 7]
    assert load.skipped == {"partial_execution": 3}
    assert load.adjusted == {"partial_execution_alone": 1}


def test_preceding_job_and_think_time_are_counted() -> None:
    load = prepare(log({}, {Field.PRECEDING_JOB: 1, Field.THINK_S: 60}, {Field.PRECEDING_JOB: 2, Field.THINK_S: 0}))
    assert load.adjusted == {"preceding_job_ignored": 2, "think_time_ignored": 1}


def test_following_is_refused_for_a_log_without_preceding_jobs() -> None:
    with pytest.raises(BadInput, match=r"no job has a preceding job \(field 17\)"):
        prepare(log({}, {Field.THINK_S: 60}), InputRules(preceding=True))


def test_negative_times() -> None:
    never_ran = log({Field.SUBMIT_S: -1, Field.RUN_S: -1}, {})
    assert prepare(never_ran, InputRules(never_ran=NeverRan.WAIT)).skipped == {"negative_time": 1}
    lenient = InputRules(never_ran=NeverRan.WAIT, negative_times=NegativeTimes.UNKNOWN)
    assert row(prepare(never_ran, lenient))["submit_us"] == 1
    assert prepare(log({Field.SUBMIT_S: -5}, {}), lenient).skipped == {"negative_time": 1}  # it ran: when, nobody knows


def test_out_of_order_is_sorted_and_ties_keep_the_file_order() -> None:
    load = prepare(log({Field.SUBMIT_S: 30}, {Field.SUBMIT_S: 5}, {Field.SUBMIT_S: 5}))
    assert load.job_id.tolist() == [2, 3, 1]
    assert load.adjusted["out_of_submit_order"] == 1


def test_strict_names_the_first_bad_job_of_the_file() -> None:
    with pytest.raises(BadInput, match=r"job 2: wider than the machine's 8 processors"):
        prepare(log({}, {Field.PROCS_ALLOCATED: 9}, {Field.SUBMIT_S: -7}), strict=True)


@pytest.mark.parametrize(
    "interpreted",
    [
        *NEVER_RAN,
        {Field.RUN_S: 90},
        {Field.REQUEST_S: -1},
        BOTH,
        {Field.PRECEDING_JOB: 1},
        {Field.THINK_S: 60},
        {Field.STATUS: 3},
        {Field.JOB: 1},
        {Field.JOB: -1},
        {Field.SUBMIT_S: -1},
        {Field.PROCS_ALLOCATED: 9},
    ],
)
@pytest.mark.parametrize("rule", NeverRan)
def test_strict_stops_at_the_first_line_that_is_skipped_or_counted(
    interpreted: dict[Field, float], rule: NeverRan
) -> None:
    made, rules = log({}, {}, interpreted, {Field.RUN_S: 0}), InputRules(never_ran=rule)
    told = prepare(made, rules)
    assert sum(told.skipped.values()) + sum(told.adjusted.values()) >= 1 + (interpreted.get(Field.JOB) != -1)
    with pytest.raises(BadInput, match=rf"job {int(interpreted.get(Field.JOB, 3))}: "):
        prepare(made, rules, strict=True)


def test_strict_stops_at_a_line_out_of_order() -> None:
    with pytest.raises(BadInput, match="job 2: a submission before that of an earlier line"):
        prepare(log({Field.SUBMIT_S: 30}, {Field.SUBMIT_S: 5}), strict=True)


def test_size_with_a_unit_in_the_header_is_no_size() -> None:
    made = Log(Header({"MaxProcs": "10k"}), log(BOTH).rows, "made.swf")
    load = prepare(made)
    assert (load.procs_total, load.guessed) == (4, True)
    assert "MaxProcs: '10k' is no size" in load.procs_total_from
    with pytest.raises(BadInput, match="a whole number"):
        prepare(made, strict=True)


def test_the_machine_is_given_or_read_or_the_widest_job() -> None:
    assert prepare(log({}), procs_total=5).procs_total == 5
    assert prepare(log({})).procs_total_from == "MaxProcs in the header"
    bare = Log(Header(), log({}, BOTH).rows, "made.swf")
    assert prepare(bare).procs_total == 4
    assert "widest" in prepare(bare).procs_total_from

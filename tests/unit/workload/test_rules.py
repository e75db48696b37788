"""From a log's fields to a job: each rule on the line that makes it matter."""

import numpy as np
import pytest

from cosched.errors import BadInput
from cosched.workload.log import FIELDS, Field, Header, Log
from cosched.workload.rules import AtLimit, InputRules, NegativeTimes, ProcsFrom, Unusable, Workload, prepare


def log(*jobs: dict[Field, float], procs: int = 8) -> Log:
    rows = np.full((len(jobs), FIELDS), -1.0)
    for i, job in enumerate(jobs):
        usual = {
            Field.JOB: i + 1,
            Field.SUBMIT_S: 10 * i,
            Field.RUN_S: 50,
            Field.PROCS_ALLOCATED: 2,
            Field.REQUEST_S: 60,
        }
        for field, value in (usual | job).items():
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
    found = row(prepare(log(fields), InputRules(procs_from=rule)))
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


def test_an_unusable_job_runs_a_second_or_is_left_out() -> None:
    unusable = log({Field.RUN_S: 0, Field.PROCS_ALLOCATED: 3}, {})
    assert row(prepare(unusable)) == {"submit_us": 1, "run_us": 1, "procs": 3, "estimate_us": 1, "request_us": 1}
    left_out = prepare(unusable, InputRules(unusable=Unusable.SKIP))
    assert left_out.job_id.tolist() == [2]
    assert left_out.skipped == {"run_not_positive": 1}


def test_negative_times() -> None:
    never_ran = {Field.SUBMIT_S: -1, Field.RUN_S: -1}
    assert prepare(log(never_ran, {})).skipped == {"negative_time": 1}
    lenient = InputRules(negative_times=NegativeTimes.UNKNOWN)
    assert row(prepare(log(never_ran, {}), lenient))["submit_us"] == 1
    assert prepare(log({Field.SUBMIT_S: -5}, {}), lenient).skipped == {"negative_time": 1}  # it ran: when, nobody knows


def test_out_of_order_is_sorted_and_ties_keep_the_file_order() -> None:
    load = prepare(log({Field.SUBMIT_S: 30}, {Field.SUBMIT_S: 5}, {Field.SUBMIT_S: 5}))
    assert load.job_id.tolist() == [2, 3, 1]
    assert load.adjusted["out_of_submit_order"] == 1


def test_strict_names_the_first_bad_job_of_the_file() -> None:
    with pytest.raises(BadInput, match=r"job 2: wider than the machine's 8 processors"):
        prepare(log({}, {Field.PROCS_ALLOCATED: 9}, {Field.SUBMIT_S: -7}), strict=True)


def test_the_machine_is_given_or_read_or_the_widest_job() -> None:
    assert prepare(log({}), procs_total=5).procs_total == 5
    assert prepare(log({})).procs_total_from == "MaxProcs in the header"
    bare = Log(Header(), log({}, BOTH).rows, "made.swf")
    assert prepare(bare).procs_total == 4
    assert "widest" in prepare(bare).procs_total_from

"""What is counted of jobs: waits, runs, slowdowns, promises kept and not, CPU by user. By hand, event by event."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from cosched.model.allocation import Allocation
from cosched.model.job import Job, JobState
from cosched.model.time import FOREVER_US
from cosched.wire.api import Submission
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Start, Tell
from space_scheduler.reasons import Reason, Why
from space_scheduler.service.journal.records import Committed, Facts, JobRecord, View
from space_scheduler.service.metrics.families import families
from space_scheduler.service.metrics.jobs import MOST_USERS, JobSeries, oldest_wait_s

S = 1_000_000
CAUSE = ev.Boundary()
FITS, RESERVED = Reason(Why.FITS), Reason(Why.RESERVED)


def record(job_id: int, state: JobState, user: str = "ada", **more: object) -> JobRecord:
    submit_us = int(more.pop("submit_us", 0))  # type: ignore[call-overload]
    job = Job(job_id, 1, 100 * S, submit_us)
    script = Submission(script="#!/bin/sh\n", directory="/")
    return JobRecord(job=job, user=user, submission=script, state=state, submit_us=submit_us, **more)  # type: ignore[arg-type]


def ended(job_id: int, start_s: int, end_s: int, user: str = "ada", cpu_s: float = 0.0) -> Committed:
    facts = Facts(cpu_us={"n1": round(cpu_s * S / 2), "n2": round(cpu_s * S / 2)}) if cpu_s else Facts()
    of = record(job_id, JobState.COMPLETED, user, start_us=start_s * S, end_us=end_s * S, facts=facts)
    return Committed(1, end_s * S, ev.JobEnded(job_id), ended=(of,))


def promised(job_id: int, at_s: float) -> Committed:
    return Committed(1, 0, CAUSE, (Tell(job_id, FOREVER_US if at_s < 0 else round(at_s * S), CAUSE, RESERVED),))


def started(job_id: int, at_s: int) -> Committed:
    return Committed(1, at_s * S, CAUSE, (Start(Job(job_id, 1, 100 * S, 0), Allocation(1), None, CAUSE, FITS),))


class Counted:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.series = JobSeries(self.registry)

    def histogram(self, name: str) -> dict[str, float]:
        """How many are in each bucket by itself, and the sum where there is one."""
        (family,) = [
            each
            for each in text_string_to_metric_families(generate_latest(self.registry).decode())
            if each.name == f"cosched_{name}"
        ]
        buckets = [(each.labels["le"], each.value) for each in family.samples if each.name.endswith("_bucket")]
        found = {
            bound: value - before
            for (bound, value), before in zip(buckets, [0.0, *(each for _, each in buckets)], strict=False)
            if value > before
        }
        sums = [each.value for each in family.samples if each.name.endswith("_sum")]
        return found | dict.fromkeys(["sum"] * len(sums), sum(sums))

    def cpu(self) -> dict[str, float]:
        collected = families(self.series.collect(View(), [], 0))
        (family,) = [each for each in collected if each.name == "cosched_user_cpu_seconds"]
        return {each.labels["user"]: each.value for each in family.samples}


def test_a_job_that_waits_and_runs_is_in_each_histogram_once() -> None:
    counted = Counted()
    counted.series.committed(started(1, 30))
    counted.series.committed(ended(1, 30, 130))
    assert counted.histogram("queue_wait_seconds") == {"60.0": 1, "sum": 30}
    assert counted.histogram("job_run_seconds") == {"300.0": 1, "sum": 100}
    assert counted.histogram("job_bounded_slowdown") == {"1.5": 1, "sum": 1.3}


def test_a_short_job_is_slowed_down_as_one_of_ten_seconds() -> None:
    counted = Counted()
    counted.series.committed(ended(1, 30, 31))
    counted.series.committed(ended(2, 0, 1))
    assert counted.histogram("job_bounded_slowdown") == {"1.0": 1, "5.0": 1, "sum": 4.1}


def test_a_job_that_never_ran_has_neither_run_time_nor_slowdown() -> None:
    counted = Counted()
    of = record(1, JobState.CANCELLED, end_us=5 * S)
    counted.series.committed(Committed(1, 5 * S, ev.JobCancelled(1), ended=(of,)))
    assert counted.histogram("job_run_seconds") == counted.histogram("job_bounded_slowdown") == {"sum": 0}


def test_the_error_of_a_prediction_is_against_the_first_promise() -> None:
    counted = Counted()
    for committed in (
        promised(1, 100),
        promised(1, 20),
        started(1, 20),
        promised(2, -1),
        promised(2, 10),
        started(2, 70),
    ):
        counted.series.committed(committed)
    counted.series.committed(started(3, 5))  # was promised nothing
    assert counted.histogram("job_prediction_error_seconds") == {"-60.0": 1, "60.0": 1}


def test_what_was_promised_before_a_restart_counts_and_of_jobs_that_are_gone_nothing_is_kept() -> None:
    counted = Counted()
    waits = record(1, JobState.QUEUED, promised_us=50 * S)
    counted.series.recovered([waits, record(2, JobState.RUNNING, promised_us=9 * S), record(3, JobState.WAITING)])
    counted.series.committed(started(1, 50))
    assert counted.histogram("job_prediction_error_seconds") == {"5.0": 1}
    counted.series.committed(promised(4, 10))
    of = record(4, JobState.CANCELLED, end_us=5 * S)
    counted.series.committed(Committed(1, 5 * S, ev.JobCancelled(4), ended=(of,)))
    assert counted.series._promised_us == {}


def test_cpu_is_counted_by_user_and_of_the_hundred_and_first_with_all_others() -> None:
    counted = Counted()
    assert counted.cpu() == {"other": 0}
    for number in range(MOST_USERS + 2):
        counted.series.committed(ended(number + 1, 0, 1, f"u{number}", cpu_s=2.0))
    counted.series.committed(ended(900, 0, 1, "u0", cpu_s=1.0))
    counted.series.committed(ended(901, 0, 1, f"u{MOST_USERS + 1}", cpu_s=1.0))
    found = counted.cpu()
    assert len(found) == MOST_USERS + 1
    assert (found["u0"], found["u1"], found["other"]) == (3.0, 2.0, 5.0)
    assert sum(found.values()) == 2.0 * (MOST_USERS + 2) + 2.0


def test_the_oldest_wait_is_of_those_that_may_start() -> None:
    held, old, new = (
        record(1, JobState.WAITING),
        record(2, JobState.QUEUED, submit_us=10 * S),
        record(3, JobState.QUEUED),
    )
    view = View(now_us=20 * S, jobs={1: held, 2: old, 3: new}, alive={JobState.QUEUED: 2, JobState.WAITING: 1})
    assert oldest_wait_s(view, 70 * S) == 60, "by the clock, though nothing has happened for 50 s"
    assert oldest_wait_s(View(jobs={1: held}, alive={JobState.WAITING: 1}), 70 * S) == 0

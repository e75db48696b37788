"""Lines of the agent's log that jobs can cause: so many a minute of each job."""

import logging
import time

import pytest

from node_agent.service.complaints import Complaints


def test_notes_of_one_job_are_logged_twenty_times_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    caplog.set_level(logging.INFO, "cosched.agent")
    log = Complaints()
    for number in range(100):
        log.note(logging.INFO, f"job 5.1: map {number}")
    log.note(logging.WARNING, "job 6.1: map 1")
    now_s = 61.0
    log.note(logging.INFO, "job 5.1: map 100")
    found = [record.getMessage() for record in caplog.records]
    assert found[:20] == [f"job 5.1: map {number}" for number in range(20)]
    assert found[20:] == ["job 6.1: map 1", "job 5.1: map 100 (80 lines of it were left out)"]


def test_many_jobs_do_not_fill_the_memory() -> None:
    log = Complaints()
    for number in range(5000):
        log.note(logging.INFO, f"job {number}.1: its script runs")
    assert len(log._notes) <= 1000

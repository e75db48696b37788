"""The scheduler's wall clock jumps an hour: no lease ends, no job ends or starts because of it, over a restart too."""

import time
from pathlib import Path

import pytest
from kit.clocks import Clock
from kit.puppet import live

from cosched.client.client import Client
from cosched.client.transport import Transport
from cosched.wire.api import JobDoc, Submission

pytestmark = pytest.mark.slow


def submitted(client: Client, name: str, tasks: int) -> int:
    submission = Submission(script="#!/bin/sh\ntrue\n", directory="/", name=name, tasks=tasks, time_limit_s=600.0)
    return client.submit(submission).job_id


def until(client: Client, job_id: int, state: str) -> JobDoc:
    give_up_s = time.monotonic() + 60
    while (job := client.job(job_id)).state != state:
        assert time.monotonic() < give_up_s, job
        time.sleep(0.02)
    return job


@pytest.mark.system("gcc")
def test_an_hour_forth_and_back_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(tmp_path)
    for name, value in clock.environment.items():
        monkeypatch.setenv(name, value)  # of what is started from here on
    (tmp_path / "live").mkdir()
    with live(tmp_path / "live") as service, Client(Transport(str(service.socket))) as client:
        runs = submitted(client, "sit", 3)
        until(client, runs, "running")
        waits = submitted(client, "ok", 2)
        for shift_s in (3600, -3600):
            clock.step(shift_s)
            end_s = time.monotonic() + 2.5  # leases are looked at once a second
            while time.monotonic() < end_s:
                assert (client.job(runs).state, client.job(waits).state) == ("running", "queued")
                time.sleep(0.1)
            (node,) = [each for each in client.nodes() if each.name == "desk1"]
            assert node.state == "up"
        client.cancel(runs)
        ended = until(client, runs, "cancelled")
        assert ended.run_s is not None
        assert 0 < ended.run_s < 600  # an hour less or more is none of what it ran
        done = until(client, waits, "completed")
        assert done.wait_s is not None
        assert 0 < done.wait_s < 600
        service.stop()
        clock.step(3600)
        service.start()
        assert client.job(waits).run_s == done.run_s
        last = submitted(client, "ok", 1)
        assert until(client, last, "completed").turnaround_s < 600  # type: ignore[operator]

"""A time limit on shared nodes, with real processes: what neighbours take of the CPU is not held against a job."""

import os
import shlex
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from kit.waiting import wait_for
from live.conftest import Jobs

from cosched.apps.lab.lab import Lab

pytestmark = pytest.mark.xdist_group("labs of their own")

COMPUTES = f"exec {shlex.quote(sys.executable)} -P -m cosched.programs.pulse --grain-ms 1 --receive none"
LIMIT_S = 3.0


class Stalls(threading.Thread):
    """Sums up for how long this machine stood still: what it sleeps longer than it wanted to."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.lost_s = 0.0
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            before_s = time.monotonic()
            time.sleep(0.1)
            self.lost_s += time.monotonic() - before_s - 0.1

    def stop(self) -> float:
        self._over.set()
        self.join()
        return self.lost_s


@pytest.fixture(scope="module")
def shared() -> Iterator[Lab]:
    """One node whose CPU tasks share, so many at most that the last bound of wall time is far beyond the test's."""
    with Lab.up(1, name=f"limits-{os.getpid()}", pin=True, mpl=8, policy="normal") as up:
        if up.tier != 1:
            pytest.skip(f"needs a lab of tier 1, with control groups: {up.why}")
        yield up


@pytest.mark.slow
def test_a_job_beside_another_runs_until_it_has_done_the_work_of_its_limit(shared: Lab) -> None:
    stalls = Stalls()
    stalls.start()
    with shared.client() as client:
        jobs = Jobs(client, {"PATH": os.path.dirname(sys.executable) + ":/usr/bin:/bin"})
        neighbour = jobs.submit(COMPUTES, tasks=1, time_limit_s=600.0)
        jobs.becomes(neighbour, "running")
        began_s = time.monotonic()
        job_id = jobs.submit(COMPUTES, tasks=1, time_limit_s=LIMIT_S)
        jobs.becomes(job_id, "running")

        def counted() -> bool:
            found = client.explain(job_id).coscheduling
            return found is not None and found.done_s is not None and found.done_s > 1

        wait_for(counted, "work that is counted")
        passed_s = time.monotonic() - began_s
        found = client.explain(job_id).coscheduling
        assert found is not None
        assert found.done_s is not None
        # which of them had it while all stood still is not known: that may be counted as work
        assert found.done_s < 0.75 * passed_s + stalls.lost_s, "two tasks share a CPU"
        ended = jobs.ended(job_id)
        assert ended.state == "timed out"
        assert ended.failure is not None
        assert ended.failure.message == "it has done the work of its time limit, 3 s"
        assert ended.run_s is not None
        assert ended.run_s + stalls.stop() > 1.5 * LIMIT_S, "it has had half of a CPU at most"
        client.cancel(neighbour)
        jobs.ended(neighbour)

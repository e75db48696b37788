"""Scheduler and agents are ended and started anew under running MPI jobs: the same processes, one end, one account."""

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from campaigns.faults import Field, until
from live.conftest import Jobs, groups_of

from cosched.apps.lab import tiers
from cosched.apps.lab.lab import Lab
from cosched.apps.lab.plan import HEAD
from cosched.client.client import Client
from cosched.errors import Failed

pytestmark = pytest.mark.xdist_group("restarts")


class Bench:
    """A lab with room for four running jobs, whose ranks wait at a gate until they are let through.

    The gate is a pipe by name, and a rank reads a line of it: without a process of its own that comes and goes.
    """

    def __init__(self, lab: Lab, shared: Path, client: Client) -> None:
        self.lab, self.shared, self.client = lab, shared, client
        self.field = Field(lab, shared)
        self._gates: dict[str, int] = {}
        self.jobs = Jobs(client, {"PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"})

    def four_running(self, name: str) -> list[int]:
        """Four jobs of two ranks, all of whose ranks run."""
        gate = self.shared / f"{name}-gate"
        os.mkfifo(gate)
        self._gates[name] = os.open(gate, os.O_RDWR | os.O_CLOEXEC)
        script = (
            f"echo $COSCHED_JOB_ID >> {self.shared}/{name}-$COSCHED_JOB_ID\n"
            f"mpirun sh -c 'echo up; read go <{gate}; echo down' || exit 9"
        )
        jobs = [self.jobs.submit(script, tasks=2, time_limit_s=900.0) for _ in range(4)]
        for job_id in jobs:
            self.jobs.becomes(job_id, "running")
            until(lambda job_id=job_id: self.jobs.output(job_id).count("up") == 2, f"ranks of {job_id}")  # type: ignore[misc]
        return jobs

    def processes(self, jobs: list[int]) -> dict[int, set[int]]:
        """Each job's processes."""
        return {job_id: set().union(*groups_of(self.lab, job_id).values()) for job_id in jobs}

    def finish(self, name: str, jobs: list[int]) -> None:
        """Let them go on: each completes, ran once, and is in the accounts once."""
        os.write(self._gates[name], b"\n" * (2 * len(jobs)))
        for job_id in jobs:
            job = self.jobs.ended(job_id)
            assert job.state == "completed", (job, self.jobs.error(job_id))
            assert [step.state for step in job.history].count("running") == 1
            assert [step.state for step in job.history].count("completed") == 1
            assert self.jobs.output(job_id).count("down") == 2
            assert (self.shared / f"{name}-{job_id}").read_text() == f"{job_id}\n"
        accounted = [job.job_id for job in self.client.history(limit=100)]
        assert all(accounted.count(job_id) == 1 for job_id in jobs)
        until(lambda: not self.field.residue(jobs), lambda: f"nothing to be left: {self.field.residue(jobs)}")
        os.close(self._gates.pop(name))

    def answers(self) -> bool:
        """Whether the scheduler does."""
        try:
            self.client.nodes()
        except Failed:
            return False
        return True

    def nodes_back(self) -> bool:
        """Whether the scheduler hears all agents."""
        try:
            return all(node.state == "up" and node.armed is not None for node in self.client.nodes())
        except Failed:
            return False

    def end(self, site: str, how: signal.Signals) -> None:
        """End every process of a site, and wait until others have taken their places."""
        before = set(self.field.pids(site, 0))
        assert before
        for pid in before:
            os.kill(pid, how)
        until(lambda: len(set(self.field.pids(site, 0)) - before) == len(before), f"another {site}")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    if (possible := tiers.best(1)).tier != 1:
        pytest.skip(f"needs a lab of tier 1, with control groups: {possible.why}")
    shared = tmp_path_factory.mktemp("restarts")
    with Lab.up(nodes=4, cpus=2, name=f"restarts-{os.getpid()}", keep=[shared]) as lab, lab.client() as client:
        yield Bench(lab, shared, client)


@pytest.mark.slow
def test_the_scheduler_restarted_twice_and_while_it_recovers_adopts_what_runs(bench: Bench) -> None:
    jobs = bench.four_running("scheduler")
    before = bench.processes(jobs)
    for how in (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM):
        bench.end("scheduler", how)
        until(bench.answers, "the scheduler")
        assert {bench.client.job(job_id).state for job_id in jobs} == {"running"}
    moments = random.Random(11)
    for _ in range(3):  # as soon as there is one, and a little later: before it listens, or agents are back
        bench.end("scheduler", signal.SIGKILL)
        time.sleep(moments.uniform(0.0, 0.8))
    until(bench.nodes_back, "all agents")
    assert {bench.client.job(job_id).state for job_id in jobs} == {"running"}
    assert bench.processes(jobs) == before
    bench.finish("scheduler", jobs)
    assert bench.lab.services(HEAD) == {"scheduler": "running"}


def test_agents_restarted_twice_adopt_their_tasks_and_carry_on_with_their_streams(bench: Bench) -> None:
    jobs = bench.four_running("agents")
    before = bench.processes(jobs)
    for how in (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM):
        bench.end("agent", how)
    until(bench.nodes_back, "all agents")
    assert {bench.client.job(job_id).state for job_id in jobs} == {"running"}
    assert bench.processes(jobs) == before
    bench.finish("agents", jobs)


def test_guards_and_everybody_else_at_once(bench: Bench) -> None:
    jobs = bench.four_running("all")
    before = bench.processes(jobs)
    bench.end("guard", signal.SIGKILL)
    for site in ("scheduler", "agent", "guard"):
        bench.end(site, signal.SIGKILL)
    until(bench.nodes_back, "all agents")
    assert {bench.client.job(job_id).state for job_id in jobs} == {"running"}
    assert bench.processes(jobs) == before
    bench.finish("all", jobs)

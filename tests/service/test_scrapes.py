"""Scrapes with two thousand jobs: they read what was published, and neither wait for scheduling nor hold it up."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest
from kit.service import Cluster, Running, running
from kit.waiting import BOUND_S
from prometheus_client.parser import text_string_to_metric_families

from cosched.model.job import Job, JobState
from cosched.wire import messages as wire
from cosched.wire.api import Submission
from space_scheduler.policy.interface import Plan, Snapshot
from space_scheduler.policy.order import fcfs

MANY: Final = 2000
UNLIMITED: Final = {"max_queued": 0, "max_queued_per_user": 0}  # whoever runs this may be called ada
SCRIPT: Final = Submission(script="#!/bin/sh\ntrue\n", directory="/tmp", hold=True)


class Blocked:
    """A policy whose pass takes as long as a test wants."""

    order = staticmethod(fcfs)

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.asked = threading.Event()

    def plan(self, snapshot: Snapshot) -> Plan:
        """Decide nothing, when it may."""
        self.asked.set()
        assert self.go.wait(BOUND_S)
        return Plan(memory=snapshot.memory)


blocked: Final = Blocked()


async def scraped(service: Running) -> dict[tuple[str, str], float]:
    """One scrape: the value of each sample by its name and its state, if it has one."""
    async with service.http.get("/metrics") as answer:
        text = await answer.text()
    families = text_string_to_metric_families(text)
    return {(each.name, each.labels.get("state", "")): each.value for family in families for each in family.samples}


async def test_a_queue_in_which_nothing_happens_waits_longer_and_longer(service: Running) -> None:
    await service.submit(tasks=1)
    service.service.metrics._now_us = lambda: service.service.host.clock.now_us() + 3600 * 10**6
    assert 3600 <= (await scraped(service))["cosched_queue_oldest_wait_seconds", ""] < 3600 + BOUND_S


async def fill(service: Running, *, hold: bool) -> None:
    """As many jobs."""
    host = service.service.host
    for _ in range(MANY // 500):
        await asyncio.gather(*(host.submit(Job(0, 1, 10**6, 0), SCRIPT, "ada", hold=hold) for _ in range(500)))


@pytest.mark.slow
async def test_while_a_pass_takes_long_scrapes_are_answered(make_cluster: Callable[..., Cluster]) -> None:
    async with running(make_cluster(policy=f"{__name__}:blocked", **UNLIMITED)) as service, service.agent("n1"):
        await fill(service, hold=True)
        blocked.go.clear()
        blocked.asked.clear()
        try:
            waiting = asyncio.create_task(service.submit())  # wants a pass
            await asyncio.to_thread(blocked.asked.wait, 60)
            late = asyncio.create_task(service.submit())
            for _ in range(20):
                found = await scraped(service)
                assert found["cosched_jobs", "waiting"] == MANY
            assert blocked.go.is_set() is False
            assert not late.done(), "it is the scheduling that waits, not the scrape"
        finally:
            blocked.go.set()
        assert [*await asyncio.gather(waiting, late)] == [MANY + 1, MANY + 2]


async def test_scheduling_goes_on_at_ten_scrapes_a_second(make_cluster: Callable[..., Cluster]) -> None:
    async with running(make_cluster(**UNLIMITED)) as service, service.agent("n1", procs=2) as agent:
        await fill(service, hold=False)
        taken = 0

        async def scrape() -> None:
            nonlocal taken
            while True:
                found = await scraped(service)
                assert found["cosched_jobs", "queued"] + found["cosched_jobs_ended_total", "completed"] <= MANY + 1
                taken += 1
                await asyncio.sleep(0.1)

        scraping = asyncio.create_task(scrape())
        try:
            host = service.service.host
            for job_id in range(1, 21):  # each starts when one before it has ended
                await service.job_in(job_id, "running")
                await agent.ends(job_id, wire.Exit(status=0))
                await service.job_in(job_id, "completed")
            assert not scraping.done(), scraping.exception()
            assert taken > 0
            view = host.view()
            assert view.alive == Counter(record.state for record in view.jobs.values())
            assert view.waiting == {"ada": view.alive[JobState.QUEUED]}
        finally:
            scraping.cancel()

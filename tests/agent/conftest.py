"""Fixtures of the agent's tests: a cluster of real agents and guards, which leaves nothing behind."""

import itertools
import os
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from kit.agents import Cluster, Scheduler
from kit.routes import EPOCH, JOB, Route


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"cluster", "lasting_cluster"} & {*getattr(item, "fixturenames", ())} and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root: guards that make cgroups and become other users"))


@pytest.fixture(name="cluster")
def _cluster() -> Iterator[Cluster]:
    yield from _made()


@pytest.fixture(name="lasting_cluster", scope="module")
def _lasting_cluster() -> Iterator[Cluster]:
    """One for all tests of a module that leave its nodes as they were."""
    yield from _made()


@pytest.fixture(name="users_cluster")
def _users_cluster() -> Iterator[Cluster]:
    """For nodes that are whoever runs the tests: no rights needed."""
    yield from _made()


@pytest_asyncio.fixture(name="lasting", scope="module", loop_scope="module")
async def _lasting(lasting_cluster: Cluster) -> AsyncIterator[tuple[Cluster, Scheduler, Iterator[int]]]:
    """A cluster, its scheduler, and numbers for jobs."""
    async with lasting_cluster.scheduler(EPOCH) as scheduler:
        yield lasting_cluster, scheduler, itertools.count(JOB)


@pytest_asyncio.fixture(name="route", loop_scope="module")
async def _route(lasting: tuple[Cluster, Scheduler, Iterator[int]]) -> AsyncIterator[Route]:
    """For a module whose tests share a loop; its jobs end with the test."""
    made = Route(*lasting)
    yield made
    for job, node in [*made.left]:
        await made.kill(job, node)
    made.scheduler.got.clear()


def _made() -> Iterator[Cluster]:
    # A short path: Unix sockets have 108 bytes for theirs.
    base = Path(tempfile.mkdtemp(prefix="cosched-"))
    base.chmod(0o755)
    made = Cluster(base, f"cosched-test-{uuid.uuid4().hex[:12]}")
    try:
        yield made
    finally:
        made.close()

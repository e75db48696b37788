"""A cluster's files and its running service."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio
from kit.service import ME, Cluster, Running, running

from space_scheduler.service.page import streams


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page shows is looked at every 50 ms instead of twice a second."""
    monkeypatch.setattr(streams, "LOOK_S", 0.05)


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., Cluster]]:
    """Makes clusters with settings of their own, and removes them."""
    made: list[Cluster] = []

    def make(**settings: Any) -> Cluster:
        made.append(Cluster(**settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """A cluster of three nodes whose operator runs the tests."""
    return make_cluster(operators=[ME])


@pytest_asyncio.fixture
async def service(cluster: Cluster) -> AsyncIterator[Running]:
    """Its service."""
    async with running(cluster) as run:
        yield run

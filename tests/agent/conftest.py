"""Fixtures of the agent's tests: a cluster of real agents and guards, which leaves nothing behind."""

import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.agents import Cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()) and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root: guards that make cgroups and become other users"))


@pytest.fixture(name="cluster")
def _cluster() -> Iterator[Cluster]:
    yield from _made()


@pytest.fixture(name="users_cluster")
def _users_cluster() -> Iterator[Cluster]:
    """For nodes that are whoever runs the tests: no rights needed."""
    yield from _made()


def _made() -> Iterator[Cluster]:
    # A short path: Unix sockets have 108 bytes for theirs.
    base = Path(tempfile.mkdtemp(prefix="cosched-"))
    base.chmod(0o755)
    made = Cluster(base, f"cosched-test-{uuid.uuid4().hex[:12]}")
    try:
        yield made
    finally:
        made.close()

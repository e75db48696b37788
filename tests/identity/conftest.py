"""Fixtures of identity's tests: a service's files, and real agents with their guards."""

import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.agents import Cluster as Nodes
from kit.service import ME, Cluster


@pytest.fixture
def files() -> Iterator[Cluster]:
    """The files of a service whose operator runs the tests."""
    made = Cluster(operators=[ME])
    yield made
    made.close()


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """Real agents and guards, and a scheduler that says what a test tells it to."""
    if os.geteuid() != 0:
        pytest.skip("needs root: guards that make cgroups and become other users")
    base = Path(tempfile.mkdtemp(prefix="cosched-"))
    base.chmod(0o755)
    made = Nodes(base, f"cosched-test-{uuid.uuid4().hex[:12]}")
    try:
        yield made
    finally:
        made.close()

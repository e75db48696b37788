"""Labs for tests: each in a runtime directory of its own, gone at the end."""

from collections.abc import Iterator

import pytest
from kit.command import cosched  # noqa: F401 (a fixture)
from kit.labs import Bench, bench_of


@pytest.fixture
def root_bench() -> Iterator[Bench]:
    """Where root makes labs."""
    with bench_of(1) as made:
        yield made


@pytest.fixture
def user_bench() -> Iterator[Bench]:
    """Where an ordinary user makes labs."""
    with bench_of(3) as made:
        yield made


@pytest.fixture
def namespaced_user_bench() -> Iterator[Bench]:
    """Where an ordinary user makes labs of tier 2."""
    with bench_of(2) as made:
        yield made


@pytest.fixture(params=["tier 1", "tier 2", "tier 3"])
def tiered_bench(request: pytest.FixtureRequest) -> Iterator[tuple[Bench, int]]:
    """A bench for each tier: root's, an ordinary user's, and his again, asked for tier 3."""
    tier = int(request.param[-1])
    with bench_of(tier) as made:
        yield made, tier

"""Labs for tests: each in a runtime directory of its own, gone at the end."""

from collections.abc import Iterator

import pytest
from kit.labs import Bench, bench, ordinary_user
from kit.needs import need_namespaces_of, need_root


@pytest.fixture
def root_bench() -> Iterator[Bench]:
    """Where root makes labs."""
    need_root()
    with bench() as made:
        yield made


@pytest.fixture
def user_bench() -> Iterator[Bench]:
    """Where an ordinary user makes labs."""
    prefix, python, uid = ordinary_user()
    with bench(prefix, python, uid) as made:
        yield made


@pytest.fixture
def namespaced_user_bench(user_bench: Bench) -> Bench:
    """Where an ordinary user makes labs of tier 2."""
    need_namespaces_of(tuple(user_bench.prefix), user_bench.python)
    return user_bench


@pytest.fixture(params=["tier 1", "tier 2", "tier 3"])
def tiered_bench(request: pytest.FixtureRequest) -> tuple[Bench, int]:
    """A bench for each tier: root's, an ordinary user's, and his again, asked for tier 3."""
    tier = int(request.param[-1])
    return request.getfixturevalue(("root_bench", "namespaced_user_bench", "user_bench")[tier - 1]), tier

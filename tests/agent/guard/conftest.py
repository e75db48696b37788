"""Real guards: as root with this machine's cgroups, and as an ordinary user without any."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit.guards import RealGuard

MakeGuard = Callable[..., RealGuard]


@pytest.fixture
def make_guard() -> Iterator[MakeGuard]:
    """A function that starts a guard; all end with the test."""
    if os.geteuid() != 0:
        pytest.skip("needs root: a guard makes cgroups and becomes other users")
    made: list[RealGuard] = []

    def make(kind: str = "cgroups", *, start: bool = True, **config: Any) -> RealGuard:
        made.append(RealGuard(kind, **config))
        return made[-1].start() if start else made[-1]

    try:
        yield make
    finally:
        problems = []
        for guard in made:
            try:
                guard.close()
            except Exception as error:
                problems.append(error)
        if problems:
            raise ExceptionGroup("guards that could not be closed", problems)


@pytest.fixture
def guard(make_guard: MakeGuard) -> RealGuard:
    """A guard with cgroups, as root."""
    return make_guard()


@pytest.fixture(params=["cgroups", "none"])
def any_guard(request: pytest.FixtureRequest, make_guard: MakeGuard) -> RealGuard:
    """Each kind of guard in turn."""
    return make_guard(request.param)

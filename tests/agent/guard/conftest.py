"""Real guards: as root with this machine's cgroups, and as an ordinary user without any."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit.guards import RealGuard

MakeGuard = Callable[..., RealGuard]


#: Files whose tests take over the guard of the test before, where that left it as it was made.
LASTING = (
    "test_cpu_sets", "test_guard_end", "test_guard_life", "test_guard_requests", "test_held_turns", "test_levers",
    "test_reaping", "test_weights",
)  # fmt: skip


@pytest.fixture(scope="module")
def idle_guards() -> Iterator[dict[str, RealGuard]]:
    """By kind, a guard that waits for another test of the module."""
    idle: dict[str, RealGuard] = {}
    try:
        yield idle
    finally:
        closed([*idle.values()])


@pytest.fixture
def make_guard(request: pytest.FixtureRequest, idle_guards: dict[str, RealGuard]) -> Iterator[MakeGuard]:
    """A function that starts a guard; all end with the test, or wait for the next one."""
    if os.geteuid() != 0:
        pytest.skip("needs root: a guard makes cgroups and becomes other users")
    made: list[RealGuard] = []
    plain: list[RealGuard] = []

    def make(kind: str = "cgroups", *, start: bool = True, **config: Any) -> RealGuard:
        if start and not config and kind in idle_guards:
            made.append(idle_guards.pop(kind))
            made[-1].client()
        else:
            made.append(RealGuard(kind, **config))
            if start:
                made[-1].start()
        if start and not config:
            plain.append(made[-1])
        return made[-1]

    try:
        yield make
    finally:
        if request.module.__name__.rpartition(".")[2] in LASTING:
            for guard in plain:
                with contextlib.suppress(Exception):  # it is closed below, and what is wrong with it told
                    if guard.kind not in idle_guards and guard.is_as_new():
                        idle_guards[guard.kind] = guard
                        made.remove(guard)
        closed(made)


def closed(guards: list[RealGuard]) -> None:
    problems = []
    for guard in guards:
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

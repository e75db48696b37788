"""The freezer's tries, on control groups that settle when a test lets them."""

from types import SimpleNamespace
from typing import Any

import pytest

from node_agent.guard.launcher.freezer import Freezer

KEY = (1, 1)


class Cgroups:
    """Settles when told to; keeps whether each try was one that thaws first."""

    def __init__(self) -> None:
        self.settles = False
        self.tries: list[bool] = []

    def freeze(self, name: str, *, frozen: bool, anew: bool) -> bool:
        assert frozen
        self.tries.append(anew)
        return self.settles


@pytest.fixture
def made() -> tuple[Freezer, Cgroups, list[str]]:
    """A freezer that is to stop one group, its control groups, and what it complains of."""
    cgroups, complaints = Cgroups(), list[str]()
    group = SimpleNamespace(name="job-1.1", stopped_us=1, ending="", kill_at_us=None)
    loop = SimpleNamespace(complain=lambda what, error: complaints.append(f"{what} {error}"))
    shared: Any = SimpleNamespace(groups={KEY: group}, cgroups=cgroups, loop=loop)
    endings: Any = SimpleNamespace(held_since_us=None)
    freezer = Freezer(shared, endings)
    freezer.see_to([KEY])
    return freezer, cgroups, complaints


def tick(freezer: Freezer) -> None:
    due_us = freezer.due_us
    assert due_us is not None
    freezer.tick(due_us)


def test_freeze_is_retried_and_after_the_sixth_failure_the_group_is_thawed_and_reported(
    made: tuple[Freezer, Cgroups, list[str]],
) -> None:
    freezer, cgroups, complaints = made
    for _ in range(7):
        tick(freezer)
    assert cgroups.tries == [*[False] * 6, True, False]
    assert len(complaints) == 1
    cgroups.settles = True
    tick(freezer)
    assert freezer.due_us is None


def test_group_that_is_frozen_by_an_order_is_not_thawed_by_a_later_try(
    made: tuple[Freezer, Cgroups, list[str]],
) -> None:
    """Goal: no retry of a group that has settled; a late retry thaws it for a moment.

    Method: five tries in vain, then an order that succeeds, then the moment of the next try.
    """
    freezer, cgroups, complaints = made
    for _ in range(5):
        tick(freezer)
    cgroups.settles = True
    freezer.obey(KEY)
    tick(freezer)
    assert True not in cgroups.tries
    assert freezer.due_us is None
    assert not complaints

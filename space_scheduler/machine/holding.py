"""What a job holds, as one value: a class for each kind, and the tables of which may follow which, and in which state.

Plans count what a job is *to hold*, its ``allocation``; until the host has said so, it holds what it held before.
"""

from typing import ClassVar, Final

import msgspec

from cosched.model.allocation import Allocation
from cosched.model.job import ENDING, QUEUED, RUNNING, STARTING, WAITING, JobState

EMPTY: Final = Allocation(0)


class Holding(msgspec.Struct, frozen=True, gc=False):
    """The base of all kinds: a job that is to hold ``allocation``.

    ``counted``: plans count it as not free. ``changing``: the host has not confirmed it; ``awaits``: it has not even
    been told, since others still hold some of it.
    """

    allocation: Allocation
    counted: ClassVar[bool] = True
    changing: ClassVar[bool] = False
    awaits: ClassVar[bool] = False

    @property
    def held(self) -> Allocation | None:
        """What it holds for certain, or held when the host was told to change it."""
        return self.allocation

    @property
    def told(self) -> Allocation:
        """What its rate follows from: what the host has been told it is to hold, or what it is to start on."""
        return self.allocation

    @property
    def given_back(self) -> Allocation:
        """What it still holds and the host has been told to take from it."""
        return EMPTY


class Nothing(Holding, frozen=True, gc=False):
    """It waits; ``NOTHING`` is the only one."""

    counted = False
    held = None


class Starting(Holding, frozen=True, gc=False):
    """It is to start, and the host has not been told."""

    changing = awaits = True
    held = None


class Occupying(Holding, frozen=True, gc=False):
    """It holds its allocation."""


class Resizing(Holding, frozen=True, gc=False):
    """It held ``old`` when the host was told to resize it; meanwhile it may hold all of both."""

    old: Allocation
    changing = True

    @property
    def held(self) -> Allocation:
        """What it held."""
        return self.old

    @property
    def given_back(self) -> Allocation:
        """What it had and is not to have."""
        return self.old.beyond(self.allocation)


class Deferred(Holding, frozen=True, gc=False):
    """It holds ``old`` and is to be resized, and the host has not been told."""

    old: Allocation
    changing = awaits = True

    @property
    def held(self) -> Allocation:
        """What it holds; its rate follows from that."""
        return self.old

    told = held


class Ending(Holding, frozen=True, gc=False):
    """A plan ends it: plans use what it holds already, and no job starts there before its end."""

    counted = False
    changing = True

    @property
    def given_back(self) -> Allocation:
        """All of it."""
        return self.allocation


class Requeuing(Ending, frozen=True, gc=False):
    """The same; at its end it is queued again."""


class Released(Holding, frozen=True, gc=False):
    """It has reached its limit, and by rule holds nothing more: jobs may start there before its end."""

    counted = False


NOTHING: Final = Nothing(EMPTY)

#: Which kinds may follow each.
NEXT: Final[dict[type[Holding], frozenset[type[Holding]]]] = {
    Nothing: frozenset({Starting, Occupying}),
    Starting: frozenset({Occupying, Nothing}),
    Occupying: frozenset({Deferred, Requeuing, Released, Nothing}),
    Deferred: frozenset({Resizing, Occupying, Nothing}),
    Resizing: frozenset({Occupying, Nothing}),
    Requeuing: frozenset({Ending, Nothing}),
    Ending: frozenset({Nothing}),
    Released: frozenset({Nothing}),
}
#: Which kinds a live job may have in each state.
KINDS: Final[dict[JobState, frozenset[type[Holding]]]] = {
    WAITING: frozenset({Nothing}),
    QUEUED: frozenset({Nothing}),
    STARTING: frozenset({Starting, Occupying, Released}),
    RUNNING: frozenset({Occupying, Deferred, Resizing, Released}),
    ENDING: frozenset({Occupying, Resizing, Requeuing, Ending, Released}),
}

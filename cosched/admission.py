"""Which connections get a place at a door, and which is evicted for a newcomer: the rule of every door; pure.

A connection belongs to an *owner*: a user, a job, a node, the address of a machine. It is *idle* until it has said what
it wants; then it is *settled*. A door has places: few of them for one owner, and fewer for idle connections.

* An owner that has all its places is refused one more; where the door ``replaces``, its oldest idle connection is
  evicted instead: there one owner may be several parties, as an address may be an agent's and a stranger's.
* Where all places are taken, the oldest idle connection is evicted of the owner that has most of them, so that an owner
  of few is not kept out by another's many. Those of *preferred* owners are evicted last.
* A settled connection is never evicted. Where none is idle, newcomers are refused; those of preferred owners are not.

This module has no sockets: a door calls :meth:`Places.enter` for each accepted connection and closes the evicted one.
"""

import sys
from collections import Counter
from collections.abc import Container, Hashable, Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

_NO_BOUND: Final = sys.maxsize

Owner = TypeVar("Owner", bound=Hashable)
Item = TypeVar("Item", bound=Hashable)


class NoPlace(Exception):
    """A newcomer is refused; the message says how many connections there are."""


class Bounds(NamedTuple):
    """How many connections there may be, in all and of one owner; and how many of these may be idle."""

    most: int
    of_one: int
    idle: int = _NO_BOUND
    idle_of_one: int = _NO_BOUND

    def within(self, descriptors: int) -> "Bounds":
        """These, for a process with so many descriptors: a connection takes two, and half of all are kept."""
        most = min(self.most, max(8, descriptors // 8))
        return Bounds(most, min(self.of_one, most // 2), min(self.idle, most // 2), min(self.idle_of_one, most // 4))


class Places(Generic[Owner, Item]):
    """The places of one door, and the connections that have them, oldest first."""

    def __init__(self, bounds: Bounds, *, replaces: bool = False, preferred: Container[Owner] = ()) -> None:
        self._bounds, self._replaces, self._preferred = bounds, replaces, preferred
        self._owners: dict[Item, Owner] = {}
        self._counts: Counter[Owner] = Counter()
        self._idle: dict[Item, Owner] = {}
        self._idle_counts: Counter[Owner] = Counter()

    def __len__(self) -> int:
        return len(self._owners)

    def __contains__(self, item: object) -> bool:
        return item in self._owners

    def __iter__(self) -> Iterator[Item]:
        """All, oldest first, as they are now: they may leave meanwhile."""
        return iter([*self._owners])

    @property
    def is_full(self) -> bool:
        """Whether one more needs an eviction, of whichever owner it is."""
        return len(self._owners) >= self._bounds.most or len(self._idle) >= self._bounds.idle

    def enter(self, item: Item, owner: Owner) -> Item | None:
        """Give a newcomer a place, as an idle one. Returns the connection that is evicted for it, or None.

        Raises :class:`NoPlace`.
        """
        evicted = None
        if self._has_all(owner):
            evicted = self._oldest_idle({owner: self._idle_counts[owner]}) if self._replaces else None
            if evicted is None:
                raise NoPlace(f"more than {self._counts[owner]} connections at a time")
        elif self.is_full:
            others = {each: count for each, count in self._idle_counts.items() if each not in self._preferred}
            evicted = self._oldest_idle(others or self._idle_counts)
            if evicted is None and owner not in self._preferred:
                raise NoPlace(f"more than {len(self._owners)} connections of all at a time")
        if evicted is not None:
            self.leave(evicted)
        self._owners[item] = self._idle[item] = owner
        self._counts[owner] += 1
        self._idle_counts[owner] += 1
        return evicted

    def settle(self, item: Item) -> None:
        """A connection has said what it wants: it is not evicted any more."""
        if item in self._idle:
            _count_down(self._idle_counts, self._idle.pop(item))

    def leave(self, item: Item) -> None:
        """A connection has ended, or was evicted: its place is free."""
        self.settle(item)
        if item in self._owners:
            _count_down(self._counts, self._owners.pop(item))

    def next_of(self, waiting: Mapping[Item, Owner]) -> Item | None:
        """Which of those that wait for a place here is next, None where there is a place for none of them.

        The oldest of a preferred owner, then of the owner that has fewest places here.
        """
        if self.is_full:
            return None
        able = [each for each, owner in waiting.items() if not self._has_all(owner)]
        return min(able, key=lambda each: self._turn(waiting[each]), default=None)

    def _turn(self, owner: Owner) -> tuple[bool, int]:
        return owner not in self._preferred, self._counts[owner]

    def _has_all(self, owner: Owner) -> bool:
        bounds = self._bounds
        return self._counts[owner] >= bounds.of_one or self._idle_counts[owner] >= bounds.idle_of_one

    def _oldest_idle(self, counts: Mapping[Owner, int]) -> Item | None:
        """The oldest idle connection of the owner that has most of them, by these counts."""
        most = max(counts.values(), default=0)
        return next((each for each, owner in self._idle.items() if counts.get(owner) == most), None)


def _count_down(counts: Counter[Owner], owner: Owner) -> None:
    counts[owner] -= 1
    if not counts[owner]:
        del counts[owner]

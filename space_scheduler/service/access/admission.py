"""Who of those that call finds a place: counts and choices alone, no socket (the sockets are :mod:`~.accepting`'s).

A caller over TLS is a stranger until a certificate or a token says who it is. Strangers pass three rooms, each small:

* they have *arrived* and said nothing yet: a descriptor each, no TLS;
* they *shake hands*, so many at a time: TLS holds a quarter of a megabyte from its first byte on;
* they are *unproven*: TLS is there, no certificate was shown, and no token yet.

Where a room is full, one stranger of the address that has most of them there has to go, chosen at random, and the
newcomer comes in: so who calls from an address of his own is not kept out by the many from others. Addresses at which
an agent has proved itself are served first and lose their places last. Agents and users have places of their own.
"""

import random
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

#: Descriptors for the journal, listening sockets, libraries.
_OWN: Final = 64
_LEAST: Final = 32
#: Connections of one node at a time: an old one that is not known to be dead yet, and new ones.
OF_ONE_NODE: Final = 4
_KNOWN: Final = 10_000

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item", bound=Hashable)


class Limits(NamedTuple):
    """How many there may be. ``agents`` is what is left for them."""

    arrived: int
    handshakes: int
    unproven: int
    users: int
    of_one_user: int
    agents: int

    @property
    def needed(self) -> int:
        """Descriptors, were all there."""
        return _OWN + self.arrived + self.handshakes + self.unproven + self.users + self.agents

    @staticmethod
    def of(descriptors: int, nodes: int, users: int, of_one_user: int) -> "Limits":
        """What goes into so many descriptors: places for agents first."""
        agents = max(128, 2 * nodes)
        rest = max(4 * _LEAST, descriptors - _OWN - agents)
        arrived, handshakes = min(256, rest // 4), min(32, rest // 8)
        users = max(_LEAST, min(users, rest - arrived - 2 * handshakes))
        return Limits(arrived, handshakes, handshakes, users, of_one_user, agents)


class Room(Generic[Item]):
    """Strangers in one place, by their address."""

    def __init__(self, most: int, rng: random.Random | None = None) -> None:
        """``most`` in all; of one address half of that."""
        self.most = most
        self.of_one = max(1, most // 2)
        self._rng = rng or random.Random()
        self._inside: dict[str, list[Item]] = {}
        self.count = 0

    def enter(self, address: str, item: Item, known: Collection[str] = ()) -> Item | None:
        """Put somebody in; who has to go for it, if anybody. ``known`` are addresses that go last."""
        out = None
        if len(self._inside.get(address, ())) >= self.of_one:
            out = self._chosen(address)
        elif self.count >= self.most:
            out = self._chosen(self._most_crowded(known))
        self._inside.setdefault(address, []).append(item)
        self.count += 1
        return out

    def leave(self, address: str, item: Item) -> bool:
        """Take somebody out; False where it was not inside."""
        there = self._inside.get(address)
        if there is None or item not in there:
            return False
        there.remove(item)
        self.count -= 1
        if not there:
            del self._inside[address]
        return True

    def of(self, address: str) -> int:
        """How many of an address are inside."""
        return len(self._inside.get(address, ()))

    def __iter__(self) -> Iterator[tuple[str, Item]]:
        return iter([(address, item) for address, items in self._inside.items() for item in items])

    def _chosen(self, address: str) -> Item:
        item = self._rng.choice(self._inside[address])
        self.leave(address, item)
        return item

    def _most_crowded(self, known: Collection[str]) -> str:
        return max(self._inside, key=lambda each: (each not in known, len(self._inside[each])))


class Turns(Generic[Item]):
    """Who is ready, served one of each address in turn, those of known addresses first."""

    def __init__(self) -> None:
        self._ready: OrderedDict[str, list[Item]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, address: str, item: Item) -> None:
        """Somebody is ready."""
        self._ready.setdefault(address, []).append(item)

    def drop(self, address: str, item: Item) -> None:
        """Somebody is not, any more."""
        there = self._ready.get(address, [])
        if item in there:
            there.remove(item)
            if not there:
                del self._ready[address]

    def next(self, known: Collection[str], may: Callable[[str], bool]) -> tuple[str, Item] | None:
        """The next one, taken out: of a known address, else of the one that was served longest ago, if it ``may``."""
        able = [each for each in self._ready if may(each)]
        if not able:
            return None
        address = next((each for each in able if each in known), able[0])
        item = self._ready[address].pop(0)
        if self._ready[address]:
            self._ready.move_to_end(address)
        else:
            del self._ready[address]
        return address, item


class Counts(Generic[Key]):
    """How many connections each user, or each node, has."""

    def __init__(self, of_one: int, in_all: int) -> None:
        self._of_one = of_one
        self._in_all = in_all
        self._counts: Counter[Key] = Counter()
        self.total = 0

    def full(self, key: Key, *, first: bool = False) -> bool:
        """Whether one more would be too many; ``first``: those who find a place also where all are taken."""
        return self._counts[key] >= self._of_one or (self.total >= self._in_all and not first)

    def add(self, key: Key) -> None:
        """One more."""
        self._counts[key] += 1
        self.total += 1

    def remove(self, key: Key) -> None:
        """One less."""
        self._counts[key] -= 1
        self.total -= 1
        if not self._counts[key]:
            del self._counts[key]


class Known:
    """Addresses at which agents have proved themselves; of so many, the last."""

    def __init__(self) -> None:
        self.addresses: dict[str, None] = {}

    def add(self, address: str) -> None:
        """An agent's."""
        self.addresses.pop(address, None)
        self.addresses[address] = None
        if len(self.addresses) > _KNOWN:
            del self.addresses[next(iter(self.addresses))]

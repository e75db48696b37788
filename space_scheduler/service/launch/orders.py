"""Orders to nodes: their numbers, and what every order carries.

For each attempt at a job on each node the numbers rise, and the same order has the same number again. A later
scheduler's are all higher than those of an earlier one, since they begin with its epoch: nothing has to be known of
what was ordered before a restart.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cosched.config.cluster import ClusterConfig
from cosched.wire import messages as wire
from cosched.wire.messages import OrderId

#: Bits of a number that count within an epoch: a node is not given as many orders for one attempt.
COUNT_BITS: Final = 20
#: Of so many attempts that are over, each on one node, it is remembered what they were given.
_MOST_OVER: Final = 10_000

#: A node's name, and an attempt's: the job's number and its own.
Place = tuple[str, tuple[int, int]]


def epoch_of(number: int) -> int:
    """The epoch of the scheduler that gave an order of this number; 0: none of this kind."""
    return number >> COUNT_BITS


class OrderKind(StrEnum):
    """What a node is asked to do."""

    PREPARE = "prepare"
    RUN = "run"
    RESIZE = "resize"
    ADAPT = "adapt"
    KILL = "kill"
    FORGET = "forget"
    DISCARD = "discard"


@dataclass(slots=True)
class _Given:
    """What a node was given for one attempt: how many orders, and the number of the last of each kind."""

    count: int
    last: dict[OrderKind, int] = field(default_factory=dict)


class OrderNumbers:
    """Of one scheduler. ``key`` is the job's number and the attempt's."""

    def __init__(self, epoch: int) -> None:
        self._first: Final = epoch << COUNT_BITS
        self._given: dict[Place, _Given] = {}
        self._over: dict[Place, None] = {}  # the oldest first
        self._least = 0  # no attempt that is not remembered was given more orders

    def of(self, node: str, key: tuple[int, int], kind: OrderKind, *, answered: bool = True) -> OrderId:
        """That of an order that was given before, or of a new one where none of the kind was.

        An order that is not ``answered`` is a new one where another was given since then: what the node has obeyed
        meanwhile makes the older number stale, and nothing would tell.
        """
        given = self._given.get((node, key))
        if given is None or kind not in given.last:
            return self.new(node, key, kind)
        number = given.last[kind]
        return OrderId(*key, number) if answered or number == self._first + given.count else self.new(node, key, kind)

    def new(self, node: str, key: tuple[int, int], kind: OrderKind) -> OrderId:
        """That of an order that was not given before: the next."""
        self._over.pop((node, key), None)
        given = self._given.setdefault((node, key), _Given(self._least))
        given.count += 1
        given.last[kind] = self._first + given.count
        return OrderId(*key, given.last[kind])

    def anew(self, node: str, key: tuple[int, int]) -> None:
        """The attempt begins anew on a node: no order from now on is one that was given before."""
        if (given := self._given.get((node, key))) is not None:
            given.last.clear()

    def kind(self, node: str, order: OrderId) -> OrderKind | None:
        """Which order an answer is to; None where an earlier scheduler gave it or a later order replaced it."""
        given = self._given.get((node, (order.job_id, order.attempt)))
        found = given.last.items() if given is not None else ()
        return next((kind for kind, number in found if number == order.n), None)

    def over(self, node: str, key: tuple[int, int]) -> None:
        """Nothing more is to be ordered for an attempt, unless the last orders have to be given again."""
        if (node, key) not in self._given:
            return
        self._over[node, key] = None
        if len(self._over) > _MOST_OVER:
            oldest = next(iter(self._over))
            del self._over[oldest]
            self._least = max(self._least, self._given.pop(oldest).count)


class Orders(OrderNumbers):
    """What the orders of one scheduler have in common, and their numbers. ``key`` signs grants from now on."""

    def __init__(self, config: ClusterConfig, fence: wire.Fence, key: Ed25519PrivateKey) -> None:
        super().__init__(fence.epoch)
        self.fence: Final = fence
        self.key = key
        self.grace_us: Final = config.time_us("grace")

    def plain(self, kind: OrderKind, name: str, key: tuple[int, int]) -> wire.Kill | wire.Forget | wire.Discard:
        """An order that says nothing of the job but its number and attempt, for the node of that name.

        After a Forget or a Discard the attempt is over there.
        """
        order = self.of(name, key, kind, answered=False)
        if kind is OrderKind.KILL:
            return wire.Kill(self.fence, order, self.grace_us)
        self.over(name, key)
        return (wire.Forget if kind is OrderKind.FORGET else wire.Discard)(self.fence, order)

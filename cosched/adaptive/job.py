"""A malleable job as its ranks see it: safe points, at which the newest map is adopted.

At a point the leader, the lowest enabled rank, looks at its channel and tells the other enabled ranks what to do by one
small broadcast. A map that changes who is enabled wakes those who will be, moves all data from the ranks of before to
those after it, makes a communicator of these, and has the vacated ones sleep inside the point; then the new leader
tells its agent. The reasons are in docs/design/adaptive.md.
"""

import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import DTypeLike

from cosched.adaptive.arrays import Array
from cosched.adaptive.balance import Balancer, Meter
from cosched.adaptive.channel import Channel
from cosched.adaptive.layout import Distribution
from cosched.adaptive.maps import Map, enabled_ranks
from cosched.adaptive.pieces import Pieces
from cosched.adaptive.sleeping import WORD_TAG, sleep_until_told
from cosched.adaptive.words import Action, Change, Release, WakeUp

if TYPE_CHECKING:
    from collections.abc import Callable

    from mpi4py.MPI import Intracomm

_ASLEEP_TAG, _GROUP_TAG = 4, 5


class Released(BaseException):
    """Leaves a vacated rank's ``with`` block when the others have left it; the block catches it. No Exception, so that
    a program which catches those lets it pass.
    """


class Job:
    """Made by :func:`cosched.adaptive.job`, on all ranks of the world.

    ``rank`` is this one's number in the world, ``ranks`` are the enabled ones now, ``comm`` their communicator; until
    the first point all are enabled. ``number`` is that of the map in force, 0 for none. ``state`` is small and the same
    on all enabled ranks: a rank that wakes has what the leader has.
    """

    def __init__(
        self, world: "Intracomm", channel: Channel | None, nodes: Sequence[str], *, balance: bool, every: int
    ) -> None:
        self._world, self._channel, self._nodes = world, channel, nodes
        self._balancer = Balancer(nodes) if balance else None
        self._every = every if balance else 0
        self._meter = Meter()
        self._points, self._ranges, self._refused = 0, 0, 0
        self._pieces: list[Pieces] = []
        self._hint = 0, False  # whether the map with that number enables this rank
        self._shares: Mapping[str, int] = {}
        self.rank = world.Get_rank()
        self.ranks = tuple(range(world.Get_size()))
        self.weights = (1.0,) * len(self.ranks)
        self.comm: Intracomm = world.Dup()
        self.number = 0
        self.state: dict[Any, Any] = {}
        self.answer: tuple[int, bool] | None = None

    @property
    def enabled(self) -> bool:
        """Whether this rank computes now: true wherever the program runs but after the ``with`` block."""
        return self.rank in self.ranks

    @property
    def leads(self) -> bool:
        """Whether this is the lowest enabled rank, which is number 0 of ``comm``."""
        return self.rank == self.ranks[0]

    def array(
        self,
        shape: int | Sequence[int],
        dtype: DTypeLike = np.float64,
        distribution: Distribution = "block",
        *,
        scratch: bool = False,
    ) -> Array:
        """An array of zeros whose first axis is spread over the enabled ranks; call it on all, before the first point.

        A ``scratch`` array is zero again after its rows have changed owners, and need not be named at points.
        Raises TypeError, ValueError.
        """
        self._before_points("an array")
        return Array(self, (shape,) if isinstance(shape, int) else shape, dtype, distribution, scratch)

    def pieces(self, count: int, pack: "Callable[[int], bytes]", unpack: "Callable[[int, bytes], None]") -> Pieces:
        """Objects by key, 0 … ``count`` - 1, which move by these callbacks at each point that needs it.

        Call it on all ranks, before the first point; ``keys`` of what it returns are this rank's.
        """
        self._before_points("pieces")
        self._pieces.append(Pieces(self, count, pack, unpack))
        return self._pieces[-1]

    def work(self) -> AbstractContextManager[None]:
        """What is done inside is this rank's own computing, by which the balancer judges how fast it is."""
        return self._meter.work()

    def ask(self, more: int) -> None:
        """Ask for so many processes more, or fewer; on all enabled ranks. What is granted comes as a map.

        ``answer`` becomes how many were given and whether the rest is waited for, at a later point, on all enabled
        ranks. Raises ValueError for 0.
        """
        if more == 0:
            raise ValueError("asking for 0 more processes")
        self.answer = None
        if self._channel is not None and self.leads:
            self._channel.say(f"ask {more:+d}")

    def range(self, count: int, *arrays: Array) -> Iterator[int]:
        """Steps 0 … ``count`` - 1 with a point before each; one such loop in a ``with`` block.

        Raises RuntimeError at a second one: a rank that sleeps in the first could not be woken in it.
        """
        self._ranges += 1
        if self._ranges > 1:
            raise RuntimeError("a second loop in one block: use a block for each, or job.point in loops of your own")
        step = 0
        while step < count:
            step = self.point(*arrays, step=step)
            yield step
            step += 1

    def point(self, *arrays: Array, step: int = 0) -> int:
        """A safe point: adopt the newest map. The step at which to go on, which a vacated rank gets from the others.

        All enabled ranks must come to it with the same arrays, in the same order, at the same step; if they do not,
        RuntimeError ends the job when the map changes. No message of the
        program's own may be under way, and what the program knows besides these arrays, pieces and ``state`` must
        follow from the step: a rank may come back from it much later than it went in.
        """
        self._points += 1
        everything: list[Array | Pieces] = [*arrays, *self._pieces]
        self._meter.step(everything[0].part if everything else 0.0)
        if self._told() is Action.MEASURE and (change := self._decided(step, everything)):
            self._carry_out(change, everything)
        while not self.enabled:
            step = self._sleep(everything)
        return step

    def _told(self) -> Action:
        """What the leader has all do at this point, and what its agent has answered."""
        if self._channel is None:
            return Action.MEASURE if self._is_due() else Action.GO_ON
        self._channel.poll()
        word = np.zeros(4, np.int64)
        if self.leads:
            answer, self._channel.answer = self._channel.answer, None
            word[:] = (self._is_due() or self._news() is not None, answer is not None, *(answer or (0, 0)))
        self.comm.Bcast(word, root=0)
        if word[1]:
            self.answer = int(word[2]), bool(word[3])
        return Action(int(word[0]))

    def _is_due(self) -> bool:
        return self._every > 0 and self._points % self._every == 0

    def _news(self) -> Map | None:
        """The newest map, if it is newer than that in force and enables anybody."""
        newest = None if self._channel is None else self._channel.newest
        if newest is None or newest.number <= max(self.number, self._refused):
            return None
        if not enabled_ranks(newest.shares, self._nodes):
            self._refused = newest.number
            return None
        return newest

    def _decided(self, step: int, everything: Sequence[Array | Pieces]) -> Change | None:
        """The leader's change, told to all enabled ranks; None if there is nothing to be done."""
        mine = (step, *(each.form for each in everything))
        found = self.comm.gather((self._meter.taken(), mine), root=0)
        change = None
        if found is not None:
            for rank, (_, theirs) in zip(self.ranks, found, strict=True):
                if theirs != mine:
                    raise RuntimeError(f"at a point, rank {rank} has step and arrays {theirs}, rank {self.rank} {mine}")
            change = self._decide({rank: each for rank, (each, _) in zip(self.ranks, found, strict=True)}, step)
        told: Change | None = self.comm.bcast(change, root=0)
        return told

    def _decide(self, measured: Mapping[int, tuple[float, float]], step: int) -> Change | None:
        if self._balancer is not None:
            self._balancer.learn(measured)
        number, shares = self._news() or Map(self.number, self._shares)
        new = enabled_ranks(shares, self._nodes) if number > self.number else self.ranks
        if self._balancer is None:
            weights = (1.0,) * len(new)
        elif new != self.ranks:
            weights = self._balancer.weights(new)
        else:
            weights = self._balancer.weights(new, self.weights) if self._is_due() else self.weights
        if (number, new, weights) == (self.number, self.ranks, self.weights):
            return None
        return Change(number, shares, self.ranks, self.weights, new, weights, step)

    def _carry_out(self, change: Change, everything: Sequence[Array | Pieces]) -> None:
        """Do what a change asks: on all ranks of before and after it."""
        if self.leads and self.rank in change.old:
            self._wake(change, everything)
        is_newer = change.number > self.number
        self.number, self._shares = change.number, change.shares
        if (change.new, change.new_weights) != (change.old, change.old_weights):
            self.ranks, self.weights = change.new, change.new_weights
            for each in everything:
                each.move(self._world, change.old, change.old_weights)
        if change.new != change.old:
            self._regroup(change)
        self._gather_in(change)
        if self._channel is not None and is_newer:
            self._channel.adapt(change.number if self.enabled and self.leads else None)

    def _wake(self, change: Change, everything: Sequence[Array | Pieces]) -> None:
        word = WakeUp(change, self.state, self.answer, tuple(each.form for each in everything))
        for request in [self._world.isend(word, rank, WORD_TAG) for rank in change.new if rank not in change.old]:
            request.wait()

    def _regroup(self, change: Change) -> None:
        """Leave the communicator of before; make one of those who are enabled now."""
        if self.rank in change.old:
            self.comm.Free()
        if self.enabled:
            group = self._world.Get_group()
            enabled = group.Incl(change.new)
            self.comm = self._world.Create_group(enabled, _GROUP_TAG)
            enabled.Free()
            group.Free()

    def _gather_in(self, change: Change) -> None:
        """Wait until all have done what the map asks; who is vacated does nothing after it but sleep."""
        if not self.enabled:
            self._world.send(None, change.new[0], _ASLEEP_TAG)
            return
        self.comm.Barrier()
        if self.leads:
            for rank in set(change.old) - set(change.new):
                self._world.recv(source=rank, tag=_ASLEEP_TAG)

    def _sleep(self, everything: Sequence[Array | Pieces]) -> int:
        """Sleep until the leader wakes this rank, and take part in its change; the others' step. Raises Released."""
        assert self._channel is not None
        word = sleep_until_told(self._world, self._channel, self._is_hinted)
        if isinstance(word, Release):
            raise Released
        if word.forms != (mine := tuple(each.form for each in everything)):
            raise RuntimeError(f"rank {self.rank} sleeps at a point for {mine}, the others are at one for {word.forms}")
        self.state.clear()
        self.state.update(word.state)
        self.answer = word.answer
        self._carry_out(word.change, everything)
        return word.change.step

    def _is_hinted(self) -> bool:
        """Whether a map newer than the last one that this rank took part in enables it."""
        newest = self._channel.newest if self._channel else None
        if newest is None or newest.number <= self.number:
            return False
        if self._hint[0] != newest.number:
            self._hint = newest.number, self.rank in enabled_ranks(newest.shares, self._nodes)
        return self._hint[1]

    def _before_points(self, what: str) -> None:
        if self._points:
            raise RuntimeError(f"{what} made after the first point: ranks that sleep would not have it")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is not None and not isinstance(error, Released):
            if self._world.Get_size() > 1:  # alone, this rank would end while the others wait for it
                traceback.print_exception(kind, error, trace)
                sys.stderr.flush()
                self._world.Abort(1)
            return False
        if self.enabled:
            self._release()
        if self._channel is not None:
            self._channel.close()
        self._world.Free()
        return True

    def _release(self) -> None:
        """All enabled ranks have come to the end: those who sleep may go too."""
        self.comm.Barrier()
        if self.leads:
            asleep = [rank for rank in range(self._world.Get_size()) if rank not in self.ranks]
            for request in [self._world.isend(Release(), rank, WORD_TAG) for rank in asleep]:
                request.wait()
        self.comm.Free()

"""Objects that are no arrays: packed piece by piece, each owned by the rank that the balancer's map says."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cosched.adaptive.arrays import Owner
from cosched.adaptive.layout import Layout, common

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Request

_PIECE_TAG = 2


class Pieces:
    """Keys 0 … ``count`` - 1, in blocks over the enabled ranks.

    ``pack(key)`` gives up a piece and returns its bytes, ``unpack(key, data)`` takes it in on its new owner.
    """

    def __init__(
        self, job: Owner, count: int, pack: Callable[[int], bytes], unpack: Callable[[int, bytes], None]
    ) -> None:
        self.count = count
        self._job, self._pack, self._unpack = job, pack, unpack

    @property
    def keys(self) -> range:
        """The keys of the pieces that are this rank's now."""
        return self._layout(self._job.ranks, self._job.weights).part(self._job.rank)

    @property
    def part(self) -> float:
        """This rank's part of all pieces, between 0 and 1."""
        return len(self.keys) / self.count if self.count else 0.0

    @property
    def form(self) -> tuple[object, ...]:
        """What must be the same on all ranks."""
        return ("pieces", self.count)

    def move(self, world: "Intracomm", old: Sequence[int], old_weights: Sequence[float]) -> None:
        """Go from the owners of before to the job's present ones; on all ranks of both."""
        from mpi4py import MPI  # noqa: PLC0415 (starts MPI when it is imported)

        me = world.Get_rank()
        before = self._layout(old, old_weights)
        after = self._layout(self._job.ranks, self._job.weights)
        requests: list[Request] = []
        for rank in after.ranks:
            if rank != me:
                given = common(before.part(me), after.part(rank))
                requests += [world.isend((key, self._pack(key)), rank, _PIECE_TAG) for key in given]
        for rank in before.ranks:
            if rank != me:
                for _ in common(before.part(rank), after.part(me)):
                    self._unpack(*world.recv(source=rank, tag=_PIECE_TAG))
        MPI.Request.waitall(requests)

    def _layout(self, ranks: Sequence[int], weights: Sequence[float]) -> Layout:
        return Layout(self.count, "block", tuple(ranks), tuple(weights))

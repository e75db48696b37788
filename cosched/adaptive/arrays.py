"""Arrays whose first axis is spread over the enabled ranks, and how their rows get from one layout to the next."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cosched.adaptive.layout import Distribution, Layout, common, place

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Request

_ARRAY_TAG = 1
#: MPI counts bytes in 31 bits.
_PIECE_BYTES = 1 << 28


class Owner(Protocol):
    """What an array needs to know of its job."""

    rank: int
    ranks: tuple[int, ...]
    weights: tuple[float, ...]
    comm: "Intracomm"


class Array:
    """This rank's rows of an array: ``local`` holds those with the numbers ``rows``, the first of which is ``first``.

    The object stays the same for as long as the job lasts; what ``local`` and ``rows`` are changes at a point.
    """

    def __init__(self, job: Owner, shape: Sequence[int], dtype: DTypeLike, distribution: Distribution, scratch: bool):
        if distribution not in ("block", "cyclic"):
            raise ValueError(f"distribution {distribution!r}; there are 'block' and 'cyclic'")
        if not shape or min(shape) < 0:
            raise ValueError(f"an array of shape {tuple(shape)} has no rows that could be spread")
        self.shape, self.dtype, self.distribution = tuple(shape), np.dtype(dtype), distribution
        if self.dtype.hasobject:
            raise TypeError("an array of Python objects: see Job.pieces")
        self._job, self._scratch = job, scratch
        self._layout = self._wanted()
        self._local = self._zeros(len(self._layout.part(job.rank)))

    @property
    def local(self) -> NDArray[Any]:
        """This rank's rows. Raises RuntimeError if they were left behind by a point that did not name the array."""
        self._check()
        return self._local

    @property
    def rows(self) -> range:
        """The numbers of this rank's rows in the whole array; for ``block`` they follow each other."""
        self._check()
        return self._layout.part(self._job.rank)

    @property
    def first(self) -> int:
        """The number of this rank's first row, or where it would be."""
        return self.rows.start

    @property
    def part(self) -> float:
        """This rank's part of all rows, between 0 and 1."""
        return len(self.rows) / self.shape[0] if self.shape[0] else 0.0

    @property
    def form(self) -> tuple[object, ...]:
        """What must be the same on all ranks."""
        return self.shape, self.dtype.str, self.distribution, self._scratch

    def swap(self, other: "Array") -> None:
        """Exchange the contents of two arrays of the same form, without copying."""
        if self.form[:-1] != other.form[:-1]:
            raise ValueError(f"arrays of different forms: {self.form}, {other.form}")
        self._check()
        other._check()
        self._local, other._local = other._local, self._local

    def gather(self) -> NDArray[Any] | None:
        """The whole array on the first of the enabled ranks, None on the others; all of them must call it."""
        parts = self._job.comm.gather(self.local, root=0)
        if parts is None:
            return None
        whole = self._zeros(self.shape[0])
        for rank, part in zip(self._layout.ranks, parts, strict=True):
            rows = self._layout.part(rank)
            whole[rows.start : rows.stop : rows.step] = part
        return whole

    def move(self, world: "Intracomm", old: Sequence[int], old_weights: Sequence[float]) -> None:
        """Go from the layout over the ranks of before to the job's present one; on all ranks of both."""
        before = Layout(self.shape[0], self.distribution, tuple(old), tuple(old_weights))
        self._layout = self._wanted()
        if self._scratch:
            self._local = self._zeros(len(self._layout.part(self._job.rank)))
        else:
            self._local = moved(world, self._local, before, self._layout)

    def _wanted(self) -> Layout:
        return Layout(self.shape[0], self.distribution, self._job.ranks, self._job.weights)

    def _zeros(self, rows: int) -> NDArray[Any]:
        return np.zeros((rows, *self.shape[1:]), self.dtype)

    def _check(self) -> None:
        layout = self._layout
        if layout.ranks is self._job.ranks and layout.weights is self._job.weights:
            return
        if not self._scratch:
            raise RuntimeError("this array was not named at the point that moved data: its rows were left behind")
        self._layout = self._wanted()
        self._local = self._zeros(len(self._layout.part(self._job.rank)))


def moved(world: "Intracomm", local: NDArray[Any], old: Layout, new: Layout) -> NDArray[Any]:
    """This rank's rows by the new layout. Each row goes from its old owner to its new one and nowhere else."""
    from mpi4py import MPI  # noqa: PLC0415 (starts MPI when it is imported)

    me = world.Get_rank()
    had, has = old.part(me), new.part(me)
    fresh: NDArray[Any] = np.empty((len(has), *local.shape[1:]), local.dtype)
    kept = common(had, has)
    fresh[place(kept, has)] = local[place(kept, had)]
    requests: list[Request] = []
    landed: list[tuple[slice, NDArray[Any]]] = []
    for rank in old.ranks:
        rows = common(old.part(rank), has)
        if rank == me or not rows:
            continue
        where = place(rows, has)
        target = fresh[where]
        if not target.flags.c_contiguous:
            target = np.empty(target.shape, target.dtype)
            landed.append((where, target))
        requests += [world.Irecv([piece, MPI.BYTE], rank, _ARRAY_TAG) for piece in _pieces(target)]
    for rank in new.ranks:
        rows = common(had, new.part(rank))
        if rank != me and rows:
            source = np.ascontiguousarray(local[place(rows, had)])
            requests += [world.Isend([piece, MPI.BYTE], rank, _ARRAY_TAG) for piece in _pieces(source)]
    MPI.Request.Waitall(requests)
    for where, target in landed:
        fresh[where] = target
    return fresh


def _pieces(array: NDArray[Any]) -> Iterator[NDArray[np.uint8]]:
    """The bytes of a contiguous array, in pieces that one message can have."""
    data = array.reshape(-1).view(np.uint8)
    for first in range(0, data.size, _PIECE_BYTES):
        yield data[first : first + _PIECE_BYTES]

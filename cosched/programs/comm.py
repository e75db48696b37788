"""A communicator that keeps account: how long a rank communicates, how often, and how much it sends."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class Comm:
    """The operations that the kernels use. ``seconds`` includes waiting for others; ``sent_bytes`` is payload.

    A broadcast-like operation counts as one call, and its own contribution as what it sent.
    """

    def __init__(self, mpi: "Intracomm") -> None:
        self._mpi = mpi
        self.rank: int = mpi.Get_rank()
        self.size: int = mpi.Get_size()
        self.forget()

    def forget(self) -> None:
        """The account begins anew."""
        self.seconds = 0.0
        self.calls = 0
        self.sent_bytes = 0

    @contextmanager
    def _counted(self, sent_bytes: int) -> Iterator[None]:
        began_s = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began_s
        self.calls += 1
        self.sent_bytes += sent_bytes

    def barrier(self) -> None:
        """Wait for all."""
        with self._counted(0):
            self._mpi.Barrier()

    def total(self, value: float) -> float:
        """The sum over all ranks."""
        with self._counted(8):
            return float(self._mpi.allreduce(value))

    def largest(self, value: float) -> float:
        """The maximum over all ranks; infinite where somebody's is no number, which a maximum could hide."""
        from mpi4py import MPI  # noqa: PLC0415 (starts MPI when it is imported)

        send, receive = np.array([math.inf if math.isnan(value) else value], np.float64), np.empty(1)
        with self._counted(send.nbytes):
            self._mpi.Allreduce(send, receive, op=MPI.MAX)
        return float(receive[0])

    def totals(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sums over all ranks, element by element."""
        sums = np.empty_like(values)
        with self._counted(values.nbytes):
            self._mpi.Allreduce(values, sums)
        return sums

    def collected(self, value: object) -> list[object]:
        """Everybody's value, in the order of ranks."""
        with self._counted(0):
            return list(self._mpi.allgather(value))

    def told(self, value: object) -> object:
        """Rank 0's value."""
        with self._counted(0):
            return self._mpi.bcast(value, root=0)

    def join(self, part: Floats, whole: Floats, counts: Sequence[int]) -> None:
        """Everybody's part, one after the other, into ``whole``; ``counts`` are their lengths."""
        with self._counted(part.nbytes):
            self._mpi.Allgatherv(part, [whole, counts])

    def swap(self, to: int, send: Floats, source: int, receive: Floats) -> None:
        """Send one array (contiguous) and receive another."""
        with self._counted(send.nbytes):
            self._mpi.Sendrecv(send, to, 0, receive, source, 0)

    def spread(self, send: Floats) -> Floats:
        """Block i of the first axis goes to rank i; comes back as the blocks from every rank. All are of one shape."""
        receive = np.empty_like(send)
        with self._counted(send.nbytes):
            self._mpi.Alltoall(send, receive)
        return receive

    def deal(self, send: NDArray[np.int32], counts: NDArray[np.int64]) -> NDArray[np.int32]:
        """The first ``counts[0]`` elements go to rank 0, and so on; what came from all ranks, in their order."""
        incoming = np.empty_like(counts)
        with self._counted(counts.nbytes):
            self._mpi.Alltoall(counts, incoming)
        receive = np.empty(int(incoming.sum()), np.int32)
        with self._counted(send.nbytes):
            self._mpi.Alltoallv([send, counts.tolist()], [receive, incoming.tolist()])
        return receive

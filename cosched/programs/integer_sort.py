"""IS: integers sorted by buckets over all ranks; communicates most.

Every rank has its share of the keys. An iteration counts them by bucket, adds the counts of all ranks up, gives each
rank neighbouring buckets of about equal content, sends every key to its rank (an all-to-all of nearly everything), and
sorts what arrived.

Verified by order (inside every rank, and between neighbours), and by what was sorted: number, sum and a scrambled sum
of the keys must be those of the problem, which every rank can make anew.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cosched.programs.comm import Comm
from cosched.programs.kernel import Kernel, Sizes, Unsuitable, Verdict, scrambled

_BUCKETS = 1024


class IntegerSort(Kernel):
    """``keys`` for all ranks together, below 2 to the power of ``bits``."""

    name = "is"
    sizes: ClassVar[Sizes] = {
        "S": {"keys": 1 << 20, "bits": 20, "iterations": 100},
        "W": {"keys": 1 << 22, "bits": 23, "iterations": 120},
        "A": {"keys": 1 << 23, "bits": 25, "iterations": 250},
        "B": {"keys": 1 << 24, "bits": 27, "iterations": 500},
    }

    def __init__(self, comm: Comm, size: Mapping[str, int], seed: int) -> None:
        super().__init__(comm, size, seed)
        if comm.size > _BUCKETS:
            raise Unsuitable(f"{comm.size} ranks for {_BUCKETS} buckets; at most {_BUCKETS} ranks")
        self.shift = size["bits"] - (_BUCKETS.bit_length() - 1)
        share = size["keys"] // comm.size
        self.first = share * comm.rank
        self.last = size["keys"] if comm.rank == comm.size - 1 else self.first + share
        self.keys = self.made(0)
        self.sorted = np.empty(0, np.int32)
        self.number = 0

    def made(self, number: int) -> NDArray[np.int32]:
        """This rank's keys of that problem: the mean of two uniform numbers, so that buckets differ in size."""
        mixed = scrambled(np.arange(self.first, self.last, dtype=np.uint64) + np.uint64((self.seed << 40) + number))
        mask = np.uint64((1 << self.size["bits"]) - 1)
        return (((mixed & mask) + ((mixed >> np.uint64(32)) & mask)) >> np.uint64(1)).astype(np.int32)

    def shares(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rank for each bucket, in order, each with about the same number of keys."""
        middle = np.cumsum(counts) - counts // 2
        owners: NDArray[np.int64] = middle * self.comm.size // max(int(counts.sum()), 1)
        return np.minimum(owners, self.comm.size - 1)

    def iterate(self, number: int) -> None:
        """Sort, after a change to the keys that moves them all to other buckets."""
        self.number = number
        keys = (self.keys + np.int32(number)) & np.int32((1 << self.size["bits"]) - 1)
        counts = np.bincount(keys >> self.shift, minlength=_BUCKETS)
        owners = self.shares(self.comm.totals(counts))
        order = np.argsort(owners[keys >> self.shift].astype(np.int16), kind="stable")
        to_each = np.bincount(owners, weights=counts, minlength=self.comm.size).astype(np.int64)
        arrived = self.comm.deal(keys[order], to_each)
        arrived.sort()
        self.sorted = arrived

    def verify(self) -> Verdict:
        """How many things are wrong: neighbours in the wrong order, and sums that are not the problem's."""
        wrong = int(np.count_nonzero(np.diff(self.sorted) < 0))
        ends = self.comm.collected((int(self.sorted[0]), int(self.sorted[-1])) if len(self.sorted) else None)
        edges = [number for pair in ends if isinstance(pair, tuple) for number in pair]
        wrong_edges = sum(after < before for before, after in pairwise(edges))
        problem = (self.made(0) + np.int32(self.number)) & np.int32((1 << self.size["bits"]) - 1)
        fingerprints = [self.comm.collected(_fingerprint(keys)) for keys in (problem, self.sorted)]
        wanted, found = ([sum(column) % (1 << 64) for column in zip(*each, strict=True)] for each in fingerprints)
        return Verdict(
            self.comm.total(wrong) + wrong_edges + sum(a != b for a, b in zip(wanted, found, strict=True)), 0
        )


def _fingerprint(keys: NDArray[np.int32]) -> tuple[int, int, int]:
    """Number, sum and scrambled sum of keys, in any order: adds up over ranks modulo 2 to the power of 64."""
    words = keys.astype(np.uint64)
    with np.errstate(over="ignore"):
        return len(keys), int(words.sum()), int(scrambled(words).sum())

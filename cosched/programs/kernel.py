"""What a kernel is: set up for a size, iterated any number of times, and then verified."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cosched.programs.comm import Comm

Sizes = Mapping[str, Mapping[str, int]]


class Unsuitable(ValueError):
    """So many ranks cannot share this problem; the message says which can."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``value`` is a measure of what is wrong; a right answer has at most ``allowed``."""

    value: float
    allowed: float

    @property
    def right(self) -> bool:
        """Whether the answer is right; a value that is no number is not."""
        return bool(self.value <= self.allowed)


class Kernel(ABC):
    """One program. Every iteration solves a problem of its own, so that any number of them can be verified."""

    #: How it is called on the command line.
    name: ClassVar[str]
    #: By class letter: the parameters of the problem, among them ``iterations``.
    sizes: ClassVar[Sizes]

    def __init__(self, comm: Comm, size: Mapping[str, int], seed: int) -> None:
        """Make the problem. Raises :class:`Unsuitable`."""
        self.comm = comm
        self.size = size
        self.seed = seed

    @abstractmethod
    def iterate(self, number: int) -> None:
        """Solve the problem of that number (from 0)."""

    @abstractmethod
    def verify(self) -> Verdict:
        """Judge the last iteration's answer, on all ranks alike, by other means than those that computed it."""


def uniform(indices: NDArray[Any], seed: int) -> NDArray[np.float64]:
    """Numbers in [0, 1) that depend on index and seed alone, so that every rank knows all of them.

    SplitMix64 (Steele, Lea, Flood 2014: "Fast splittable pseudorandom number generators") of the index.
    """
    with np.errstate(over="ignore"):
        mixed = scrambled(indices.astype(np.uint64) + np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def scrambled(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's output for each of its states."""
    with np.errstate(over="ignore"):
        words = words + np.uint64(0x9E3779B97F4A7C15)
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return words ^ (words >> np.uint64(31))


def parts(length: int, count: int) -> list[int]:
    """``length`` divided among ``count``, as equally as it goes, the longer parts first."""
    short, longer = divmod(length, count)
    return [short + (i < longer) for i in range(count)]

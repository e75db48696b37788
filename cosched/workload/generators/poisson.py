"""The textbook model: exponential inter-arrivals, exponential run times, independent sizes.

Used as such, or nearly so, by three of the papers replicated here (Kalé et al. 2002; Utrera et al. 2005; Ngubiri and
van Vliet 2006). No correlation between size and run time, no daily cycle: a baseline, not a picture of a real machine.
"""

from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec
import numpy as np

from cosched.workload.generators.base import Drawn, Ints, Model

Positive = Annotated[float, msgspec.Meta(gt=0)]


class Sizes(StrEnum):
    """How many processors a job wants: any number equally likely, or any power of two equally likely."""

    UNIFORM = "uniform"
    POWERS_OF_TWO = "powers-of-two"


class Poisson(Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Poisson arrivals of exponentially long jobs. ``max_size`` is the widest job; 0 stands for the whole machine."""

    paper: ClassVar[str] = "Poisson arrivals, exponential run times, independent sizes"

    mean_interarrival_s: Positive = 1000.0
    mean_run_s: Positive = 3600.0
    sizes: Sizes = Sizes.UNIFORM
    max_size: Annotated[int, msgspec.Meta(ge=0)] = 0

    def draw(self, jobs: int, procs: int, rng: np.random.Generator) -> Drawn:
        """Independent draws of each quantity."""
        widest = min(self.max_size or procs, procs)
        size: Ints
        if self.sizes is Sizes.UNIFORM:
            size = rng.integers(1, widest, size=jobs, endpoint=True)
        else:
            size = 2 ** rng.integers(0, widest.bit_length() - 1, size=jobs, endpoint=True)
        submit_s = np.cumsum(rng.exponential(self.mean_interarrival_s, jobs))
        return Drawn(submit_s, rng.exponential(self.mean_run_s, jobs), size)

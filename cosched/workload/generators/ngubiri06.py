"""The workload of Ngubiri & van Vliet 2006 (sections 2.2 and 4.1): rigid jobs for several clusters.

J. Ngubiri and M. van Vliet, "Group-wise performance evaluation of processor co-allocation in multi-cluster systems",
2006. Inter-arrival and run times are exponential. Sizes are of D(q) on [n1, n2]: the probability of size i is
proportional to q^i, and three times that where i is a power of two. With the paper's parameters, on its five clusters
of 20 processors, the mean size is 5.0345 and the load 0.7866.

Users have no estimates (the paper's section 2.2): what needs one is told the exact run time, unless it says otherwise.
The log has sizes alone. How a wide job is divided is not the workload's part: it is drawn when a job is submitted
(``cosched.model.components``).

Arrivals, run times and sizes are drawn apart, so that the first jobs of a seed are the same however many there are.
"""

from fractions import Fraction
from typing import Annotated, ClassVar

import msgspec
import numpy as np

from cosched.errors import BadInput
from cosched.workload.generators.base import Drawn, Ints, Model, pick

Positive = Annotated[float, msgspec.Meta(gt=0)]
Size = Annotated[int, msgspec.Meta(ge=1)]


class Ngubiri06(Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model's parameters, by default the paper's. Sizes beyond the machine's processors are not drawn."""

    paper: ClassVar[str] = "Ngubiri and van Vliet, Group-wise performance evaluation of processor co-allocation, 2006"

    q: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.85
    n1: Size = 1
    n2: Size = 38
    mean_run_s: Positive = 10.0
    mean_interarrival_s: Positive = 0.64

    def draw(self, jobs: int, procs: int, rng: np.random.Generator) -> Drawn:
        """Arrivals, run times and sizes, each from a stream of its own."""
        if not self.n1 <= min(self.n2, procs):
            found = f"no size from {self.n1} to {self.n2} on {procs} processors"
            raise BadInput("model ngubiri06", found, "n1 of at most n2 and the processors")
        arrivals, run_times, widths = rng.spawn(3)
        chances = sizes(self.q, self.n1, min(self.n2, procs))
        cumulative = np.cumsum(np.array([float(each) for each in chances.values()]))
        size: Ints = self.n1 + pick(cumulative, jobs, widths)
        return Drawn(
            np.cumsum(arrivals.exponential(self.mean_interarrival_s, jobs)),
            run_times.exponential(self.mean_run_s, jobs),
            size,
        )


def sizes(q: float, n1: int, n2: int) -> dict[int, Fraction]:
    """D(q) on [n1, n2]: size -> its probability, exactly, for the q that is written so in decimals."""
    base = Fraction(str(q))
    weights = {size: base**size * (3 if size & (size - 1) == 0 else 1) for size in range(n1, n2 + 1)}
    total = sum(weights.values())
    return {size: weight / total for size, weight in weights.items()}

"""Feitelson's model of 1996, in the variant used with Jette in 1997 and, for its Fig. 9, by Feitelson and Weil in 1998.

D. G. Feitelson, "Packing schemes for gang scheduling", JSSPP 1996, LNCS 1162, pp. 89-110, section on the workload
model; D. G. Feitelson and M. A. Jette, "Improved utilization and responsiveness with gang scheduling", JSSPP 1997.
Four observations on six production logs, each modelled:

1. *Sizes are discrete, small ones and powers of two prevail.* A harmonic distribution of order 1.5 (the probability of
   size n is proportional to n^-1.5), "hand-tailored" to emphasise small sizes and powers of two.
2. *Larger jobs run longer, weakly.* Run times are hyperexponential of two stages, a short and a long mean; the
   probability of the short one falls linearly with the size.
3. *Users run the same job again and again.* The number of runs is harmonic of order 2.5; the runs have one size and one
   run time, and each is submitted when the one before it ends.
4. *Arrivals are Poisson* (of first runs).

What is certain and what is reconstructed. The order 1.5 and the hand-tailoring are as the Parallel Workloads Archive
describes the model; the forms of 2 to 4 follow the papers; order 2.5, the means' ratio 1 to 7 and the probability
0.95 - 0.2 n/N are from memory. The tailored table itself was not at hand: the boosts below (powers of two five-fold,
other sizes from 3 to 10 two-fold) are ours, chosen so that, on 128 processors, about a fifth of the jobs are serial and
three quarters have a power of two, as Lublin and Feitelson report for logs. The model has no unit of time; the default
of 300 s for the short mean is ours. Every constant is a parameter.

A log is open: it cannot wait for the end of a run. A repeated run is submitted when the one before it would end on an
idle machine; fields 17 and 18 (preceding job, think time 0) let a host with feedback do better.
"""

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from cosched.workload.generators.base import Drawn, Floats, Model, pick
from cosched.workload.log import Field

Positive = Annotated[float, msgspec.Meta(gt=0)]
Probability = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Feitelson96(Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model's parameters; see the module for which are the paper's."""

    paper: ClassVar[str] = "Feitelson, Packing schemes for gang scheduling, JSSPP 1996, as used with Jette 1997"

    mean_interarrival_s: Positive = 600.0
    size_order: Positive = 1.5
    power_of_two_boost: Positive = 5.0
    small_boost: Positive = 2.0
    small_up_to: Annotated[int, msgspec.Meta(ge=2)] = 10
    short_mean_s: Positive = 300.0
    long_mean_s: Positive = 2100.0
    short_probability: Probability = 0.95
    short_probability_drop: Probability = 0.2
    repeat_order: Annotated[float, msgspec.Meta(gt=1)] = 2.5
    max_repeats: Annotated[int, msgspec.Meta(ge=1)] = 1000

    def size_probabilities(self, procs: int) -> Floats:
        """Probability of each size from 1 to ``procs``, shape (procs,)."""
        n = np.arange(1, procs + 1)
        weight = n**-self.size_order
        power = (n & (n - 1)) == 0
        weight[power & (n > 1)] *= self.power_of_two_boost
        weight[~power & (n <= self.small_up_to)] *= self.small_boost
        probabilities: Floats = weight / weight.sum()
        return probabilities

    def repeat_probabilities(self) -> Floats:
        """Probability of 1, 2, … ``max_repeats`` runs, shape (max_repeats,)."""
        weight = np.arange(1, self.max_repeats + 1) ** -self.repeat_order
        probabilities: Floats = weight / weight.sum()
        return probabilities

    def short_probabilities(self, procs: int) -> Floats:
        """Probability that a job of size 1 to ``procs`` is of the short stage, shape (procs,)."""
        drop = self.short_probability_drop * np.arange(1, procs + 1) / procs
        probabilities: Floats = np.clip(self.short_probability - drop, 0, 1)
        return probabilities

    def draw(self, jobs: int, procs: int, rng: np.random.Generator) -> Drawn:
        """Draw sequences of runs until there are enough runs; the last sequence is cut."""
        repeats = 1 + pick(np.cumsum(self.repeat_probabilities()), jobs, rng)
        ends = np.cumsum(repeats)
        sequences = int(np.searchsorted(ends, jobs)) + 1
        repeats = repeats[:sequences]
        repeats[-1] -= ends[sequences - 1] - jobs

        size = 1 + pick(np.cumsum(self.size_probabilities(procs)), sequences, rng)
        short = rng.random(sequences) < self.short_probabilities(procs)[size - 1]
        run_s = rng.exponential(1.0, sequences) * np.where(short, self.short_mean_s, self.long_mean_s)
        # The mean number of runs keeps the mean distance between submissions at the value asked for.
        mean_repeats = float(np.dot(self.repeat_probabilities(), np.arange(1, self.max_repeats + 1)))
        first_s = np.cumsum(rng.exponential(self.mean_interarrival_s * mean_repeats, sequences))

        sequence = np.repeat(np.arange(sequences), repeats)
        turn = np.arange(jobs) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        submit_s = first_s[sequence] + turn * run_s[sequence]
        order = np.argsort(submit_s, kind="stable")
        number = np.empty(jobs, np.int64)
        number[order] = np.arange(1, jobs + 1)
        before = np.where(turn > 0, np.concatenate(([-1], number[:-1])), -1)
        return Drawn(
            submit_s[order],
            run_s[sequence][order],
            size[sequence][order],
            {
                Field.EXECUTABLE: sequence[order] + 1,
                Field.PRECEDING_JOB: before[order],
                Field.THINK_S: np.where(turn > 0, 0, -1)[order],
            },
        )

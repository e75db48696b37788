"""The workload of Kalé et al. 2002 (section 4.1): runs of one molecular dynamics program, of random lengths.

L. V. Kalé, S. Kumar and J. DeSouza, "A malleable-job system for timeshared parallel machines", CCGrid 2002. Arrivals
are Poisson. A job does a number of iterations, exponentially distributed with a mean of 100, which take 64.5 s on all
64 processors. The *load factor* is the rate of arrivals times that mean execution time on all processors.

Each job has one number of processors, uniform from 1 to all: a traditional job runs on so many, for an adaptive one it
is the minimum, and the maximum is all. So both kinds are of the same work, job by job: the log has the traditional
jobs, with their run times on their own processors, the shapes file the adaptive ones. ``rigid``, ``moldable`` and
``evolving`` are the shares of jobs that are something else than malleable (the paper has none): moldable ones between
the same bounds; evolving ones start on their own processors and ask when half of their work is done: for as many again,
where the machine has them, else for half of them to be taken back.

The program's speed-up is a curve in the paper (Fig. 6) that is not at hand: "sub-linear". By default it is Amdahl's law
with an efficiency of one half on 64 processors, a reconstruction; ``speed_up`` takes any model of ``speedups``.
"""

from fractions import Fraction
from typing import Annotated, ClassVar, Final

import msgspec
import numpy as np

from cosched.errors import BadInput
from cosched.workload.generators.base import Drawn, Ints, Model
from cosched.workload.rules import Ask
from cosched.workload.shapes import Line
from cosched.workload.speedups import linear, parse

Positive = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]

MEAN_ITERATIONS: Final = 100
#: Of 100 iterations on all processors.
EXECUTION_S: Final = 64.5
#: Amdahl's serial part where 64 processors are 32 times as fast as one.
HALF_EFFICIENT: Final = "amdahl:0.015873016"


class Kale02(Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model's parameters; see the module for which are the paper's."""

    paper: ClassVar[str] = "Kalé et al., A malleable-job system for timeshared parallel machines, CCGrid 2002"

    load_factor: Positive = 0.9
    execution_s: Positive = EXECUTION_S
    speed_up: str = HALF_EFFICIENT
    rigid: Share = 0.0
    moldable: Share = 0.0
    evolving: Share = 0.0

    def draw(self, jobs: int, procs: int, rng: np.random.Generator) -> Drawn:
        """Arrivals, lengths, processors and kinds, in this order: the parameters change none of these draws."""
        if self.rigid + self.moldable + self.evolving > 1:
            raise BadInput("model kale02", "rigid + moldable + evolving above 1", "shares of at most 1 together")
        submit_s = np.cumsum(rng.exponential(self.execution_s / self.load_factor, jobs))
        iterations = np.maximum(1, np.round(rng.exponential(MEAN_ITERATIONS, jobs)))
        size: Ints = rng.integers(1, procs, size=jobs, endpoint=True)
        kind = rng.random(jobs)
        speed_up = parse(self.speed_up, "model kale02: speed_up") or linear
        speed = np.array([speed_up(n) for n in range(1, procs + 1)], np.float64)
        run_s = self.execution_s * iterations / MEAN_ITERATIONS * speed[-1] / speed[size - 1]
        lines = [self._line(own, part, procs) for own, part in zip(size.tolist(), kind.tolist(), strict=True)]
        return Drawn(submit_s, run_s, size, shapes=lines)

    def _line(self, own: int, part: float, procs: int) -> Line:
        """What a job is whose kind was drawn as this part of all jobs."""
        if part < self.rigid:
            return Line()
        if part < self.rigid + self.moldable:
            return Line(sizes=f"{own}-{procs}")
        if part < self.rigid + self.moldable + self.evolving:
            more = own if 2 * own <= procs else -(own // 2)
            return Line(asks=(Ask(Fraction(1, 2), more),)) if more else Line()
        return Line(least=own, most=procs)

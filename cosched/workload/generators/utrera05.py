"""The workload of Utrera et al. 2005 (section 6.3, Tables 1 and 2): four programs, moldable, of fixed work.

G. Utrera, J. Corbalán and J. Labarta, "Another approach to backfilled jobs: applying virtual malleability to expired
windows", ICS 2005. Poisson arrivals; a program's time on one processor is Table 1's, and with n it takes an n-th of it
(the paper calls these times *linear*). A job's largest size is what its program allows of the machine: on the paper's
60 processors 49 (bt.A, squares), 32 (cg.B and lu.W, powers of two), 60 (sweep3d, any). The log has each job at its
largest size, the shapes file its sizes and its class.

Table 2 has the machine's ``utilisation`` from 1 down to 0.4, of which short jobs are always 0.2 (``short``). "About
120 jobs in ten minutes of linear CPU time" cannot follow from these: at full utilisation 120 jobs come in 16.6 minutes,
or 72 in ten. Chosen here are Table 2's parts of the *work*, and any number of jobs; so long jobs are 12, 9, 6 and 3 %
of the jobs by number, within the paper's "at most 30 %". ``long_jobs`` is the other reading: that part of the jobs is
long, by number, and the rate of arrivals alone makes the utilisation. Programs of a class are equally many. The numbers
of each are exact, their order is random.

``rigid`` is the part of the jobs that have one size only (the paper's future work), their largest of at most
``rigid_procs`` (0: of the machine); those of a smaller part are among those of a larger one.
"""

from typing import Annotated, ClassVar, Final, NamedTuple

import msgspec
import numpy as np

from cosched.model.sizes import parse_sizes
from cosched.workload.generators.base import Drawn, Ints, Model
from cosched.workload.log import Field
from cosched.workload.shapes import Line

#: Sizes from one to the whole machine.
ANY: Final = "any"
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Program(NamedTuple):
    """A row of Table 1: its time on one processor, its class, and its sizes as a shapes file has them."""

    name: str
    linear_s: float
    long: bool
    sizes: str


PROGRAMS: Final = (
    Program("bt.A", 2441, True, "square"),
    Program("cg.B", 4385, True, "pow2"),
    Program("lu.W", 177, False, "pow2"),
    Program("sweep3d", 50, False, ANY),
)
#: Where each class's programs stand among them.
LONG: Final = tuple(at for at, program in enumerate(PROGRAMS) if program.long)
SHORT: Final = tuple(at for at, program in enumerate(PROGRAMS) if not program.long)


class Utrera05(Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model's parameters; see the module for which are the paper's."""

    paper: ClassVar[str] = "Utrera et al., Another approach to backfilled jobs, ICS 2005; executables: " + ", ".join(
        f"{at} {program.name}" for at, program in enumerate(PROGRAMS, 1)
    )

    utilisation: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    short: Annotated[float, msgspec.Meta(gt=0)] = 0.2
    long_jobs: Share | None = None
    rigid: Share = 0.0
    rigid_procs: Annotated[int, msgspec.Meta(ge=0)] = 0

    def draw(self, jobs: int, procs: int, rng: np.random.Generator) -> Drawn:
        """The programs in random order, the times between arrivals, and who is rigid."""
        long = round(jobs * self.long_ratio)
        which = np.array(
            [LONG[at % len(LONG)] for at in range(long)] + [SHORT[at % len(SHORT)] for at in range(jobs - long)]
        )
        order, gaps, ranks = rng.permutation(jobs), rng.exponential(1.0, jobs), rng.permutation(jobs)
        which = which[order]
        rigid = ranks < round(jobs * self.rigid)
        most = np.where(rigid, min(self.rigid_procs or procs, procs), procs)
        size: Ints = np.array([_largest(PROGRAMS[at], n) for at, n in zip(which.tolist(), most.tolist(), strict=True)])
        linear_s = np.array([program.linear_s for program in PROGRAMS])[which]
        submit_s = np.cumsum(gaps * linear_s.mean() / (self.utilisation * procs))
        lines = [
            Line(sizes=str(n) if alone else f"1-{procs}" if each.sizes == ANY else each.sizes, long=each.long)
            for each, n, alone in zip((PROGRAMS[at] for at in which), size.tolist(), rigid.tolist(), strict=True)
        ]
        return Drawn(submit_s, linear_s / size, size, {Field.EXECUTABLE: which + 1}, lines)

    @property
    def long_ratio(self) -> float:
        """Which part of the jobs is long, by number."""
        if self.long_jobs is not None:
            return self.long_jobs
        long, short = (sum(PROGRAMS[at].linear_s for at in each) / len(each) for each in (LONG, SHORT))
        counts = max(0.0, self.utilisation - self.short) / long, min(self.short, self.utilisation) / short
        return counts[0] / sum(counts)


def _largest(program: Program, procs: int) -> int:
    return procs if program.sizes == ANY else parse_sizes(program.sizes, procs)[1]

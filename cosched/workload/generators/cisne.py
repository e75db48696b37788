"""The parallel workload of Hanzich et al. 2005 (section 4, Table 1): 90 NAS programs of 2, 4 or 8 tasks.

M. Hanzich, F. Giné, P. Hernández, F. Solsona and E. Luque, "What to consider for applying backfilling on non-dedicated
environments". Poisson arrivals; four programs, about a quarter of the jobs each; memory, CPU and execution time of each
between a least and a most.

What the paper leaves open is reconstructed, and is a parameter where it matters:

- Quantities are uniform between their bounds. Memory and execution time of a job are drawn together (``coupled``): a
  larger problem needs more of both. Sizes are equally likely, and independent of the program.
- The table's memory and CPU are taken as one task's.
- SIT and DIT, *simple* and *double* inter-arrival time. Arrivals are ``ratio`` times the mean execution time apart, on
  average. SIT is only said to be "shorter"; it was set to 0.2 before any policy was run on it: at one half there is not
  enough waiting for any policy to be 35 % better than another, below 0.2 to 0.3 there can be. DIT is twice that.
- CG and IS, which leave a third of a CPU unused, are the communicating ones, MG and BT the computing ones.

In the log, the CPU share of a task is its CPU time over its run time, its memory stands under used and requested (per
processor, as the format has it), and the number of the executable tells the program.
"""

from typing import Annotated, ClassVar, Final, NamedTuple

import msgspec
import numpy as np

from cosched.workload.generators.base import Drawn, Floats, Ints, Model
from cosched.workload.log import Field

_KB_PER_MB: Final = 1024
#: The mean time between arrivals as a multiple of the mean execution time, for the paper's two workloads.
SIT: Final = 0.2
DIT: Final = 2 * SIT
SIZES: Final = (2, 4, 8)


class Program(NamedTuple):
    """A row of Table 1, and how the program is oriented: ``cpu`` or ``comm``. Pairs are (least, most)."""

    name: str
    kind: str
    memory_mb: tuple[float, float]
    cpu_share: tuple[float, float]
    run_s: tuple[float, float]


PROGRAMS: Final = (
    Program("CG", "comm", (55, 120), (0.67, 0.75), (37, 51)),
    Program("IS", "comm", (70, 260), (0.58, 0.69), (40, 205)),
    Program("MG", "cpu", (60, 220), (0.82, 0.89), (26, 240)),
    Program("BT", "cpu", (7, 60), (0.85, 0.93), (90, 180)),
)
#: What the bounds and a quarter of each give.
MEAN_RUN_S: Final = sum(sum(program.run_s) / 2 for program in PROGRAMS) / len(PROGRAMS)


class Cisne(Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model's parameters; see the module for which are the paper's."""

    paper: ClassVar[str] = (
        "Hanzich et al., What to consider for applying backfilling on non-dedicated environments, 2005; executables: "
        + ", ".join(f"{at} {program.name} ({program.kind})" for at, program in enumerate(PROGRAMS, 1))
    )

    ratio: Annotated[float, msgspec.Meta(gt=0)] = SIT
    coupled: bool = True

    def draw(self, jobs: int, procs: int, rng: np.random.Generator) -> Drawn:
        """As many jobs of each program as of any other (or one more), in random order."""
        which = rng.permutation(np.arange(jobs) % len(PROGRAMS))
        sizes = np.array([size for size in SIZES if size <= procs] or [1])
        size: Ints = sizes[rng.integers(0, len(sizes), jobs)]
        problem = rng.random(jobs)
        memory_mb = _between([program.memory_mb for program in PROGRAMS], which, problem)
        run_s = _between([program.run_s for program in PROGRAMS], which, problem if self.coupled else rng.random(jobs))
        share = _between([program.cpu_share for program in PROGRAMS], which, rng.random(jobs))
        memory_kb = np.round(memory_mb * _KB_PER_MB)
        more: dict[Field, Floats | Ints] = {
            Field.CPU_TIME_S: np.round(share * run_s, 6),
            Field.MEMORY_KB: memory_kb,
            Field.MEMORY_REQUESTED_KB: memory_kb,
            Field.EXECUTABLE: which + 1,
        }
        submit_s = np.cumsum(rng.exponential(self.ratio * MEAN_RUN_S, jobs))
        return Drawn(submit_s, run_s, size, more)


def _between(bounds: list[tuple[float, float]], which: Ints, part: Floats) -> Floats:
    """For each job, so far between its program's bounds."""
    low, high = np.array(bounds).T
    found: Floats = low[which] + part * (high - low)[which]
    return found

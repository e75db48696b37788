"""What the paper's section 3.2 starts from: the log, its workload; and how large the run is."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from cosched.apps.replicate.backfilling import paper
from cosched.apps.replicate.papers import required_log
from cosched.config.experiment import Experiment
from cosched.model.time import US_PER_S
from cosched.workload import swf
from cosched.workload.calendar import month_labels
from cosched.workload.log import Log
from cosched.workload.rules import NeverRan, Workload
from space_scheduler.simulator.experiment import prepare_workload

#: The paper's tables count all jobs of a log, those that never ran among them.
RULES: Final = Experiment(never_ran=NeverRan.WAIT)
_WEEK_US: Final = 7 * 86_400 * US_PER_S


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """How much is simulated. ``seeds`` of random estimates and of generated workloads; the latter have ``sweep_jobs``
    jobs at each of ``sweep_loads``; ``bootstrap`` resamplings of the log's weeks;
    ``subsets`` random parts of the log in which Table 2 is made again.
    """

    seeds: int
    factors: tuple[float, ...] = (1, 4, 11, 31, 101, 301)
    sweep_jobs: int
    sweep_loads: tuple[float, ...]
    bootstrap: int = 2000
    subsets: int = 0
    table1: bool = True


FULL: Final = Scale(
    seeds=20, sweep_jobs=10_000, sweep_loads=(0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95), subsets=20
)
QUICK: Final = Scale(seeds=3, factors=(1, 4, 31, 301), sweep_jobs=3000, sweep_loads=(0.5, 0.7, 0.8, 0.9))


@dataclass(frozen=True)
class Setup:
    """The log as it stands in the file (``raw``), its workload under the default rules, and the scale of the run."""

    path: Path
    raw: Log
    load: Workload
    scale: Scale

    @property
    def months(self) -> NDArray[np.str_]:
        """The calendar month in which each job was submitted, at the machine's site, shape (n,)."""
        if self.load.unix_start_s is None:
            return np.full(len(self.load), "whole log")
        return month_labels(self.load.submit_us, self.load.unix_start_s, self.load.timezone)

    @property
    def weeks(self) -> NDArray[np.int64]:
        """The number of the week since the first submission of each job, shape (n,)."""
        weeks: NDArray[np.int64] = (self.load.submit_us - self.load.submit_us[0]) // _WEEK_US
        return weeks

    @property
    def has_paper_months(self) -> bool:
        """Whether the log covers the months of the paper's Table 2, so that its numbers can stand beside ours."""
        return set(paper.TABLE_2) <= set(self.months.tolist())


def read(given: str | None, scale: Scale) -> Setup:
    """Read the log, which is the paper's unless another one is given. Raises :class:`BadInput` with the remedy."""
    path = required_log(given, paper.LOG)
    return Setup(path, swf.read(path), prepare_workload(RULES, path), scale)

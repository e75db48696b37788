"""What became of a workload: when each job started and ended."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cosched.workload.rules import Times, Workload


@dataclass(frozen=True)
class Schedule:
    """Starts and ends of a workload's jobs, in its order: arrays of shape (n,), microseconds.

    ``promised_us`` is the first start that was promised to the job, -1 where none was.
    """

    workload: Workload
    start_us: Times
    end_us: Times
    promised_us: Times

    @property
    def backfilled(self) -> NDArray[np.bool_]:
        """Whether each job started before one that was submitted earlier, shape (n,)."""
        latest_before = np.maximum.accumulate(self.start_us)
        overtook = np.zeros(len(self.start_us), np.bool_)
        overtook[1:] = latest_before[:-1] > self.start_us[1:]
        return overtook

"""What became of a workload: when each job started and ended."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cosched.workload.rules import Times, Workload


@dataclass(frozen=True)
class Schedule:
    """Starts and ends of a workload's jobs, in its order: arrays of shape (n,), microseconds.

    ``promised_us`` is the first start that was promised to the job, -1 where none was. ``work_us`` is what each job
    did, as time alone on idle nodes, until it ended or was killed; None on a dedicated machine, where that is the time
    executed. ``placed`` has each job's tasks by node where nodes have names, and ``nodes`` those names in order.
    """

    workload: Workload
    start_us: Times
    end_us: Times
    promised_us: Times
    work_us: Times | None = field(default=None, kw_only=True)
    placed: Sequence[tuple[tuple[str, int], ...]] | None = field(default=None, kw_only=True)
    nodes: Sequence[str] = field(default=(), kw_only=True)

    @property
    def alone_us(self) -> Times:
        """How long each job would have taken alone on idle nodes for what it did, shape (n,)."""
        return self.end_us - self.start_us if self.work_us is None else self.work_us

    @property
    def backfilled(self) -> NDArray[np.bool_]:
        """Whether each job started before one that was submitted earlier, shape (n,)."""
        latest_before = np.maximum.accumulate(self.start_us)
        overtook = np.zeros(len(self.start_us), np.bool_)
        overtook[1:] = latest_before[:-1] > self.start_us[1:]
        return overtook

"""Whether a run has a steady state, or its queue grows: then a mean would say how long the run was.

The backlog is the work of the waiting jobs (processor-seconds), averaged over a third of the time of submissions, and
over the seeds. Where there is a steady state it does not depend on the third. A policy is ``unstable`` at a load where
the backlog of the last third exceeds that of the middle third by more than a quarter of their mean (a backlog that
grows linearly gives a half, one that grows with the square root of time a quarter), and is more than 2 % of all work
submitted (below which the machine's ordinary fluctuations lie).
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from cosched.workload.schedule import Schedule

GROWTH_LIMIT: Final = 0.25
BACKLOG_FLOOR: Final = 0.02

Thirds = tuple[float, float, float]


class Trend(NamedTuple):
    """How the backlog goes: from the middle third to the last, as a ratio of their mean; and the last, of all work."""

    growth: float
    backlog: float
    floor: float = BACKLOG_FLOOR

    @property
    def unstable(self) -> bool:
        """Whether the queue grows through the run."""
        return self.growth > GROWTH_LIMIT and self.backlog > self.floor


def backlog_thirds(schedule: Schedule) -> Thirds:
    """Mean work of the waiting jobs in each third of the time of submissions, as a ratio of all work."""
    load = schedule.workload
    work = load.procs * load.run_us.astype(np.float64)
    edges = np.linspace(load.submit_us[0], load.submit_us[-1], 4)
    thirds = []
    for begin, end in pairwise(edges.tolist()):
        waiting_us = np.clip(np.minimum(schedule.start_us, end) - np.maximum(load.submit_us, begin), 0, None)
        thirds.append(float(np.dot(work, waiting_us)) / max(1.0, end - begin) / float(work.sum()))
    return thirds[0], thirds[1], thirds[2]


def trend(thirds: Sequence[Thirds], floor: float = BACKLOG_FLOOR) -> Trend:
    """The trend of the backlog over all seeds; ``thirds``: that of each.

    ``floor`` is the part of all work that ordinary fluctuations stay below: the longer a run, the smaller it is.
    """
    _, middle, last = np.array(thirds).mean(axis=0).tolist()
    mean = (middle + last) / 2
    return Trend((last - middle) / mean if mean else 0.0, last, floor)

"""Run times predicted from each user's history in place of the user's own estimates (Tsafrir, Etsion & Feitelson 2007).

A job's prediction is made when it is submitted and is what the core takes for its estimate. A job that outruns it is
predicted anew at once, step by step (``machine.lifecycle.OVERRUN_STEPS_US``); it is killed at
its user's estimate alone, which the workload's run times already respect.
"""

from collections import defaultdict
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from msgspec import structs

from cosched.model.job import Job
from cosched.workload.rules import Workload
from space_scheduler.machine.events import Boundary
from space_scheduler.machine.instructions import Start
from space_scheduler.machine.lifecycle import OVERRUN_STEPS_US
from space_scheduler.simulator.world import Run, Submissions

#: How many of a user's jobs a prediction is the mean of.
HISTORY: Final = 2


class History:
    """The run times of each user's jobs, known from the moment at which they end."""

    def __init__(self) -> None:
        #: By user, jobs that have started and whose end has not been looked at: (end, row, run time), µs; heaps.
        self._running: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
        #: By user, those that have ended: (row, run time). Rows rise with the submission.
        self._ended: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)

    def started(self, user: int, row: int, run_us: int, end_us: int) -> None:
        """A job will have run for so long when it ends."""
        heappush(self._running[user], (end_us, row, run_us))

    def prediction(self, job: Job) -> int:
        """The mean run time of the user's last two jobs by submission among those that have ended, in µs.

        At most the user's estimate, and the estimate itself for a user (or an unknown one) with fewer such jobs.
        """
        running, ended = self._running[job.user], self._ended[job.user]
        while running and running[0][0] <= job.submit_us:
            _, row, run_us = heappop(running)
            ended.append((row, run_us))
            ended.sort()
            del ended[:-HISTORY]
        if job.user < 0 or len(ended) < HISTORY:
            return job.estimate_us
        return max(1, min(job.estimate_us, sum(run_us for _, run_us in ended) // HISTORY))


class _Predicted(Submissions):
    def __init__(self, workload: Workload, history: History) -> None:
        super().__init__(workload)
        self._history = history
        #: Each job's prediction when it was submitted, in µs.
        self.predictions_us: list[int] = []

    def take(self) -> Job:
        job = super().take()
        self.predictions_us.append(self._history.prediction(job))
        return structs.replace(job, estimate_us=self.predictions_us[-1])


class PredictedRun(Run):
    """A dedicated machine of counted processors whose scheduler predicts run times itself."""

    def __init__(
        self, workload: Workload, sequential: bool, launch_delay_us: int, progress: Callable[[int], None] | None
    ) -> None:
        super().__init__(workload, sequential, launch_delay_us, progress)
        self._history = History()
        self.submissions = _Predicted(workload, self._history)

    def start(self, start: Start, now_us: int) -> None:
        """A job is launched; there is a pass whenever its prediction is outrun."""
        super().start(start, now_us)
        row = self.rows[start.job.id]
        end_us = self.ends_us[row]
        self._history.started(start.job.user, row, end_us - self.starts_us[row], end_us)
        at_us = self.starts_us[row] + start.job.estimate_us
        for step_us in OVERRUN_STEPS_US:
            if at_us >= end_us:
                return
            self.enter(at_us, Boundary())
            at_us += step_us

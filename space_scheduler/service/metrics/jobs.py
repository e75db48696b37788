"""The series of jobs: how many there are, how long they waited and ran, what they have used."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry

from cosched.model.allocation import Allocation
from cosched.model.job import TERMINAL, JobState
from cosched.model.time import FOREVER_US, US_PER_S
from cosched.monitoring import series
from space_scheduler.machine.instructions import Start, Tell
from space_scheduler.service.journal.records import Committed, JobRecord, View
from space_scheduler.service.metrics.families import Values, histogram

#: Users with a series of their own. A counter must not fall, so who has one keeps it until the service ends.
MOST_USERS: Final = 100
OTHERS: Final = "other"
#: Of run times in a bounded slowdown, as in Feitelson & Weil 1998, section 3.1.
_THRESHOLD_S: Final = 10.0
_WAIT: Final = (JobState.QUEUED, JobState.WAITING)


class JobSeries:
    """Counts what commits tell of jobs, and reads the rest of a view."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._wait = histogram(series.QUEUE_WAIT, registry)
        self._run = histogram(series.JOB_RUN, registry)
        self._slowdown = histogram(series.JOB_SLOWDOWN, registry)
        self._error = histogram(series.JOB_PREDICTION_ERROR, registry)
        self._promised_us: dict[int, int] = {}  # the first promise of each job that waits
        self._cpu_s: dict[str, float] = {OTHERS: 0.0}

    def recovered(self, jobs: Iterable[JobRecord]) -> None:
        """After a restart: what those that wait were promised last."""
        for record in jobs:
            if record.state in _WAIT and record.promised_us not in (None, FOREVER_US):
                self._promised_us[record.id] = record.promised_us

    def committed(self, committed: Committed) -> None:
        """Count what an event meant for jobs."""
        for instruction in committed.instructions:
            if isinstance(instruction, Tell) and instruction.promised_us != FOREVER_US:
                self._promised_us.setdefault(instruction.job_id, instruction.promised_us)
            elif isinstance(instruction, Start):
                self._wait.observe(max(0, committed.now_us - instruction.job.submit_us) / US_PER_S)
                promised_us = self._promised_us.pop(instruction.job.id, None)
                if promised_us is not None:
                    self._error.observe((committed.now_us - promised_us) / US_PER_S)
        for record in committed.ended:
            self._ended(record)

    def _ended(self, record: JobRecord) -> None:
        self._promised_us.pop(record.id, None)
        if record.start_us is not None and record.end_us is not None:
            run_s = max(0, record.end_us - record.start_us) / US_PER_S
            response_s = max(0, record.end_us - record.submit_us) / US_PER_S
            self._run.observe(run_s)
            self._slowdown.observe(max(1.0, response_s / max(run_s, _THRESHOLD_S)))
        if used_us := sum((record.facts.cpu_us or {}).values()):
            user = record.user if record.user in self._cpu_s or len(self._cpu_s) <= MOST_USERS else OTHERS
            self._cpu_s[user] = self._cpu_s.get(user, 0.0) + used_us / US_PER_S

    def collect(self, view: View, held: Sequence[Allocation], now_us: int) -> Values:
        """What is read at the moment of asking, which is ``now_us``; ``held`` is what jobs hold."""
        kept_back = Counter[str]()
        for why, count in view.kept_back.items():
            name = why.name.lower()
            kept_back[name if name in series.WAITING_REASONS else series.WAITING_REASONS[-1]] += count
        return {
            series.JOBS: (([state.value], view.alive.get(state, 0)) for state in JobState if state not in TERMINAL),
            series.JOBS_ENDED: (([state.value], view.ended.get(state, 0)) for state in JobState if state in TERMINAL),
            series.JOBS_WAITING: (([reason], kept_back[reason]) for reason in series.WAITING_REASONS),
            series.JOBS_SET_ASIDE: len(view.aside),
            series.JOB_PROCESSES: sum(each.processes for each in held),
            series.JOB_PROCS: sum(each.procs for each in held),
            series.QUEUE_OLDEST_WAIT: oldest_wait_s(view, now_us),
            series.USER_CPU: (([user], used_s) for user, used_s in self._cpu_s.items()),
        }


def oldest_wait_s(view: View, now_us: int) -> float:
    """For how long the job has waited that was submitted first of those that may start.

    By the clock: where nothing happens, as with a queue that is stuck, the view stays as it was.
    """
    if not view.alive.get(JobState.QUEUED, 0):
        return 0.0
    first = next(record for record in view.jobs.values() if record.state is JobState.QUEUED)  # numbers rise with time
    return max(0, now_us - first.submit_us) / US_PER_S

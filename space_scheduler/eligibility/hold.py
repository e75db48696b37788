"""The rule *hold*: a job that its user or an operator holds waits until it is released."""

from collections.abc import Iterable

from space_scheduler.reasons import HELD, Reason


class Hold:
    """``jobs``: the jobs that are held, by number. Each takes its old place in the queue when it is released."""

    __slots__ = ("jobs",)

    def __init__(self, jobs: Iterable[int] = ()) -> None:
        self.jobs = {*jobs}

    def reason(self, job_id: int) -> Reason | None:
        """Why this rule keeps the job back; None: it does not."""
        return HELD if job_id in self.jobs else None

    def drop(self, job_id: int) -> None:
        """Forget a job."""
        self.jobs.discard(job_id)

"""The rule *dependency*: a job waits for the end of another, and then for its think time (``Job.after``)."""

from typing import ClassVar, Final

from cosched.model.job import Job
from space_scheduler.eligibility.rule import Moment, Wait
from space_scheduler.reasons import Reason, Why


class Dependency:
    """A job whose preceding job is not alive, and did not end as far as is known, does not wait."""

    name: ClassVar = "dependency"

    def wait(self, job: Job, moment: Moment) -> Wait | None:
        """Wait until the preceding job has ended, however it does, and the think time has passed since."""
        after = job.after
        if after is None:
            return None
        numbers = {"job": after.job_id}
        ended_us = after.ended_us if moment.before is None else moment.before.kept
        if ended_us is None and after.job_id in moment.ended:
            ended_us = moment.ended[after.job_id].at_us
        if ended_us is None:
            alive = moment.state_of(after.job_id) is not None and after.job_id != job.id
            return Wait(Reason(Why.AFTER_JOB, numbers), ends=(after.job_id,)) if alive else None
        until_us = ended_us + after.think_us
        if until_us <= moment.now_us:
            return None
        return Wait(Reason(Why.THINK_TIME, {**numbers, "until_us": until_us}), until_us, kept=ended_us)


DEPENDENCY: Final = Dependency()

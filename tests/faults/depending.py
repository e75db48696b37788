"""Jobs that follow others in simulated faults: rules before the queue, the shipped one and a user's own.

Of every fifth seed. A job that follows another is not started before that one has ended, whatever is lost, late or
restarted meanwhile (E1).
"""

from random import Random
from typing import Final

import msgspec

from cosched.model.job import After, Job
from faults.world import S
from space_scheduler.eligibility.rule import Moment, Wait
from space_scheduler.reasons import Reason, Why


class Follows:
    """A rule as a user may write it: it remembers nothing, and is asked again at an end and every 5 s."""

    def wait(self, job: Job, moment: Moment) -> Wait | None:
        """Wait while the preceding job is alive."""
        if job.after is None or moment.state_of(job.after.job_id) is None:
            return None
        return Wait(Reason(Why.AFTER_JOB), moment.now_us + 5 * S, ends=(job.after.job_id,))


#: How settings name the rules, by the seed.
RULES: Final = (["dependency"], ["faults.depending:Follows"], ["faults.depending:Follows", "dependency"])
#: What a campaign has to have seen of it.
SEEN: Final = ("followed",)


def rules(seed: int) -> list[str]:
    """The rules of this history; empty: it has none."""
    return RULES[seed // 5 % len(RULES)] if seed % 5 == 3 else []


def following(job: Job, seed: int, accepted: list[int]) -> Job:
    """The job, which may follow one of those that are accepted. Other draws of the history stay as they are."""
    chance = Random(f"{seed} follows {len(accepted)}")
    if not rules(seed) or not accepted or chance.random() < 0.3:
        return job
    return msgspec.structs.replace(job, after=After(chance.choice(accepted[-3:]), chance.choice((0, 0, 2 * S))))

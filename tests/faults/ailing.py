"""Policies that fail for some jobs in simulated faults, for a while: those are set aside, and all others go on (O13).

Of every eighth seed. They go by core time and by jobs' numbers, so that journals
replay. No shipped policy ever has a job set aside.
"""

from typing import Final

from kit.mutants import FailsFor

from cosched.model.job import Job
from faults.violation import Violation
from space_scheduler.machine.instructions import SetAside
from space_scheduler.plugins import resolve
from space_scheduler.policy.interface import Snapshot

#: Until then, in core time, they fail.
UNTIL_US: Final = 60_000_000


def _bad(job: Job) -> bool:
    return is_bad(job.id)


def is_bad(job_id: int) -> bool:
    """Whether they fail for a job of this number."""
    return job_id % 4 == 1


def _ails(snapshot: Snapshot) -> bool:
    return snapshot.now_us < UNTIL_US


RAISES: Final = FailsFor(resolve("easy"), _bad, "raises", _ails)
MISPLACES: Final = FailsFor(resolve("conservative"), _bad, "misplaces", _ails)
RESIZES: Final = FailsFor(resolve("equipartition"), _bad, "resizes", _ails)
#: How settings name them: where jobs share nodes, and where they do not; one of these changes shapes.
SHARING: Final = ("faults.ailing:RAISES",)
RESHAPING: Final = "faults.ailing:RESIZES"
APART: Final = (*SHARING, "faults.ailing:MISPLACES", RESHAPING)
#: What a campaign has to have seen of it.
SEEN: Final = ("set aside",)


def has_ailing(seed: int) -> bool:
    """Whether the policies of this history are such."""
    return seed % 8 == 7


def judge(seed: int, told: SetAside) -> None:
    """O13: nobody is set aside but for whom a planted policy fails. Raises :class:`Violation`."""
    if not (has_ailing(seed) and is_bad(told.job_id)):
        raise Violation(f"O13: job {told.job_id} is set aside: {told.problem}")

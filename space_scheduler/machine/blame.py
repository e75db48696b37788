"""Which jobs make a pass fail: found by planning again without some of them, with a bounded number of plans.

A plan fails where the policy raises, or where it cannot be applied. The error names the job (``job_id``) where that is
known; then the plan is made again without it. Where no job is named:

1. The jobs that the pass before had are tried without those that have come since; if that fails, no job at all. A
   policy that fails then fails whatever is left out, and the first error is raised again.
2. The others are added a few at a time, in their order: four times as many after each plan that can be applied. Where
   one fails, half as many are tried, until one job alone makes the difference.
3. When :data:`MOST_PLANS` have been made, jobs that have not been added are left out, too; they are tried again soon.

The last plan that could be applied is the one that is: each was made and checked as a whole. To have one culprit among
n jobs found takes some log2(n) plans, and where all jobs are culprits each takes one.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from cosched.errors import Failed
from space_scheduler.policy.interface import Plan

#: So many plans are made in a pass that has failed, and in a round of tries again.
MOST_PLANS: Final = 32
MOST_PLANS_AGAIN: Final = 8
_GROWS: Final = 4
_LONGEST: Final = 500

#: Makes the plan in which these jobs take part, and checks it; raises where it fails.
Attempt = Callable[[Collection[int]], Plan]


class Blamed(NamedTuple):
    """Why a job is left out. ``tried``: a plan failed with it as the one more, or named it."""

    problem: str
    tried: bool = True


class Found(NamedTuple):
    """A plan that can be applied, and the jobs that take part in it and were left out."""

    plan: Plan
    part: list[int]
    blamed: dict[int, Blamed]


def without_culprits(attempt: Attempt, known: Sequence[int], new: Sequence[int], error: Exception) -> Found:
    """A plan without the jobs that make it fail; with all of them, ``known`` and ``new``, it has failed with ``error``.

    Raises that where it fails whatever is left out.
    """
    search = _Search(attempt, MOST_PLANS)
    part, failure = [*known, *new], error
    while (culprit := _named(failure, part)) is not None and search.left > MOST_PLANS // 2:
        search.blamed[culprit] = Blamed(problem_of(failure))
        part = [job_id for job_id in part if job_id != culprit]
        outcome = search.plan(part)
        if isinstance(outcome, Plan):
            return Found(outcome, part, search.blamed)
        failure = outcome
    known = [job_id for job_id in known if job_id not in search.blamed]
    new = [job_id for job_id in new if job_id not in search.blamed]
    outcome = search.plan(known) if known and new else failure
    if isinstance(outcome, Plan):
        found = search.grown(Found(outcome, known, {}), new)
    else:
        nothing = search.plan([])
        if not isinstance(nothing, Plan):
            raise error
        found = search.grown(Found(nothing, [], {}), [*known, *new], failing=len(known) or len(new))
    problem = f"with it, or with others that were left out with it: {problem_of(search.failure)}"
    left_out = {*known, *new}.difference(found.part, search.blamed)
    return found._replace(blamed=search.blamed | dict.fromkeys(left_out, Blamed(problem, tried=False)))


def with_those_that_can(attempt: Attempt, found: Found, due: Sequence[int]) -> Found:
    """The plan with as many as can be of the jobs that are due to be tried again.

    Those that made it fail are blamed; of others that are not in it, nothing is known.
    """
    search = _Search(attempt, MOST_PLANS_AGAIN)
    grown = search.grown(found, due)
    return grown._replace(blamed=found.blamed | search.blamed)


class _Search:
    """Plans that are made one after the other: ``left`` more may be, the last failure was ``failure``."""

    def __init__(self, attempt: Attempt, left: int) -> None:
        self._attempt = attempt
        self.left = left
        self.failure: Exception = Failed("")
        self.blamed: dict[int, Blamed] = {}

    def plan(self, part: Sequence[int]) -> Plan | Exception:
        """The plan with these jobs, or how it failed."""
        self.left -= 1
        try:
            return self._attempt(part)
        except Exception as error:  # a policy may raise anything
            self.failure = error
            return error

    def grown(self, best: Found, more: Sequence[int], failing: int = 0) -> Found:
        """The plan of ``best`` with more jobs, as many as can be found.

        With the first ``failing`` of these it is known to fail (0: nothing is known).
        """
        rest, part = [*more], [*best.part]
        at, size = 0, max(1, failing // 2)
        while at < len(rest) and self.left > 0:
            segment = rest[at : at + size]
            outcome = self.plan([*part, *segment])
            if isinstance(outcome, Plan):
                part += segment
                best = best._replace(plan=outcome, part=[*part])
                at += len(segment)
                size = max(1, (failing - at) // 2) if at < failing else _GROWS * len(segment)
                continue
            culprit = segment[0] if len(segment) == 1 else _named(outcome, segment)
            if culprit is None:
                failing, size = at + len(segment), len(segment) // 2
                continue
            self.blamed[culprit] = Blamed(problem_of(outcome))
            rest.remove(culprit)
            failing, size = 0, max(1, len(segment) - 1)
        return best


def problem_of(error: Exception) -> str:
    """An error in one line, for people."""
    text = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())[:_LONGEST]


def _named(error: Exception, part: Collection[int]) -> int | None:
    """The job of these that an error names."""
    job_id = getattr(error, "job_id", None)
    return job_id if isinstance(job_id, int) and job_id in part else None

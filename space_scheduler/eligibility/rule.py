"""The interface of a rule: a pure function of a job and the moment at which it is asked."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from cosched.model.job import Job, JobState
from space_scheduler.reasons import Reason, Why

#: The reason of a rule that gives none of its own.
NOT_YET = Reason(Why.NOT_ELIGIBLE)


class Wait(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A job may not be queued yet. The rule is asked again at ``until_us``, or when a job of ``ends`` has ended.

    ``until_us`` is core time in microseconds (None: no such time), ``ends`` are numbers of live jobs. ``words`` are
    for people. ``kept`` is what the rule has to remember of the job: plain values that JSON can hold.
    """

    reason: Reason = NOT_YET
    until_us: int | None = None
    ends: tuple[int, ...] = ()
    words: str = ""
    kept: Any = None


class Ended(msgspec.Struct, frozen=True, gc=False):
    """How and when a job has ended; core time, microseconds."""

    state: JobState
    at_us: int


class Moment(NamedTuple):
    """What a rule may look at.

    ``state_of`` gives the state of a live job by its number (None: it is not alive), ``jobs`` all live jobs with their
    states, in order of arrival. ``ended`` has the jobs that have ended since the last pass. ``before`` is what this
    rule said of the job the last time (None: the job has just come to it).
    """

    now_us: int
    state_of: Callable[[int], JobState | None]
    jobs: Callable[[], Iterable[tuple[Job, JobState]]]
    ended: Mapping[int, Ended]
    before: Wait | None = None


class Rule(Protocol):
    """One condition for a job to be queued. ``name`` stands in journals."""

    @property
    def name(self) -> str:
        """What it is called, in one word."""
        ...

    def wait(self, job: Job, moment: Moment) -> Wait | None:
        """Why the job may not be queued yet, and when to ask again; None: as far as this rule goes it may."""
        ...

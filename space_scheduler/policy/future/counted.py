"""The future of interchangeable processors: a reservation is a time and a number.

Without reservations what is free only rises with time, so nothing but the number free now is needed. With *one*
reservation (EASY) two figures say whether another job may start: the *shadow time*, when the reserved job starts, and
the *extra* processors left over then (Feitelson & Weil 1998, section 2.2, Fig. 5). A profile is made at the second
reservation only; it gives the same answers (``tests/properties/test_futures.py``).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from space_scheduler.feasibility import longest_us, obstacle
from space_scheduler.policy.interface import PlannedStart, Snapshot
from space_scheduler.profile import Profile
from space_scheduler.reasons import Reason, Why

Ends = Sequence[tuple[int, int, int]]
_ON_EXTRA: Final = Why.BACKFILLED_ON_EXTRA  # as in ``feasibility``: slow to look up in its class


class CountedFuture:
    """Counted processors."""

    by_company = by_cluster = False
    shadow_us = FOREVER_US  # of the one reservation, while there is no profile
    extra_procs = 0
    _found_extra = 0
    _reserved: Job | None = None
    _profile: Profile | None = None

    def __init__(self, snapshot: Snapshot) -> None:
        self.now_us = snapshot.now_us
        self.free_procs = snapshot.free_procs
        self._ends: Ends = snapshot.ends
        self._starts: list[PlannedStart] = []  # of this pass, before there is a profile

    def obstacle(self, job: Job) -> Why | None:
        """What keeps a job from starting now, whatever is reserved."""
        return obstacle(job.procs, job.estimate_us, self.now_us, self.free_procs)

    def now(self, job: Job) -> bool:
        """Whether a start now moves no reservation."""
        procs = job.procs
        if procs > self.free_procs:  # most jobs that wait, most often; the rest is the feasibility function's
            return False
        if (profile := self._profile) is None:
            return not obstacle(procs, job.estimate_us, self.now_us, self.free_procs, self.shadow_us, self.extra_procs)
        return profile.earliest(procs, job.estimate_us, self.now_us) == self.now_us

    def longest_us(self, procs: int) -> int:
        """The longest estimate with which a start of so many processors moves no reservation now; -1: none.

        It never rises during a pass.
        """
        if (profile := self._profile) is None or procs > self.free_procs:
            return longest_us(procs, self.now_us, self.free_procs, self.shadow_us, self.extra_procs)
        return profile.lasting_us(procs, self.now_us)

    def earliest(self, job: Job) -> int:
        """The earliest start; a job wider than what is in service has none until nodes come back."""
        profile = self._profile
        if profile is None:
            if self._reserved is None:
                if job.procs <= self.free_procs:
                    self._found_extra = self.free_procs - job.procs
                    return self.now_us
                shadow_us, self._found_extra = shadow_of(job, self.free_procs, self._all_ends())
                return shadow_us
            profile = self._whole_profile()
        if job.procs > profile.free[-1]:
            return FOREVER_US
        return profile.earliest(job.procs, job.estimate_us, self.now_us)

    def reserve(self, job: Job, start_us: int) -> None:
        """Set the processors aside."""
        if start_us == FOREVER_US:
            return
        if self._profile is None and self._reserved is None:
            self._reserved = job
            self.shadow_us, self.extra_procs = start_us, self._found_extra
        else:
            profile = self._profile or self._whole_profile()
            profile.change(start_us, start_us + job.estimate_us, -job.procs)

    def lasts_us(self, job: Job) -> int:
        """Its estimate."""
        return job.estimate_us

    def start(self, job: Job, reason: Reason) -> PlannedStart:
        """Give a job its processors now."""
        start = PlannedStart(job, reason)
        self.free_procs -= job.procs
        if self._profile is not None:
            self._profile.change(self.now_us, self.now_us + job.estimate_us, -job.procs)
        else:
            self._starts.append(start)
            if self.now_us + job.estimate_us > self.shadow_us:
                self._spend_extra(job.procs)
        return start

    def begin(self, start: PlannedStart) -> None:
        """Take away what a start holds."""
        self.start(start.job, start.reason)

    def _spend_extra(self, procs: int) -> None:
        self.extra_procs -= procs

    def beside(self, shadow_us: int) -> Reason:
        """On processors that the reservation leaves over."""
        return Reason(_ON_EXTRA, {"extra_procs": self.extra_procs})

    def suppose(self, shadow_us: int, extra_procs: int) -> None:
        """The one reservation is what it was found to be in an earlier pass."""
        self.shadow_us, self.extra_procs = shadow_us, extra_procs

    def _whole_profile(self) -> Profile:
        """What runs, what this pass has started, and what is reserved."""
        if self._profile is None:
            self._profile = Profile.of_running(self.now_us, self.free_procs, self._all_ends())
            if (job := self._reserved) is not None:
                self._profile.change(self.shadow_us, self.shadow_us + job.estimate_us, -job.procs)
        return self._profile

    def _all_ends(self) -> Ends:
        """The predicted ends of what runs and of what this pass starts, in order of time."""
        if not self._starts:
            return self._ends
        new = [(self.now_us + start.job.estimate_us, start.job.id, start.job.procs) for start in self._starts]
        return sorted([*self._ends, *new])


def shadow_of(head: Job, free_procs: int, ends: Iterable[tuple[int, int, int]]) -> tuple[int, int]:
    """Shadow time and extra processors of a blocked head (Fig. 5, step 1).

    ``ends`` are (predicted end, job id, processors) in order of time. All that ends at the shadow time counts as extra.
    A head that will not fit (nodes are out of service) has its shadow at FOREVER: it is in nobody's way.
    """
    available = free_procs
    shadow_us = FOREVER_US
    for end_us, _, procs in ends:
        if end_us > shadow_us:
            break
        available += procs
        if shadow_us == FOREVER_US and available >= head.procs:
            shadow_us = end_us
    if shadow_us == FOREVER_US:
        return FOREVER_US, 0
    return shadow_us, available - head.procs

"""The rule *set aside by the pass*: with such a job the policy raised, or its plan could not be applied.

A job that was queued waits, and policies do not see it: to them it is withdrawn. One that runs keeps what it holds,
and policies see that it cannot be resized. Each is tried again when what it asks for, the nodes, what jobs hold or the
policy have changed since its last try, :data:`EARLIEST_US` after that at the earliest, and :data:`LATEST_US` after it
at the latest. Tries again of all jobs come in rounds, :data:`EARLIEST_US` apart at least, each of a bounded number of
plans (``blame``). So a thousand such jobs cost the passes of others as much as one.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

from cosched.model.time import US_PER_S
from space_scheduler.reasons import Reason, Why

EARLIEST_US: Final = 1 * US_PER_S
LATEST_US: Final = 600 * US_PER_S
#: What brings a job back into passes, in words.
AGAIN: Final = "tried again when its request, the nodes, what jobs hold or the policy change, and every ten minutes"
#: What a job that is set aside had not seen when it was tried: everything.
NOTHING: Final = -1


class SetAside(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A job that is set aside since ``since_us``, and was tried last at ``tried_us``. Core times, microseconds.

    ``problem`` is what the policy or the check of its plan said, in words. ``tries`` counts plans that failed with this
    job as the one more; 0: it was left out with others, of which one makes plans fail. ``seen`` counts the changes of
    the machine that its last try had seen (:data:`NOTHING`: there was none, or the job itself has changed since).
    """

    job_id: int
    since_us: int
    tried_us: int
    problem: str
    tries: int = 0
    seen: int = NOTHING

    @property
    def reason(self) -> Reason:
        """Why the job does not start, or is not resized."""
        return Reason(Why.SET_ASIDE, {"since_us": self.since_us, "tries": self.tries})

    def due_us(self, changes: int) -> int:
        """When it is tried again, if the machine has changed so often."""
        return self.tried_us + (LATEST_US if self.seen == changes else EARLIEST_US)


class Aside:
    """All of them. ``changes`` counts the passes that found, or made, a change for which jobs are tried again.

    ``held``: those of them that their users or operators hold meanwhile, which are not tried.
    """

    __slots__ = ("changes", "held", "jobs")

    def __init__(self) -> None:
        self.jobs: dict[int, SetAside] = {}
        self.held: dict[int, SetAside] = {}
        self.changes = 0

    def restore(self, jobs: Iterable[SetAside], changes: int, held: Collection[int]) -> None:
        """As saved; ``held`` are the jobs that are held, by number."""
        for each in jobs:
            (self.held if each.job_id in held else self.jobs)[each.job_id] = each
        self.changes = changes

    def reason(self, job_id: int) -> Reason | None:
        """Why this rule keeps the job back, or what it holds as it is; None: it does not."""
        found = self.jobs.get(job_id) or self.held.get(job_id)
        return None if found is None else found.reason

    def __contains__(self, job_id: int) -> bool:
        return job_id in self.jobs or job_id in self.held

    def __bool__(self) -> bool:
        return bool(self.jobs or self.held)

    def __iter__(self) -> Iterator[SetAside]:
        """All of them by number, also those that are held."""
        return iter(sorted((*self.jobs.values(), *self.held.values()), key=lambda each: each.job_id))

    def put(self, job_id: int, problem: str, now_us: int, *, tried: bool) -> SetAside:
        """A job is set aside, or was tried again in vain. ``tried``: a plan failed with it as the one more."""
        known = self.jobs.get(job_id)
        since_us, tries = (now_us, 0) if known is None else (known.since_us, known.tries)
        self.jobs[job_id] = made = SetAside(
            job_id, since_us, now_us, problem, tries + tried, self.changes if tried else NOTHING
        )
        return made

    def drop(self, job_id: int) -> None:
        """A job is not set aside any more."""
        self.jobs.pop(job_id, None)
        self.held.pop(job_id, None)

    def hold(self, job_id: int) -> None:
        """A job that is set aside is held by its user."""
        self.held[job_id] = self.jobs.pop(job_id)

    def release(self, job_id: int) -> None:
        """It is held no more, and to be tried."""
        self.jobs[job_id] = msgspec.structs.replace(self.held.pop(job_id), seen=NOTHING)

    def due(self, now_us: int) -> list[int]:
        """Which jobs are tried again now, in this order: who has not been tried by itself, then who waits longest."""
        if not self.jobs or self._round_us() > now_us:
            return []
        due = [each for each in self.jobs.values() if each.due_us(self.changes) <= now_us]
        due.sort(key=lambda each: (each.seen != NOTHING, each.tried_us, each.job_id))
        return [each.job_id for each in due]

    def next_us(self) -> int | None:
        """When the next is tried again, if nothing changes until then."""
        if not self.jobs:
            return None
        return max(self._round_us(), min(each.due_us(self.changes) for each in self.jobs.values()))

    @property
    def seen_all(self) -> bool:
        """Whether each was tried with the machine as it is."""
        return all(each.seen == self.changes for each in self.jobs.values())

    def _round_us(self) -> int:
        """When the next round may be."""
        again = (each.tried_us for each in self.jobs.values() if each.tried_us > each.since_us)
        return max(again, default=-EARLIEST_US) + EARLIEST_US

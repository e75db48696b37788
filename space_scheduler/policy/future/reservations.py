"""Reservations on counted processors that are kept from pass to pass: a table that passes change, and its versions.

A policy's memory is a value, and what follows from it with ten thousand reservations is too much to be copied at every
pass. A *version* is therefore a base and the steps that led from it to this version; steps are only ever appended. The
newest version has the table at hand, and the pass that goes on from it takes that over and changes it. A version that
has given it away (its pass failed) makes it again from base and steps. When there are more steps than entries, the
table is copied as the base of what follows, so that a pass costs what it changes.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final

import msgspec

from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from space_scheduler.policy.future.shapes import Shapes
from space_scheduler.policy.queue import JobQueue
from space_scheduler.profile import Profile, Step

_GONE: Final = -1
_FEWEST_STEPS: Final = 64
#: Up to how many reservations it costs less to ask the profile for each than to know their shapes.
SHALLOW: Final = 100


class Schedule(msgspec.Struct, frozen=True, tag=True):
    """A version as plain values: the profile with everything in it, and each queued job's reserved start."""

    profile: Profile
    starts_us: dict[int, int]
    wake_us: int


class Reservations:
    """The table: the profile with everything in it, each queued job's reserved start, and what follows from both.

    ``shapes`` are None until somebody asks to :meth:`know` them. A step is one of the profile's, or (job, start in µs);
    the start is ``_GONE`` where the job has none any more.
    """

    __slots__ = ("_base", "_due", "_steps", "profile", "shapes", "starts_us")

    def __init__(self, profile: Profile, starts_us: dict[int, int], shapes: Shapes | None = None) -> None:
        self.profile, self.starts_us, self.shapes = profile, starts_us, shapes
        self._base: tuple[Profile, dict[int, int]] | None = None
        self._steps: list[Step] = []
        self._due: list[tuple[int, int]] | None = None  # (start, job): a heap, with starts that are no more; or None

    @classmethod
    def again(cls, base: tuple[Profile, dict[int, int]], steps: list[Step]) -> "Reservations":
        """The table that these steps lead to."""
        profile, starts_us = base[0].copy(), base[1].copy()
        for step in steps:
            if len(step) != 2:
                profile.take_step(step)
            elif step[1] == _GONE:
                del starts_us[step[0]]
            else:
                starts_us[step[0]] = step[1]
        table = cls(profile, starts_us)
        table._base, table._steps = base, steps
        profile.steps = steps
        return table

    def first_hole(self, job: Job, now_us: int, queue: JobQueue) -> int:
        """When the first hole for a job begins, in µs; there is one."""
        if len(self.starts_us) <= SHALLOW:
            return self.profile.earliest(job.procs, job.estimate_us, now_us)
        return self.know(queue).first_hole(self.profile, job)

    def know(self, queue: JobQueue) -> Shapes:
        """The shapes of what is reserved."""
        if self.shapes is None:
            self.shapes = Shapes.of(queue, self.starts_us)
        return self.shapes

    # changes

    def give_back(self, from_us: int, until_us: int, procs: int) -> None:
        """Processors are free from one time until another that were taken."""
        if until_us > from_us:
            self.profile.change(from_us, until_us, procs)
            if self.shapes is not None:
                self.shapes.reopen(self.profile, from_us, until_us, procs)

    def withdraw(self, job: Job, now_us: int) -> None:
        """A job waits no more."""
        start_us = self.starts_us.get(job.id)
        if start_us is not None:
            self.drop(job)
            if start_us != FOREVER_US:
                self.give_back(max(now_us, start_us), start_us + job.estimate_us, job.procs)

    def drop(self, job: Job) -> None:
        """A job has no reservation any more; what it takes is not given back."""
        start_us = self.starts_us.pop(job.id)
        self._steps.append((job.id, _GONE))
        if self.shapes is not None and start_us != FOREVER_US:
            self.shapes.remove(job)

    def place(self, job: Job, start_us: int, queue: JobQueue) -> None:
        """Reserve the first hole for a job, which has been found to be there; FOREVER_US: there is none."""
        if start_us != FOREVER_US:
            self.profile.change(start_us, start_us + job.estimate_us, -job.procs)
            if self.shapes is not None:
                self.shapes.add(job, start_us, queue.key(job.id))
        self.note((job.id,), start_us)

    def note(self, job_ids: Iterable[int], start_us: int) -> None:
        """These jobs are reserved from this time on; the profile has them there."""
        starts_us, steps, due = self.starts_us, self._steps, self._due
        for job_id in job_ids:
            starts_us[job_id] = start_us
            steps.append((job_id, start_us))
            if due is not None:
                heappush(due, (start_us, job_id))

    # what is next

    def next_us(self) -> int:
        """The earliest reserved start, or FOREVER_US."""
        due, starts_us = self._heap(), self.starts_us
        while due and starts_us.get(due[0][1]) != due[0][0]:
            heappop(due)
        return due[0][0] if due else FOREVER_US

    def due(self, now_us: int) -> list[int]:
        """The jobs that are reserved from now on or earlier; they are to be dropped."""
        found = set()
        while self.next_us() <= now_us:
            found.add(heappop(self._heap())[1])
        return list(found)

    def _heap(self) -> list[tuple[int, int]]:
        if self._due is None or len(self._due) > 4 * len(self.starts_us) + _FEWEST_STEPS:
            self._due = [(start_us, job_id) for job_id, start_us in self.starts_us.items()]
            heapify(self._due)
        return self._due

    def version(self, wake_us: int) -> "Version":
        """What is reserved now, as a value."""
        if self._base is None or len(self._steps) > len(self.profile.times) + len(self.starts_us) + _FEWEST_STEPS:
            self._base = self.profile.copy(), self.starts_us.copy()
            self._steps = self.profile.steps = []
        return Version(self._base, self._steps, self, wake_us)


class Version:
    """The reservations as they were at the end of a pass, and the next that falls due: a value."""

    __slots__ = ("_base", "_count", "_steps", "_table", "wake_us")

    def __init__(
        self, base: tuple[Profile, dict[int, int]], steps: list[Step], table: Reservations, wake_us: int
    ) -> None:
        self._base, self._steps, self._count = base, steps, len(steps)
        self._table: Reservations | None = table
        self.wake_us = wake_us

    def taken(self) -> Reservations:
        """The table, to be changed."""
        table, self._table = self._at_hand(), None
        return table

    def packed(self) -> Schedule:
        """Plain values, for a journal."""
        return Schedule(self.profile, self.starts_us, self.wake_us)

    @property
    def profile(self) -> Profile:
        """With everything in it."""
        return self._at_hand().profile

    @property
    def starts_us(self) -> dict[int, int]:
        """Each queued job's reserved start."""
        return self._at_hand().starts_us

    def _at_hand(self) -> Reservations:
        if self._table is None:  # whoever has it may have appended steps
            self._table = Reservations.again(self._base, self._steps[: self._count])
        return self._table

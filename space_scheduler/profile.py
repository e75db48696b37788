"""The profile: how many processors will be free at each future time.

Feitelson & Weil 1998, section 2.1: a step function kept as a list of periods. ``times[i]`` is where period ``i`` starts
(strictly increasing, microseconds), ``free[i]`` the processors free until ``times[i + 1]``; the last period has no end.
Intervals are half-open. All costs are linear in the number of periods, which is at most two for every job.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from cosched.model.time import FOREVER_US

#: What was done to a profile: (now,) advanced to; (start, end, processors) changed; (start, earlier, duration,
#: processors) moved up.
Step = tuple[int, ...]


class Profile:
    """Free processors over time. Plain lists and bisection: short steps, no hidden cost.

    ``settled``: nothing has been given back since somebody found that no reservation can move up. It isn't kept with
    the rest in a journal: who doesn't know looks again. ``steps``: where somebody keeps account of what is done to it;
    a copy is nobody's.
    """

    __slots__ = ("free", "settled", "steps", "times")

    def __init__(self, now_us: int, free_procs: int) -> None:
        self.times = [now_us]
        self.free = [free_procs]
        self.settled = False
        self.steps: list[Step] | None = None

    @classmethod
    def of_running(cls, now_us: int, free_procs: int, ends: Iterable[tuple[int, int, int]]) -> "Profile":
        """The profile of what runs; ``ends``: (predicted end, job id, processors) in order of time, all after now."""
        profile = cls(now_us, free_procs)
        times, free = profile.times, profile.free
        for end_us, _, procs in ends:
            free_procs += procs
            if end_us == times[-1]:
                free[-1] = free_procs
            else:
                times.append(end_us)
                free.append(free_procs)
        return profile

    def copy(self) -> "Profile":
        """An independent copy, for planning."""
        other = Profile.__new__(Profile)
        other.times = self.times.copy()
        other.free = self.free.copy()
        other.settled = self.settled
        other.steps = None
        return other

    def packed(self) -> tuple[list[int], list[int]]:
        """Plain values, for a journal."""
        return self.times, self.free

    @classmethod
    def unpacked(cls, plain: tuple[list[int], list[int]]) -> "Profile":
        """The profile of :meth:`packed` values."""
        profile = cls.__new__(cls)
        profile.times, profile.free = list(plain[0]), list(plain[1])
        profile.settled = False
        profile.steps = None
        return profile

    def take_step(self, step: Step) -> None:
        """Do again what was done to another profile."""
        if len(step) == 1:
            self.advance(*step)
        elif len(step) == 3:
            self.change(*step)
        else:
            self.move_up(*step)

    def advance(self, now_us: int) -> None:
        """Forget what lies before ``now_us``; the profile then starts there."""
        past = bisect_right(self.times, now_us) - 1
        if past > 0:
            del self.times[:past]
            del self.free[:past]
        if self.times[0] < now_us:
            self.times[0] = now_us
        if self.steps is not None:
            self.steps.append((now_us,))

    def free_at(self, time_us: int) -> int:
        """Processors free at a time (not before the profile's start)."""
        return self.free[max(0, bisect_right(self.times, time_us) - 1)]

    def lasting_us(self, procs: int, after_us: int) -> int:
        """For how long ``procs`` stay free from ``after_us`` on: FOREVER_US where they always are."""
        for i in range(max(0, bisect_right(self.times, after_us) - 1), len(self.times)):
            if self.free[i] < procs:
                return max(0, self.times[i] - after_us)
        return FOREVER_US

    def earliest(self, procs: int, duration_us: int, after_us: int, until_us: int = FOREVER_US) -> int:
        """The anchor point: the earliest start from ``after_us`` on with ``procs`` free for the whole duration.

        ``until_us`` where there is none before that. Up to FOREVER_US the last period must have ``procs`` free (the
        caller refuses jobs wider than the machine); else ValueError.
        """
        times, free = self.times, self.free
        count = len(times)
        end = count if until_us == FOREVER_US else bisect_left(times, until_us)
        i = max(0, bisect_right(times, after_us) - 1)
        while i < end:
            if free[i] < procs:
                i += 1
                continue
            start_us = times[i]
            if start_us < after_us:
                start_us = after_us
            end_us = start_us + duration_us
            i += 1
            while i < count and times[i] < end_us and free[i] >= procs:
                i += 1
            if i == count or times[i] >= end_us:
                return start_us
        if until_us == FOREVER_US:
            raise ValueError(f"{procs} processors are never free together: {free[-1]} at the end of the profile")
        return until_us

    def change(self, start_us: int, end_us: int, delta_procs: int) -> None:
        """Add ``delta_procs`` over [start, end). Periods that become equal are merged at the rims."""
        if end_us <= start_us:
            return
        if delta_procs > 0:
            self.settled = False
        if self.steps is not None:
            self.steps.append((start_us, end_us, delta_procs))
        self._add(start_us, end_us, delta_procs)

    def _add(self, start_us: int, end_us: int, delta_procs: int) -> None:
        times, free = self.times, self.free
        first = bisect_left(times, start_us)
        if first == len(times) or times[first] != start_us:
            times.insert(first, start_us)
            free.insert(first, free[first - 1])
        last = bisect_left(times, end_us, first)
        if last == len(times) or times[last] != end_us:
            times.insert(last, end_us)
            free.insert(last, free[last - 1])
        if last - first == 1:
            free[first] += delta_procs
        else:
            free[first:last] = [procs + delta_procs for procs in free[first:last]]
        if free[last] == free[last - 1]:
            del times[last], free[last]
        if first and free[first] == free[first - 1]:
            del times[first], free[first]

    def move_up(self, start_us: int, earlier_us: int, duration_us: int, procs: int) -> None:
        """Have ``procs`` processors that are taken for a duration from ``start_us`` on taken from an earlier time on.

        While both times overlap nothing changes: what is left to do is most often short.
        """
        self.settled = False
        if self.steps is not None:
            self.steps.append((start_us, earlier_us, duration_us, procs))
        earlier_end_us = earlier_us + duration_us
        if earlier_end_us < start_us:
            self._add(start_us, start_us + duration_us, procs)
            self._add(earlier_us, earlier_end_us, -procs)
        else:
            self._add(earlier_end_us, start_us + duration_us, procs)
            self._add(earlier_us, start_us, -procs)

    def earlier(self, procs: int, duration_us: int, start_us: int, from_us: int) -> int:
        """Where a job that holds ``[start_us, start_us + duration_us)`` in this profile could start instead.

        The earliest start from ``from_us`` on, at most ``start_us``, that needs nothing but what is free and what the
        job itself holds: the answer of taking the job out and placing it again, without touching the profile.
        """
        times, free = self.times, self.free
        before = bisect_left(times, start_us)
        i = max(0, bisect_right(times, from_us, 0, before) - 1)
        if i >= before or max(free[i:before]) < procs:
            return start_us
        while i < before:
            if free[i] < procs:
                i += 1
                continue
            anchor_us = times[i]
            if anchor_us < from_us:
                anchor_us = from_us
            end_us = min(anchor_us + duration_us, start_us)  # from start_us on it stands on its own processors
            i += 1
            while i < before and times[i] < end_us and free[i] >= procs:
                i += 1
            if i == before or times[i] >= end_us:
                return anchor_us
        return start_us

    def lowest(self) -> int:
        """The fewest processors ever free: negative means an over-commitment."""
        return min(self.free)

    def normal(self) -> list[tuple[int, int]]:
        """The profile as (start, free) periods, neighbours that are equal merged: for comparing and showing."""
        periods: list[tuple[int, int]] = []
        for start_us, procs in zip(self.times, self.free, strict=True):
            if not periods or periods[-1][1] != procs:
                periods.append((start_us, procs))
        return periods

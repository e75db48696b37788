"""Compression of reservations on counted processors: each is taken out and placed again in the earliest hole.

That is one sweep in queue order, in which most jobs stay where they are and most of those that move are alike: jobs
of one *shape* (processors and estimate) come in blocks, hundreds at a time, and move up one after the other. What is
done here gives the same starts as asking the profile for each job in turn, for these reasons:

* Jobs of one shape whose reserved starts rise ask the same question with a later limit. What is in vain for the one is
  in vain for those behind it, so that a block is one walk over the profile: from the first place on that is still in
  question (``from_us``) to the start of its last job.
* Jobs of one shape that have one start and go to another have it in common that only their number counts: the profile
  changes once for all of them.
* A move leaves a hole. It is of use to a shape only where as many processors are free in it as the shape needs, and
  then from the moment on from which they are free without a break.

Where hardly any two jobs are alike the profile is asked for each.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from cosched.model.time import FOREVER_US
from space_scheduler.policy.order import Key
from space_scheduler.policy.queue import Entry, JobQueue
from space_scheduler.profile import Profile

#: Jobs of each shape from which on blocks cost less than asking for each job.
_ALIKE: Final = 4


class _Alike:
    """The reserved jobs of one shape, in queue order, with their starts; ``rises``: these never fall.

    ``next`` is the first whose turn has not come. For jobs that start at ``of_us`` or later there is no place before
    ``from_us``.
    """

    __slots__ = ("entries", "estimate_us", "from_us", "next", "of_us", "procs", "rises", "starts_us")

    def __init__(self, entries: list[Entry], starts_us: list[int], now_us: int) -> None:
        job = entries[0][1]
        self.procs, self.estimate_us = job.procs, job.estimate_us
        self.entries, self.starts_us = entries, starts_us
        self.rises = starts_us == sorted(starts_us)
        self.next = 0
        self.from_us = self.of_us = now_us

    def block_end(self, next_key: Key) -> int:
        """The first job whose turn comes after the one with this key."""
        if self.entries[-1][0] < next_key:
            return len(self.entries)
        return bisect_left(self.entries, (next_key,), self.next)  # an entry begins so

    def rising_end(self, end: int) -> int:
        """Up to which job, and ``end`` at the latest, the starts do not fall."""
        if self.rises:
            return end
        starts_us, index = self.starts_us, self.next + 1
        while index < end and starts_us[index - 1] <= starts_us[index]:
            index += 1
        return index


Turns = list[tuple[Key, _Alike]]


class Compression:
    """One sweep over a queue. ``starts_us`` are the reserved starts by job, and follow; ``moved`` is who has moved."""

    def __init__(self, profile: Profile, now_us: int, starts_us: dict[int, int]) -> None:
        self._profile = profile
        self._now_us = now_us
        self._starts_us = starts_us
        self.moved: set[int] = set()

    def sweep(self, queue: JobQueue) -> None:
        """Each job in its turn; one without a reservation, or with one that is not after now, is left as it is."""
        if self._profile.settled:  # all that ended since the last sweep ended when expected
            return
        shapes = queue.alike()
        if len(queue) < _ALIKE * len(shapes):
            self._one_by_one(queue)
        else:
            self._in_blocks(shapes)
        self._profile.settled = not self.moved  # who has moved leaves a hole to those ahead

    def _one_by_one(self, queue: JobQueue) -> None:
        """Ask the profile for each."""
        profile, starts_us, now_us = self._profile, self._starts_us, self._now_us
        for job in queue:
            start_us = starts_us.get(job.id, now_us)
            if now_us < start_us < FOREVER_US:
                earlier_us = profile.earlier(job.procs, job.estimate_us, start_us, now_us)
                if earlier_us != start_us:
                    profile.move_up(start_us, earlier_us, job.estimate_us, job.procs)
                    starts_us[job.id] = earlier_us
                    self.moved.add(job.id)

    def _in_blocks(self, shapes: Iterable[Sequence[Entry]]) -> None:
        """Jobs of one shape with nobody else's turn in between together."""
        turns = [(each.entries[0][0], each) for each in map(self._reserved, shapes) if each is not None]
        heapify(turns)  # keys are unique: nothing but them is compared
        while turns:
            alike = heappop(turns)[1]
            end = alike.block_end(turns[0][0]) if turns else len(alike.entries)
            while alike.next < end:
                self._block(alike, end, turns)
            if end < len(alike.entries):
                heappush(turns, (alike.entries[end][0], alike))

    def _reserved(self, same: Sequence[Entry]) -> _Alike | None:
        """Those that could move, of jobs of one shape."""
        get, now_us = self._starts_us.get, self._now_us
        entries = list(same)
        starts_us = [get(job.id, now_us) for _, job in entries]
        if min(starts_us) <= now_us or max(starts_us) == FOREVER_US:  # rarely: newcomers, and who awaits nodes
            entries = [entry for entry in entries if now_us < get(entry[1].id, now_us) < FOREVER_US]
            starts_us = [get(job.id, now_us) for _, job in entries]
        return _Alike(entries, starts_us, now_us) if entries else None

    def _block(self, alike: _Alike, end: int, turns: Turns) -> None:
        """The jobs of one shape before ``end``, from the next on, as far as their starts rise."""
        starts_us, first = alike.starts_us, alike.next
        alike.next = end = alike.rising_end(end)
        if starts_us[first] < alike.of_us:  # its own processors reach further back than those of the last one
            alike.from_us = self._now_us
        alike.of_us = starts_us[end - 1]
        if alike.from_us < alike.of_us and (hole := self._move_up(alike, first, end)):
            self._reopen(turns, *hole)

    def _move_up(self, alike: _Alike, index: int, end: int) -> tuple[int, int] | None:
        """One walk over the profile for jobs whose starts rise; from when until when they leave holes, or None.

        It goes on, for those of the shape whose turn comes later, up to the first place that one of them could have.
        """
        profile, procs, estimate_us = self._profile, alike.procs, alike.estimate_us
        times, free, starts_us = profile.times, profile.free, alike.starts_us
        last = len(starts_us) if alike.rises else end
        from_us, last_us = alike.from_us, starts_us[last - 1]
        period = max(0, bisect_right(times, from_us) - 1)
        if max(free[period : bisect_left(times, last_us)]) < procs:
            alike.from_us = last_us
            return None
        hole_us = until_us = 0
        while True:
            while free[period] < procs and times[period] < last_us:
                period += 1
            at_us = times[period]
            if at_us < from_us:
                at_us = from_us
            if at_us >= last_us:
                from_us = last_us
                break
            index = bisect_right(starts_us, at_us, index, last)
            start_us = starts_us[index]
            limit_us = at_us + estimate_us
            if limit_us > start_us:
                limit_us = start_us  # from its start on it stands on its own processors
            least, period = free[period], period + 1
            while times[period] < limit_us and free[period] >= procs:
                if free[period] < least:
                    least = free[period]
                period += 1
            if times[period] < limit_us:  # too short a hole for this job, and so for those that start later
                from_us = times[period]
                continue
            from_us = at_us
            if index >= end:
                break
            count = min(bisect_right(starts_us, start_us, index, end) - index, least // procs)
            ids = [job.id for _, job in alike.entries[index : index + count]]
            self._starts_us.update(dict.fromkeys(ids, at_us))
            self.moved.update(ids)
            profile.move_up(start_us, at_us, estimate_us, count * procs)
            if not until_us:
                hole_us = max(start_us, at_us + estimate_us)
            until_us = start_us + estimate_us
            index += count
            if index == end:
                break
            period = max(0, bisect_right(times, at_us) - 1)
        alike.from_us = from_us
        return (hole_us, until_us) if until_us else None

    def _reopen(self, turns: Turns, hole_us: int, until_us: int) -> None:
        """Holes have been left, from ``hole_us`` until ``until_us``: to whom they are of use, and from when on."""
        times, free = self._profile.times, self._profile.free
        first = max(0, bisect_right(times, hole_us) - 1)
        most = max(free[first : bisect_left(times, until_us)])
        for _, other in turns:
            if other.procs <= most and times[first] < other.from_us:
                period = first
                while period and free[period - 1] >= other.procs:  # what begins before it has to last until then
                    period -= 1
                other.from_us = min(other.from_us, max(times[period], hole_us - other.estimate_us))

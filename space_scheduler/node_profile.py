"""The profile of named nodes: what will be free on each of them, and where a job could lie for its whole estimate.

As :class:`~space_scheduler.profile.Profile`, a step function kept as a list of periods, the last without end; here a
period has free processors and memory for each node. A reservation names its nodes: tasks do not move. So a stretch of
time has room for a job when the nodes, each at its worst moment of the stretch, have a place for it.

Costs are (periods) × (nodes) for each question: right for a laboratory's workstations and what runs on them. Pools of
interchangeable processors are counted instead.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from cosched.model.allocation import Allocation
from cosched.model.job import Job
from space_scheduler.feasibility import Room


class NodeProfile:
    """Room on named nodes over time. Intervals are half-open."""

    __slots__ = ("rooms", "times")

    def __init__(self, now_us: int, room: Room) -> None:
        self.times = [now_us]
        self.rooms = [room.copy()]

    @classmethod
    def of_running(cls, now_us: int, room: Room, held: Iterable[tuple[int, Job, Allocation]]) -> "NodeProfile":
        """The profile of what runs; ``held``: (predicted end, job, what it holds) in order of time, all after now."""
        profile = cls(now_us, room)
        for end_us, job, allocation in held:
            if end_us != profile.times[-1]:
                profile.times.append(end_us)
                profile.rooms.append(profile.rooms[-1].copy())
            profile.rooms[-1].change(allocation, job.memory_bytes, 1)
        return profile

    def copy(self) -> "NodeProfile":
        """An independent copy, for planning."""
        other = NodeProfile.__new__(NodeProfile)
        other.times = self.times.copy()
        other.rooms = [room.copy() for room in self.rooms]
        return other

    def throughout(self, start_us: int, end_us: int) -> Room:
        """What is free on each node during all of [start, end)."""
        first = max(0, bisect_right(self.times, start_us) - 1)
        last = max(first + 1, bisect_left(self.times, end_us))
        rooms = self.rooms[first:last]
        if len(rooms) == 1:
            return rooms[0]
        procs = [min(each) for each in zip(*(room.procs for room in rooms), strict=True)]
        memory_bytes = [min(each) for each in zip(*(room.memory_bytes for room in rooms), strict=True)]
        return rooms[0].with_free(procs, memory_bytes)

    def placed(self, job: Job, start_us: int) -> Allocation | None:
        """A place for the job from ``start_us`` on for its whole estimate, or None."""
        return self.throughout(start_us, start_us + job.estimate_us).placed(job)

    def earliest(self, job: Job, after_us: int) -> tuple[int, Allocation] | None:
        """The anchor point: the earliest start from ``after_us`` on, and the place; None if there will never be one."""
        first = max(0, bisect_right(self.times, after_us) - 1)
        for i in range(first, len(self.times)):
            if self.rooms[i].obstacle(job):
                continue
            start_us = max(after_us, self.times[i])
            if allocation := self.placed(job, start_us):
                return start_us, allocation
        return None

    def take(self, job: Job, start_us: int, allocation: Allocation) -> None:
        """Reserve a place from ``start_us`` on for the job's estimate."""
        self._change(job, start_us, allocation, -1)

    def give(self, job: Job, start_us: int, allocation: Allocation) -> None:
        """Take a reservation out again."""
        self._change(job, start_us, allocation, 1)

    def over_committed(self, running: "NodeProfile") -> bool:
        """Whether more is reserved than what runs leaves; on nodes that have shrunk it leaves less than nothing."""
        for start_us, room in zip(self.times, self.rooms, strict=True):
            before = running.throughout(start_us, start_us)
            pairs = zip(room.procs + room.memory_bytes, before.procs + before.memory_bytes, strict=True)
            if any(left < min(0, had) for left, had in pairs):
                return True
        return False

    def _change(self, job: Job, start_us: int, allocation: Allocation, sign: int) -> None:
        first, last = self._cut(start_us), self._cut(start_us + job.estimate_us)
        for room in self.rooms[first:last]:
            room.change(allocation, job.memory_bytes, sign)

    def _cut(self, time_us: int) -> int:
        """Make a period begin at a time (not before the profile's start); returns its index."""
        index = bisect_left(self.times, time_us)
        if index == len(self.times) or self.times[index] != time_us:
            self.times.insert(index, time_us)
            self.rooms.insert(index, self.rooms[index - 1].copy())
        return index

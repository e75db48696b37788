"""The profile of named nodes: what will be free on each of them, and where a job could lie for its whole estimate.

As :class:`~space_scheduler.profile.Profile`, step functions of time, one for each node: a node has few steps, those of
the jobs on it. A reservation names its nodes: tasks do not move. So a stretch of time has room for a job when the
nodes, each at its worst moment of the stretch, have a place for it.

Where the place looks at company, the profile knows who is on each node when, too: a place is chosen beside those who
will be there when the job starts, and admitted by CPU at the worst moment of its stretch.

A question costs a walk over the nodes and their steps; a reservation, and the copy that a plan tries things on, cost
next to nothing, because a node's steps are a value that copies share.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType

from cosched.model.allocation import Allocation
from cosched.model.job import Job
from space_scheduler.feasibility import Room
from space_scheduler.on_nodes import Resident, resident

#: Who is on a node when: (from, until, what the job has there).
Stays = tuple[tuple[int, int, Resident], ...]
#: What a node has free from a time on: (time, processors, bytes of memory), in order of time, the last without end.
Steps = tuple[tuple[int, int, int], ...]

_time = itemgetter(0)


class NodeProfile:
    """Room on named nodes over time. Intervals are half-open."""

    __slots__ = ("_falling", "_index", "_opens", "_room", "_stays", "_steps", "_worst")

    def __init__(self, now_us: int, room: Room) -> None:
        self._room = room  # for its nodes and rules
        self._index = {name: i for i, name in enumerate(room.names)}
        both = zip(room.procs, room.memory_bytes, strict=True)
        self._steps: list[Steps] = [((now_us, procs, memory_bytes),) for procs, memory_bytes in both]
        self._opens: set[int] = set()  # when nodes come into service
        self._falling: set[int] = set()  # nodes that may have less later: all others are at their worst at once
        self._worst: dict[tuple[int, int], Room] = {}  # what throughout() has found; empty again after a change
        self._stays: list[Stays] | None = [()] * len(room.names) if room.place.looks_at_company else None

    @classmethod
    def of_running(
        cls,
        now_us: int,
        room: Room,
        held: Iterable[tuple[int, Job, Allocation]],
        opens: Mapping[str, int] = MappingProxyType({}),
    ) -> "NodeProfile":
        """The profile of what runs; ``held``: (predicted end, job, what it holds) in order of time, all after now.

        ``opens``: nodes of the room that have nothing before that time, after now. Jobs there stand still until then,
        on their other nodes too, and have as much left as now.
        """
        profile = cls(now_us, room)
        steps = profile._steps
        for name, opens_us in opens.items():
            at = profile._index[name]
            steps[at] = ((now_us, 0, 0), (opens_us, *steps[at][0][1:]))
            profile._opens.add(opens_us)
        if opens:
            held = sorted(((_ends_us(now_us, *each, opens), *each[1:]) for each in held), key=_time)
        for end_us, job, allocation in held:
            for share in allocation.nodes:
                if (i := profile._index.get(share.node)) is not None:
                    last_us, procs, memory_bytes = steps[i][-1]
                    step = (end_us, procs + share.procs, memory_bytes + share.tasks * job.memory_bytes)
                    steps[i] = (*(steps[i][:-1] if last_us == end_us else steps[i]), step)
                    if profile._stays is not None:
                        stay = (now_us, end_us, resident(job, share.tasks))
                        profile._stays[i] = (*profile._stays[i], stay)
        return profile

    def copy(self) -> "NodeProfile":
        """An independent copy, for planning."""
        other = NodeProfile.__new__(NodeProfile)
        other._room, other._index, other._opens = self._room, self._index, self._opens
        other._steps, other._falling, other._worst = self._steps.copy(), self._falling.copy(), self._worst.copy()
        other._stays = None if self._stays is None else self._stays.copy()
        return other

    def throughout(self, start_us: int, end_us: int) -> Room:
        """What is free on each node during all of [start, end), to be read only."""
        found = self._worst.get((start_us, end_us))
        if found is None:
            falling = self._falling
            worst = [
                steps[0]
                if len(steps) == 1 or (start_us < steps[1][0] and i not in falling)
                else _worst(steps, start_us, end_us)
                for i, steps in enumerate(self._steps)
            ]
            found = self._room.with_free([procs for _, procs, _ in worst], [free for _, _, free in worst])
            if self._stays is not None:
                found.residents = [_there(stays, start_us) for stays in self._stays]
                if found.place.most_cpu_permille is not None:
                    found.used_permille = [_most_used(stays, start_us, end_us) for stays in self._stays]
            self._worst[start_us, end_us] = found
        return found

    def placed(self, job: Job, start_us: int) -> Allocation | None:
        """A place for the job from ``start_us`` on for as long as it can be predicted to take, or None."""
        return self.throughout(start_us, start_us + self._room.longest_us(job)).placed(job)

    def earliest(self, job: Job, after_us: int) -> tuple[int, Allocation] | None:
        """The anchor point: the earliest start from ``after_us`` on, and the place; None if there will never be one.

        Only moments at which some node takes more tasks than just before can be it; where company decides, all at which
        somebody comes or goes.
        """
        if self._stays is not None and (self._room.place.by_company or self._room.place.most_cpu_permille is not None):
            return self._earliest_beside(self._stays, job, after_us)
        tasks = self.throughout(after_us, after_us + 1).tasks(job)
        fitting = sum(tasks)
        if fitting >= job.procs and (allocation := self.placed(job, after_us)):
            return after_us, allocation
        later = [(*step, i) for i, steps in enumerate(self._steps) for step in steps[1:] if step[0] > after_us]
        for start_us, changes in groupby(sorted(later), _time):
            more = False
            for _, procs, memory_bytes, i in changes:
                here = self._room.tasks_on(i, job, procs, memory_bytes)
                more = more or here > tasks[i]
                fitting += here - tasks[i]
                tasks[i] = here
            if more and fitting >= job.procs and (allocation := self.placed(job, start_us)):
                return start_us, allocation
        return None

    def _earliest_beside(self, stays: list[Stays], job: Job, after_us: int) -> tuple[int, Allocation] | None:
        changes = {at_us for each in stays for from_us, until_us, _ in each for at_us in (from_us, until_us)}
        changes |= self._opens
        for start_us in (after_us, *sorted(at_us for at_us in changes if at_us > after_us)):
            if allocation := self.placed(job, start_us):
                return start_us, allocation
        return None

    def take(self, job: Job, start_us: int, allocation: Allocation) -> None:
        """Reserve a place from ``start_us`` on for as long as the job is predicted to take there."""
        self._change(job, start_us, allocation, -1)

    def give(self, job: Job, start_us: int, allocation: Allocation) -> None:
        """Take a reservation out again."""
        self._change(job, start_us, allocation, 1)

    def over_committed(self, running: "NodeProfile") -> bool:
        """Whether more is reserved than what runs leaves; on nodes that have shrunk it leaves less than nothing."""
        for steps, before in zip(self._steps, running._steps, strict=True):
            for at_us, procs, memory_bytes in steps:
                _, had_procs, had_bytes = _at(before, at_us)
                if procs < min(0, had_procs) or memory_bytes < min(0, had_bytes):
                    return True
        return False

    def _change(self, job: Job, start_us: int, allocation: Allocation, sign: int) -> None:
        end_us = start_us + self._room.lasts_us(job, allocation)
        for share in allocation.nodes:
            if (i := self._index.get(share.node)) is not None:
                if sign > 0 or start_us > self._steps[i][0][0]:
                    self._falling.add(i)
                self._steps[i] = _changed(
                    self._steps[i], start_us, end_us, sign * share.procs, sign * share.tasks * job.memory_bytes
                )
                if self._stays is not None:
                    others = tuple(each for each in self._stays[i] if each[2].job_id != job.id)
                    stay = (start_us, end_us, resident(job, share.tasks))
                    self._stays[i] = others if sign > 0 else (*others, stay)
        self._worst = {}


def _ends_us(now_us: int, end_us: int, job: Job, allocation: Allocation, opens: Mapping[str, int]) -> int:
    """The predicted end of a job that stands still while one of its nodes is closed."""
    return end_us + max(opens.get(share.node, now_us) for share in allocation.nodes) - now_us


def _worst(steps: Steps, start_us: int, end_us: int) -> tuple[int, int, int]:
    """The fewest processors and the least memory of a node during [start, end)."""
    _, procs, memory_bytes = steps[0]
    for at_us, here_procs, here_bytes in steps:
        if at_us <= start_us:
            procs, memory_bytes = here_procs, here_bytes
        elif at_us >= end_us:
            break
        else:
            procs = min(procs, here_procs)
            memory_bytes = min(memory_bytes, here_bytes)
    return start_us, procs, memory_bytes


def _there(stays: Stays, at_us: int) -> tuple[Resident, ...]:
    """Who is on a node at a time."""
    return tuple([each for from_us, until_us, each in stays if from_us <= at_us < until_us])


def _most_used(stays: Stays, start_us: int, end_us: int) -> int:
    """The most that tasks use of a node's CPUs at a moment of [start, end), in thousandths of one."""
    arrivals = {start_us, *(from_us for from_us, _, _ in stays if start_us < from_us < end_us)}
    return max(sum(each.tasks * each.cpu_permille for each in _there(stays, at_us)) for at_us in arrivals)


def _changed(steps: Steps, start_us: int, end_us: int, procs: int, memory_bytes: int) -> Steps:
    """The steps with so much more during [start, end)."""
    found: list[tuple[int, int, int]] = []
    for at_us in sorted({start_us, end_us, *map(_time, steps)}):
        _, had_procs, had_bytes = _at(steps, at_us)
        inside = start_us <= at_us < end_us
        step = (at_us, had_procs + procs * inside, had_bytes + memory_bytes * inside)
        if not found or found[-1][1:] != step[1:]:
            found.append(step)
    return tuple(found)


def _at(steps: Steps, time_us: int) -> tuple[int, int, int]:
    """The step that a time lies in."""
    return steps[max(0, bisect_right(steps, time_us, key=_time) - 1)]

"""Which CPUs a job may use: a set of its own, where it was given one, and it stays on record until another comes.

A node offers so many processors; the p-th of them is a CPU of the machine, the same for several where there are fewer
(a lab's nodes share them). A job keeps of what it has as much as it may, and takes next what no other job was given.
Where no controller keeps jobs to their sets, threads are looked at now and then: who has strayed is brought back.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from cosched.linux.cgroups import Cgroups
from cosched.linux.cpusets import keep_to
from cosched.linux.process import US_PER_S
from node_agent.guard.groups import Group

_LOOK_US: Final = US_PER_S


def chosen(count: int, own: Collection[int], others: Collection[int], procs: int, cpus: int) -> tuple[int, ...]:
    """So many of a node's processors (all, where it has fewer) for a job: of its own, then free ones, then any.

    Of each kind first those on CPUs of the machine that it has not yet; ``cpus``: how many the machine has.
    """
    free = {place for place in range(procs) if place not in own and place not in others}
    found: list[int] = []
    on = Counter[int]()
    for kind in (set(own), free, {*range(procs)} - {*own} - free):
        while kind and len(found) < count:
            place = min(kind, key=lambda place: (on[place % cpus], place))
            kind.discard(place)
            found.append(place)
            on[place % cpus] += 1
    return tuple(sorted(found))


class CpuSets:
    """Those of the jobs of ``groups``. ``procs``: how many processors the node offers."""

    def __init__(self, cgroups: Cgroups, groups: Mapping[tuple[int, int], Group], procs: int) -> None:
        self._cgroups = cgroups
        self._groups = groups
        self._procs = procs
        self._by_affinity: set[tuple[int, int]] = set()  # no controller keeps these
        self._next_us = 0

    def give(self, group: Group, count: int | None) -> None:
        """Give a job so many processors (None or 0: no set of its own). Raises OSError; then it has what it had."""
        before = group.processors
        if not count:
            group.processors = ()
        else:
            others = {p for other in self._groups.values() if other is not group for p in other.processors}
            group.processors = chosen(count, before, others, self._procs, len(self._cgroups.cpus()))
        try:
            self.apply(group)
        except OSError:
            group.processors = before
            self.apply(group)
            raise

    def apply(self, group: Group) -> None:
        """Keep a job's processes to what it was given. Raises OSError."""
        cpus = self.cpus(group)
        if self._cgroups.confine(group.name, cpus or None):
            self._by_affinity.discard(group.key)
            return
        if cpus or group.key in self._by_affinity:
            keep_to(self._cgroups.procs(group.name), cpus or self._cgroups.cpus(), strays_only=False)
        if cpus:
            self._by_affinity.add(group.key)
        else:
            self._by_affinity.discard(group.key)

    def cpus(self, group: Group) -> tuple[int, ...]:
        """The machine's CPUs that a job was given; none where it has no set of its own."""
        there = self._cgroups.cpus()
        return tuple(sorted({there[place % len(there)] for place in group.processors}))

    def affinity(self, group: Group) -> tuple[int, ...]:
        """What a command of a job is to be begun with, where no controller keeps it; none: as it comes."""
        return self.cpus(group) if group.key in self._by_affinity else ()

    def due_us(self) -> int | None:
        """When :meth:`tick` is wanted next; None: not before something changes."""
        return self._next_us if self._strayable() else None

    def tick(self, now_us: int) -> None:
        """Bring back who has strayed, if it is time to."""
        if now_us < self._next_us:
            return
        for group in self._strayable():
            if not self._cgroups.kernel_groups:
                self._cgroups.confine(group.name, self.cpus(group))
            else:
                keep_to(self._cgroups.procs(group.name), self.cpus(group), strays_only=True)
        self._next_us = now_us + _LOOK_US

    def _strayable(self) -> list[Group]:
        return [
            group
            for group in self._groups.values()
            if group.processors and (group.key in self._by_affinity or not self._cgroups.kernel_groups)
        ]

    def forget(self, key: tuple[int, int]) -> None:
        """The job's group is gone."""
        self._by_affinity.discard(key)

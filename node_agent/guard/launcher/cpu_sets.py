"""Which CPUs a job may use: a set of its own, where it was given one, and it stays on record until another comes.

A node offers so many processors; the p-th of them is a CPU of the machine, the same for several where there are fewer
(a lab's nodes share them). Which a job has is :mod:`node_agent.policy.processors`; which jobs use theirs is seen here:
those with live processes, and those whose first is still to be started, on record or not. Where two share one and
another is or becomes idle, one of them is moved.
Where no controller keeps jobs to their sets, threads are looked at now and then: who has strayed is brought back.
"""

from collections.abc import Callable
from typing import Final

from cosched.linux.cpusets import keep_to
from cosched.linux.process import US_PER_S
from node_agent.guard.launcher.groups import Group, Shared
from node_agent.policy.processors import Claim, chosen, crowded

_LOOK_US: Final = US_PER_S


class CpuSets:
    """Those of the jobs. ``procs``: how many processors the node offers; ``moved`` is called for each that is moved."""

    def __init__(self, shared: Shared, procs: int, moved: Callable[[Group], None]) -> None:
        self._shared = shared
        self._procs = procs
        self._next_us = 0
        self._moved = moved

    def give(self, group: Group, count: int | None) -> None:
        """Give a job so many processors (None or 0: no set of its own). Raises OSError; then it has what it had."""
        before = group.processors
        if not count:
            group.processors = ()
        else:
            others = [
                claim for other in self._shared.groups.values() if other is not group for claim in self._claims(other)
            ]
            group.processors = chosen(count, before, others, self._procs, len(self._shared.cgroups.cpus()))
        try:
            self.apply(group)
        except OSError:
            group.processors = before
            self.apply(group)
            raise

    def _claims(self, group: Group) -> list[Claim]:
        """What a group has of the node's processors as it counts for others: one claim, or none where it has ended."""
        if group.removing or not group.processors:
            return []
        if group.alive or group.state in {"preparing", "prepared"} or not self._shared.cgroups.empty(group.name):
            return [Claim(group.processors, used=not group.asleep)]
        return [] if group.ending else [Claim(group.processors, used=False)]

    def separate(self, starting: Group | None = None) -> None:
        """Move jobs that share a processor while another is idle, the latest first; ``starting`` is about to have a
        process, and is moved before all others. Raises OSError.
        """
        # at each turn of the loop, so no control group is read: :meth:`give` does that
        groups = [
            each for each in self._shared.groups.values() if each.processors and each.present and not each.removing
        ]
        if starting is not None:
            groups = [*(each for each in groups if each is not starting), starting]
        while (at := crowded([Claim(each.processors, not each.asleep) for each in groups], self._procs)) is not None:
            group = groups[at]
            before = group.processors
            self.give(group, len(before))
            if group.processors == before:
                return  # what looked idle is not
            self._moved(group)

    def apply(self, group: Group) -> None:
        """Keep a job's processes to what it was given. Raises OSError."""
        cpus = self.cpus(group)
        confined = self._shared.cgroups.confine(group.name, cpus or None)
        if not confined and (cpus or group.by_affinity):
            keep_to(self._shared.cgroups.procs(group.name), cpus or self._shared.cgroups.cpus(), strays_only=False)
        group.by_affinity = bool(cpus) and not confined

    def cpus(self, group: Group) -> tuple[int, ...]:
        """The machine's CPUs that a job was given; none where it has no set of its own."""
        there = self._shared.cgroups.cpus()
        return tuple(sorted({there[place % len(there)] for place in group.processors}))

    def affinity(self, group: Group) -> tuple[int, ...]:
        """What a command of a job is to be begun with, where no controller keeps it; none: as it comes."""
        return self.cpus(group) if group.by_affinity else ()

    def due_us(self) -> int | None:
        """When :meth:`tick` is wanted next; None: not before something changes."""
        return self._next_us if self._strayable() else None

    def tick(self, now_us: int) -> None:
        """Separate jobs that share a processor in vain; bring back who has strayed, if it is time to."""
        self.separate()
        if now_us < self._next_us:
            return
        for group in self._strayable():
            if not self._shared.cgroups.kernel_groups:
                self._shared.cgroups.confine(group.name, self.cpus(group))
            else:
                keep_to(self._shared.cgroups.procs(group.name), self.cpus(group), strays_only=True)
        self._next_us = now_us + _LOOK_US

    def _strayable(self) -> list[Group]:
        return [
            group
            for group in self._shared.groups.values()
            if group.processors and (group.by_affinity or not self._shared.cgroups.kernel_groups)
        ]

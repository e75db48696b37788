"""How attempts at jobs end: by themselves, at their limit, by order; and how it is seen that nothing of them is left.

What is to happen later is a moment in a group, and :meth:`Endings.tick` does what is due.
"""

import contextlib
import os
import select
import signal
from collections.abc import Callable, Mapping
from typing import Any, Final

from cosched.linux import process
from cosched.linux.cgroups import Cgroups
from node_agent.guard.base.loop import Loop
from node_agent.guard.base.records import Records
from node_agent.guard.launcher.groups import Group

Emit = Callable[[dict[str, Any]], None]

_FIRST_POLL_US: Final = 20_000
_LAST_POLL_US: Final = process.US_PER_S
#: From one interval between two looks to the next: the end is seen late by a quarter of what it took, at most.
_POLL_GROWTH: Final = 1.25
_SAVE_AGAIN_US: Final = process.US_PER_S


class Endings:
    """Watches over ``groups``, which others fill. ``emit`` takes events of the protocol."""

    def __init__(
        self,
        groups: Mapping[tuple[int, int], Group],
        cgroups: Cgroups,
        records: Records,
        loop: Loop,
        emit: Emit,
    ) -> None:
        self._groups = groups
        self._cgroups = cgroups
        self._records = records
        self._loop = loop
        self._emit = emit
        self.on_begin: Callable[[tuple[int, int]], None] = lambda _: None
        self.paused = False  # while all jobs are held: no time limit runs

    def due_us(self) -> int | None:
        """When :meth:`tick` is wanted next; None: not before something happens."""
        moments = (
            moment
            for group in self._groups.values()
            for moment in (self._limit_us(group), group.kill_at_us, group.poll_at_us, group.save_at_us)
        )
        return min((moment for moment in moments if moment is not None), default=None)

    def tick(self, now_us: int) -> None:
        """Do what is due."""
        for group in list(self._groups.values()):
            if (limit_us := self._limit_us(group)) is not None and now_us >= limit_us:
                self.begin(group, "limit", group.request.grace_us)
            if group.kill_at_us is not None and now_us >= group.kill_at_us:
                group.kill_at_us = None
                self.look_in(group, 0)
            if group.poll_at_us is not None and now_us >= group.poll_at_us:
                self._look(group, now_us)
            if group.save_at_us is not None and now_us >= group.save_at_us:
                self.save(group)

    def _limit_us(self, group: Group) -> int | None:
        """When its time is over; None: that does not count now."""
        stays = group.ending or group.told_empty or self.paused or group.stopped_us is not None
        return None if stays else group.deadline_us

    def begin(self, group: Group, cause: str, grace_us: int) -> None:
        """SIGTERM now, what is left is killed after the grace. Why is on record before anybody can die of it."""
        group.ending = cause
        group.kill_at_us = process.boottime_us() + grace_us
        self.save(group)
        self.on_begin(group.key)
        for command in group.commands.values():  # supervisors that still pass on what a command had to say
            if command.pidfd is not None:
                process.send_by_fd(command.pidfd, signal.SIGTERM)
        self._cgroups.signal(group.name, signal.SIGTERM)
        self._cgroups.signal(group.name, signal.SIGCONT)  # who is stopped doesn't hear SIGTERM
        self.look_in(group, _FIRST_POLL_US)

    def end(self, group: Group, cause: str, grace_us: int) -> None:
        """End all of it within that grace. An end that has begun keeps its cause, and what is left of its grace where
        that is shorter. Told again is that it is empty, also where nothing was there.
        """
        if group.ending is None:
            self.begin(group, cause, grace_us)
        elif group.kill_at_us is not None:
            group.kill_at_us = min(group.kill_at_us, process.boottime_us() + grace_us)
            self.save(group)
        group.told_empty = False
        self.look_in(group, 0)

    def _look(self, group: Group, now_us: int) -> None:
        """Whether a group is empty by now; if it is to be, and its grace is over, kill."""
        group.poll_at_us = None
        if self._settled(group):
            return
        if group.ending and group.kill_at_us is None:
            group.killed_us = group.killed_us or now_us
            with contextlib.suppress(OSError):  # it may have gone just now; the next look tells
                self._cgroups.kill(group.name)
        if group.watch_fd is not None and not group.ending:
            return  # the kernel tells
        group.poll_every_us = min(int(_POLL_GROWTH * group.poll_every_us) or _FIRST_POLL_US, _LAST_POLL_US)
        group.poll_at_us = now_us + group.poll_every_us

    def _settled(self, group: Group) -> bool:
        """Tell that a group is empty, if it is; each time that commands have ended or a kill was asked for, once."""
        if group.told_empty:
            return True
        if group.alive or group.errand is not None or not self._cgroups.empty(group.name):
            return False
        group.told_empty = True
        group.poll_at_us = group.kill_at_us = None
        cpu_us, memory_peak_bytes = self.used(group)
        self._emit(
            {
                "event": "empty",
                "job": group.request.job,
                "attempt": group.request.attempt,
                "cpu_us": cpu_us,
                "memory_peak_bytes": memory_peak_bytes,
            }
        )
        return True

    def look_in(self, group: Group, in_us: int) -> None:
        """Look whether it is empty after so many microseconds, then at growing intervals until it is."""
        group.poll_every_us = in_us
        group.poll_at_us = process.boottime_us() + in_us

    def watch(self, group: Group) -> None:
        """Be told by the kernel when it becomes empty, where the kernel tells."""
        with contextlib.suppress(OSError):
            group.watch_fd = self._cgroups.watch(group.name)
        fd = group.watch_fd
        if fd is not None:

            def changed() -> None:
                os.pread(fd, 4096, 0)
                if not group.alive:
                    self._settled(group)

            self._loop.watch(fd, changed, select.EPOLLPRI)

    def used(self, group: Group) -> tuple[int, int]:
        """CPU (us) and peak memory (bytes): the cgroup's, else what supervisors have seen of their descendants."""
        used = self._cgroups.usage(group.name)
        exits = [found.exit for found in group.commands.values() if found.exit]
        if self._cgroups.kernel_groups and used.cpu_us >= 0:
            return used.cpu_us, max(used.memory_peak_bytes, 0)
        peaks = [int(record.get("memory_peak_bytes", 0)) for record in exits]
        return max(used.cpu_us, 0) + sum(int(record.get("cpu_us", 0)) for record in exits), max(peaks, default=0)

    def save(self, group: Group) -> None:
        """Put on record what a successor of this guard must know."""
        if group.user is None:
            return  # not prepared: nothing that a successor could go on with
        try:
            self._records.write(group.record(), "group", *group.key)
            group.save_at_us = None
        except OSError:  # a full disk: the guard goes on; until it is written a successor would know less
            group.save_at_us = process.boottime_us() + _SAVE_AGAIN_US

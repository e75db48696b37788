"""How attempts at jobs end: by themselves, at their limit, by order; and how it is seen that nothing of them is left.

What is to happen later is a moment in a group, and :meth:`Endings.tick` does what is due.
"""

import contextlib
import os
import select
import signal
from collections.abc import Callable
from functools import partial
from typing import Final

from cosched.linux import process
from node_agent.guard.launcher.groups import Group, Shared

_FIRST_POLL_US: Final = 20_000
_LAST_POLL_US: Final = process.US_PER_S
#: From one interval between two looks to the next: the end is seen late by a quarter of what it took, at most.
_POLL_GROWTH: Final = 1.25
_SAVE_AGAIN_US: Final = process.US_PER_S


class Endings:
    """Ends attempts, which ``Jobs`` keeps, and watches until nothing of them is left."""

    def __init__(self, shared: Shared, begins: Callable[[Group], None]) -> None:
        """``begins`` is called for each attempt whose end begins."""
        self._shared = shared
        self._begins = begins
        self.held_since_us: int | None = None  # since when all jobs are held: no time limit runs

    def due_us(self) -> int | None:
        """When :meth:`tick` is wanted next; None: not before something happens."""
        moments = (
            moment
            for group in self._shared.groups.values()
            for moment in (self._limit_us(group), group.kill_at_us, group.poll_at_us, group.save_at_us)
            if moment is not None
        )
        return min(moments, default=None)

    def tick(self, now_us: int) -> None:
        """Do what is due."""
        for group in list(self._shared.groups.values()):
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
        stays = group.ending or group.told_empty or self.held_since_us is not None or group.stopped_us is not None
        return None if stays else group.deadline_us

    def begin(self, group: Group, cause: str, grace_us: int) -> None:
        """SIGTERM now, what is left is killed after the grace. Why is on record before anybody can die of it."""
        group.ending = cause
        group.kill_at_us = process.boottime_us() + grace_us
        self.save(group)
        self._begins(group)
        for command in group.commands.values():  # supervisors that still pass on what a command had to say
            if command.pidfd is not None:
                process.send_by_fd(command.pidfd, signal.SIGTERM)
        self._shared.cgroups.signal(group.name, signal.SIGTERM)
        self._shared.cgroups.signal(group.name, signal.SIGCONT)  # a stopped process does not receive SIGTERM
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
                self._shared.cgroups.kill(group.name)
        if group.watch_fd is None or group.ending:  # else the kernel tells
            group.poll_every_us = min(int(_POLL_GROWTH * group.poll_every_us) or _FIRST_POLL_US, _LAST_POLL_US)
            group.poll_at_us = now_us + group.poll_every_us

    def _settled(self, group: Group) -> bool:
        """Tell that a group is empty, if it is; each time that commands have ended or a kill was asked for, once."""
        if group.told_empty:
            return True
        if group.alive or group.errand is not None or not self._shared.cgroups.empty(group.name):
            return False
        group.told_empty = True
        group.poll_at_us = group.kill_at_us = None
        self._shared.emit(
            {
                "event": "empty",
                "job": group.request.job,
                "attempt": group.request.attempt,
                **self.used(group),
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
            group.watch_fd = self._shared.cgroups.watch(group.name)
        if group.watch_fd is not None:
            self._shared.loop.watch(group.watch_fd, partial(self._changed, group, group.watch_fd), select.EPOLLPRI)

    def _changed(self, group: Group, watch_fd: int) -> None:
        os.pread(watch_fd, 4096, 0)
        if not group.alive:
            self._settled(group)

    def used(self, group: Group) -> dict[str, int]:
        """{cpu_us, memory_peak_bytes}: the cgroup's, else what supervisors have seen of their descendants."""
        used = self._shared.cgroups.usage(group.name)
        cpu_us, peaks = max(used.cpu_us, 0), [used.memory_peak_bytes, 0]
        if not self._shared.cgroups.kernel_groups or used.cpu_us < 0:
            exits = [found.exit for found in group.commands.values() if found.exit]
            cpu_us += sum(int(record.get("cpu_us", 0)) for record in exits)
            peaks = [0, *(int(record.get("memory_peak_bytes", 0)) for record in exits)]
        return {"cpu_us": cpu_us, "memory_peak_bytes": max(peaks)}

    def save(self, group: Group) -> None:
        """Put on record what a successor of this guard must know."""
        if group.user is None:
            return  # not prepared: nothing that a successor could go on with
        try:
            self._shared.records.write(group.record(), "group", *group.key)
            group.save_at_us = None
        except OSError:  # a full disk: the guard goes on; until it is written a successor would know less
            group.save_at_us = process.boottime_us() + _SAVE_AGAIN_US

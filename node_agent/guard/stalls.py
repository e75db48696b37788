"""What cannot be ended: processes of an attempt that are left long after they were killed, and what each waits for.

A process in uninterruptible sleep hears no signal until the file system that it waits for answers. The guard goes on:
what /proc tells of such a process is read in a child, which is given up where it hangs too.
"""

import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

from cosched.linux import files, process, stalls
from cosched.linux.cgroups import Cgroups
from node_agent.guard.children import Errand, Result
from node_agent.guard.endings import Emit
from node_agent.guard.groups import Group
from node_agent.guard.loop import Loop
from node_agent.guard.requests import Refusal

#: How long after its first SIGKILL an attempt that still has processes is looked at, and how often from then on.
BOUND_US: Final = 5 * process.US_PER_S
_AGAIN_US: Final = 5 * process.US_PER_S
_PATIENCE_US: Final = 2 * process.US_PER_S
#: Processes told of each attempt.
MOST: Final = 4

Then = Callable[[list[dict[str, Any]]], None]


class Stalls:
    """Watches the attempts of ``groups`` that are ending; ``emit`` takes an event of each that has processes left."""

    def __init__(
        self,
        groups: Mapping[tuple[int, int], Group],
        cgroups: Cgroups,
        loop: Loop,
        emit: Emit,
        own: Collection[str],
    ) -> None:
        """``own``: paths that the guard and its agent write to."""
        self._groups = groups
        self._cgroups = cgroups
        self._loop = loop
        self._emit = emit
        self._own = [os.path.realpath(path) for path in own]
        self._next_us: dict[tuple[int, int], int] = {}

    def due_us(self) -> int | None:
        """When :meth:`tick` is wanted next; None: not before something changes."""
        due = [self._next_us.get(group.key, (group.killed_us or 0) + BOUND_US) for group in self._left()]
        return min(due, default=None)

    def tick(self, now_us: int) -> None:
        """Look at the attempts whose time has come."""
        left = {group.key: group for group in self._left()}
        self._next_us = {key: at_us for key, at_us in self._next_us.items() if key in left}
        for key, group in left.items():
            if now_us >= self._next_us.get(key, (group.killed_us or 0) + BOUND_US):
                self._next_us[key] = now_us + _AGAIN_US
                pids = [*([] if group.errand is None else [group.errand]), *self._cgroups.procs(group.name)]
                self.look(pids, partial(self._tell, group))

    def look(self, pids: Collection[int], then: Then) -> None:
        """What these processes wait for, each as the fields of ``cosched.linux.stalls.Waiting``, and ``own``: whether
        that is a file system of the guard's. Nothing is told of them where looking takes too long.
        """

        def done(found: Result) -> None:
            then([] if isinstance(found, Refusal) else found["waiting"])

        errand = Errand(lambda: self._looked(pids), done)
        try:
            self._loop.fork(errand)
        except Refusal as refusal:  # no further process: later, perhaps
            errand.settle(refusal)
            return
        self._loop.later(_PATIENCE_US, lambda: errand.give_up("failed", "too late"))

    def _looked(self, pids: Collection[int]) -> dict[str, Any]:
        """In a child."""
        mounts = stalls.mounts_of(files.read("/proc/self/mountinfo"))
        own = {found.device for path in self._own if (found := stalls.mount_of(path, mounts)) is not None}
        waiting = stalls.waiting(list(pids)[:MOST])
        return {"waiting": [{**each._asdict(), "own": each.device in own} for each in waiting]}

    def _left(self) -> list[Group]:
        """The attempts that were killed and have processes."""
        return [group for group in self._groups.values() if group.killed_us is not None and not group.told_empty]

    def _tell(self, group: Group, waiting: list[dict[str, Any]]) -> None:
        """Tell of it, again and again: an agent that has just come hears of it too."""
        if self._groups.get(group.key) is not group or group.told_empty:
            return
        request = group.request
        self._emit(
            {
                "event": "stalled",
                "job": request.job,
                "attempt": request.attempt,
                "user": request.user,
                "procs": request.tasks if request.cpus is None else request.cpus,
                "memory_bytes": group.memory_bytes or 0,
                "since_us": group.killed_us,
                "processes": waiting,
            }
        )

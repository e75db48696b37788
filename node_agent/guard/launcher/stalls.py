"""What neither begins nor ends: commands on their way to exec, and processes that are left long after they were killed.

A command whose preparation takes too long is withdrawn: it is refused, and never runs late. A file system that does not
answer holds a preparation in the kernel, where it hears no signal. It is killed first: what has executed no program
when it has been killed executes no instruction of one any more, whenever it wakes up.

A process in uninterruptible sleep hears no signal until the file system that it waits for answers. The guard goes on:
what /proc tells of such a process is read in a child, which is given up where it hangs too.
"""

import os
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

from cosched.linux import files, process, stalls
from node_agent.guard.base.children import Errand, Result
from node_agent.guard.base.requests import Refusal, Spawn
from node_agent.guard.launcher.endings import Endings
from node_agent.guard.launcher.groups import Command, Group, Shared

#: How long after its first SIGKILL an attempt that still has processes is looked at, and how often from then on.
BOUND_US: Final = 5 * process.US_PER_S
_PATIENCE_US: Final = 2 * process.US_PER_S
#: From a request until it is refused. Shorter than an agent's patience with its guard (``node_agent.service.guard``).
START_US: Final = 12 * process.US_PER_S
_HELD_AGAIN_US: Final = process.US_PER_S
#: Processes told of each attempt.
MOST: Final = 4

Then = Callable[[list[dict[str, Any]]], None]


class Stalls:
    """Watches starts and ends; an event tells of each attempt that has processes left."""

    def __init__(self, shared: Shared, endings: Endings, own: Collection[str]) -> None:
        """``own``: paths that the guard and its agent write to."""
        self._shared = shared
        self._endings = endings
        self._own = [os.path.realpath(path) for path in own]

    def due_us(self) -> int | None:
        """When :meth:`tick` is wanted next; None: not before something changes."""
        return min(map(_looked_at_us, self._left()), default=None)

    def tick(self, now_us: int) -> None:
        """Look at the attempts whose time has come."""
        for group in self._left():
            if now_us >= _looked_at_us(group):
                group.looked_us = now_us
                pids = [*([] if group.errand is None else [group.errand]), *self._shared.cgroups.procs(group.name)]
                self.look(pids, partial(self._tell, group))

    def watch_start(self, group: Group, command: Command, request: Spawn | None = None) -> None:
        """Withdraw the command if it has not begun in time; ``request`` (None: not known) says what it may wait for."""
        self._shared.loop.later(START_US, lambda: self._late(group, command, request))

    def _late(self, group: Group, command: Command, request: Spawn | None) -> None:
        if not _starting(group, command):
            return
        if self._endings.held_since_us is not None or group.stopped_us is not None:  # its commands cannot begin
            self._shared.loop.later(_HELD_AGAIN_US, lambda: self._late(group, command, request))
            return
        self.look(
            command.child[:1] if command.child else (),
            lambda found: self._withdraw(group, command, _story(found, request)),
        )

    def _withdraw(self, group: Group, command: Command, why: str) -> None:
        """Refuse the command, unless it has begun: its supervisor is about to say so, then."""
        if not _starting(group, command) or not command.kill_unexecuted():
            return
        command.withdrawn = True
        if command.n == 0:
            self._endings.begin(group, "killed", 0)
        command.answer(Refusal("unrun", why))

    def look(self, pids: Collection[int], then: Then) -> None:
        """What these processes wait for, each as the fields of ``cosched.linux.stalls.Waiting``, and ``own``: whether
        that is a file system of the guard's. Nothing is told of them where looking takes too long.
        """

        def done(found: Result) -> None:
            then([] if isinstance(found, Refusal) else found["waiting"])

        errand = Errand(lambda: self._looked(pids), done)
        try:
            self._shared.loop.fork(errand)
        except Refusal as refusal:  # no further process: later, perhaps
            errand.settle(refusal)
        self._shared.loop.later(_PATIENCE_US, lambda: errand.give_up("failed", "too late"))

    def _looked(self, pids: Collection[int]) -> dict[str, Any]:
        """In a child."""
        mounts = stalls.mounts_of(files.read("/proc/self/mountinfo"))
        own = {found.device for path in self._own if (found := stalls.mount_of(path, mounts)) is not None}
        waiting = stalls.waiting(list(pids)[:MOST])
        return {"waiting": [{**each._asdict(), "own": each.device in own} for each in waiting]}

    def _left(self) -> list[Group]:
        """The attempts that were killed and have processes."""
        return [group for group in self._shared.groups.values() if group.killed_us is not None and not group.told_empty]

    def _tell(self, group: Group, waiting: list[dict[str, Any]]) -> None:
        """Tell of it, again and again: an agent that has just come hears of it too."""
        if self._shared.groups.get(group.key) is not group or group.told_empty:
            return
        request = group.request
        self._shared.emit(
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


def _looked_at_us(group: Group) -> int:
    """When an attempt that was killed is looked at next."""
    return max(group.killed_us or 0, group.looked_us) + BOUND_US


def _starting(group: Group, command: Command) -> bool:
    """Whether somebody waits for it to begin."""
    return command.state == "starting" and not command.withdrawn and group.commands.get(command.n) is command


def _story(found: list[dict[str, Any]], request: Spawn | None) -> str:
    """What a preparation waits for, for people."""
    seconds = START_US // process.US_PER_S
    waiting = next((each for each in found if each["mount"]), None)
    if waiting is None:
        channel = next((f" (it waits in the kernel's {each['channel']})" for each in found if each["channel"]), "")
        return f"the command did not begin within {seconds} s{channel}"
    path, named = str(waiting["path"]), {}
    if request is not None:
        named = {request.cwd: "the directory ", request.output: "the output ", request.error: "the error output "}
    return f"{named.get(path, '')}{path} on {waiting['mount']} does not answer: no start within {seconds} s"

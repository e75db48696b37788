"""What neither begins nor ends: commands on their way to exec, and processes that are left long after they were killed.

A command whose preparation takes too long is withdrawn: it is refused, and never runs late. A file system that does not
answer holds a preparation in the kernel, where it hears no signal. It is killed first: what has executed no program
when it has been killed executes no instruction of one any more, whenever it wakes up.

A process in uninterruptible sleep hears no signal until the file system that it waits for answers. The guard goes on:
what /proc tells of such a process is read in a child, which is given up where it hangs too.
"""

import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

from cosched.linux import files, process, stalls
from cosched.linux.cgroups import Cgroups
from node_agent.guard.base.children import Errand, Result
from node_agent.guard.base.loop import Loop
from node_agent.guard.base.requests import Refusal, Spawn
from node_agent.guard.launcher.endings import Emit, Endings
from node_agent.guard.launcher.groups import Command, Group

#: How long after its first SIGKILL an attempt that still has processes is looked at, and how often from then on.
BOUND_US: Final = 5 * process.US_PER_S
_AGAIN_US: Final = 5 * process.US_PER_S
_PATIENCE_US: Final = 2 * process.US_PER_S
#: From a request until it is refused. Shorter than an agent's patience with its guard (``node_agent.service.guard``).
START_US: Final = 12 * process.US_PER_S
_HELD_AGAIN_US: Final = process.US_PER_S
#: Processes told of each attempt.
MOST: Final = 4

Then = Callable[[list[dict[str, Any]]], None]


class Stalls:
    """Watches starts, and the ends of ``groups``; ``emit`` takes an event of each attempt that has processes left."""

    def __init__(
        self,
        groups: Mapping[tuple[int, int], Group],
        cgroups: Cgroups,
        loop: Loop,
        emit: Emit,
        endings: Endings,
        own: Collection[str],
    ) -> None:
        """``own``: paths that the guard and its agent write to."""
        self._groups = groups
        self._cgroups = cgroups
        self._loop = loop
        self._emit = emit
        self._endings = endings
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

    def watch_start(self, group: Group, command: Command, request: Spawn | None = None) -> None:
        """Withdraw the command if it has not begun in time; ``request`` (None: not known) says what it may wait for."""
        self._loop.later(START_US, lambda: self._late(group, command, request))

    def _late(self, group: Group, command: Command, request: Spawn | None) -> None:
        if not _starting(group, command):
            return
        if self._endings.paused or group.stopped_us is not None:  # its commands cannot begin
            self._loop.later(_HELD_AGAIN_US, lambda: self._late(group, command, request))
            return
        pids = [] if command.child is None else [command.child[0]]
        self.look(pids, lambda found: self._withdraw(group, command, _story(found, request)))

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
    path = str(waiting["path"])
    what = ""
    if request is not None:
        named = {request.cwd: "the directory ", request.output: "the output ", request.error: "the error output "}
        what = named.get(path, "")
    return f"{what}{path} on {waiting['mount']} does not answer: no start within {seconds} s"

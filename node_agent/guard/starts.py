"""Commands on their way to exec. One whose preparation takes too long is withdrawn: it is refused, and never runs late.

A file system that does not answer holds a preparation in the kernel, where it hears no signal. It is killed first: what
has executed no program when it has been killed executes no instruction of one any more, whenever it wakes up.
"""

from collections.abc import Callable
from typing import Any, Final

from cosched.linux import process
from node_agent.guard.endings import Endings
from node_agent.guard.groups import Command, Group
from node_agent.guard.loop import Loop
from node_agent.guard.requests import Refusal, Spawn
from node_agent.guard.stalls import Stalls

#: From a request until it is refused. Shorter than an agent's patience with its guard (``node_agent.service.guard``).
PATIENCE_US: Final = 12 * process.US_PER_S
_HELD_AGAIN_US: Final = process.US_PER_S


class Starts:
    """Watches over commands that have been forked and have not executed their programs yet."""

    def __init__(self, loop: Loop, stalls: Stalls, endings: Endings, held: Callable[[Group], bool]) -> None:
        """``held``: whether an attempt's processes are stopped now, so that its commands cannot begin."""
        self._loop = loop
        self._stalls = stalls
        self._endings = endings
        self._held = held

    def watch(self, group: Group, command: Command, request: Spawn | None = None) -> None:
        """Withdraw the command if it has not begun in time; ``request`` (None: not known) says what it may wait for."""
        self._loop.later(PATIENCE_US, lambda: self._late(group, command, request))

    def _late(self, group: Group, command: Command, request: Spawn | None) -> None:
        if not _starting(group, command):
            return
        if self._held(group):
            self._loop.later(_HELD_AGAIN_US, lambda: self._late(group, command, request))
            return
        pids = [] if command.child is None else [command.child[0]]
        self._stalls.look(pids, lambda found: self._withdraw(group, command, _story(found, request)))

    def _withdraw(self, group: Group, command: Command, why: str) -> None:
        """Refuse the command, unless it has begun: its supervisor is about to say so, then."""
        if not _starting(group, command) or not command.kill_unexecuted():
            return
        command.withdrawn = True
        if command.n == 0:
            self._endings.begin(group, "killed", 0)
        command.answer(Refusal("unrun", why))


def _starting(group: Group, command: Command) -> bool:
    """Whether somebody waits for it to begin."""
    return command.state == "starting" and not command.withdrawn and group.commands.get(command.n) is command


def _story(found: list[dict[str, Any]], request: Spawn | None) -> str:
    """What a preparation waits for, for people."""
    seconds = PATIENCE_US // process.US_PER_S
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

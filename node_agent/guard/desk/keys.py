"""Tells the agent at once that a terminal was read from: a key was pressed.

Who is not root may look when another user's terminal was read from, in steps of 8 s, and may not be told of it by the
kernel (inotify takes the right to read it). So the guard listens for an agent that has an account of its own, and says
nothing but which terminals they were: what was typed it does not read.
"""

from collections.abc import Callable
from typing import Any, Final

from cosched.linux.presence import KeyWatch
from node_agent.guard.base.loop import Loop

#: One sign is enough for so long.
_REST_US: Final = 200_000


class Keys:
    """Listens once it is asked to, until the agent goes. ``emit`` tells the agent."""

    def __init__(self, loop: Loop, emit: Callable[[dict[str, Any]], None]) -> None:
        self._loop = loop
        self._emit = emit
        self._watch: KeyWatch | None = None

    def listen(self) -> None:
        """From now on. Raises OSError where terminals cannot be watched."""
        if self._watch is None:
            self._watch = KeyWatch()
            self._loop.watch(self._watch.fileno(), self._heard, on_failed=self.forget)

    def forget(self) -> None:
        """No longer."""
        if self._watch is not None:
            self._loop.unwatch(self._watch.fileno())
            self._watch.close()
            self._watch = None

    def _heard(self) -> None:
        assert self._watch is not None
        used = self._watch.used()
        self._loop.rest(self._watch.fileno(), _REST_US)
        if used:
            self._emit({"event": "keys", "terminals": sorted(used)})

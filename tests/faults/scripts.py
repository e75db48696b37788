"""The scripts that run on a node: how much each has left to do, and until when it may; both stop while held."""

from collections.abc import Callable
from functools import partial

from cosched.wire.messages import Exit
from faults.world import World
from node_agent.core.attempt import Key

_LIMIT = Exit(signal=9, cause="limit")


class Script:
    """One script. Times in microseconds; ``until_us``: its time limit (None: it has none)."""

    def __init__(self, work_us: int, how: Exit, until_us: int | None, now_us: int) -> None:
        self.left_us = work_us
        self.how = how
        self.until_us = until_us
        self.since_us = self.began_us = now_us
        self.number = 0
        self.waits = False  # for a file system that does not answer


class Scripts:
    """All of one node. ``on_end`` is called when one has ended by itself or at its limit."""

    def __init__(self, world: World, on_end: Callable[[Key, Exit], None]) -> None:
        self._world = world
        self._on_end = on_end
        self._running: dict[Key, Script] = {}
        self._held_us: int | None = None  # since when

    @property
    def held(self) -> bool:
        """Whether none goes on."""
        return self._held_us is not None

    def start(self, key: Key, work_us: int, how: Exit, limit_us: int | None) -> None:
        """A script begins."""
        now_us = self._world.now_us
        self._running[key] = script = Script(work_us, how, None if limit_us is None else now_us + limit_us, now_us)
        if not self.held:
            self._await(key, script)

    def _await(self, key: Key, script: Script) -> None:
        script.number += 1
        if script.waits:
            return
        end_us = self._world.now_us + script.left_us
        if script.until_us is not None:
            end_us = min(end_us, script.until_us)
        self._world.at(end_us, partial(self._ends, key, script, script.number))

    def _ends(self, key: Key, script: Script, number: int) -> None:
        if self._running.get(key) is not script or script.number != number or self.held:
            return
        del self._running[key]
        done = self._world.now_us >= script.since_us + script.left_us
        self._on_end(key, script.how if done else _LIMIT)

    def hold(self) -> None:
        """Stop them all (SIGSTOP, a frozen cgroup, a suspended machine)."""
        if self.held:
            return
        now_us = self._held_us = self._world.now_us
        for script in self._running.values():
            if not script.waits:
                script.left_us -= now_us - script.since_us
            script.number += 1

    def go_on(self, *, time_counts: bool) -> None:
        """Let them go on. ``time_counts``: their limits have run on meanwhile, as those of a suspended machine do."""
        if self._held_us is None:
            return
        now_us, held_us = self._world.now_us, self._world.now_us - self._held_us
        self._held_us = None
        for key, script in self._running.items():
            script.since_us = max(script.since_us, now_us)
            if script.until_us is not None and not time_counts:
                script.until_us += held_us
            self._await(key, script)

    def stand_still(self, key: Key) -> None:
        """It waits for a file system, and hears nothing meanwhile; its limit runs on."""
        if (script := self._running.get(key)) is not None and not self.held and not script.waits:
            script.left_us -= self._world.now_us - script.since_us
            script.waits = True
            script.number += 1

    def answered(self, key: Key) -> None:
        """The file system answers: it goes on, or has come to its limit meanwhile."""
        script = self._running.get(key)
        if script is None or not script.waits:
            return
        script.waits = False
        script.since_us = self._world.now_us
        if self.is_overdue(key):
            del self._running[key]
            self._on_end(key, _LIMIT)
        elif not self.held:
            self._await(key, script)

    def is_overdue(self, key: Key) -> bool:
        """Whether it has come to its limit; while it is held no limit runs."""
        script = self._running.get(key)
        late = script is not None and script.until_us is not None and self._world.now_us >= script.until_us
        return late and not self.held

    def runs(self, key: Key) -> bool:
        """Whether it goes on now."""
        return key in self._running and not self.held

    def left_us(self, key: Key) -> int | None:
        """How much it has left to do; None where it does not run."""
        if (script := self._running.get(key)) is None:
            return None
        return script.left_us - (0 if self.held else self._world.now_us - script.since_us)

    def age_us(self, key: Key) -> int:
        """How long ago it has begun; it has to run."""
        return self._world.now_us - self._running[key].began_us

    def end(self, key: Key) -> None:
        """It was killed."""
        self._running.pop(key, None)

    def clear(self) -> None:
        """The machine goes down."""
        self._running.clear()
        self._held_us = None

"""Users' file systems that do not answer for a while, at one node: what waits for them hears no signal meanwhile.

Sites: ``start stalls`` (the output of a script cannot be opened), ``write stalls`` (a script that runs waits for a
write). A guard withdraws a start that takes too long, and tells of what it has killed and cannot end.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from cosched.model.stall import Stall, StalledProcess
from faults.world import S, World
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.attempt import Key
from node_agent.core.guard_model import GuardModel, ModelGroup
from node_agent.core.replies import Done, Reply

if TYPE_CHECKING:
    from faults.guarding import Guard

#: After so long a guard withdraws a start, and tells of what it has killed (``node_agent.guard.launcher.stalls``).
_PATIENCE_US = 12 * S
_BOUND_US = 5 * S
_LONGEST_US = 150 * S


class Stalls:
    """Of one node. They outlive its guard."""

    def __init__(
        self, world: World, guard: "Guard", model: GuardModel, alive: Callable[[Callable[[], None]], None]
    ) -> None:
        """``alive`` has something happen on the machine, when that does not stand still."""
        self.world = world
        self._guard = guard
        self._model = model
        self._alive = alive
        self._asked: dict[Key, list[Callable[[Reply], None]]] = {}  # whom the guard of now answers, by start held up
        self._since_us: dict[Key, int] = {}  # when what cannot be ended was to end
        world.after(_BOUND_US, self._look)

    def holds_up(self, request: fx.Spawn, answer: Callable[[Reply], None]) -> bool:
        """Whether a start does not go on now; then it is answered later, by the guard of now."""
        group = self._model.groups.get(request.key)
        if group is None:
            return False
        if request.n in group.held_up and not group.ending:
            self._asked[request.key].append(answer)
            return True
        if self._model.refusal(request, group) is not None or not self.world.fault("start stalls"):
            return False
        self._model.hold_up(request)
        self._asked[request.key] = [answer]
        self._withdraw_in_time(request.key)
        self.world.after(self.world.draw_us(S, _LONGEST_US), partial(self._thaw, request, group))
        return True

    def guard_starts(self) -> None:
        """Another guard: nobody waits for its answers yet."""
        for key in self._asked:
            self._asked[key] = []
            self._withdraw_in_time(key)

    def _withdraw_in_time(self, key: Key) -> None:
        self.world.after(_PATIENCE_US, partial(self._guard.do, partial(self._late, key)))

    def _late(self, key: Key) -> None:
        group = self._model.groups.get(key)
        if group is None or not group.held_up or group.ending:
            return
        if self._model.paused:
            self.world.after(S, partial(self._guard.do, partial(self._late, key)))
            return
        self._answer(key, self._model.withdraw(key))

    def _answer(self, key: Key, reply: Reply) -> None:
        asked, self._asked[key] = self._asked[key], []
        for answer in asked:
            answer(reply)

    def _thaw(self, request: fx.Spawn, group: ModelGroup) -> None:
        self._alive(lambda: self._thawed(request, group))

    def _thawed(self, request: fx.Spawn, group: ModelGroup) -> None:
        key = request.key
        if self._model.groups.get(key) is not group:
            return  # the machine was started anew
        if self._model.paused and not group.ending:  # it is stopped before it begins
            self.world.after(S, partial(self._thaw, request, group))
            return
        reply = self._model.let_go(key, request.n)
        if isinstance(reply, Done):
            self._guard.began(request)
        self._guard.do(lambda: self._answer(key, reply) if key in self._asked else None)
        self._guard.killed()

    def begins(self, key: Key) -> None:
        """A script begins: it may wait for a write in its first seconds."""
        group = self._model.groups[key]
        if self.world.fault("write stalls"):
            self.world.after(self.world.draw_us(0, 5 * S), lambda: self._alive(lambda: self._stands_still(key, group)))

    def _stands_still(self, key: Key, group: ModelGroup) -> None:
        if self._model.groups.get(key) is group and group.running and not self._model.paused:
            self._guard.say(f"the script of {key} waits for a write")
            group.deaf = True
            self._guard.scripts.stand_still(key)
            thaws = partial(self._alive, partial(self._goes_on, key, group))
            self.world.after(self.world.draw_us(S, _LONGEST_US), thaws)

    def _goes_on(self, key: Key, group: ModelGroup) -> None:
        if self._model.groups.get(key) is group:
            group.deaf = False
            self._guard.scripts.answered(key)
            self._guard.killed()

    # what the guard tells

    def _look(self) -> None:
        self.world.after(_BOUND_US, self._look)
        self._guard.do(self._tell)

    def _tell(self) -> None:
        """Every five seconds: of each attempt that has been ending for as long and cannot."""
        now_us = self.world.now_us
        due = {key: group for key, group in self._model.groups.items() if self.to_end(key, group)}
        self._since_us = {key: self._since_us.get(key, now_us) for key in due}
        for key, since_us in self._since_us.items():
            if now_us - since_us >= _BOUND_US:
                stall = Stall("user", *held(due[key]), processes=(StalledProcess(1, mount="/data", device="0:1"),))
                self._guard.tells(happened.GroupStalled(key, since_us, stall))

    def to_end(self, key: Key, group: ModelGroup) -> bool:
        """Whether an attempt is to end, by order or at its limit, and hears nothing of it."""
        return bool(group.held_up and group.ending) or (
            group.deaf and (group.ending or self._guard.scripts.is_overdue(key))
        )

    def clear(self) -> None:
        """The machine goes down."""
        self._asked.clear()
        self._since_us.clear()


def held(group: ModelGroup) -> tuple[int, int]:
    """Processors and bytes of memory that a group was given."""
    memory_bytes = (group.prepare.memory_bytes or 0) * group.tasks
    return (group.tasks if group.cpus is None else group.cpus), memory_bytes

"""Ranks of malleable programs in virtual time, and what becomes of resizes in a job's first and last seconds.

Ranks are all where the script of their job runs. They come up to 5 s after its start, adopt the newest map that their
agent has, and have left in its last seconds. Sites: ``ranks slow``, ``ranks hang`` (they come to a safe point late, or
never); of an order to resize a job or to tell its ranks a map, in its first three seconds and in its last three,
``early`` and ``last`` each, ``resize refused`` (by the guard), ``resize late`` (with all that is sent after it),
``resize lost`` (its agent fails at it, and says nothing), ``resize repeated``; ``record lost``: an agent is killed
whose disk does not have what it was told last of a job's share or map.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from cosched.wire import messages as wire
from faults.world import MS, S, World
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.attempt import Attempt, Key
from node_agent.core.replies import Declined, Done, Reply

if TYPE_CHECKING:
    from faults.node import Node

#: What a job's first and its last seconds are.
WINDOW_US: Final = 3 * S


class Ranks:
    """Those of all jobs whose scripts run on a node."""

    def __init__(self, world: World, node: "Node") -> None:
        self._world, self._node = world, node
        self._leave_us: dict[Key, int] = {}  # of jobs whose ranks have come: how long before the end they leave
        self._newest: dict[Key, int] = {}  # the number of the newest map that the agent has shown

    def script_started(self, key: Key) -> None:
        """The script of a job runs: its ranks come, if it is one that knows maps."""
        attempt = self._node.core.get(*key)
        if attempt is not None and attempt.map is not None:
            self._world.after(self._world.draw_us(0, 5 * S), partial(self._come, key))

    def _come(self, key: Key) -> None:
        if self._node.guard.scripts.left_us(key) is None:
            return
        self._leave_us[key] = self._world.draw_us(0, 2 * S)
        self._node.say(f"ranks of {key} are there")
        if key in self._newest:
            self._adopt(key, self._newest[key])

    def there(self, key: Key) -> bool:
        """Whether ranks of a job are there and go on."""
        scripts = self._node.guard.scripts
        left_us = scripts.left_us(key)
        return scripts.runs(key) and left_us is not None and key in self._leave_us and left_us > self._leave_us[key]

    def offered(self, key: Key, number: int) -> Reply:
        """The agent shows a map: ranks that are there are told it, and those that come."""
        self._newest[key] = max(number, self._newest.get(key, 0))
        if not self.there(key):
            return Declined("failed", "no rank is here to be told")
        self._adopt(key, number)
        return Done()

    def _adopt(self, key: Key, number: int) -> None:
        world = self._world
        if world.fault("ranks hang"):
            return
        delay_us = world.draw_us(MS, 4 * S)
        if world.fault("ranks slow"):
            delay_us += world.draw_us(S, 20 * S)
        life = self._node.life
        world.after(delay_us, lambda: self._node.awake(partial(self._adopted, life, key, number)))

    def _adopted(self, life: int, key: Key, number: int) -> None:
        if self._newest[key] == number and self.there(key) and self._node.alive and self._node.life == life:
            self._node.feed(happened.RanksAdapted(key, number))


class Resizes:
    """What becomes of a node's orders to change the share or the map of a job."""

    def __init__(self, world: World, node: "Node") -> None:
        self._world, self._node = world, node
        self._refused: set[wire.OrderId] = set()
        self.late_until_us = 0
        self.troubled_us: dict[Key, int] = {}  # by job: until when it may be other than it was told

    def take(self, order: wire.Order, moment: str) -> bool:
        """Whether an order is obeyed now; ``moment``: early, last, or empty for the time between."""
        if not moment or not isinstance(order, wire.Resize | wire.Adapt):
            return True
        world = self._world
        key = (order.order.job_id, order.order.attempt)
        if world.fault(f"{moment} resize lost"):
            self.troubled_us[key] = world.now_us
            return False
        if world.fault(f"{moment} resize late"):
            self.late_until_us = self.troubled_us[key] = world.now_us + world.draw_us(S, 12 * S)
            return False
        if isinstance(order, wire.Resize) and world.fault(f"{moment} resize refused"):
            self.troubled_us[key] = world.now_us
            self._refused.add(order.order)
        elif world.fault(f"{moment} resize repeated"):
            life = self._node.life
            world.after(
                world.draw_us(MS, 5 * S), lambda: self._node.awake(partial(self._node.ordered_again, order, life))
            )
        return True

    def refusal(self, request: fx.GuardRequest) -> Declined | None:
        """Why the guard does not do it; None where it does, or has done it already."""
        if not isinstance(request, fx.ResizeGroup) or wire.OrderId(*request.key, request.n) not in self._refused:
            return None
        group = self._node.model.groups.get(request.key)
        return None if group is not None and group.resize_order == request.n else Declined("memory", "it has none")

    def loses(self, attempt: Attempt, kept: Attempt | None) -> bool:
        """Whether a record is not on the disk, which has this one, when the agent is killed a moment later."""
        if kept is None or not attempt.open or kept.prepare is None or attempt.prepare is None:
            return False
        was = kept.map, kept.prepare.tasks, kept.prepare.cpus
        if was == (attempt.map, attempt.prepare.tasks, attempt.prepare.cpus) or not self._world.fault("record lost"):
            return False
        self._world.after(self._world.draw_us(10 * MS, S), lambda: self._node.awake(self._node.crash))
        return True

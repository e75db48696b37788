"""What the core knows, and the effects that it has decided on and not given out yet."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from cosched.model.stall import Stall
from cosched.wire.messages import Fence
from node_agent.core import effects as fx
from node_agent.core.attempt import Attempt, Key
from node_agent.core.lease import Lease


class Memory:
    """All attempts, whom the node obeys, and whether there is a guard."""

    def __init__(self, node: str, boot_id: str, fence: Fence | None, attempts: Iterable[Attempt]) -> None:
        """``attempts`` and ``fence`` are what was kept by the agent before."""
        self.node = node
        self.boot_id = boot_id
        self.fence = fence
        self.lease = Lease()
        self.guard_there = False
        self.guard_problem = "not connected yet"
        self.effects: list[fx.Effect] = []
        self.stalls: dict[Key, tuple[int, Stall]] = {}  # what cannot be ended, since when (us since boot)
        self.making_ready: set[Key] = set()  # whose Prepare is being obeyed: the guard may have nothing yet
        self._known = {each.id: each for each in attempts}

    def __iter__(self) -> Iterator[Attempt]:
        return iter(list(self._known.values()))

    def get(self, key: Key) -> Attempt | None:
        """The attempt, if it is known."""
        return self._known.get(key)

    def new(self, key: Key, cluster_id: str, **fields: Any) -> Attempt:
        """An attempt that was not known yet; it is not written down before :meth:`keep`."""
        return self.change(Attempt(*key, self.boot_id, cluster_id), **fields)

    def change(self, attempt: Attempt, **fields: Any) -> Attempt:
        """Know something else of an attempt, and do not write it down now."""
        changed = msgspec.structs.replace(attempt, **fields)
        self._known[attempt.id] = changed
        return changed

    def keep(self, attempt: Attempt, **fields: Any) -> Attempt:
        """Know something else of an attempt, and write down all that is known of it."""
        changed = self.change(attempt, **fields)
        self.effects.append(fx.Persist(changed))
        return changed

    def drop(self, key: Key) -> None:
        """Know nothing of it any more, and keep nothing of it, its output included."""
        self._known.pop(key, None)
        self.effects.append(fx.Drop(key))

"""What another cluster left on a node is ended and forgotten, once this one is obeyed, or none."""

import contextlib
from typing import Final

from node_agent.core import effects as fx
from node_agent.core.attempt import Attempt, Key
from node_agent.core.groups import GroupRules
from node_agent.core.memory import Memory
from node_agent.core.works import Pause, Refusal, Steps, Works

_SWEEP_US: Final = 500_000


class TakeOver:
    """Ends what is left of another cluster than the one that is obeyed; of every cluster, where it is none."""

    def __init__(self, memory: Memory, groups: GroupRules, works: Works) -> None:
        self._memory = memory
        self._groups = groups
        self._works = works
        self._left: dict[Key, str] = {}  # whose they were: a number may come again, of another cluster

    def begin(self, cluster_id: str) -> None:
        """Have all ended that is not of that cluster (empty: of any). What only the guard knew stays."""
        left = {each.id: each.cluster_id for each in self._memory if each.cluster_id not in ("", cluster_id)}
        if left.items() <= self._left.items():
            return  # nothing, or it goes on already
        what = f"cluster {cluster_id} has taken this node over" if cluster_id else "this node was removed"
        self._memory.effects.append(fx.Say("warn", f"{what}: what there is of the last cluster's jobs is ended"))
        self._left = left
        self._works.begin(self._steps(left))

    def _steps(self, left: dict[Key, str]) -> Steps[None]:
        """Sweep at once, and again until nothing is left or another take-over has begun."""
        while left and self._left is left:
            for key in sorted(left):
                with contextlib.suppress(Refusal):  # tried again at the next sweep
                    yield from self._give_up(key)
            if left:
                yield Pause(_SWEEP_US)

    def _give_up(self, key: Key) -> Steps[None]:
        attempt = self._still_there(key)
        if attempt is not None and not attempt.forgotten and attempt.asked_kill_us is None:
            yield from self._groups.kill(attempt, 0)
            attempt = self._still_there(key)
        if attempt is not None and not attempt.forgotten:
            if attempt.ended is None:
                return
            yield from self._groups.forget(key)
        if self._still_there(key) is not None:
            self._memory.drop(key)
        self._left.pop(key, None)

    def _still_there(self, key: Key) -> Attempt | None:
        attempt = self._memory.get(key)
        return attempt if attempt is not None and attempt.cluster_id == self._left.get(key) else None

"""A malleable job whose ranks are all there is to have other CPUs, as a pure state machine like :mod:`~.reshaping`.

The job keeps all of its nodes. *Growing*: nodes where it gets more CPUs give them to it; they are free already.
*Adapting*: its ranks are told the new map, and move their data at the program's next safe point; vacated ranks sleep.
*Shrinking*: all ranks have done so, and nodes where it has fewer CPUs now take back the others. *Undoing*: a node has
refused, nobody is there to be told, or it took too long; the ranks are told the old map again, by a higher number, and
nodes are asked for the old share. Whether the ranks had begun with the new one does not matter then: what they may use
is the nodes' business, and they follow when they come to it.

In each stage the job holds at least what it uses; at the end it has the one or the other on every node, for certain.
"""

from typing import Final

from cosched.model.allocation import Allocation
from space_scheduler.service.launch.reshaping import Ask, Offer, Reshaping, Stage, Step

#: For people.
NOBODY: Final = "none of its processes has asked to be told when it is to change (cosched.adaptive)"


class Adapting(Reshaping):
    """One change of which of a job's ranks are enabled."""

    def __init__(self, old: Allocation, new: Allocation) -> None:
        super().__init__(old, new)
        had = {share.node: share.procs for share in old.nodes}
        # who goes on after it was suspended was stopped on all of its nodes
        self._growing = [share.node for share in new.nodes if share.procs > had[share.node] or not old.procs]
        self._shrinking = [share.node for share in new.nodes if share.procs < had[share.node]]
        self._silent: set[str] = set()  # of the nodes that were asked to tell the ranks: who has not answered
        self._joined = False
        self._asked: list[str] = []  # which may have another share than the old one

    def begin(self) -> list[Step]:
        """The first steps."""
        return self._ask(self._growing)

    def offered(self, node: str, *, joined: bool) -> list[Step]:
        """A node has told the ranks there, if any (``joined``)."""
        if self.stage is not Stage.ADAPTING or node not in self._silent:
            return []
        self._silent.discard(node)
        self._joined |= joined
        return self._undo(NOBODY) if not self._silent and not self._joined else []

    def adapted(self) -> list[Step]:
        """All ranks have done what the map asks that goes with what is wanted now."""
        if self.stage is not Stage.ADAPTING:
            return []
        self.stage, self._silent = Stage.LEAVING, set()
        return self._ask(self._shrinking)

    def timed_out(self, after: str) -> list[Step]:
        """As for any change; ranks that have not come to a safe point in time keep what they have."""
        if self.stage is Stage.ADAPTING:
            return self._undo(f"its processes have not come to a safe point within {after}")
        if self.stage is Stage.LEAVING:
            return self._undo(f"no answer within {after} from {', '.join(sorted(self._waits))}")
        return super().timed_out(after)

    def again(self, node: str, *, has_it: bool) -> list[Step]:
        """Ask a node again for what it has not answered, and have it tell its ranks again."""
        told: list[Step] = [Offer(node)] if self.stage in (Stage.ADAPTING, Stage.UNDOING) else []
        return [*([Ask(node)] if node in self._waits else []), *told]

    def _ask(self, nodes: list[str]) -> list[Step]:
        self._waits = set(nodes)
        self._asked += nodes
        return [*map(Ask, nodes)] or self._went_on()

    def _undo(self, why: str, unchanged: str = "") -> list[Step]:
        if self.stage in (Stage.UNDOING, Stage.OVER):
            return []
        told = self.stage is not Stage.ASKING
        self._why, self.stage = why, Stage.UNDOING
        back = [node for node in self._asked if node != unchanged]
        self._waits = set(back)
        offers: list[Step] = [*map(Offer, self.kept)] if told else []
        return [*offers, *map(Ask, back), *([] if back else self._went_on())]

    def _went_on(self) -> list[Step]:
        if not self._waits and self.stage is Stage.ASKING:
            self.stage, self._silent, self._joined = Stage.ADAPTING, set(self.kept), False
            return [*map(Offer, self.kept)]
        return super()._went_on()

"""A malleable job whose ranks are all there is to have other CPUs, as a pure state machine like :mod:`~.reshaping`.

The job keeps all of its nodes. *Growing*: nodes where it gets more CPUs give them to it; they are free already.
*Adapting*: its ranks are told the new map, and move their data at the program's next safe point; vacated ranks sleep.
*Shrinking*: all ranks have done so, and nodes where it has fewer CPUs now take back the others. *Undoing*: a node has
refused, the program is told nothing, or it took too long; each node gets the old map again, by a higher number, and
nodes are asked for the old share. Whether the ranks had begun with the new one does not matter then: what they may use
is the nodes' business, and they follow when they come to it.

Ranks that have not started yet are no refusal: each agent keeps the map, and the ranks take it at their start
(:class:`Absent`).

In each stage the job holds at least what it uses; at the end it has the one or the other on every node, for certain,
the map included: a change is undone when each node has answered to the old map.
"""

from enum import Enum
from typing import Final

from cosched.model.allocation import Allocation
from space_scheduler.service.launch.reshaping import Ask, Offer, Reshaping, Stage, Step

#: For people.
NO_RANK: Final = "none of its processes has come to a safe point (cosched.adaptive)"


class Absent(Enum):
    """Why no rank of a job is connected to any of its nodes' agents."""

    NOT_STARTED = "the job has just been started: its ranks take the map when they come"
    LEFT = "the program has adopted maps before and is over: no rank works by the old one"
    UNKNOWN = "no rank has ever adopted a map: the program may not know maps"


class Adapting(Reshaping):
    """One change of which of a job's ranks are enabled."""

    def __init__(self, old: Allocation, new: Allocation, *, resumed: bool = False) -> None:
        super().__init__(old, new, resumed=resumed)
        had = {share.node: share.procs for share in old.nodes}
        # who goes on after it was suspended was stopped on all of its nodes
        self._growing = [share.node for share in new.nodes if share.procs > had[share.node] or not old.procs]
        self._shrinking = [share.node for share in new.nodes if share.procs < had[share.node]]
        self._silent: set[str] = set()  # nodes that were sent the map and have not answered
        self._joined = False
        # nodes that may have another share than the old one
        self._asked: dict[str, None] = dict.fromkeys(self.kept if resumed else ())

    def begin(self) -> list[Step]:
        """The first steps."""
        return self._ask(self._growing)

    def offered(self, node: str, *, joined: bool, absent: Absent = Absent.NOT_STARTED) -> list[Step]:
        """A node keeps the map, and has told the ranks there, if any (``joined``).

        ``absent`` says what it means if no node has a rank.
        """
        if self.stage not in (Stage.ADAPTING, Stage.UNDOING) or node not in self._silent:
            return []
        self._silent.discard(node)
        if self.stage is Stage.UNDOING:
            return self._went_on()
        self._joined |= joined
        if self._silent or self._joined or absent is Absent.NOT_STARTED:
            return []
        return self.adapted() if absent is Absent.LEFT else self._undo(NO_RANK)

    def adapted(self) -> list[Step]:
        """All ranks have done what the map asks that goes with what is wanted now."""
        if self.stage is not Stage.ADAPTING:
            return []
        self.stage, self._silent = Stage.LEAVING, set()
        return self._ask(self._shrinking)

    def timed_out(self, after: str) -> list[Step]:
        """As for any change; ranks that have not come to a safe point in time keep what they have."""
        if self.stage is Stage.ADAPTING:
            late = f"its processes have not come to a safe point within {after}"
            return self._undo(late if self._joined or self._silent else NO_RANK)
        if self.stage is Stage.LEAVING:
            return self._undo(f"no answer within {after} from {', '.join(sorted(self._waits))}")
        told = [Offer(node) for node in self.kept if node in self._silent and self.stage is Stage.UNDOING]
        return [*told, *super().timed_out(after)]

    def again(self, node: str, *, has_it: bool) -> list[Step]:
        """Ask a node again for what it has not answered, and have it tell its ranks again."""
        told: list[Step] = [Offer(node)] if self.stage in (Stage.ADAPTING, Stage.UNDOING) else []
        return [*([Ask(node)] if node in self._waits else []), *told]

    def _ask(self, nodes: list[str]) -> list[Step]:
        self._waits = set(nodes)
        self._asked.update(dict.fromkeys(nodes))
        return [*map(Ask, nodes)] or self._went_on()

    def _undo(self, why: str, unchanged: str = "") -> list[Step]:
        if self.stage in (Stage.UNDOING, Stage.OVER):
            return []
        told = self.stage is not Stage.ASKING or self.resumed
        self._why, self.stage = why, Stage.UNDOING
        back = [node for node in self._asked if node != unchanged]
        self._waits, self._silent = set(back), set(self.kept if told else ())
        offers: list[Step] = [*map(Offer, self.kept)] if told else []
        return [*offers, *map(Ask, back)] or self._went_on()

    def _went_on(self) -> list[Step]:
        if not self._waits and self.stage is Stage.ASKING:
            self.stage, self._silent, self._joined = Stage.ADAPTING, set(self.kept), False
            return [*map(Offer, self.kept)]
        if self.stage is Stage.UNDOING and self._silent:
            return []
        return super()._went_on()

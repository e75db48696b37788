"""A running job gets another allocation, as pure state machines: answers of its nodes in, orders and one report out.

:class:`Resizing`. *Asking*: each node that the job keeps is asked for the new share, each that joins to make ready.
*Leaving*: all have answered, and what is left on nodes that the job gives up is killed; from here on it is not undone.
*Undoing*: a node has refused, or not answered in time; those that were asked are asked for the old share, and nothing
stays on those that were to join. At the end every node has the old share or every node has the new one, and that is
reported once.

:class:`MalleableResizing`, of a job whose ranks are all there and which keeps its nodes. *Asking*: nodes where it gets
more CPUs give them; they are free already. *Mapping*: its ranks are told the new map, and move their data at the
program's next safe point; vacated ranks sleep. *Leaving*: all ranks have done so, and nodes where it has fewer CPUs now
take back the others. *Undoing*: a node has refused, the program is told nothing, or it took too long; each node gets
the old map again, by a higher number, and nodes are asked for the old share. Ranks that had begun with the new map
follow when they reach a safe point; meanwhile their nodes limit what they use. Ranks that have not started yet are no
refusal: each agent keeps the map, and the ranks take it at their start (:class:`Absent`). In each stage the job holds
at least what it uses, and a change is undone only when each node has answered to the old map.

A scheduler that was restarted meanwhile begins again (``resumed``): an order that was obeyed before is obeyed again and
changes nothing. It does not know which nodes have the new share already, so it leaves none out when it undoes.
"""

from enum import Enum, StrEnum
from typing import Final

import msgspec

from cosched.model.allocation import Allocation

#: For people.
NO_RANK: Final = "none of its processes has come to a safe point (cosched.adaptive)"


class Ask(msgspec.Struct, frozen=True):
    """To do: ask a node that the job keeps for its share of it now."""

    node: str


class Join(msgspec.Struct, frozen=True):
    """To do: have a node join the job. ``again``: it was asked before, and has something of the job."""

    node: str
    again: bool = False


class Leave(msgspec.Struct, frozen=True):
    """To do: have a node leave the job."""

    node: str


class Offer(msgspec.Struct, frozen=True):
    """To do: have a node tell the job's ranks there the map that goes with what is wanted now."""

    node: str


class Resized(msgspec.Struct, frozen=True):
    """To report: the job holds what it was to hold."""


class Kept(msgspec.Struct, frozen=True):
    """To report: the job holds what it held before, and why."""

    why: str


Step = Ask | Join | Leave | Offer | Resized | Kept


class Stage(StrEnum):
    """How far it has come."""

    ASKING = "asking"
    MAPPING = "mapping"
    LEAVING = "leaving"
    UNDOING = "undoing"
    OVER = "over"


class Absent(Enum):
    """Why no rank of a job is connected to any of its nodes' agents."""

    NOT_STARTED = "the job has just been started: its ranks take the map when they come"
    LEFT = "the program has adopted maps before and is over: no rank works by the old one"
    UNKNOWN = "no rank has ever adopted a map: the program may not know maps"


class Resizing:
    """One change of what a job holds. What comes twice, late or from a node that is not waited for changes nothing."""

    def __init__(self, old: Allocation, new: Allocation, *, resumed: bool = False) -> None:
        self.old = old
        self.new = new
        self.resumed = resumed
        before, after = _names(old), _names(new)
        self.kept = [name for name in before if name in after]
        self._joining = [name for name in after if name not in before]
        self._leaving = [name for name in before if name not in after]
        self._waits: set[str] = set()
        self._why = ""
        self.stage = Stage.ASKING

    @property
    def nodes(self) -> list[str]:
        """All that have a part in it."""
        return [*self.kept, *self._joining, *self._leaving]

    @property
    def wanted(self) -> Allocation:
        """What nodes are to be told now that the job holds: what it held, from the moment at which it is undone."""
        return self.old if self._why else self.new

    def begin(self) -> list[Step]:
        """The first steps."""
        self._waits = {*self.kept, *self._joining}
        return [*map(Ask, self.kept), *map(Join, self._joining)]

    def answered(self, node: str) -> list[Step]:
        """A node has done what it was asked last, or has nothing of the job any more where it was to leave it."""
        if node not in self._waits:
            return []
        self._waits.discard(node)
        return self._went_on()

    def refused(self, node: str, why: str, *, unchanged: bool) -> list[Step]:
        """A node does not do what it was asked last. ``unchanged``: it has the share that it had, for certain.

        What refuses the old share is asked again when its time is over.
        """
        return self._undo(f"{node} refused: {why}", node if unchanged else "") if node in self._waits else []

    def timed_out(self, after: str) -> list[Step]:
        """The nodes have had as long as they may take; ``after`` says how long for people."""
        if self.stage is Stage.UNDOING:
            return [Ask(node) for node in self.kept if node in self._waits]
        return self._undo(f"no answer within {after} from {', '.join(sorted(self._waits))}")

    def joins(self, node: str) -> bool:
        """Whether it was asked to join, and has not answered."""
        return self.stage is Stage.ASKING and node in self._joining and node in self._waits

    def again(self, node: str, *, has_it: bool) -> list[Step]:
        """Ask a node again for what it has not answered; ``has_it``: it has something of the job."""
        if self.joins(node):
            return [Join(node, again=has_it)]
        return [Ask(node)] if node in self._waits and node in self.kept else []

    def _undo(self, why: str, unchanged: str = "") -> list[Step]:
        if self.stage is not Stage.ASKING:
            return []
        self._why, self.stage = why, Stage.UNDOING
        back = [node for node in self.kept if node != unchanged]
        self._waits = {*back, *self._joining}
        return [*map(Ask, back), *map(Leave, self._joining)] or self._went_on()

    def _went_on(self) -> list[Step]:
        if self._waits:
            return []
        if self.stage is Stage.ASKING and self._leaving:
            self.stage, self._waits = Stage.LEAVING, set(self._leaving)
            return [*map(Leave, self._leaving)]
        end: Step = Kept(self._why) if self.stage is Stage.UNDOING else Resized()
        self.stage = Stage.OVER
        return [end]


class MalleableResizing(Resizing):
    """One change of which of a job's ranks are enabled."""

    def __init__(self, old: Allocation, new: Allocation, *, resumed: bool = False) -> None:
        super().__init__(old, new, resumed=resumed)
        had = {share.node: share.procs for share in old.nodes}
        # a job that was suspended had been stopped on all of its nodes
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
        if self.stage not in (Stage.MAPPING, Stage.UNDOING) or node not in self._silent:
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
        if self.stage is not Stage.MAPPING:
            return []
        self.stage, self._silent = Stage.LEAVING, set()
        return self._ask(self._shrinking)

    def timed_out(self, after: str) -> list[Step]:
        """As for any change; ranks that have not come to a safe point in time keep what they have."""
        if self.stage is Stage.MAPPING:
            late = f"its processes have not come to a safe point within {after}"
            return self._undo(late if self._joined or self._silent else NO_RANK)
        if self.stage is Stage.LEAVING:
            return self._undo(f"no answer within {after} from {', '.join(sorted(self._waits))}")
        told = [Offer(node) for node in self.kept if node in self._silent and self.stage is Stage.UNDOING]
        return [*told, *super().timed_out(after)]

    def again(self, node: str, *, has_it: bool) -> list[Step]:
        """Ask a node again for what it has not answered, and have it tell its ranks again."""
        told: list[Step] = [Offer(node)] if self.stage in (Stage.MAPPING, Stage.UNDOING) else []
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
            self.stage, self._silent, self._joined = Stage.MAPPING, set(self.kept), False
            return [*map(Offer, self.kept)]
        if self.stage is Stage.UNDOING and self._silent:
            return []
        return super()._went_on()


def _names(allocation: Allocation) -> list[str]:
    return [share.node for share in allocation.nodes]

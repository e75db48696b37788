"""A job that runs is to hold something else, as a pure state machine: what its nodes answer in, what to ask them out.

*Asking*: each node that it keeps is asked for the new share, each that joins to make ready. *Leaving*: all have
answered, and what is left on nodes that it gives up is killed; from here on there is no way back. *Undoing*: one has
refused, or has not answered in time; those that were asked are asked for the old share, and nothing stays on those that
were to join. At the end it has the one or the other on every node, for certain, and that is reported, once.

A scheduler that was restarted meanwhile begins again (``resumed``): what was obeyed before is obeyed again and changes
nothing. It does not know which nodes have the new share already, so it leaves none out where it undoes.
"""

from enum import StrEnum

import msgspec

from cosched.model.allocation import Allocation


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


class Reshaped(msgspec.Struct, frozen=True):
    """To report: the job holds what it was to hold."""


class Kept(msgspec.Struct, frozen=True):
    """To report: the job holds what it held before, and why."""

    why: str


Step = Ask | Join | Leave | Offer | Reshaped | Kept


class Stage(StrEnum):
    """How far it has come."""

    ASKING = "asking"
    ADAPTING = "adapting"
    LEAVING = "leaving"
    UNDOING = "undoing"
    OVER = "over"


class Reshaping:
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
        end: Step = Kept(self._why) if self.stage is Stage.UNDOING else Reshaped()
        self.stage = Stage.OVER
        return [end]


def _names(allocation: Allocation) -> list[str]:
    return [share.node for share in allocation.nodes]

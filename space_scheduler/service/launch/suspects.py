"""Which nodes are to be set aside: on which launches fail again and again, or which come and go.

A node that is set aside is drained by the scheduler, with a reason (``set_aside`` in the cluster's settings): what runs
there goes on, nothing more is started, and ``cosched node resume`` takes it back. What goes wrong on more than half of
the nodes is hardly the nodes' own: so many are never set aside. Counted since the service's start.
"""

from collections import Counter, deque
from collections.abc import Iterable
from typing import Final

from cosched.config.cluster import ClusterConfig
from cosched.model.time import US_PER_S, humanised
from space_scheduler.service.launch.nodes import NodeBook

#: Failures of a launch that are the node's own: not those that a job brings upon itself (its user or its directory is
#: not there, it needs more memory than is left), nor a lost node's, which is counted as lost.
NODES_OWN: Final = frozenset({"failed", "silent"})


_FAILED: Final = " launches in a row have failed there, the last: "
_WAS_LOST: Final = "it was lost "


def by_scheduler(reason: str) -> bool:
    """Whether a node that is drained for this reason was set aside here, and not by an operator."""
    count, failed, _ = reason.partition(_FAILED)
    return (bool(failed) and count.isdecimal()) or reason.startswith(_WAS_LOST)


class Suspects:
    """Counts. What each method gives are the nodes to be set aside now, with the reason for people."""

    def __init__(self, config: ClusterConfig, book: NodeBook) -> None:
        self._after = config.set_aside
        self._within_us = config.set_aside.within_us
        self._book = book
        self._failures: Counter[str] = Counter()  # in a row
        self._losses: dict[str, deque[float]] = {}  # when, of the last hour or what it is
        self.counted: Counter[str] = Counter()  # how many were set aside, by cause

    def launched(self, nodes: Iterable[str]) -> None:
        """A job was launched on these."""
        for name in nodes:
            self._failures.pop(name, None)

    def resumed(self, name: str) -> None:
        """An operator trusts it again."""
        self._failures.pop(name, None)
        self._losses.pop(name, None)

    def failed(self, nodes: Iterable[str], message: str) -> dict[str, str]:
        """A launch has failed on these, by their own fault."""
        found: dict[str, str] = {}
        for name in nodes:
            self._failures[name] += 1
            count = self._failures[name]
            if 0 < self._after.failed_launches <= count and self._may_go(name, len(found)):
                found[name] = f"{count}{_FAILED}{message}"
                self.counted["launches"] += 1
        return found

    def lost(self, name: str) -> dict[str, str]:
        """It was in service, and fell silent for a lease."""
        now_s = self._book.now_s()
        times = self._losses.setdefault(name, deque())
        times.append(now_s)
        while times[0] < now_s - self._within_us / US_PER_S:
            times.popleft()
        if not 0 < self._after.losses <= len(times) or not self._may_go(name, 0):
            return {}
        self.counted["losses"] += 1
        return {name: f"{_WAS_LOST}{len(times)} times within {humanised(self._within_us)}"}

    def _may_go(self, name: str, going: int) -> bool:
        """Whether it is there to be set aside, and at least half of the nodes that were ever here stay."""
        known = [entry for entry in self._book if entry.known]
        out = sum(entry.drained for entry in known) + going
        return any(entry.name == name and not entry.drained for entry in known) and 2 * (out + 1) <= len(known)

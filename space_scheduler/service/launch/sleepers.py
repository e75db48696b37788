"""Which machines that sleep are woken: those on which a job that waits would start, where their owners agree.

A node says with its last report before it sleeps whether it may be woken, and how. The core is asked which of them a
pass would use, were they there: nobody is woken for a job that would wait all the same. One that does not come is
called again later and later.
"""

from collections.abc import Iterator
from typing import Final

from cosched.model.contract import SocialContract
from cosched.model.desk import DeskReport
from space_scheduler.service.launch.effects import AskWanted, Effect, Say, Wake
from space_scheduler.service.launch.nodes import ASLEEP, NodeBook, NodeEntry

#: Between two looks at what the queue would use.
_LOOK_S: Final = 30.0
#: Between the first two calls of a node; each further wait is twice as long, up to the longest.
_FIRST_WAIT_S: Final = 300.0
_LONGEST_WAIT_S: Final = 4 * 3600.0


class Sleepers:
    """The nodes that sleep, and which of them have been called in vain."""

    def __init__(self, book: NodeBook, contract: SocialContract) -> None:
        self._book = book
        self._contract = contract
        self._looked_s = float("-inf")
        self._calls: dict[str, tuple[int, float]] = {}  # by node: how often it was called, and when it may be again

    def reported(self, entry: NodeEntry, report: DeskReport) -> None:
        """A node's last report: it says how it is woken just before it sleeps."""
        entry.wakeable, entry.slept_s = report.wakeable, self._book.now_s()

    def came(self, entry: NodeEntry) -> None:
        """A node is awake."""
        entry.wakeable = None
        self._calls.pop(entry.name, None)

    def look(self) -> Iterator[Effect]:
        """Have the core asked, if anybody could be woken; not at each heartbeat."""
        now_s = self._book.now_s()
        if now_s - self._looked_s < _LOOK_S:
            return
        nodes = tuple(entry.offers(self._contract) for entry in self._book if self._may_be_called(entry))
        if nodes:
            self._looked_s = now_s
            yield AskWanted(nodes)

    def wanted(self, names: tuple[str, ...]) -> Iterator[Effect]:
        """A job would start on these: call them."""
        now_s = self._book.now_s()
        for entry in map(self._book.entry, names):
            if not self._may_be_called(entry):
                continue
            assert entry.wakeable is not None
            calls = self._calls.get(entry.name, (0, 0.0))[0] + 1
            wait_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** min(calls - 1, 16))
            self._calls[entry.name] = calls, now_s + wait_s
            entry.called += 1
            yield Wake(entry.name, entry.wakeable.mac, entry.wakeable.broadcast)
            yield Say("info", "node called from its sleep", {"node": entry.name, "calls": calls, "next_s": wait_s})

    def _may_be_called(self, entry: NodeEntry) -> bool:
        """Asleep for certain, since it is silent too, for no other reason out of service, and by its owner's word."""
        how = entry.wakeable
        if how is None or not entry.asleep or entry.connected or entry.reason != ASLEEP:
            return False
        if entry.hello is None or entry.name not in self._book.allowed:
            return False
        now_s = self._book.now_s()
        slept_s = now_s - entry.slept_s
        called_s = self._calls.get(entry.name, (0, now_s))[1]
        return how.after_s <= slept_s and (how.before_s is None or slept_s < how.before_s) and called_s <= now_s

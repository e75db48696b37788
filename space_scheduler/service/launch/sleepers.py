"""Which machines that sleep are woken: those on which a job that waits would start, where their owners agree.

A node says with its last report before it sleeps whether it may be woken, and how. The core is asked which of them a
pass would use, were they there: nobody is woken for a job that would wait all the same. One that was called in vain (it
does not come, or no job started there, or it slept again under one) is called again later and later.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from cosched.model.contract import SocialContract
from cosched.model.desk import DeskReport
from space_scheduler.service.launch.effects import AskWanted, Effect, Say, Wake
from space_scheduler.service.launch.nodes import ASLEEP, NodeBook, NodeEntry

#: Between two looks at what the queue would use.
_LOOK_S: Final = 30.0
#: Between the first two calls of a node; each further wait is twice as long, up to the longest.
_FIRST_WAIT_S: Final = 300.0
_LONGEST_WAIT_S: Final = 4 * 3600.0
#: How long a machine that was called may take until it is there.
_COMING_S: Final = 180.0


class _Call(NamedTuple):
    """How often a node was called, when last, and from when on it may be again."""

    calls: int
    at_s: float
    next_s: float


_NEVER: Final = _Call(0, float("-inf"), float("-inf"))


class Sleepers:
    """The nodes that sleep, and which of them have been called in vain."""

    def __init__(self, book: NodeBook, contract: SocialContract) -> None:
        self._book = book
        self._contract = contract
        self._looked_s = float("-inf")
        self._calls: dict[str, _Call] = {}  # by node: since it was last of use
        self._used: set[str] = set()  # on which a job has started since they last slept

    def reported(self, entry: NodeEntry, report: DeskReport) -> None:
        """A node's last report: it says how it is woken just before it sleeps."""
        entry.wakeable, entry.slept_s = report.wakeable, self._book.now_s()

    def slept(self, entry: NodeEntry, *, busy: bool) -> None:
        """A node is about to sleep; ``busy``: with a job on it. Was it of use, it is as if it had never been called."""
        if entry.name in self._used and not busy:
            self._calls.pop(entry.name, None)
        self._used.discard(entry.name)

    def started(self, names: Iterable[str]) -> None:
        """A job starts on these."""
        self._used.update(names)

    def came(self, entry: NodeEntry) -> None:
        """A node is awake."""
        entry.wakeable = None

    def look(self) -> Iterator[Effect]:
        """Have the core asked, if anybody could be woken; not at each heartbeat."""
        now_s = self._book.now_s()
        if now_s - self._looked_s < _LOOK_S:
            return
        if not any(map(self._may_be_called, self._book)):
            return
        self._looked_s = now_s
        there = (entry for entry in self._book if self._may_be_called(entry) or self._is_coming(entry))
        yield AskWanted(tuple(entry.offers(self._contract) for entry in there))

    def wanted(self, names: tuple[str, ...]) -> Iterator[Effect]:
        """A job would start on these: call them."""
        now_s = self._book.now_s()
        for entry in map(self._book.entry, names):
            if not self._may_be_called(entry):
                continue
            assert entry.wakeable is not None
            calls = self._calls.get(entry.name, _NEVER).calls + 1
            wait_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** min(calls - 1, 16))
            self._calls[entry.name] = _Call(calls, now_s, now_s + wait_s)
            entry.called += 1
            yield Say("info", "node is called from its sleep", {"node": entry.name, "calls": calls, "next_s": wait_s})
            yield Wake(entry.name, entry.wakeable.mac, entry.wakeable.broadcast)

    def _may_be_called(self, entry: NodeEntry) -> bool:
        """Asleep for certain, since it is silent too, for no other reason out of service, and by its owner's word."""
        if entry.connected or not self._sleeps(entry):
            return False
        now_s = self._book.now_s()
        slept_s = now_s - entry.slept_s
        assert entry.wakeable is not None
        may_be = any(begin_s <= slept_s < end_s for begin_s, end_s in entry.wakeable.spans)
        return may_be and self._calls.get(entry.name, _NEVER).next_s <= now_s

    def _is_coming(self, entry: NodeEntry) -> bool:
        """Called a moment ago, and not there yet: what waits for it needs no other."""
        call = self._calls.get(entry.name, _NEVER)
        return self._sleeps(entry) and self._book.now_s() - call.at_s < _COMING_S

    def _sleeps(self, entry: NodeEntry) -> bool:
        if entry.wakeable is None or not entry.asleep or (entry.drained and entry.reason != ASLEEP):
            return False
        return entry.hello is not None and not entry.expired and entry.name in self._book.allowed

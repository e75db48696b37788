"""Certificates that open no door of this node any more, by their serial numbers: what the scheduler has said last.

Kept in ``state/revoked``, so that a removed node stays out also while there is no scheduler.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from cosched.linux.durable import write_durably
from node_agent.service.kept import kept


class Revocations:
    """The list in force. ``on_change`` is called when it has grown or shrunk."""

    def __init__(self, path: Path) -> None:
        """Raises ValueError for a file that is there and cannot be understood."""
        self._path = path
        self.on_change: Callable[[], None] = lambda: None
        remedy = "without it the scheduler says it anew"
        self._serials = frozenset(kept(path, list[str], "the list of revoked certificates", remedy) or ())

    def __contains__(self, serial: str) -> bool:
        return serial in self._serials

    def learn(self, serials: Iterable[str]) -> None:
        """Take over the scheduler's list, durably. Raises OSError."""
        found = frozenset(serials)
        if found == self._serials:
            return
        self._serials = found  # in force at once, whatever the disk says
        self.on_change()
        write_durably(self._path, msgspec.json.encode(sorted(found)))

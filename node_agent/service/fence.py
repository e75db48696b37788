"""Whom this node obeys, on disk: ``state/epoch`` (design, section 4). The rules are in ``node_agent.core.fence``."""

from pathlib import Path

import msgspec

from cosched.linux.durable import write_durably
from cosched.wire.messages import Fence
from node_agent.service.kept import kept


class EpochFile:
    """The origin of orders that was welcomed last; ``fence`` is what the file had, None before the first."""

    def __init__(self, path: Path) -> None:
        """Raises ValueError for a file that is there and cannot be understood: then no orders are safe to obey."""
        self._path = path
        self.fence = kept(path, Fence, "the highest epoch seen", "remove it to trust the next scheduler")

    def keep(self, fence: Fence) -> None:
        """Write it down durably. Raises OSError."""
        write_durably(self._path, msgspec.json.encode(fence))

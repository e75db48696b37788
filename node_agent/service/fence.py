"""Who may give orders to this node: the highest epoch seen, on disk before it is obeyed (design, section 4)."""

from pathlib import Path

import msgspec

from cosched.durable import write_durably
from cosched.wire.messages import TAKE_OVER_EPOCH, Fence


class Fenced(Exception):
    """Orders of this origin are not obeyed; the message says why."""


class EpochFile:
    """The fence in force, kept in ``state/epoch``."""

    def __init__(self, path: Path) -> None:
        """Raises ValueError for a file that is there and cannot be understood: then no orders are safe to obey."""
        self._path = path
        self.fence: Fence | None = None
        try:
            self.fence = msgspec.json.decode(path.read_bytes(), type=Fence)
        except FileNotFoundError:
            pass
        except msgspec.DecodeError as error:
            words = f"{path}: not the highest epoch seen ({error}); remove it to trust the next scheduler"
            raise ValueError(words) from None

    @property
    def epoch(self) -> int:
        """The highest epoch seen; 0 for none."""
        return self.fence.epoch if self.fence else 0

    def welcome(self, fence: Fence) -> bool:
        """Accept the origin of a welcome, durably; true when it is of another cluster than the last.

        A cluster's epoch rises whenever its scheduler starts. Another cluster (a fresh journal) takes over only when it
        was told to, which its epoch says, and with a higher one. Raises :class:`Fenced`.
        """
        known = self.fence
        if known == fence:
            return False
        if known and fence.cluster_id != known.cluster_id and fence.epoch < TAKE_OVER_EPOCH:
            raise Fenced(
                f"it works with another journal (cluster {fence.cluster_id}) than the scheduler that is obeyed here "
                f"(cluster {known.cluster_id}, epoch {known.epoch}); 'cosched scheduler --take-over' makes it the one"
            )
        if known and fence.epoch < known.epoch:
            raise Fenced(f"epoch {fence.epoch} is over: epoch {known.epoch} has been obeyed here")
        if known and fence.epoch == known.epoch:
            raise Fenced(f"epoch {fence.epoch} has been obeyed here from another scheduler: are there two?")
        write_durably(self._path, msgspec.json.encode(fence))
        self.fence = fence
        return known is not None and known.cluster_id != fence.cluster_id

    def check(self, fence: Fence) -> None:
        """Raises :class:`Fenced` unless the order is of the origin that was welcomed last."""
        if fence != self.fence:
            raise Fenced(f"an order of epoch {fence.epoch}; here the scheduler that said epoch {self.epoch} is obeyed")

"""How late a process wakes up: the histogram that a probe fills in memory which its parent reads. No message, no file.

Moments are drawn beforehand, one in each slot of a tenth of a second, so they fall into step with nothing, and a late
wake-up does not hide those that became due meanwhile (no coordinated omission; Tene, "How NOT to measure latency").
"""

import mmap
import struct
import time
from bisect import bisect_left
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

#: Upper bounds of the buckets, in seconds; what is later is in one more.
BOUNDS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
SLOT_S: Final = 0.1
_SLOT_NS: Final = round(SLOT_S * 1e9)
_BOUNDS_NS: Final = tuple(round(bound * 1e9) for bound in BOUNDS_S)
#: Further behind than this, the slots in between are left out: the process was stopped, not late.
_MOST_BEHIND: Final = 100
_CELL: Final = struct.Struct("=Q")


class Counted(NamedTuple):
    """Wake-ups by bucket, and how late they were together, in microseconds."""

    counts: tuple[int, ...]
    late_us: int


class WakeupCounts:
    """The histogram, in memory that is shared with children that are forked later. One of them writes."""

    def __init__(self) -> None:
        """Raises OSError where there is no memory."""
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)

    def add(self, late_ns: int) -> None:
        """Count a wake-up that was so late."""
        self._raise(bisect_left(_BOUNDS_NS, late_ns), 1)
        self._raise(len(_BOUNDS_NS) + 1, max(0, late_ns) // 1000)

    def read(self) -> Counted:
        """What was counted so far."""
        cells = [self._cell(at) for at in range(len(_BOUNDS_NS) + 2)]
        return Counted(tuple(cells[:-1]), cells[-1])

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()

    def _cell(self, at: int) -> int:
        return int(_CELL.unpack_from(self._memory, at * _CELL.size)[0])

    def _raise(self, at: int, by: int) -> None:
        _CELL.pack_into(self._memory, at * _CELL.size, self._cell(at) + by)


def probe(
    counts: WakeupCounts,
    random: Random,
    now_ns: Callable[[], int] = time.monotonic_ns,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Sleep and count, without end. The clocks' default does not run while the machine is suspended."""
    start_ns, slot = now_ns(), 0
    while True:
        due_ns = start_ns + slot * _SLOT_NS + random.randrange(_SLOT_NS)
        if (wait_ns := due_ns - now_ns()) > 0:
            sleep(wait_ns / 1e9)
        woke_ns = now_ns()
        counts.add(woke_ns - due_ns)
        slot += 1
        if (woke_ns - start_ns) // _SLOT_NS - slot > _MOST_BEHIND:
            slot = (woke_ns - start_ns) // _SLOT_NS + 1

"""The live service's time: microseconds since the cluster's first start, never back (design, section 4).

Within one boot of the machine it is CLOCK_BOOTTIME less a constant: a step of the wall clock moves nothing, a suspended
machine has missed nothing, and a restarted service goes on where it would be. After a reboot the wall clock has to say
how long the machine was off; it is believed forwards only. Otherwise the wall clock is for people.
"""

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def boottime_s() -> float:
    """Seconds since the boot, those of a suspended machine included: leases are counted by it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Sources:
    """Where time comes from, in microseconds: the wall clock (since 1970), the time since the boot, and which boot."""

    wall_us: Callable[[], int] = lambda: time.time_ns() // 1000
    boottime_us: Callable[[], int] = lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    boot_id: Callable[[], str] = lambda: Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class Anchor(msgspec.Struct, frozen=True):
    """Where core time stood at one start of the service: on the wall clock, and since the boot of that id."""

    core_us: int
    wall_us: int
    boottime_us: int
    boot_id: str


class Clock:
    """Core time. Thread-safe: nothing in it changes but a floor that only rises."""

    def __init__(self, anchors: Sequence[Anchor] = (), last_us: int = 0, sources: Sources | None = None) -> None:
        """Go on from earlier starts (oldest first; none: core time begins now) and the last journalled time."""
        self._sources = sources = sources or Sources()
        wall_us, boottime_us, boot_id = sources.wall_us(), sources.boottime_us(), sources.boot_id()
        last = anchors[-1] if anchors else Anchor(0, wall_us, boottime_us, boot_id)
        passed_us = boottime_us - last.boottime_us if last.boot_id == boot_id else wall_us - last.wall_us
        core_us = max(last.core_us + max(passed_us, 0), last_us)
        #: This start's own: the journal keeps it.
        self.anchor = Anchor(core_us, wall_us, boottime_us, boot_id)
        self._anchors = (*anchors, self.anchor)
        self._starts_us = [anchor.core_us for anchor in self._anchors]
        self._floor_us = core_us

    def now_us(self) -> int:
        """Core time now; never less than it was."""
        now_us = self.anchor.core_us + self._sources.boottime_us() - self.anchor.boottime_us
        self._floor_us = max(self._floor_us, now_us)
        return self._floor_us

    def when(self, core_us: int) -> datetime:
        """A core time for people: local time with its offset, by the wall clock of the start it fell into.

        So a clock that was wrong at the first start is wrong for the jobs of then only. Raises OverflowError for what
        no calendar has (FOREVER_US).
        """
        anchor = self._anchors[max(0, bisect_right(self._starts_us, core_us) - 1)]
        return (_EPOCH + timedelta(microseconds=anchor.wall_us + core_us - anchor.core_us)).astimezone()

"""Pressure stall information (PSI): for which share of the time somebody waited for CPU, memory or disks.

Of the desk's own cgroup where version 2 tells it. Else the machine's, and of that not the CPU: parallel work in the
idle class waits for it all the time, which says nothing about the owner.
"""

import os
from typing import Final

from cosched.linux import files

_MIN_PERIOD_S: Final = 0.2


class Pressure:
    """What waits since the last look. ``problem`` says why there is nothing to see, where there isn't."""

    def __init__(self, mount: str, desk: str, proc: str = "/proc") -> None:
        group = os.path.join(mount, desk.strip("/"))
        self._files = {f"{kind} of the desk": os.path.join(group, f"{kind}.pressure") for kind in ("cpu", "memory")}
        disks = {"io of the desk": os.path.join(group, "io.pressure")}
        if not all(map(os.path.exists, self._files.values())):
            self._files = {"memory": os.path.join(proc, "pressure/memory")}
            disks = {"io": os.path.join(proc, "pressure/io")}
        self._files |= {name: path for name, path in disks.items() if os.path.exists(path)}
        self._before: dict[str, int] = {}
        self._before_s = 0.0
        self._last: dict[str, float] = {}
        self.problem = ""

    @property
    def sources(self) -> str:
        """What is looked at, for people."""
        return f"seen by pressure: {', '.join(self._files)}"

    def look(self, now_s: float) -> dict[str, float]:
        """Shares of the time since the last look in which some task waited, by what; empty where that can't be had.

        ``now_s`` counts the seconds from any beginning; what comes too soon after the last look is answered as then.
        """
        period_s = now_s - self._before_s
        if self._before and period_s < _MIN_PERIOD_S:
            return self._last
        totals = {}
        self.problem = ""
        for name, path in self._files.items():
            try:
                totals[name] = _stalled_us(path)
            except (OSError, ValueError, IndexError) as error:
                self.problem = f"{path}: {getattr(error, 'strerror', None) or error}"
        shares = {
            name: min(1.0, max(0, total - self._before[name]) / 1e6 / period_s)
            for name, total in totals.items()
            if name in self._before
        }
        self._before, self._before_s, self._last = totals, now_s, shares
        return shares


def _stalled_us(path: str) -> int:
    """Microseconds in which some task waited, since the boot or since the group was made."""
    return int(files.read(path).partition("\n")[0].rpartition("total=")[2])

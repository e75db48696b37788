"""What the journal takes on disk, and what is free there: looked at from time to time, in a thread.

A disk that hangs then holds up neither a scrape nor the event loop.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cosched.monitoring import series
from space_scheduler.service.metrics.families import Family, family

_EVERY_S: Final = 5.0


class DiskSeries:
    """Looks at a journal's files; nothing is told before the first look."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._found: tuple[int, int] | None = None

    async def watch(self) -> None:
        """Look again and again, for ever."""
        while True:
            self._found = await asyncio.to_thread(journal_space, self._journal)
            await asyncio.sleep(_EVERY_S)

    def look(self) -> None:
        """Look now."""
        self._found = journal_space(self._journal)

    def collect(self) -> Iterator[Family]:
        """As it was at the last look."""
        if self._found is not None:
            yield family(series.JOURNAL_BYTES, self._found[0])
            yield family(series.JOURNAL_FREE_BYTES, self._found[1])


def journal_space(journal: Path) -> tuple[int, int]:
    """Bytes that a journal takes with its log, and bytes that are free there; 0 for what cannot be looked at."""
    taken = 0
    for suffix in ("", "-wal", "-shm"):
        try:
            taken += os.stat(f"{journal}{suffix}").st_size
        except OSError:
            continue
    try:
        disk = os.statvfs(journal.parent)
    except OSError:
        return taken, 0
    return taken, disk.f_bavail * disk.f_frsize

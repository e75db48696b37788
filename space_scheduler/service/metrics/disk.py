"""What the journal takes on disk, and what is free there: looked at from time to time, in a thread.

A disk that hangs then holds up neither a scrape nor the event loop.
"""

import asyncio
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from cosched.monitoring import series
from space_scheduler.service.metrics.families import Values

_EVERY_S: Final = 5.0


class DiskSeries:
    """Looks at a journal's files. ``found`` is what the last look has found, empty before the first."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self.found: Values = {}

    async def watch(self) -> None:
        """Look again and again, for ever."""
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(_EVERY_S)

    def look(self) -> None:
        """Look now: what cannot be looked at counts as 0."""
        taken = free = 0
        for suffix in ("", "-wal", "-shm"):
            with suppress(OSError):
                taken += os.stat(f"{self._journal}{suffix}").st_size
        with suppress(OSError):
            free = shutil.disk_usage(self._journal.parent).free
        self.found = {series.JOURNAL_BYTES: taken, series.JOURNAL_FREE_BYTES: free}

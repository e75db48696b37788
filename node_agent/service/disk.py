"""What this agent keeps on disk, within its bounds: output cut and swept, records written when there is room again.

On a full disk no new work is taken (a launch is refused, saying so); what runs goes on, its end is told from memory,
and its record is written when that is possible.
"""

import asyncio
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cosched.config.node import OutputSettings
from node_agent.core.attempt import Attempt
from node_agent.service.attempts import AttemptFiles
from node_agent.service.spool import Spool

_log = logging.getLogger("cosched.agent")
_LOOK_S: Final = 0.25
_SWEEP_EVERY: Final = 240  # looks


class Disk:
    """Looks at the disk of ``state`` and at the spool."""

    def __init__(
        self, state: Path, settings: OutputSettings, attempts: Iterable[Attempt], records: AttemptFiles, spool: Spool
    ) -> None:
        """``attempts`` are all that are known, whenever they are iterated."""
        self._state = state
        self._settings = settings
        self._attempts = attempts
        self._records = records
        self._spool = spool

    def problem(self) -> str:
        """Why no new work can be taken, in words; empty where it can."""
        try:
            found = os.statvfs(self._state)
        except OSError as error:
            return f"the disk of {self._state}: {error.strerror}"
        free_bytes = found.f_bavail * found.f_frsize
        if free_bytes < self._settings.least_free_bytes:
            return (
                f"the disk of {self._state} is full: {free_bytes >> 20} MiB are free, "
                f"new work needs {self._settings.least_free_bytes >> 20} (output.least_free)"
            )
        return self._records.problem

    async def keep(self) -> None:
        """For ever."""
        looks = 0
        while True:
            self.look()
            if looks % _SWEEP_EVERY == 0:
                await asyncio.to_thread(self.sweep)
            looks += 1
            await asyncio.sleep(_LOOK_S)

    def look(self) -> None:
        """Cut what is too long; write records that could not be written."""
        for attempt in self._attempts:
            if attempt.ran and not attempt.ended:
                self._spool.cut(attempt.job_id, attempt.attempt)
        self._records.keep_again()

    def sweep(self) -> None:
        """Remove the output of what ended first. What the scheduler has not acknowledged stays."""
        in_use = [(each.job_id, each.attempt) for each in self._attempts if not each.forgotten]
        settings = self._settings
        for which in self._spool.sweep(settings.total_bytes, settings.keep_s, in_use):
            _log.warning("job %d.%d: its output is removed: it is old, or there was too much", *which)

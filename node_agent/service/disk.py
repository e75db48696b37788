"""What this agent keeps on disk, within its bounds: output cut and swept, records written when there is room again.

On a full disk no new work is taken (the desk's report says so, and a launch is refused); what runs goes on, its end is
told from memory, and its record is written when that is possible.
"""

import asyncio
import itertools
import logging
import os
from collections.abc import Iterable
from typing import Final

from cosched.config.node import NodeConfig
from node_agent.core.attempt import Attempt
from node_agent.policy.room import Least, Space, shortage
from node_agent.service.attempts import AttemptFiles
from node_agent.service.spool import Spool

_log = logging.getLogger("cosched.agent")
_LOOK_S: Final = 0.25
_SWEEP_EVERY: Final = 240  # looks
#: For a job's node files and sockets, or where jobs put files of their own.
_SMALL: Final = Least(1 << 20, 64)
#: Of all processes, where jobs have none of their own.
_SHARED: Final = ("/tmp", "/dev/shm")


class Disk:
    """Looks at the disks that a launch needs and at the spool."""

    def __init__(self, config: NodeConfig, attempts: Iterable[Attempt], records: AttemptFiles, spool: Spool) -> None:
        """``attempts`` are all that are known, whenever they are iterated."""
        self._settings = settings = config.output
        self._places = {config.paths.state: Least(settings.least_free_bytes, settings.least_free_files)}
        self._places[config.paths.run] = _SMALL
        if not config.security.private_tmp:
            self._places |= dict.fromkeys(_SHARED, _SMALL)
        self._short: set[str] = set()  # of these, at the last look
        self._attempts = attempts
        self._records = records
        self._spool = spool

    def problem(self) -> str:
        """Why no new work can be taken, in words; empty where it can."""
        return next(filter(None, map(self._shortage, self._places)), self._records.problem)

    def _shortage(self, path: str) -> str:
        try:
            found = os.statvfs(path)
        except OSError as error:
            return f"the disk of {path}: {error.strerror}"
        space = Space(found.f_bavail * found.f_frsize, found.f_files, found.f_favail, bool(found.f_flag & os.ST_RDONLY))
        problem = shortage(path, space, self._places[path], was_short=path in self._short)
        (self._short.add if problem else self._short.discard)(path)
        return problem

    async def keep(self) -> None:
        """For ever."""
        for looks in itertools.count():
            self.look()
            if looks % _SWEEP_EVERY == 0:
                await asyncio.to_thread(self.sweep)
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

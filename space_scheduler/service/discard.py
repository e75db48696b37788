"""Output that was kept long enough is dropped by the nodes that have it (``keep_output``)."""

import asyncio
from typing import Final

from cosched.config.cluster import ClusterConfig
from cosched.model.time import US_PER_S
from space_scheduler.service.core.host import CoreHost
from space_scheduler.service.launch.values import Discarded
from space_scheduler.service.link.link import Link
from space_scheduler.service.log import Log
from space_scheduler.service.shell import Shell

_SLOWEST_S: Final = 600.0
_PAGE: Final = 200


class Discarder:
    """Looks at the history from time to time. A node that was away is told at a later look, as long as this runs."""

    def __init__(self, config: ClusterConfig, host: CoreHost, shell: Shell, link: Link, log: Log) -> None:
        self._keep_us = config.time_us("keep_output")
        self._host = host
        self._shell = shell
        self._link = link
        self._log = log
        self._done: set[int] = set()

    async def run(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(min(_SLOWEST_S, max(1.0, self._keep_us / US_PER_S / 4)))
            try:
                await self.look()
            except Exception as error:
                self._log.fault("output was not discarded", error)

    async def look(self) -> int:
        """Discard the output of every job that ended between two and one times ``keep_output`` ago; says how many.

        Twice as long, so that one look too few (a restart, a node that is away) loses nothing, and still bounded.
        """
        now_us = self._host.clock.now_us()
        oldest_us = now_us - 2 * self._keep_us - int(2 * _SLOWEST_S * US_PER_S)
        told = 0
        seen: set[int] = set()
        page = await self._host.history(limit=_PAGE)
        while page:
            recent = [record for record in page if (record.end_us or 0) > oldest_us]
            for record in recent:
                if (record.end_us or 0) > now_us - self._keep_us or record.allocation is None:
                    continue
                seen.add(record.id)
                node = record.allocation.nodes[0].node
                if record.id not in self._done and node in self._link.sessions:
                    self._shell.feed(Discarded(node, record.id, record.attempt))
                    self._done.add(record.id)
                    told += 1
            more = len(recent) == _PAGE
            page = await self._host.history(limit=_PAGE, before=page[-1].id) if more else []
        self._done &= seen
        return told

"""When certificates expire: the authority's and the scheduler's on disk, and those with which nodes came."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cosched.errors import BadInput
from cosched.identity.authority import validity
from cosched.identity.names import CA_PEM, certificate
from cosched.monitoring import series
from space_scheduler.service.launch.nodes import NodeBook
from space_scheduler.service.metrics.families import Family, family

_EVERY_S: Final = 600.0


class CertificateSeries:
    """Looks at an identity's directory from time to time, in a thread: a certificate may be renewed."""

    def __init__(self, directory: Path, book: NodeBook) -> None:
        self._files = {"authority": directory / CA_PEM, "scheduler": certificate("scheduler", directory)[0]}
        self._book = book
        self._until_s: dict[str, float] = {}

    async def watch(self) -> None:
        """Look again and again, for ever."""
        while True:
            await asyncio.sleep(_EVERY_S)
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Look now. What cannot be read is left out: a service without TLS has none."""
        found = {}
        for identity, path in self._files.items():
            try:
                found[identity] = validity(path).until.timestamp()
            except BadInput:
                continue
        self._until_s = found

    def collect(self) -> Iterator[Family]:
        """As it was at the last look, and at nodes' last calls."""
        expires = family(series.CERTIFICATE_EXPIRY)
        for identity, until_s in self._until_s.items():
            expires.add_metric([identity], until_s)
        for entry in self._book:
            if entry.expires_s is not None and entry.name in self._book.allowed:
                expires.add_metric([f"node/{entry.name}"], entry.expires_s)
        yield expires

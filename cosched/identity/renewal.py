"""What is made of an identity's files, made anew when they have changed: a renewed certificate, another authority.

A process that runs takes a renewed identity into use by itself, so renewing stops nothing. Standard library alone.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from cosched.errors import BadInput

#: Within which a renewed identity is in use.
LOOK_S: Final = 2.0
_KINDS: Final = (".pem", ".key", ".pub")
Made = TypeVar("Made")


class Renewal(Generic[Made]):
    """Looks at the files of a directory. Files that do not fit together, as during a renewal, change nothing."""

    def __init__(self, directory: Path, make: Callable[[], Made]) -> None:
        """``make`` reads them. Raises what it raises."""
        self._directory = directory
        self._make = make
        self._seen = self._stamps()
        self.made = make()

    def look(self) -> Made | None:
        """What was made anew; None where nothing has changed. Raises :class:`BadInput` for files that do not fit."""
        stamps = self._stamps()
        if stamps == self._seen:
            return None
        self.made = self._make()
        self._seen = stamps
        return self.made

    async def keep(self, renewed: Callable[[Made], None], failed: Callable[[str], None]) -> None:
        """Look again and again. ``failed`` is told why what is there cannot be used; what was before is used on."""
        failures = 0
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                made = self.look()
            except BadInput as error:
                failures += 1
                if failures == 2:  # the first time it may have been in the middle of a renewal
                    failed(str(error))
                continue
            failures = 0
            if made is not None:
                renewed(made)

    def _stamps(self) -> tuple[tuple[str, int, int, int], ...]:
        found = []
        try:
            for path in self._directory.iterdir():
                if path.suffix in _KINDS:
                    about = path.stat()
                    found.append((path.name, about.st_ino, about.st_mtime_ns, about.st_size))
        except OSError:  # it is being replaced
            return ()
        return tuple(sorted(found))

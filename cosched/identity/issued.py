"""The list of what an authority has issued: a line each (serial number, kind, name, last day), beside ``ca.key``.

A certificate is revoked by its number, so no line may hide another: each begins on a line of its own, also behind one
that was cut off, and a line that cannot be understood is passed over and named.
"""

import os
import re
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple, cast, get_args

from cosched.errors import BadInput
from cosched.identity.names import ISSUED, Kind
from cosched.linux.durable import sync

_KINDS: Final = "|".join(get_args(Kind))
_LINE: Final = re.compile(rf"([0-9a-f]{{1,40}}) ({_KINDS}) (\S+) (\d{{4}}-\d\d-\d\d)")


class Entry(NamedTuple):
    """A certificate that was made. ``until`` is its last day (ISO 8601)."""

    serial: str
    kind: Kind
    name: str
    until: str


class Listed(NamedTuple):
    """The list, the first that was made in front; ``damaged`` says which of its lines are none, and where."""

    entries: list[Entry]
    damaged: list[str]

    def of(self, kind: Kind, name: str) -> list[Entry]:
        """Those that were made for that name."""
        return [each for each in self.entries if (each.kind, each.name) == (kind, name)]


def read(authority: Path) -> Listed:
    """What was issued; nothing where there is no list. Raises :class:`BadInput` with the file."""
    path = authority / ISSUED
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return Listed([], [])
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror}", "an authority's directory") from None
    listed = Listed([], [])
    for number, line in enumerate(lines, 1):
        if found := _LINE.fullmatch(line):
            serial, kind, name, until = found.groups()
            listed.entries.append(Entry(serial, cast(Kind, kind), name, until))
        elif line.strip():
            listed.damaged.append(f"{path}, line {number}: {line[:80]!r} is no certificate; it was passed over")
    return listed


def record(authority: Path, kind: Kind, name: str, serial: int, until: datetime) -> None:
    """Note what was made, on the disk. Raises :class:`BadInput` with the file."""
    path = authority / ISSUED
    line = f"{serial:x} {kind} {name} {until:%Y-%m-%d}\n".encode()
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            data = b"\n" + line if torn else line
            if os.write(descriptor, data) != len(data):
                raise BadInput(str(path), "cut off: the disk may be full", "room for a line")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync(authority)
    except OSError as error:
        raise BadInput(str(path), f"cannot be written: {error.strerror}") from None

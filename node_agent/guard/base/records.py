"""What must outlive the guard, as small files in ``state/records``, a directory that only the guard writes to.

``JOB.ATTEMPT.group``     what was asked for, its deadline, and why it is being ended if it is
``JOB.ATTEMPT.N.run``     a supervisor that watches over command N, by pid and start time
``JOB.ATTEMPT.N.exit``    how command N ended: written by its supervisor, whole and durable or not at all
``epoch``, ``pause``      the highest epoch seen; whether somebody has paused parallel work at this desk
``word``, ``held``        what the desk's owner has said beside that; since when all jobs are stopped
"""

import json
import os
import re
from typing import Any, Final

from cosched.linux import files

Record = dict[str, Any]
_GROUP: Final = re.compile(r"(\d{1,18})\.(\d{1,9})\.group\Z")
_HALF_WRITTEN: Final = re.compile(r"\.(.+)\.\d+\Z")  # by ``files.replace``
_COMMAND: Final = re.compile(r"(\d{1,18})\.(\d{1,9})\.(\d{1,10})\.(run|exit)\Z")
#: These survive a power cut. The others describe what such a cut ends.
_DURABLE: Final = frozenset({"exit", "pause", "word"})


class Records:
    """The directory ``state/records``, by descriptor. A record is named by its kind, after the numbers of its kind:
    ``read("exit", job, attempt, n)``, ``read("pause")``.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def read(self, kind: str, *numbers: int) -> Record | None:
        """A record; None for one that is missing or damaged: unknown, never a success."""
        try:
            record = json.loads(files.read(_name(kind, numbers), self.fd))
        except (OSError, ValueError, RecursionError):
            return None
        return record if isinstance(record, dict) else None

    def said(self, kind: str) -> Record | None:
        """A record of what was said at the desk: a damaged one is not one that is missing. Raises ValueError."""
        if (found := self.read(kind)) is None and kind in os.listdir(self.fd):
            raise ValueError(f"{kind}: damaged")
        return found

    def write(self, record: Record | None, kind: str, *numbers: int) -> None:
        """Replace a record, whole or not at all; None: remove it. Raises OSError."""
        if record is None:
            self.drop(kind, *numbers)
            return
        files.replace(_name(kind, numbers), json.dumps(record), self.fd, durable=kind in _DURABLE)

    def drop(self, kind: str, *numbers: int) -> None:
        """Remove a record, if it is there."""
        files.drop(_name(kind, numbers), self.fd)

    def drop_half_written(self) -> None:
        """Remove what this guard's predecessor was writing when it was killed; supervisors may write exits now."""
        for match in map(_HALF_WRITTEN.match, os.listdir(self.fd)):
            if match and not match[1].endswith(".exit"):
                files.drop(match[0], self.fd)

    def groups(self) -> list[tuple[int, int]]:
        """(job, attempt) of all that are known."""
        return sorted((int(m[1]), int(m[2])) for m in map(_GROUP.match, os.listdir(self.fd)) if m)

    def commands(self, job: int, attempt: int) -> list[int]:
        """The numbers of an attempt's commands that left a trace."""
        found = filter(None, map(_COMMAND.match, os.listdir(self.fd)))
        return sorted({int(match[3]) for match in found if (int(match[1]), int(match[2])) == (job, attempt)})

    def drop_attempt(self, job: int, attempt: int) -> None:
        """Forget an attempt, what describes it last, and what of it was half written."""
        group = _name("group", (job, attempt))
        for name in sorted(os.listdir(self.fd), key=group.__eq__):
            if name.removeprefix(".").startswith(group.removesuffix("group")):
                files.drop(name, self.fd)


def _name(kind: str, numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, (*numbers, kind)))

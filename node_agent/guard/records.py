"""What must outlive the guard, as small files in ``state/records``, a directory that only the guard writes to.

``JOB.ATTEMPT.group``     what was asked for, its deadline, and why it is being ended if it is
``JOB.ATTEMPT.N.run``     a supervisor that watches over command N, by pid and start time
``JOB.ATTEMPT.N.exit``    how command N ended: written by its supervisor, whole and durable or not at all
``epoch``, ``pause``      the highest epoch seen; whether somebody has paused parallel work at this desk
``word``, ``held``        what the desk's owner has said beside that; since when all jobs are stopped
"""

import contextlib
import json
import os
import re
from collections.abc import Iterator
from typing import Any, Final

from cosched.linux import files

Record = dict[str, Any]
_GROUP: Final = re.compile(r"(\d{1,18})\.(\d{1,9})\.group\Z")
_HALF_WRITTEN: Final = re.compile(r"\.(.+)\.\d+\Z")  # by ``files.replace``
_COMMAND: Final = re.compile(r"(\d{1,18})\.(\d{1,9})\.(\d{1,10})\.(run|exit)\Z")


class Records:
    """The directory ``state/records``, by descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def drop_half_written(self) -> None:
        """Remove what this guard's predecessor was writing when it was killed; supervisors may write exits now."""
        for name, of in self._half_written():
            if not of.endswith(".exit"):
                self._unlink(name)

    def write_group(self, job: int, attempt: int, record: Record) -> None:
        """What the guard knows of an attempt. Not durable: a power cut ends what it describes."""
        files.replace(f"{job}.{attempt}.group", json.dumps(record), self.fd, durable=False)

    def group(self, job: int, attempt: int) -> Record | None:
        """What was known of an attempt."""
        return self._read(f"{job}.{attempt}.group")

    def groups(self) -> list[tuple[int, int]]:
        """(job, attempt) of all that are known."""
        return sorted((int(m[1]), int(m[2])) for m in map(_GROUP.match, os.listdir(self.fd)) if m)

    def write_run(self, job: int, attempt: int, n: int, record: Record) -> None:
        """A command is being watched over."""
        files.replace(f"{job}.{attempt}.{n}.run", json.dumps(record), self.fd, durable=False)

    def write_exit(self, job: int, attempt: int, n: int, record: Record) -> None:
        """How a command ended."""
        files.replace(f"{job}.{attempt}.{n}.exit", json.dumps(record), self.fd, durable=True)

    def run(self, job: int, attempt: int, n: int) -> Record | None:
        """Who watches over a command."""
        return self._read(f"{job}.{attempt}.{n}.run")

    def exit(self, job: int, attempt: int, n: int) -> Record | None:
        """How a command ended, or None when that is not known."""
        return self._read(f"{job}.{attempt}.{n}.exit")

    def commands(self, job: int, attempt: int) -> list[int]:
        """The numbers of an attempt's commands that left a trace."""
        return sorted({n for n, _ in self._of(job, attempt)})

    def drop_command(self, job: int, attempt: int, n: int) -> None:
        """Forget one command."""
        for kind in ("run", "exit"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{job}.{attempt}.{n}.{kind}", dir_fd=self.fd)

    def drop(self, job: int, attempt: int) -> None:
        """Forget an attempt, what describes it last."""
        for n, kind in self._of(job, attempt):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{job}.{attempt}.{n}.{kind}", dir_fd=self.fd)
        for name, of in self._half_written():
            if of.startswith(f"{job}.{attempt}."):
                self._unlink(name)
        self._unlink(f"{job}.{attempt}.group")

    def epoch(self) -> int:
        """The highest epoch that was seen, -1 for none."""
        found = (self._read("epoch") or {}).get("epoch")
        return found if type(found) is int else -1

    def write_epoch(self, epoch: int) -> None:
        """An epoch higher than all before was seen."""
        files.replace("epoch", json.dumps({"epoch": epoch}), self.fd, durable=False)

    def pause(self) -> Record | None:
        """The pause that is on record. Raises ValueError where that is damaged."""
        return self._said("pause")

    def write_pause(self, record: Record, boot_id: str) -> None:
        """Parallel work is paused at this desk: durable, since it outlives the machine's restart."""
        files.replace("pause", json.dumps({**record, "boot_id": boot_id}), self.fd, durable=True)

    def drop_pause(self) -> None:
        """It goes on."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink("pause", dir_fd=self.fd)

    def word(self) -> Record | None:
        """What the desk's owner has said. Raises ValueError where its record is damaged."""
        return self._said("word")

    def write_word(self, record: Record) -> None:
        """It outlives the machine's restart."""
        files.replace("word", json.dumps(record), self.fd, durable=True)

    def held_since_us(self, boot_id: str) -> int | None:
        """Since when (us since this boot) all jobs are stopped; None: they are not, or that was in another boot."""
        found = self._read("held") or {}
        since_us = found.get("since_us")
        return since_us if found.get("boot_id") == boot_id and type(since_us) is int else None

    def write_held(self, since_us: int | None, boot_id: str) -> None:
        """All jobs are stopped since then, or go on."""
        if since_us is not None:
            files.replace("held", json.dumps({"since_us": since_us, "boot_id": boot_id}), self.fd, durable=False)
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink("held", dir_fd=self.fd)

    def _of(self, job: int, attempt: int) -> Iterator[tuple[int, str]]:
        for match in map(_COMMAND.match, os.listdir(self.fd)):
            if match and (int(match[1]), int(match[2])) == (job, attempt):
                yield int(match[3]), match[4]

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.fd)

    def _half_written(self) -> Iterator[tuple[str, str]]:
        """Files that were never renamed: their names, and the names they were to have."""
        for match in map(_HALF_WRITTEN.match, os.listdir(self.fd)):
            if match:
                yield match[0], match[1]

    def _said(self, name: str) -> Record | None:
        """A record of what was said at the desk: a damaged one is not one that is missing. Raises ValueError."""
        if (found := self._read(name)) is None and name in os.listdir(self.fd):
            raise ValueError(f"{name}: damaged")
        return found

    def _read(self, name: str) -> Record | None:
        try:
            record = json.loads(files.read(name, self.fd))
        except (OSError, ValueError, RecursionError):
            return None  # missing or damaged: unknown, never a success
        return record if isinstance(record, dict) else None

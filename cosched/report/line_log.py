"""A log of JSON lines, appended one by one, so that what was done is on disk however the command ends.

A process that appends locks the file. The truncated last line of a process that was killed while it wrote is skipped by
readers, and cut off before the next line is written.
"""

import fcntl
import os
import weakref
from collections.abc import Callable
from pathlib import Path

from cosched.errors import BadInput


class LineLog:
    """The file of a log, which the command's ``option`` names."""

    def __init__(self, path: Path, option: str) -> None:
        self.path = path
        self._option = option
        self._read_bytes: int | None = None
        self._whole_bytes = 0
        self._file = -1
        self.close: Callable[[], object] = lambda: None

    def read(self, take: Callable[[bytes], object]) -> None:
        """Give each whole line to ``take``. Raises :class:`BadInput` for a file or a line that cannot be read."""
        try:
            data = self.path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            data = b""
        except OSError as error:
            raise self._refused(f"cannot be read: {error.strerror}", "a file that this user may read") from None
        whole, newline, _ = data.rpartition(b"\n")
        self._read_bytes, self._whole_bytes = len(data), len(whole) + len(newline)
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                take(line)
            except (ValueError, TypeError, LookupError) as error:
                raise BadInput(f"{self.path}:{number}", str(error), "a line as this command wrote it") from None

    def claim(self) -> None:
        """Lock the file until ``close()``, or the end of this object; one that was not read is emptied.

        Raises :class:`BadInput` where another process has it, or has written to it since it was read.
        """
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            self.close = weakref.finalize(self, os.close, self._file)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._read_bytes not in (None, os.fstat(self._file).st_size):
                raise BlockingIOError
            os.ftruncate(self._file, self._whole_bytes)
        except BlockingIOError:
            raise self._refused("another process writes it now", f"its end, or another {self._option}") from None
        except OSError as error:
            raise self._refused(f"cannot be written: {error.strerror}", "a file to write to") from None

    def append(self, line: bytes) -> None:
        """Write a line; it is on disk when this returns. Raises :class:`BadInput` where the disk does not take it."""
        assert self._file >= 0, "not claimed"
        left = line + b"\n"
        try:
            while left:  # a disk that becomes full takes a part
                left = left[os.write(self._file, left) :]
            os.fsync(self._file)
        except OSError as error:
            raise self._refused(f"cannot be written: {error.strerror}", "a file to write to") from None

    def _refused(self, found: str, expected: str) -> BadInput:
        return BadInput(f"{self._option}: {self.path}", found, expected)

"""Output of job scripts, ``spool/ID.ATTEMPT/{stdout,stderr}``, bounded: nobody but the agent reads it.

A script writes into the file itself, so that what it says survives this agent. The file is looked at several times a
second; what is in it beyond the limit is cut off, with a line that says so, and the job goes on. Readers never see what
will be cut. All output together is bounded by removing what ended first.
"""

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from cosched.wire.messages import MAX_CHUNK_BYTES
from node_agent.core.attempt import STREAMS, key_name

_log = logging.getLogger("cosched.agent")
TAIL_BYTES: Final = 4096


class Spool:
    """The directory of all output on this node."""

    def __init__(self, directory: Path, limit_bytes: int = 1 << 30) -> None:
        """``limit_bytes`` is what is kept of each stream of a job."""
        self._directory = directory
        self.limit_bytes = limit_bytes
        self._cut_line = f"\ncosched: cut here: only the first {limit_bytes} bytes are kept (output.limit)\n".encode()
        self._whole_bytes = limit_bytes + len(self._cut_line)
        self._cut: set[Path] = set()

    def open(self, job_id: int, attempt: int, stream: str) -> int:
        """A descriptor to append to. Raises OSError."""
        directory = self._directory / key_name(job_id, attempt)
        for each in (self._directory, directory):
            each.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(directory / stream, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self, job_id: int, attempt: int, stream: str, offset: int, max_bytes: int) -> tuple[bytes, int]:
        """A piece from ``offset`` (negative: from the end), and the size there is. Raises OSError."""
        path = self._directory / key_name(job_id, attempt) / stream
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > self.limit_bytes:
                self.cut(job_id, attempt)
                size = self._whole_bytes
            start = max(0, size + offset) if offset < 0 else min(offset, size)
            file.seek(start)
            return file.read(max(0, min(max_bytes, MAX_CHUNK_BYTES, size - start))), size

    def tail(self, job_id: int, attempt: int) -> bytes:
        """The last bytes of the error output; empty where there is none."""
        try:
            return self.read(job_id, attempt, "stderr", -TAIL_BYTES, TAIL_BYTES)[0]
        except OSError:
            return b""

    def cut(self, job_id: int, attempt: int) -> None:
        """Take away what is beyond the limit, and say so where it was. Cut off once, it stays so."""
        for stream in STREAMS:
            path = self._directory / key_name(job_id, attempt) / stream
            try:
                size = path.stat().st_size
                if size <= self.limit_bytes or (size == self._whole_bytes and path in self._cut):
                    continue
                with path.open("r+b") as file:
                    os.pwrite(file.fileno(), self._cut_line, self.limit_bytes)
                    os.ftruncate(file.fileno(), self._whole_bytes)
            except FileNotFoundError:
                continue
            except OSError as error:
                _log.warning("%s cannot be cut: %s", path, error.strerror)
                continue
            if path not in self._cut:
                self._cut.add(path)
                _log.warning("job %s: its %s is cut at %d bytes", key_name(job_id, attempt), stream, self.limit_bytes)

    def remove(self, job_id: int, attempt: int) -> None:
        """Remove an attempt's output, if there is any."""
        directory = self._directory / key_name(job_id, attempt)
        self._cut -= {directory / stream for stream in STREAMS}
        shutil.rmtree(directory, ignore_errors=True)

    def sweep(
        self,
        total_bytes: int,
        keep_s: float,
        in_use: Iterable[tuple[int, int]],
        now_s: Callable[[], float] = time.time,
    ) -> list[tuple[int, int]]:
        """Remove what is older than ``keep_s``, then the oldest until all takes at most ``total_bytes``.

        What is ``in_use`` (job, attempt) stays. Gives what was removed.
        """
        used = set(in_use)
        found: list[tuple[float, int, tuple[int, int]]] = []
        for directory in self._directory.iterdir() if self._directory.is_dir() else ():
            job_id, _, attempt = directory.name.partition(".")
            if not (job_id.isdecimal() and attempt.isdecimal()):
                continue
            files = [path.stat() for path in (directory / stream for stream in STREAMS) if path.exists()]
            newest_s = max((each.st_mtime for each in files), default=directory.stat().st_mtime)
            size = sum(each.st_blocks * 512 for each in files)
            found.append((newest_s, size, (int(job_id), int(attempt))))
        left_bytes = sum(size for _, size, _ in found)
        removed = []
        for newest_s, size, which in sorted(found):
            if which in used or (left_bytes <= total_bytes and newest_s > now_s() - keep_s):
                continue
            self.remove(*which)
            left_bytes -= size
            removed.append(which)
        return removed

"""System calls as a program at the desk makes them: what the user's interaction consists of and the probe measures."""

import mmap
import os
import select
import shutil
import time
from collections.abc import Callable
from typing import Final

_TOUCHED_PAGES: Final = 4
_NAP_S: Final = 0.0001


class Calls:
    """One of each, with the descriptors that they need. ``by_name`` gives the function; close at the end."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)
        self._program = shutil.which("true") or "/bin/true"
        self.by_name: dict[str, Callable[[], object]] = {
            "getpid": os.getppid,  # as getpid, and never answered by the C library
            "pipe": self._pipe,
            "open": _open,
            "mmap": _mmap,
            "nanosleep": lambda: time.sleep(_NAP_S),
            "poll": lambda: self._poll.poll(0),
            "spawn": self._spawn,
        }

    def close(self) -> None:
        """Close what was opened."""
        os.close(self._reader)
        os.close(self._writer)

    def _pipe(self) -> None:
        os.write(self._writer, b"x")
        os.read(self._reader, 1)

    def _spawn(self) -> None:
        """Fork and exec, and wait for the end."""
        os.waitpid(os.posix_spawn(self._program, [self._program], {}), 0)


def _open() -> None:
    """Open, stat, close."""
    descriptor = os.open("/etc", os.O_RDONLY | os.O_CLOEXEC)
    os.fstat(descriptor)
    os.close(descriptor)


def _mmap() -> None:
    """Map memory, touch each page, unmap."""
    with mmap.mmap(-1, _TOUCHED_PAGES * mmap.PAGESIZE) as area:
        for at in range(0, len(area), mmap.PAGESIZE):
            area[at] = 1

"""Signs of a person at this machine's terminals.

A terminal is used when something is *read* from it, so its access time counts and its modification time doesn't: output
of a long build is no person. The kernel moves a terminal's access time in steps of 8 s (so that nobody can time other
people's keys); what is sooner comes from inotify, see :class:`KeyWatch`. Terminals of jobs don't count.

A graphical session that is active counts as somebody being there: what its owner does is not seen yet.
"""

import ctypes
import os
import struct
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from cosched.linux.presence_reading import Reading

_CONSOLES_S: Final = 4.0  # there are many consoles, and their times move in steps anyway

_IN_ACCESS, _IN_CREATE, _IN_IGNORED, _IN_Q_OVERFLOW = 0x1, 0x100, 0x8000, 0x4000
_EVENT: Final = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class Terminals:
    """The terminals below ``dev``: pseudo-terminals, and consoles such as ``tty1`` and ``ttyS0``."""

    def __init__(self, dev: Path = Path("/dev")) -> None:
        self._dev = dev
        self._consoles: list[tuple[float, int]] = []
        self._looked_s = -_CONSOLES_S

    def reading(self, own: Callable[[], set[int]], recent_s: float = float("inf")) -> Reading:
        """For how long no terminal was read from. ``own`` gives the device numbers of jobs' terminals.

        It is asked only where the answer matters: for a terminal that was used within ``recent_s``.
        """
        now_s = time.time()
        try:
            times = self._times()
        except OSError as error:
            return Reading("terminals", None, f"{error.filename}: {error.strerror}")
        if not times:
            return Reading("terminals", None)
        jobs: set[int] | None = None
        for used_s, device in sorted(times, reverse=True):
            idle_s = max(0.0, now_s - used_s)
            if idle_s > recent_s:
                return Reading("terminals", idle_s)
            jobs = own() if jobs is None else jobs
            if device not in jobs:
                return Reading("terminals", idle_s)
        return Reading("terminals", float("inf"))

    def _times(self) -> list[tuple[float, int]]:
        """When each was read from, and its device number."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= _CONSOLES_S:
            with os.scandir(self._dev) as entries:
                self._consoles = _read(e.path for e in entries if e.name.startswith("tty") and e.name[-1:].isdigit())
            self._looked_s = now_s
        try:
            with os.scandir(self._dev / "pts") as entries:
                return self._consoles + _read(entry.path for entry in entries if entry.name.isdigit())
        except FileNotFoundError:
            return self._consoles


def _read(paths: Iterable[str]) -> list[tuple[float, int]]:
    found = []
    for path in paths:
        try:
            status = os.stat(path)
        except FileNotFoundError:
            continue  # closed since
        # Both are the moment of its making until something is read: a program that only opens one is no person.
        used_s = -float("inf") if status.st_atime_ns == status.st_ctime_ns else status.st_atime
        found.append((used_s, status.st_rdev))
    return found


def terminals_of(pids: Iterable[int], proc: Path = Path("/proc")) -> set[int]:
    """Device numbers of the controlling terminals of processes. Those that have ended have none."""
    found = set()
    for pid in pids:
        try:
            after_name = (proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        number = int(after_name[4])  # tty_nr: minor in bits 31-20 and 7-0, major in 15-8
        if number:
            found.add(os.makedev(number >> 8 & 0xFFF, number >> 12 & 0xFFF00 | number & 0xFF))
    return found


class KeyWatch:
    """Tells at once that a pseudo-terminal was read from, by inotify. ``fileno()`` is readable when it has news."""

    def __init__(self, pts: Path = Path("/dev/pts")) -> None:
        """Raises OSError where inotify or the directory cannot be watched."""
        self._pts = pts
        self._fd = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._names: dict[int, str] = {}
        try:
            # A directory's watch tells of new terminals; what is read from one, only a watch of its own tells.
            self._directory = _checked(_libc.inotify_add_watch(self._fd, os.fsencode(pts), _IN_CREATE))
            for name in os.listdir(pts):
                self._add(name)
        except OSError:
            os.close(self._fd)
            raise

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._fd

    def close(self) -> None:
        """Stop watching."""
        os.close(self._fd)

    def used(self) -> set[int]:
        """Device numbers of the terminals read from since the last call."""
        found: set[int] = set()
        while True:
            try:
                data = os.read(self._fd, 16 << 10)
            except BlockingIOError:
                return found
            at = 0
            while at < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, at)
                name = os.fsdecode(data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0"))
                at += _EVENT.size + length
                found |= self._heard(watch, mask, name)

    def _heard(self, watch: int, mask: int, name: str) -> set[int]:
        if mask & _IN_Q_OVERFLOW:  # too much at once: all of them, to be safe
            return {device for name in self._names.values() if (device := self._device(name)) is not None}
        if watch == self._directory:
            if name:
                self._add(name)
        elif mask & _IN_IGNORED:
            self._names.pop(watch, None)
        elif mask & _IN_ACCESS and watch in self._names:
            device = self._device(self._names[watch])
            return set() if device is None else {device}
        return set()

    def _add(self, name: str) -> None:
        if name.isdigit():
            watch = _libc.inotify_add_watch(self._fd, os.fsencode(self._pts / name), _IN_ACCESS)
            if watch >= 0:  # else it has been closed since, or is another user's: its access time is left
                self._names[watch] = name

    def _device(self, name: str) -> int | None:
        try:
            return os.stat(f"{self._pts}/{name}").st_rdev
        except OSError:
            return None


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "inotify")
    return result

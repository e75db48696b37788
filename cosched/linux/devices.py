"""Keyboards, mice and the like of this machine: what somebody does with them is seen at once, not what.

Needs the right to read ``/dev/input/event*`` (on most systems the group ``input``). Sensors that report without anybody
there (a laptop's accelerometer, its lid) have neither keys nor relative axes, and are left out; so are power buttons.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

from cosched.linux.presence_reading import Reading

_READ_BYTES: Final = 4096
_ENOUGH_KEYS: Final = 3  # a power button has one or two; a mouse has three


class Devices:
    """The input devices below ``dev``; what each can do is read below ``sys``. ``filenos()`` are readable at a sign."""

    def __init__(self, dev: Path = Path("/dev/input"), sys: Path = Path("/sys/class/input")) -> None:
        self._dev, self._sys = dev, sys
        self._open: dict[str, int] = {}
        self._problem = ""
        self._sign_s: float | None = None

    def filenos(self) -> list[int]:
        """Descriptors to wait for, as of the last :meth:`reading`."""
        return list(self._open.values())

    def reading(self, now_s: float) -> Reading:
        """For how long nobody has used one, since the first look; devices that came and went are followed.

        ``now_s`` counts the seconds from any beginning.
        """
        self._follow()
        if self._problem:
            return Reading("input", None, self._problem)
        if not self._open:
            return Reading("input", None)
        self.used(now_s)
        return Reading("input", float("inf") if self._sign_s is None else max(0.0, now_s - self._sign_s))

    def used(self, now_s: float) -> bool:
        """Whether somebody has used one since the last call."""
        somebody = False
        for name, fd in list(self._open.items()):
            try:
                while os.read(fd, _READ_BYTES):
                    somebody = True
            except BlockingIOError:
                continue
            except OSError:  # unplugged
                pass
            os.close(self._open.pop(name))
        if somebody:
            self._sign_s = now_s
        return somebody

    def close(self) -> None:
        """Let go of all devices."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()

    def _follow(self) -> None:
        self._problem = ""
        try:
            names = {name for name in os.listdir(self._dev) if name.startswith("event") and self._is_used(name)}
        except FileNotFoundError:
            names = set()
        except OSError as error:
            self._problem = f"{error.filename}: {error.strerror}"
            return
        for name in self._open.keys() - names:
            os.close(self._open.pop(name))
        for name in sorted(names - self._open.keys()):
            try:
                self._open[name] = os.open(self._dev / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._problem = self._problem or f"{self._dev / name}: {error.strerror}"

    def _is_used(self, name: str) -> bool:
        """Whether people use it: it has several keys or buttons, or it is moved."""
        can = self._sys / name / "device/capabilities"
        bits = {"key": 0, "rel": 0}
        for kind in bits:
            with contextlib.suppress(OSError, ValueError):  # unplugged since, or a kernel that doesn't say
                bits[kind] = sum(int(word, 16).bit_count() for word in (can / kind).read_text().split())
        return bits["rel"] > 0 or bits["key"] >= _ENOUGH_KEYS

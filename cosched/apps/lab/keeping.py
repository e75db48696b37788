"""Services that are kept running, as systemd keeps them on a real workstation (``Restart=``, ``WatchdogSec=``).

A service that has ended is started again after a short pause, a longer one each time it ends soon, and a long one where
its status says that it will end so again (systemd would not start it, but in a lab there is no other way to start it).
Until it has run well for some seconds, ``lab up`` and ``lab status`` tell how it ended last. One with a watchdog that
gives no sign of life for so long (``cosched.linux.notify``) is killed and started again, which is no error of its own:
a whole machine that stood still for a while silences a service as well.
"""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from cosched.errors import FINAL_STATUSES

#: Between the end of a service and its next start, at first, and at most.
PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 1.0
#: After an end with one of ``FINAL_STATUSES``.
FINAL_PAUSE_S: Final = 10.0
_RAN_WELL_S: Final = 3.0


@dataclass(frozen=True)
class Service:
    """A program that belongs to a node, and the file of its output.

    ``kept``: it is started again when it ends. ``watchdog_s``: how long it may be silent, 0 for as long as it likes.
    """

    argv: tuple[str, ...]
    log: str
    groups: tuple[str, ...] = ()
    kept: bool = False
    watchdog_s: float = 0.0


class Kept:
    """One service: its process, and when it is started next. ``launch`` starts a program and gives its number, or 0."""

    def __init__(self, service: Service, launch: Callable[[Service, Mapping[str, str]], int]) -> None:
        self.service = service
        self.pid = 0
        self.ended: dict[str, int] | None = None
        self.starts = 0
        self.again_at_s: float | None = None
        self._launch = launch
        self._pause_s = PAUSE_S
        self._failed: dict[str, int] | None = None
        self._began_s = 0.0
        self._heard_s: float | None = None
        self._by_watchdog = False
        self.signs: socket.socket | None = None
        self._environment: dict[str, str] = {}
        if service.watchdog_s:
            name = f"cosched-{os.urandom(8).hex()}"
            self.signs = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            self.signs.bind(f"\0{name}")
            self._environment = {
                "NOTIFY_SOCKET": f"@{name}",
                "WATCHDOG_USEC": str(round(service.watchdog_s * 1_000_000)),
            }

    def start(self) -> None:
        """Start it, for the first time or again."""
        self.again_at_s, self._heard_s, self.ended = None, None, None
        self._by_watchdog = False
        self.starts += 1
        self._began_s = time.monotonic()
        self.pid = self._launch(self.service, self._environment)

    def has_ended(self, how: dict[str, int]) -> None:
        """Its process was reaped."""
        self.ended = how
        lasted_s = time.monotonic() - self._began_s
        self._failed = how if lasted_s < _RAN_WELL_S and how.get("status", 0) else None
        if not self.service.kept:
            return
        self._pause_s = PAUSE_S if lasted_s >= _RAN_WELL_S else min(2 * self._pause_s, LONGEST_PAUSE_S)
        pause_s = FINAL_PAUSE_S if how.get("status") in FINAL_STATUSES else self._pause_s
        self.again_at_s = time.monotonic() + pause_s

    def trouble(self) -> dict[str, int] | None:
        """How it ended, if it does not run, or has ended with an error just before; None: it runs well.

        One that its watchdog has killed is about to be started again.
        """
        if self._by_watchdog:
            return None
        if self.ended is None and time.monotonic() - self._began_s >= _RAN_WELL_S:
            self._failed = None
        return self.ended or self._failed

    def heard(self) -> None:
        """It gives a sign of life."""
        assert self.signs is not None
        with contextlib.suppress(BlockingIOError):
            while self.signs.recv(256):
                self._heard_s = time.monotonic()

    def due_s(self) -> float | None:
        """When :meth:`tick` is wanted next, by the monotonic clock; None: not before something happens."""
        if self.again_at_s is not None:
            return self.again_at_s
        if self._heard_s is not None and self.ended is None:
            return self._heard_s + self.service.watchdog_s
        return None

    def tick(self) -> None:
        """Do what is due."""
        due_s = self.due_s()
        if due_s is None or time.monotonic() < due_s:
            return
        if self.again_at_s is not None:
            self.start()
        else:
            self._heard_s, self._by_watchdog = None, True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)  # ours and not reaped: the number is still its own

"""The guard's only loop: descriptors with their callbacks, signals, and a timer on the clock that counts suspension."""

import os
import select
import signal
from collections.abc import Callable
from typing import Final

from node_agent.linux import process

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


class Loop:
    """Waits for whatever comes first and calls who asked for it. No two callbacks run at once."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._timer = process.BootTimer()
        self.watch(self._timer.fileno(), self._timer.clear)
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.watch(self._woken, self._signalled)
        self.stopping = False
        self.on_child_ended: Callable[[], None] = lambda: None
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def watch(self, fd: int, callback: Callable[[], None], events: int = select.EPOLLIN) -> None:
        """Call back when the descriptor has news."""
        if fd in self._callbacks:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._callbacks[fd] = callback

    def unwatch(self, fd: int) -> None:
        """No longer; before the descriptor is closed."""
        if self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def run_once(self, due_us: int | None) -> None:
        """Wait for news, at most until that moment (CLOCK_BOOTTIME; None: for as long as it takes), and pass it on."""
        self._timer.set(due_us)
        for fd, _ in self._epoll.poll():
            callback = self._callbacks.get(fd)  # an earlier one may have ended it
            if callback is not None:
                callback()

    def _signalled(self) -> None:
        try:
            numbers = os.read(self._woken, 4096)
        except BlockingIOError:
            return
        if signal.SIGCHLD in numbers:
            self.on_child_ended()
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            self.stopping = True

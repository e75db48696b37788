"""The guard's only loop: descriptors with their callbacks, signals, and a timer on the clock that counts suspension."""

import heapq
import itertools
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
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._count = itertools.count()
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

    def later(self, in_us: int, callback: Callable[[], None]) -> None:
        """Call back once, after so many microseconds."""
        heapq.heappush(self._timers, (process.boottime_us() + in_us, next(self._count), callback))

    def run_once(self, due_us: int | None) -> None:
        """Wait for news, at most until that moment (CLOCK_BOOTTIME; None: for as long as it takes), and pass it on."""
        if self._timers:
            due_us = self._timers[0][0] if due_us is None else min(due_us, self._timers[0][0])
        self._timer.set(due_us)
        for fd, _ in self._epoll.poll():
            callback = self._callbacks.get(fd)  # an earlier one may have ended it
            if callback is not None:
                callback()
        now_us = process.boottime_us()
        while self._timers and self._timers[0][0] <= now_us:
            heapq.heappop(self._timers)[2]()

    def _signalled(self) -> None:
        try:
            numbers = os.read(self._woken, 4096)
        except BlockingIOError:
            return
        if signal.SIGCHLD in numbers:
            self.on_child_ended()
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            self.stopping = True

"""The guard's only loop: descriptors with their callbacks, children, signals, and a timer that counts suspension.

No callback ends the guard, and none of those that strangers can cause takes more CPU than its budget has. One that
raises is told of (once a minute for each cause), and the loop goes on: a descriptor is given up by its ``on_failed``,
or else called again only after a second, and so are timers and duties.
"""

import contextlib
import heapq
import itertools
import json
import os
import select
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from cosched.linux import process
from node_agent.guard.base.budget import Budget
from node_agent.guard.base.children import Child, close_all_but
from node_agent.guard.base.complaints import Complaints
from node_agent.guard.base.requests import Refusal, refusal_of

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
#: What has failed is not called again before: a callback that always fails must not take the machine's time.
_REST_US: Final = process.US_PER_S
_READ_BYTES: Final = 16 << 10
_LINE_BYTES: Final = 64 << 10

Call = Callable[[], object]


class _Watched(NamedTuple):
    callback: Call
    events: int
    on_failed: Call | None
    budget: Budget | None


class Duty:
    """Something that is looked after at each turn of the loop, and at the latest when it says."""

    def __init__(self, what: str, tick: Callable[[int], object], due_us: Callable[[], int | None]) -> None:
        self.what, self.tick, self._due_us = what, tick, due_us
        self.rests_until_us = 0

    def due_us(self) -> int | None:
        """When it is wanted next (us since boot); None: at the next turn, whenever that is."""
        try:
            due_us = self._due_us()
        except Exception:  # its tick is going to say
            due_us = 0
        return due_us if due_us is None else max(due_us, self.rests_until_us)


class Loop:
    """Waits for whatever comes first and calls who asked for it. No two callbacks run at once."""

    def __init__(self, on_duty_failed: Call = lambda: None) -> None:
        self._on_duty_failed = on_duty_failed
        self._epoll = select.epoll()
        self._watched: dict[int, _Watched] = {}
        self._resting: dict[int, _Watched] = {}  # not looked at now
        self._timer = process.BootTimer()
        self.complain = Complaints()
        self.watch(self._timer.fileno(), self._timer.clear)
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.watch(self._woken, self._signalled)
        self._timers: list[tuple[int, int, Call]] = []
        self.duties: list[Duty] = []
        self._count = itertools.count()
        self.stopping = False
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def watch(
        self,
        fd: int,
        callback: Call,
        events: int = select.EPOLLIN,
        on_failed: Call | None = None,
        budget: Budget | None = None,
    ) -> None:
        """Call back when the descriptor has news. ``on_failed`` gives up the peer of a callback that has raised.

        ``budget`` pays for what is done; while it is spent, no descriptor that it pays for is looked at.
        """
        if fd in self._watched:  # modified, not added anew: a closed connection stays ahead of a new one
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._resting.pop(fd, None)
        self._watched[fd] = _Watched(callback, events, on_failed, budget)

    def unwatch(self, fd: int) -> None:
        """No longer; before the descriptor is closed."""
        self._resting.pop(fd, None)
        if self._watched.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def rest(self, fd: int, in_us: int) -> None:
        """Don't look at a descriptor for so many microseconds; then as before, unless it is let go meanwhile."""
        watched = self._watched.pop(fd, None)
        if watched is not None:
            self._epoll.unregister(fd)
            self._resting[fd] = watched
            self.later(in_us, lambda: self._rested(fd, watched))

    def fork(self, child: Child) -> None:
        """Start a child, and listen to it. Raises :class:`Refusal` when there is no room for another process."""
        read = write = -1
        try:
            read, write = os.pipe()
            child.pid = os.fork()
        except OSError as error:
            for fd in {read, write} - {-1}:
                os.close(fd)
            raise Refusal("failed", f"no further process: {error.strerror}") from None
        if child.pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                close_all_but([write, *child.keep])
                child.work(write)
            finally:
                os._exit(0)
        os.close(write)
        os.set_blocking(read, False)
        self.watch(read, partial(self._heard, read, bytearray(), child))

    def _heard(self, fd: int, kept: bytearray, child: Child) -> None:
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return
        *lines, kept[:] = (kept + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                report = json.loads(line)
                child.heard(refusal_of(report) if "error" in report else report)
        if not data or len(kept) > _LINE_BYTES:
            self.unwatch(fd)
            os.close(fd)
            child.gone()

    def later(self, in_us: int, callback: Call) -> None:
        """Call back once, after so many microseconds; again after a second where that failed."""
        heapq.heappush(self._timers, (process.boottime_us() + in_us, next(self._count), callback))

    def run_once(self) -> None:
        """Wait for news, at most until the first timer or duty is due, and pass it on."""
        due = [due_us for duty in self.duties if (due_us := duty.due_us()) is not None]
        if self._timers:
            due.append(self._timers[0][0])
        self._timer.set(min(due, default=None))
        began_ns = time.thread_time_ns()
        called = self._pass_on()
        now_us = process.boottime_us()
        while self._timers and self._timers[0][0] <= now_us:
            callback = heapq.heappop(self._timers)[2]
            if not self.attempt("a timer", callback):
                self.later(_REST_US, callback)
        for duty in self.duties:
            self._look_after(duty)
        if any(budget is not None for budget, _ in called):
            self._pay(called, time.thread_time_ns() - began_ns)

    def attempt(self, what: str, call: Call) -> bool:
        """Whether a call came to its end. What it raised is told."""
        try:
            call()
        except Exception as error:
            self.complain(what, error)
            return False
        return True

    def _pass_on(self) -> list[tuple[Budget | None, int]]:
        """Wait for descriptors with news and call back. Returns who pays for each callback, and its CPU time (ns)."""
        called: list[tuple[Budget | None, int]] = []
        for fd, _ in self._epoll.poll():
            watched = self._watched.get(fd)  # an earlier one may have ended it
            if watched is not None:
                began_ns = time.thread_time_ns()
                if not self.attempt("a callback", watched.callback):
                    self._give_up(fd, watched)
                called.append((watched.budget, time.thread_time_ns() - began_ns))
        return called

    def _pay(self, called: list[tuple[Budget | None, int]], turn_ns: int) -> None:
        """Have callbacks paid for, with an equal part of what the turn took beside them; leave alone who is short."""
        part_ns = (turn_ns - sum(cpu_ns for _, cpu_ns in called)) // len(called)
        for budget, cpu_ns in called:
            if budget is not None:
                budget.spend(cpu_ns + part_ns)
        for budget in {each for each, _ in called if each is not None}:
            if rest_us := budget.rest_us():
                for fd in [fd for fd, watched in self._watched.items() if watched.budget is budget]:
                    self.rest(fd, rest_us)

    def _give_up(self, fd: int, watched: _Watched) -> None:
        gave_up = watched.on_failed is not None and self.attempt("giving up a peer", watched.on_failed)
        if self._watched.get(fd) is watched or (not gave_up and fd in self._watched):
            self.rest(fd, _REST_US)

    def _look_after(self, duty: Duty) -> None:
        now_us = process.boottime_us()
        if now_us < duty.rests_until_us or self.attempt(duty.what, lambda: duty.tick(now_us)):
            return
        duty.rests_until_us = now_us + _REST_US
        self.attempt(f"what is done where {duty.what} fails", self._on_duty_failed)

    def _rested(self, fd: int, watched: _Watched) -> None:
        if self._resting.get(fd) is watched:
            self.watch(fd, *watched)

    def _signalled(self) -> None:
        try:
            numbers = os.read(self._woken, 4096)
        except BlockingIOError:
            return
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            self.stopping = True
        if signal.SIGCHLD in numbers:
            with contextlib.suppress(ChildProcessError):  # orphans that come to the guard, too
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass

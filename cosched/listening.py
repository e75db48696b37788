"""Listening sockets in asyncio: some connections are accepted at a turn, and none for a while where none can be."""

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Any, Final

from cosched.linux.descriptors import short_of_descriptors

#: Without a descriptor a connection stays in the backlog, and its socket readable: at once again, it would spin.
_AGAIN_S: Final = 0.5


class Listener:
    """The sockets of one door. Closing it leaves them open: connections wait in their backlogs."""

    def __init__(
        self,
        accepted: Callable[[socket.socket, Any], object],
        at_once: int,
        *,
        short: Callable[[OSError], object] = lambda error: None,
        paid: Callable[[int], float] = lambda cpu_ns: 0.0,
    ) -> None:
        """``accepted`` gets each connection, non-blocking, and its address; ``short`` why none can be accepted.

        ``paid`` is told the CPU time of a turn (ns), and says for how many seconds there shall be none.
        """
        self._accepted, self._at_once, self._short, self._paid = accepted, at_once, short, paid
        self._loop = asyncio.get_running_loop()
        self.sockets: list[socket.socket] = []

    def add(self, listening: socket.socket) -> None:
        """Accept at this one too."""
        listening.setblocking(False)
        self.sockets.append(listening)
        self._resume(listening)

    def close(self) -> None:
        """Accept no more."""
        for each in self.sockets:
            self._loop.remove_reader(each)
        self.sockets.clear()

    def _resume(self, listening: socket.socket) -> None:
        if listening in self.sockets:
            self._loop.add_reader(listening, self._turn, listening)

    def _turn(self, listening: socket.socket) -> None:
        began_ns = time.thread_time_ns()
        rest_s = self._accept(listening)
        rest_s = max(rest_s, self._paid(time.thread_time_ns() - began_ns))
        if rest_s:
            self._loop.remove_reader(listening)
            self._loop.call_later(rest_s, self._resume, listening)

    def _accept(self, listening: socket.socket) -> float:
        """Accept what waits; for how many seconds none can be."""
        for _ in range(self._at_once):
            try:
                fresh, address = listening.accept()
            except OSError as error:  # none is left, one has gone again (accept(2)), or
                if not short_of_descriptors(error):
                    return 0.0
                self._short(error)
                return _AGAIN_S
            fresh.setblocking(False)
            self._accepted(fresh, address)
        return 0.0

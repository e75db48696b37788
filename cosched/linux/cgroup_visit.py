"""A visit to another control group and back, by the hand of a child that stays at home.

Who writes a process into a group holds locks meanwhile for which every fork of the machine waits. A process that went
to the idle class could come back by itself only with these in its hands, and be stopped there.
"""

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from typing import Final

_GO: Final = b"."


@contextlib.contextmanager
def visiting(home: str, away: str) -> Iterator[None]:
    """The calling process is in another group meanwhile; both are named by their cgroup.procs.

    Where it cannot be taken there, it stays where it is. It has but one thread, and may reap its children meanwhile.
    """
    with contextlib.ExitStack() as stack:
        back, there = -1, -1
        with contextlib.suppress(OSError):  # what is open cannot be missing when it is needed
            back = _opened(home, stack)
            there = _opened(away, stack)
        if there < 0:
            yield
            return
        visitor = _Visitor(back, there)
        try:
            visitor.take()
            yield
        finally:
            visitor.bring_back()


class _Visitor:
    """The child, and what is left to do where it has died."""

    def __init__(self, back: int, there: int) -> None:
        self._back = back
        self._pid = -1
        self._line: socket.socket | None = None
        try:
            line, childs = socket.socketpair()
        except OSError:
            return
        visitor = os.getpid()
        try:
            self._pid = os.fork()
        except OSError:
            line.close()
            childs.close()
            return
        if self._pid == 0:
            try:
                line.close()
                signal.set_wakeup_fd(-1)
                _carry(str(visitor).encode(), there, back, childs)
            finally:
                os._exit(0)
        childs.close()
        self._line = line

    def take(self) -> None:
        """There, as far as that can be."""
        if self._line is not None:
            _told(self._line)

    def bring_back(self) -> None:
        """Home, in any case."""
        if self._line is None:
            return
        with contextlib.suppress(OSError):
            self._line.send(_GO)
        if not _told(self._line):  # it was killed: better with the locks than there for ever
            with contextlib.suppress(OSError):
                os.write(self._back, b"0")
        self._line.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _carry(visitor: bytes, there: int, back: int, line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        os.write(there, visitor)
    line.send(_GO)
    _told(line)  # or the visitor has ended
    os.write(back, visitor)
    line.send(_GO)


def _told(line: socket.socket) -> bool:
    """Whether the other one has said something, and not gone."""
    try:
        return line.recv(1) == _GO
    except OSError:
        return False


def _opened(path: str, stack: contextlib.ExitStack) -> int:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    stack.callback(os.close, fd)
    return fd

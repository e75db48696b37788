"""A terminal with somebody at it: a real pseudo-terminal, and an editor that reads keys and echoes them.

The editor is a process of its own in a session of its own whose controlling terminal this is, as after a login: what
the machine sees of a person's keys it sees of these. :func:`logged_in` writes the login record that ``who`` shows.
"""

import contextlib
import ctypes
import fcntl
import os
import pwd
import select
import signal
import struct
import sys
import termios
import time
import tty
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from local_load.machine import libc
from local_load.work import work

ECHO_S: Final = 10.0  # an echo that does not come within this is the longest delay there is
_UTMP: Final = Path("/run/utmp")
_USER_PROCESS, _DEAD_PROCESS = 7, 8


class Terminal:
    """A terminal with an editor in front; ``press`` is a key, from the moment it was due to its echo."""

    def __init__(self, key_units: int) -> None:
        """Start the editor, which does ``key_units`` of work for each key. Raises OSError without pseudo-terminals."""
        self._master, slave = os.openpty()
        tty.setraw(slave)
        self.name = os.ttyname(slave)
        sys.stdout.flush()
        self.editor = os.fork()
        if self.editor == 0:
            os.close(self._master)
            _edit(slave, key_units)
        os.close(slave)

    def press(self, due_ns: int) -> int:
        """Press a key that was due then; nanoseconds from that moment to its echo, or -1 where none came."""
        os.write(self._master, b"x")
        end = time.monotonic() + ECHO_S
        while (left := end - time.monotonic()) > 0:
            if select.select([self._master], [], [], left)[0]:
                os.read(self._master, 64)
                return time.monotonic_ns() - due_ns
        return -1

    def close(self) -> None:
        """Leave: the editor loses its terminal and ends."""
        os.close(self._master)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.editor, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.editor, 0)


class Pointer:
    """A hand that moves while nothing is typed: a pseudo-terminal beside the editor's, read by the user itself.

    Reads of it are signs of presence as a pointer's are, and no keys: it is no process's controlling terminal.
    """

    def __init__(self) -> None:
        """Raises OSError without pseudo-terminals."""
        self._master, self._slave = os.openpty()
        tty.setraw(self._slave)

    def move(self) -> None:
        """Give a sign of presence."""
        os.write(self._master, b".")
        os.read(self._slave, 64)

    def close(self) -> None:
        """Leave."""
        os.close(self._master)
        os.close(self._slave)


def _edit(terminal: int, key_units: int) -> None:
    """The editor: for each key a little work, and the echo. Never returns."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.setsid()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        for stream in (0, 1, 2):
            os.dup2(terminal, stream)
        os.closerange(3, 256)
        while key := os.read(0, 1):
            work(key_units)
            os.write(1, key)
    except OSError:  # the user has gone
        pass
    finally:
        os._exit(0)


@contextlib.contextmanager
def logged_in(terminal: str, editor: int) -> Iterator[bool]:
    """Within, utmp has a login at that terminal; whether it could be written (it is there, and we may)."""
    written = os.access(_UTMP, os.W_OK) and _record(_USER_PROCESS, terminal, editor)
    try:
        yield written
    finally:
        if written:
            _record(_DEAD_PROCESS, terminal, editor)


def _record(kind: int, terminal: str, pid: int) -> bool:
    line = terminal.removeprefix("/dev/")
    user = pwd.getpwuid(os.geteuid()).pw_name if kind == _USER_PROCESS else ""
    now_s = time.time()
    host, unused = b"", b""
    record = struct.pack(
        "=hxxi32s4s32s256shh",
        kind,
        pid,
        line.encode(),
        line.rpartition("/")[2].encode()[-4:],
        user.encode(),
        host,
        0,
        0,
    )
    if os.uname().machine in {"x86_64", "i386", "i686"}:  # utmp(5): widths of the last fields differ
        record += struct.pack("=iii16s20s", pid, int(now_s), int(now_s % 1 * 1e6), unused, unused)
    else:
        record += struct.pack("=qqq16s20sxxxx", pid, int(now_s), int(now_s % 1 * 1e6), unused, unused)
    libc.pututxline.restype = ctypes.c_void_p
    libc.setutxent()
    try:
        return bool(libc.pututxline(ctypes.create_string_buffer(record, len(record))))
    finally:
        libc.endutxent()

"""Who keeps a socket busy: processes of users without accounts, as fast as they can, for as long as a block lasts."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

#: Users that no machine has: in the middle of what system and people are given.
STRANGERS = (61001, 61002, 61003)


@contextmanager
def strangers(work: Callable[[], None], uids: Sequence[int] = STRANGERS) -> Iterator[list[int]]:
    """Have each of these users do something in a process of its own, again and again; the processes' pids."""
    if os.geteuid() != 0:
        pytest.skip("needs root: processes of several users")
    pids = [_forked(work, uid) for uid in uids]
    try:
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _forked(work: Callable[[], None], uid: int) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        while os.getppid() == parent:
            try:
                work()
            except OSError:
                time.sleep(0.001)
    finally:
        os._exit(0)


def holding(path: str, kind: int, count: int) -> Callable[[], None]:
    """Connect so often, say nothing, and connect again whatever was closed."""
    held: list[socket.socket] = []

    def work() -> None:
        for each in list(held):
            each.setblocking(False)
            try:
                if not each.recv(1):
                    held.remove(each)
                    each.close()
            except BlockingIOError:
                pass
            except OSError:
                held.remove(each)
                each.close()
        if len(held) < count:
            held.append(_connected(path, kind))
        else:
            time.sleep(0.001)

    return work


def asking(path: str, kind: int, packet: bytes) -> Callable[[], None]:
    """Connect, say it, and hang up without waiting for an answer."""

    def work() -> None:
        with _connected(path, kind) as connection:
            connection.send(packet)

    return work


def _connected(path: str, kind: int) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, kind)
    try:
        connection.setblocking(False)
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

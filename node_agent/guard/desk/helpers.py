"""Small processes of the guard's own: without rights, in a group that is not the guard's, and never outliving it."""

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Iterable
from typing import Final

from cosched.linux import process
from cosched.linux.users import NOBODY
from node_agent.guard.base.children import close_all_but

#: Who is killed ends at once, but for one that waits in the kernel (a disk, a debugger): the guard does not, for it.
_PATIENCE_US: Final = process.US_PER_S


def forked(name: str, keep: Iterable[int], work: Callable[[], None], cpu: int | None = None) -> tuple[int, int]:
    """Fork a process that does ``work`` as nobody, on that CPU alone (None: any). Raises OSError, and there is none.

    Returns its number and a descriptor of it.
    ``name`` is what ``ps`` shows; of the guard's descriptors it has those of ``keep``.
    """
    guard = os.getpid()
    pid = os.fork()
    if pid:
        try:
            return pid, os.pidfd_open(pid)
        except OSError:  # without a descriptor the child could not be ended later
            os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
            raise
    try:
        process.reset_signals()
        close_all_but(keep)
        process.set_name(name)
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})
        os.chdir("/")
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        process.die_with_parent(guard)  # after that: the kernel forgets it when the user changes
        work()
    finally:
        os._exit(0)


def end(pidfds: Collection[int]) -> None:
    """Kill them, wait a moment until they have ended, and close their descriptors."""
    for pidfd in pidfds:
        process.send_by_fd(pidfd, signal.SIGKILL)
    until_us = process.boottime_us() + _PATIENCE_US
    for pidfd in pidfds:
        process.await_end(pidfd, max(0, until_us - process.boottime_us()))
        os.close(pidfd)

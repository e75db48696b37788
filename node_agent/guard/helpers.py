"""Small processes of the guard's own: without rights, in a group that is not the guard's, and never outliving it."""

import os
from collections.abc import Callable, Iterable
from typing import Final

from cosched.linux import process
from node_agent.guard.supervisor import close_all_but

_NOBODY: Final = 65534


def forked(name: str, keep: Iterable[int], work: Callable[[], None], cpu: int | None = None) -> int:
    """Fork a process that does ``work`` as nobody, on that CPU alone (None: any); its number. Raises OSError.

    ``name`` is what ``ps`` shows; of the guard's descriptors it has those of ``keep``.
    """
    guard = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        process.reset_signals()
        close_all_but(keep)
        process.set_name(name)
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})
        os.chdir("/")
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        process.die_with_parent(guard)  # after that: the kernel forgets it when the user changes
        work()
    finally:
        os._exit(0)

"""Sets of CPUs for jobs' processes: by the kernel's controller cpuset of version 1, or thread by thread.

A controller keeps whom it has, and whom they start, to the set; nobody can leave it. Without one each thread gets the
set as its affinity, which those that it starts inherit and may change: who strays is brought back when looked for.
"""

import contextlib
import os
from collections.abc import Collection, Iterable
from typing import Final

from cosched.linux import files
from cosched.linux.cgroups import make_directories, read_pids, remove_directories

_FILES: Final = ("cpuset.cpus", "cpuset.mems")
#: How often the threads of a process are looked at: the second time finds those that were born during the first.
_ROUNDS: Final = 4


def listed(cpus: Iterable[int]) -> str:
    """CPUs as the kernel's files have them."""
    return ",".join(map(str, sorted(cpus)))


def keep_to(pids: Iterable[int], cpus: Collection[int], *, strays_only: bool) -> None:
    """Have all threads of some processes run on these CPUs alone, those that come meanwhile, too.

    ``strays_only``: leave alone who runs on some of them by its own choice. A process that makes threads without end is
    looked at a few times: threads of one that has been moved begin there. Raises OSError where it is not allowed.
    """
    wanted = set(cpus)
    seen: set[int] = set()
    for pid in pids:
        for _ in range(_ROUNDS):
            fresh = set(_threads(pid)) - seen
            if not fresh:
                break
            for thread in sorted(fresh):
                with contextlib.suppress(ProcessLookupError):
                    if not strays_only or not os.sched_getaffinity(thread) <= wanted:
                        os.sched_setaffinity(thread, wanted)
            seen |= fresh


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return []  # it has ended


class CpusetTree:
    """The parallel side in the tree of version 1's controller cpuset. A job has a group there once it has had a set."""

    def __init__(self, mount: str, cosched: str) -> None:
        self._top = os.path.join(mount, "cpuset")
        self._side = os.path.join(self._top, cosched.strip("/"))
        self._made: list[str] = []

    @property
    def there(self) -> bool:
        """Whether this machine has it."""
        return os.path.exists(os.path.join(self._top, "cgroup.procs"))

    def confine(self, name: str, cpus: Collection[int] | None, pids: Iterable[int]) -> None:
        """Keep a job's processes to these CPUs (None: any of the side's), those there are and those to come.

        Raises OSError.
        """
        group = os.path.join(self._side, name)
        if cpus is None and not os.path.isdir(group):
            return
        self._made += [path for path in make_directories(group, self._top) if path != group]
        self._fill(group)
        whole = files.read(os.path.join(self._side, _FILES[0])).strip()
        files.write(os.path.join(group, _FILES[0]), whole if cpus is None else listed(cpus))
        procs = os.path.join(group, "cgroup.procs")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                files.write(procs, str(pid))

    def _fill(self, group: str) -> None:
        """Give what is empty what the group above has: it is so in a new group, and nothing can enter then."""
        above = os.path.dirname(group)
        if group == self._top:
            return
        self._fill(above)
        for file in _FILES:
            if not files.read(path := os.path.join(group, file)).strip():
                files.write(path, files.read(os.path.join(above, file)).strip())

    def has(self, name: str) -> list[int]:
        """The processes of a job that are kept to a set."""
        return read_pids(os.path.join(self._side, name, "cgroup.procs"))

    def enter(self, name: str) -> None:
        """The calling process is one of the job's. Raises OSError."""
        if os.path.isdir(group := os.path.join(self._side, name)):
            files.write(os.path.join(group, "cgroup.procs"), "0")

    def remove(self, name: str) -> None:
        """The job has no processes any more."""
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(os.path.join(self._side, name))

    def close(self) -> None:
        """Take back what was made, unless jobs' groups are in it."""
        remove_directories(self._made)
        self._made = []

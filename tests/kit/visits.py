"""A parallel side of one's own, and children that visit its groups."""

import contextlib
import os
import sys
import traceback
import uuid
from collections.abc import Callable, Iterator

import pytest

from cosched.linux import files
from cosched.linux.cgroups import ENDINGS, Cgroups
from kit.groups import parallel_side
from kit.guards import places


@contextlib.contextmanager
def own_side() -> Iterator[Cgroups]:
    """The cgroups of this machine, and none of ours afterwards."""
    if os.geteuid() != 0:
        pytest.skip("needs root: makes cgroups")
    side = f"cosched-test-{uuid.uuid4().hex[:12]}"
    with parallel_side(side) as found:
        yield found
    assert places(side) == []
    assert places(f"{side}-{ENDINGS}") == []


def group_of(pid: int | str = "self") -> str:
    """A process's group in the tree of the CPU."""
    found = {
        names: path
        for _, names, path in (line.split(":", 2) for line in files.read(f"/proc/{pid}/cgroup").splitlines())
    }
    return next((path for names, path in found.items() if "cpu" in names.split(",")), found.get("", ""))


def apart(work: Callable[[], None]) -> int:
    """Do something in a child; its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def children() -> set[int]:
    """Of the calling process."""
    return {int(pid) for pid in files.read(f"/proc/self/task/{os.getpid()}/children").split()}


def ended(status: int = 0) -> int:
    """A child that is to be reaped."""
    pid = os.fork()
    if pid == 0:
        os._exit(status)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid

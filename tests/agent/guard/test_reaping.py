"""Supervisors reap among the jobs, in the idle class beside an owner, and come home again whatever happens."""

import os
import signal
import sys
import traceback
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.groups import parallel_side
from kit.guards import RealGuard, places
from kit.waiting import wait_for

from node_agent.guard.supervisor import _Reaper
from node_agent.linux import files
from node_agent.linux.carrier import carried
from node_agent.linux.cgroups import VISITORS, Cgroups


@pytest.fixture
def groups() -> Iterator[Cgroups]:
    """The cgroups of this machine, and none of ours afterwards."""
    if os.geteuid() != 0:
        pytest.skip("needs root: makes cgroups")
    side = f"cosched-test-{uuid.uuid4().hex[:12]}"
    with parallel_side(side) as found:
        yield found
    assert places(side) == []


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
    return {int(pid) for pid in files.read(f"/proc/self/task/{os.getpid()}/children").split()}


def test_a_visit_is_among_the_jobs_and_ends_at_home(groups: Cgroups) -> None:
    def visit() -> None:
        home = group_of()
        with groups.among_jobs():
            assert group_of().endswith(f"/{VISITORS}")
        assert group_of() == home
        assert children() == set()

    assert apart(visit) == 0


def test_whatever_is_raised_there_the_visitor_comes_home(groups: Cgroups) -> None:
    def visit() -> None:
        home = group_of()
        with pytest.raises(KeyError), groups.among_jobs():
            raise KeyError
        assert group_of() == home

    assert apart(visit) == 0


def test_who_carries_may_die_at_any_moment(groups: Cgroups) -> None:
    def visit() -> None:
        home, before = group_of(), len(os.listdir("/proc/self/fd"))
        with groups.among_jobs():
            for pid in children():
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            assert group_of() != home
        assert group_of() == home
        assert len(os.listdir("/proc/self/fd")) == before

    assert apart(visit) == 0


def test_a_visitor_that_is_killed_leaves_nobody_behind(groups: Cgroups) -> None:
    read, write = os.pipe()

    def visit() -> None:
        with groups.among_jobs():
            os.write(write, b" ".join(str(pid).encode() for pid in children()))
            os.kill(os.getpid(), signal.SIGKILL)

    assert apart(visit) == -signal.SIGKILL
    (carrier,) = map(int, os.read(read, 64).split())
    wait_for(
        lambda: not os.path.exists(f"/proc/{carrier}") or files.read(f"/proc/{carrier}/stat").split()[2] == "Z",
        "its end",
    )
    os.close(read)
    os.close(write)


def test_without_such_a_group_who_would_go_stays() -> None:
    def visit() -> None:
        home = group_of()
        with carried("/proc/self/nothing", "/proc/self/nothing"):
            assert group_of() == home
            assert children() == set()

    assert apart(visit) == 0


def test_a_status_is_not_lost_and_orphans_are_reaped_now_and_then(groups: Cgroups) -> None:
    def supervise() -> None:
        reaper = _Reaper(groups)
        first, *_ = [ended(status) for status in (7, 0, 0, 0)]
        assert reaper.reaped(first) == 7
        assert children() == set()
        reaper.put_off(3600.0)
        orphan, command = ended(), ended(5)
        assert reaper.reaped(1 << 22) is None
        assert children() == {orphan, command}, "orphans wait for the next visit"
        assert reaper.reaped(command) == 5, "a command's end does not"
        assert children() == set()
        assert reaper.reaped(1 << 22) is None

    assert apart(supervise) == 0


def ended(status: int = 0) -> int:
    """A child that is to be reaped."""
    pid = os.fork()
    if pid == 0:
        os._exit(status)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid


def test_a_guards_supervisors_go_there(make_guard) -> None:
    guard: RealGuard = make_guard()
    guard.prepare(1)
    guard.spawn(["sh", "-c", "exit 5"])
    assert guard.event("exited", job=1)["status"] == 5
    guard.spawn(["sh", "-c", ORPHANS], n=1)
    wait_for(lambda: any(visitors(place) for place in places(guard.group)), "a supervisor among the jobs")


#: Each second a process whose parent has gone ends.
ORPHANS = "while :; do (sleep 1 & ); sleep 0.3; done"


def visitors(place: Path) -> str:
    listing = place / VISITORS / "cgroup.procs"
    return listing.read_text() if listing.exists() else ""

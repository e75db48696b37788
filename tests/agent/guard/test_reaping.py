"""Supervisors reap where their CPU is limited, not in the idle class, and come home again whatever happens."""

import contextlib
import os
import signal
import sys
import traceback
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from kit.groups import MOUNT, parallel_side
from kit.guards import RealGuard, alive, places
from kit.waiting import wait_for

from node_agent.guard.supervisor import _MOST_A_VISIT, _Reaper
from node_agent.linux import files, process
from node_agent.linux.carrier import carried
from node_agent.linux.cgroups import ENDINGS, ENDINGS_CPUS, VISITORS, Cgroups, read_number


@pytest.fixture
def groups() -> Iterator[Cgroups]:
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
    return {int(pid) for pid in files.read(f"/proc/self/task/{os.getpid()}/children").split()}


def test_a_visit_leads_to_a_group_of_its_own_and_ends_at_home(groups: Cgroups) -> None:
    def visit() -> None:
        home = group_of()
        with groups.visit():
            assert group_of().endswith(f"/{VISITORS}")
        assert group_of() == home
        assert children() == set()

    assert apart(visit) == 0


def needs_v1(groups: Cgroups) -> None:
    if groups.kind != "v1":
        pytest.skip("needs control groups of version 1: with version 2 visits are among the jobs")


def cpu_groups() -> list[Path]:
    """The group of the calling process in the tree of the CPU, and those above it."""
    top = MOUNT / "cpu"
    here = top / group_of().strip("/")
    return [each for each in (here, *here.parents) if each.is_relative_to(top) and each != top]


def test_a_visit_is_limited_and_not_idle(groups: Cgroups) -> None:
    needs_v1(groups)
    assert not [problem for problem in groups.set_limits(0.5, True, 1 << 30) if "idle" not in problem]

    def visit() -> None:
        with groups.visit():
            here = cpu_groups()
            assert [each for each in here if read_number(f"{each}/cpu.idle") == 1] == []
            assert [each for each in here if read_number(f"{each}/cpu.shares") < 1024] == []
            quotas = [
                (read_number(f"{each}/cpu.cfs_quota_us"), read_number(f"{each}/cpu.cfs_period_us")) for each in here
            ]
            assert min(used / of for used, of in quotas if used > 0) == ENDINGS_CPUS

    assert apart(visit) == 0


def test_a_limit_that_somebody_has_taken_away_is_set_before_the_next_visit(groups: Cgroups) -> None:
    needs_v1(groups)

    def visit() -> None:
        with groups.visit():
            limit = cpu_groups()[1] / "cpu.cfs_quota_us"
        limit.write_text("-1")
        with groups.visit():
            assert limit.read_text().strip() == "1000"

    assert apart(visit) == 0


def test_where_a_visit_cannot_be_limited_it_is_among_the_jobs(groups: Cgroups) -> None:
    needs_v1(groups)
    above = f"cosched-test-{uuid.uuid4().hex[:12]}"
    tight = MOUNT / "cpu" / above
    tight.mkdir()
    try:
        (tight / "cpu.cfs_period_us").write_text("100000")
        (tight / "cpu.cfs_quota_us").write_text("5000")  # less than a visit may have: the kernel takes no wider one
        with parallel_side(f"{above}/jobs") as inner:

            def visit() -> None:
                home = group_of()
                with inner.visit():
                    assert group_of().endswith(f"/{above}/jobs/{VISITORS}")
                assert group_of() == home

            assert apart(visit) == 0
    finally:
        for place in places(above):
            place.rmdir()


def test_what_ends_now_and_who_reaps_have_one_limit_together(groups: Cgroups) -> None:
    needs_v1(groups)
    groups.create("job-1.1", None, 64)

    def visit() -> None:
        groups.enter("job-1.1")
        groups.ease("job-1.1")
        eased = cpu_groups()[1]
        groups.restrain("job-1.1")
        with groups.visit():
            assert cpu_groups()[1] == eased

    assert apart(visit) == 0


def test_whatever_is_raised_there_the_visitor_comes_home(groups: Cgroups) -> None:
    def visit() -> None:
        home = group_of()
        with pytest.raises(KeyError), groups.visit():
            raise KeyError
        assert group_of() == home

    assert apart(visit) == 0


def test_who_carries_may_die_at_any_moment(groups: Cgroups) -> None:
    def visit() -> None:
        home, before = group_of(), len(os.listdir("/proc/self/fd"))
        with groups.visit():
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
        with groups.visit():
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
        reaper = _Reaper(groups, [].append)
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


def test_a_visit_reaps_no_more_than_so_many_and_the_command_first(groups: Cgroups) -> None:
    def supervise() -> None:
        again: list[float] = []
        reaper = _Reaper(groups, again.append)
        orphans = [ended() for _ in range(_MOST_A_VISIT)]
        command = ended(5)
        orphans.append(ended())
        assert reaper.reaped(command) == 5
        assert len(children()) == 2, "the command was reaped before the orphans that had ended before it"
        assert again == [], "whoever has a command's end has nothing left to wait for"
        orphans += [ended() for _ in range(_MOST_A_VISIT)]
        reaper.put_off(0.0)
        assert reaper.reaped(1 << 22) is None
        assert len(children()) == 2
        assert len(again) == 1, "those who are left have another visit, whether or not anybody else ends"
        assert reaper.reaped(1 << 22) is None
        assert (len(children()), len(again)) == (2, 2), "not yet"
        reaper.put_off(0.0)
        assert reaper.reaped(1 << 22) is None
        assert (children(), len(again)) == (set(), 2)
        assert reaper.reaped(1 << 22) is None
        assert len(again) == 2, "nobody waits"

    assert apart(supervise) == 0


def test_an_endless_number_of_orphans_does_not_hold_who_reaps_them(groups: Cgroups) -> None:
    groups.create("job-1.1", None, 512)

    def supervise() -> None:
        process.become_subreaper()
        reaper = _Reaper(groups, [].append)
        maker = os.fork()
        if maker == 0:
            orphan_without_end(groups)
        try:
            for _ in range(3):
                wait_for(lambda: len(children()) > 2 * _MOST_A_VISIT, "orphans")
                there = children()
                reaper.put_off(0.0)
                assert reaper.reaped(maker) is None
                assert 0 < len(there - children()) <= _MOST_A_VISIT
        finally:
            os.kill(maker, signal.SIGKILL)
        os.waitid(os.P_PID, maker, os.WEXITED | os.WNOWAIT)
        assert reaper.reaped(maker) == -signal.SIGKILL

    assert apart(supervise) == 0


def orphan_without_end(groups: Cgroups) -> NoReturn:
    """A job that leaves processes behind, which end at once, faster than they are reaped."""
    groups.enter("job-1.1")
    while True:
        try:
            pid = os.fork()
        except OSError:
            continue
        if pid == 0:
            with contextlib.suppress(OSError):
                os.fork()
            os._exit(0)
        os.waitpid(pid, 0)


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
    sides = (guard.group, f"{guard.group}-{ENDINGS}")
    wait_for(
        lambda: any(visitors(place) for side in sides for place in places(side)), "a supervisor in a group of visitors"
    )


#: Each second a process whose parent has gone ends.
ORPHANS = "while :; do (sleep 1 & ); sleep 0.3; done"


def visitors(place: Path) -> str:
    listing = place / VISITORS / "cgroup.procs"
    return listing.read_text() if listing.exists() else ""


def test_an_orphan_that_was_put_off_is_reaped_without_another(make_guard) -> None:
    guard: RealGuard = make_guard()
    guard.prepare()
    guard.shell("(sleep 0.5 & sleep 0.5 & sleep 0.52 & sleep 0.54 & sleep 0.56 & ); echo made $$; exec sleep 1000")
    (command,) = guard.told("made")
    (supervisor,) = guard.supervisors()
    listing = f"/proc/{supervisor}/task/{supervisor}/children"
    wait_for(lambda: files.read(listing).split() == [str(command)], "the end of all orphans")


def test_nothing_is_left_of_visits_when_guard_and_jobs_have_ended(make_guard) -> None:
    guard: RealGuard = make_guard()
    guard.prepare()
    guard.shell("exit 5")
    assert guard.event("exited", job=1)["status"] == 5
    guard.event("empty", job=1)
    guard.ask({"do": "forget", "job": 1, "attempt": 1})
    wait_for(lambda: not any(alive(pid) for pid in guard.supervisors()), "the supervisor's end")
    assert guard.stop() == 0
    assert places(guard.group) == []
    assert places(f"{guard.group}-{ENDINGS}") == []


def test_who_a_guard_left_behind_reaps_where_its_successor_does(make_guard) -> None:
    guard: RealGuard = make_guard()
    guard.prepare()
    guard.shell("while ! [ -e go ]; do sleep 0.01; done; exit 5")
    guard.kill()
    guard.start()
    (guard.work / "go").touch()
    assert guard.event("exited", job=1)["status"] == 5

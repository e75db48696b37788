"""Supervisors reap on visits to another group, and come home again whatever happens."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit.guards import RealGuard, alive, places
from kit.visits import apart, children, ended, group_of, own_side
from kit.waiting import wait_for

from cosched.linux import files, machine
from cosched.linux.cgroup_visit import visiting
from cosched.linux.cgroups import ENDINGS, VISITORS, Cgroups
from node_agent.guard.base.records import Records
from node_agent.guard.base.requests import Spawn
from node_agent.guard.launcher.supervisor import _attend, _Reaper


@pytest.fixture
def groups() -> Iterator[Cgroups]:
    """The cgroups of this machine, and none of ours afterwards."""
    with own_side() as found:
        yield found


def test_a_visit_leads_to_a_group_of_its_own_and_ends_at_home(groups: Cgroups) -> None:
    def visit() -> None:
        home = group_of()
        with groups.visit():
            assert group_of().endswith(f"/{VISITORS}")
        assert group_of() == home
        assert children() == set()

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
    (visitor,) = map(int, os.read(read, 64).split())
    wait_for(
        lambda: not os.path.exists(f"/proc/{visitor}") or files.read(f"/proc/{visitor}/stat").split()[2] == "Z",
        "its end",
    )
    os.close(read)
    os.close(write)


def test_without_such_a_group_who_would_go_stays() -> None:
    def visit() -> None:
        home = group_of()
        with visiting("/proc/self/nothing", "/proc/self/nothing"):
            assert group_of() == home
            assert children() == set()

    assert apart(visit) == 0


def test_a_status_is_not_lost_and_orphans_are_reaped_now_and_then(groups: Cgroups) -> None:
    def supervise() -> None:
        reaper = _Reaper(groups, list[float]().append)
        first, *_ = [ended(status) for status in (7, 0, 0, 0)]
        assert reaper.reaped(first) == 7
        assert children() == set()
        reaper.next_s = time.monotonic() + 3600.0
        orphan, command = ended(), ended(5)
        assert reaper.reaped(1 << 22) is None
        assert children() == {orphan, command}, "orphans wait for the next visit"
        assert reaper.reaped(command) == 5, "a command's end does not"
        assert children() == set()
        assert reaper.reaped(1 << 22) is None

    assert apart(supervise) == 0


def test_a_guards_supervisors_go_there(make_guard: Callable[..., RealGuard]) -> None:
    """By the kernel's account of their group: a visit lasts about a millisecond."""
    guard: RealGuard = make_guard()
    guard.prepare(1)
    guard.spawn(["sh", "-c", "exit 5"])
    assert guard.event("exited", job=1)["status"] == 5
    (there,) = {each for place in visited(guard) for each in (place / VISITORS,) if (each / "cpu.stat").exists()}
    if (quota := there / "cpu.cfs_quota_us").exists():  # version 1 counts periods where there is a quota alone
        quota.write_text("10000")
    guard.spawn(["sh", "-c", ORPHANS], n=1)
    wait_for(lambda: re.search(r"(nr_periods|usage_usec) [1-9]", files.read(f"{there}/cpu.stat")), "a visit")


#: Each second a process whose parent has gone ends.
ORPHANS = "while :; do (sleep 1 & ); sleep 0.3; done"


def visited(guard: RealGuard) -> list[Path]:
    """Where a group of visitors may be: version 1 has it beside the jobs, version 2 among them."""
    return [place for side in (guard.group, f"{guard.group}-{ENDINGS}") for place in places(side)]


def test_nothing_is_left_of_visits_when_guard_and_jobs_have_ended(make_guard: Callable[..., RealGuard]) -> None:
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


def test_a_supervisor_whose_guard_was_killed_reaps_on_a_visit_too(make_guard: Callable[..., RealGuard]) -> None:
    guard: RealGuard = make_guard()
    guard.prepare()
    guard.shell("while ! [ -e go ]; do sleep 0.01; done; exit 5")
    guard.kill()
    guard.start()
    (guard.work / "go").touch()
    assert guard.event("exited", job=1)["status"] == 5
    assert any((place / VISITORS).is_dir() for place in visited(guard))


@pytest.mark.parametrize("down", [True, False])
def test_end_while_the_machine_shuts_down_is_not_recorded(
    groups: Cgroups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, down: bool
) -> None:
    """The job has lost its node then: a script that systemd ends has not failed by itself."""
    groups.create("job-1.1", None, 512)
    records_fd, looked = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY), tmp_path / "looked"
    records = Records(records_fd)

    def shuts_down() -> bool:
        looked.touch()
        return down

    monkeypatch.setattr(machine, "shuts_down", shuts_down)
    asked = Spawn(1, 1, 0, ("true",), {}, "/")
    plan: Any = SimpleNamespace(asked=asked, key=(1, 1, 0), group="job-1.1", oom_kills=0)
    supervisor_pid = os.fork()
    if supervisor_pid == 0:
        _attend(plan, ended(1), None, groups, records, os.open("/dev/null", os.O_WRONLY))
        os._exit(0)
    wait_for(looked.exists, "the question whether the machine shuts down")

    def has_ended() -> bool:
        """After another SIGTERM, where the machine shuts down: systemd would wait for long before it kills."""
        if down:
            os.kill(supervisor_pid, signal.SIGTERM)
        return os.waitid(os.P_PID, supervisor_pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    wait_for(has_ended, "the supervisor to end")
    status = os.waitstatus_to_exitcode(os.waitpid(supervisor_pid, 0)[1])
    assert status == (-signal.SIGTERM if down else 0)
    found = records.read("exit", 1, 1, 0)
    assert (found and found["status"]) == (None if down else 1)
    os.close(records_fd)

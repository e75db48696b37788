"""cgroup v1 and v2 behind one interface, as this machine has them; v2 in a kernel of its own too (test_guard_uml)."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit.groups import ceiling, parallel_side, removed
from kit.guards import MIB, alive, lever_of, places
from kit.needs import trouble_with_namespaces
from kit.waiting import BOUND_S, wait_for

from cosched.install.units import PLACE
from cosched.linux import cgroup_find, cgroups, check
from cosched.linux.cgroup_v1 import CgroupsV1
from cosched.linux.cgroup_v2 import CgroupsV2
from cosched.linux.cgroups import HERALD, PROBE, YES, Cgroups, NoCgroups
from cosched.linux.process import US_PER_S
from cosched.linux.weights import NONE
from node_agent.guard.base.settings import Contract
from node_agent.guard.desk.limiter import Limiter

NAME = "job-7.1"
MOUNT = "/sys/fs/cgroup"


@pytest.fixture
def side() -> str:
    return f"cosched-test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def groups(side: str) -> Iterator[Cgroups]:
    """The cgroups of this machine, and none of ours afterwards."""
    if os.geteuid() != 0:
        pytest.skip("needs root: makes cgroups")
    with parallel_side(side) as found:
        yield found
    assert places(side) == []


def inside(groups: Cgroups, work: Callable[[], None], name: str = NAME) -> int:
    """Run something in a child that has entered the group; its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            groups.enter(name)
            work()
        finally:
            os._exit(0)
    return pid


def test_a_controller_keeps_a_job_to_its_cpus_who_is_there_and_who_comes(groups: Cgroups) -> None:
    """Whatever a process asks for itself; and it lets go of all of them."""
    if groups.can()["cpu sets"] != YES:
        pytest.skip(f"needs a controller cpuset: {groups.can()['cpu sets']}")
    everywhere = set(groups.cpus())
    last = {max(everywhere)}
    told, tells = os.pipe()

    def strays() -> None:
        os.sched_setaffinity(0, everywhere)
        os.write(tells, b".")
        sleep()

    groups.create(NAME, None, 50)
    there = inside(groups, sleep)
    wait_for(lambda: groups.procs(NAME) == [there], "the child in the group")
    assert groups.confine(NAME, last)
    pids = [there, inside(groups, strays)]
    assert os.read(told, 1), "the other child is in the group of each controller, and has asked for all CPUs"
    assert [os.sched_getaffinity(pid) for pid in pids] == [last, last]
    assert groups.confine(NAME, None)
    assert [os.sched_getaffinity(pid) for pid in pids] == [everywhere, everywhere]
    groups.kill(NAME)
    for pid in pids:
        os.waitpid(pid, 0)
    wait_for(lambda: groups.empty(NAME), "the group to be empty")
    groups.remove(NAME)
    os.close(told)
    os.close(tells)


def sleep() -> None:
    time.sleep(1000)


def test_delegated_cpuset_of_v2_is_enabled_on_the_way_to_jobs(tmp_path: Path) -> None:
    """In files of the names that systemd's tree has for the units of a node; ``in_systemd.py`` has the kernel's."""
    side = tmp_path / PLACE
    (side / NAME).mkdir(parents=True)
    for group in (tmp_path, *(tmp_path / each for each in Path(PLACE).parents), side):
        (group / "cgroup.controllers").write_text("cpuset cpu memory pids\n")
        (group / "cgroup.subtree_control").write_text("cpu memory pids\n")
    (side / "cpuset.cpus.effective").write_text("0-1\n")
    (side / NAME / "cpuset.cpus").write_text("\n")
    found = CgroupsV2(str(tmp_path), PLACE)
    orders = [control.read_text() for control in tmp_path.rglob("cgroup.subtree_control")]
    assert [order.startswith("+cpuset") for order in orders] == [True] * 4
    for cpus, written in ((None, "\n"), ({1}, "1"), (None, "0-1\n")):  # a populated group takes no empty set
        assert found.confine(NAME, cpus)
        assert (side / NAME / "cpuset.cpus").read_text() == written


def test_a_group_from_its_making_to_its_removal(groups: Cgroups) -> None:
    assert groups.create(NAME, 64 * MIB, 50) == []
    assert groups.create(NAME, 64 * MIB, 50) == []  # a successor finds it there
    assert (groups.names(), groups.procs(NAME), groups.empty(NAME)) == ([NAME], [], True)
    pid = inside(groups, sleep)
    wait_for(lambda: groups.procs(NAME) == [pid], "the child in the group")
    assert not groups.empty(NAME)
    with pytest.raises(OSError, match="busy"):
        groups.remove(NAME)
    groups.kill(NAME)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    wait_for(lambda: groups.empty(NAME), "the group to be empty")
    wait_for(lambda: removed(groups, NAME), "the removal")
    assert groups.names() == []
    groups.remove(NAME)  # and again
    assert groups.procs(NAME) == []
    assert groups.usage(NAME).cpu_us == -1


def test_what_a_group_uses_is_counted(groups: Cgroups) -> None:
    groups.create(NAME, 200 * MIB, 50)
    held: list[bytearray] = []

    def hold() -> None:
        held.append(bytearray(100 << 20))
        time.sleep(1000)

    inside(groups, hold)
    used = wait_for(lambda: (used := groups.usage(NAME)).memory_bytes > 100 * MIB and used, "100 MiB in use")
    assert used.cpu_us > 0
    assert used.oom_kills == 0
    if used.memory_peak_bytes >= 0:  # v2 has it since Linux 5.19
        assert 100 * MIB < used.memory_peak_bytes <= 200 * MIB


def test_too_much_memory_is_an_oom_kill(groups: Cgroups) -> None:
    groups.create(NAME, 50 * MIB, 50)
    pid = inside(groups, lambda: bytearray(200 << 20).clear())
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    assert groups.usage(NAME).oom_kills == 1


def test_processes_are_bounded(groups: Cgroups) -> None:
    groups.create(NAME, None, 5)
    reader, writer = os.pipe()

    def multiply() -> None:
        for _ in range(10):
            try:
                if os.fork() == 0:
                    sleep()
            except OSError:
                os.write(writer, b"x")
                sleep()
        os.write(writer, b"y")

    inside(groups, multiply)
    assert os.read(reader, 1) == b"x"
    assert len(groups.procs(NAME)) == 5
    os.close(reader)
    os.close(writer)


def test_signals_reach_all_or_one_process_group(groups: Cgroups) -> None:
    groups.create(NAME, None, 50)

    def leader() -> None:
        os.setsid()
        sleep()

    first, second = inside(groups, leader), inside(groups, leader)
    wait_for(lambda: sorted(groups.procs(NAME)) == sorted([first, second]), "both in the group")
    wait_for(lambda: os.getpgid(first) == first and os.getpgid(second) == second, "groups of their own")
    assert groups.signal(NAME, signal.SIGTERM, group=first) == 1
    assert os.WTERMSIG(os.waitpid(first, 0)[1]) == signal.SIGTERM
    assert alive(second)
    assert groups.signal(NAME, signal.SIGTERM) == 1
    assert os.WTERMSIG(os.waitpid(second, 0)[1]) == signal.SIGTERM


def test_the_kernel_tells_when_a_group_becomes_empty(groups: Cgroups) -> None:
    groups.create(NAME, None, 50)
    fd = groups.watch(NAME)
    if groups.kind == "v1":
        assert fd is None
        return
    assert fd is not None
    with select.epoll() as epoll:
        epoll.register(fd, select.EPOLLPRI)
        os.pread(fd, 4096, 0)
        assert epoll.poll(0) == []
        pid = inside(groups, sleep)
        assert epoll.poll(30) != []
        os.pread(fd, 4096, 0)
        assert epoll.poll(0) == []
        groups.kill(NAME)
        os.waitpid(pid, 0)
        assert epoll.poll(30) != []
        assert b"populated 0" in os.pread(fd, 4096, 0)
    os.close(fd)


def test_limits_can_be_set_in_any_order_and_again(groups: Cgroups) -> None:
    for cpus in (0.5, 2.0, 0.05, None, 0.5, 0.5, 64.0):
        for idle in (True, False, True):
            assert groups.set_limits(cpus, idle, 100 * MIB) == []


def test_a_ceiling_below_a_tighter_one_is_no_problem(side: str, groups: Cgroups) -> None:
    """A node of a lab has a share of the machine; the contract's ceiling inside it may be the wider one."""
    inner = cgroup_find.find("auto", MOUNT, f"{side}/node/cosched")
    try:
        outer = cgroup_find.find("auto", MOUNT, f"{side}/node")
        if isinstance(outer, CgroupsV1 | CgroupsV2):
            assert outer.set_limits(0.5, False, 200 * MIB) == []
        assert inner.set_limits(1.5, True, 100 * MIB) == []
        assert inner.set_limits(0.25, True, 100 * MIB) == []
        assert inner.set_limits(None, True, 100 * MIB) == []
    finally:
        inner.close()


def test_the_contract_is_of_what_the_groups_around_leave(side: str, groups: Cgroups) -> None:
    """Half of a node that may use half a CPU is a quarter; as soon as it may use more, it is more."""
    inner = cgroup_find.find("auto", MOUNT, f"{side}/node/cosched")
    try:
        outer = cgroup_find.find("auto", MOUNT, f"{side}/node")
        limiter = Limiter(inner, Contract(0.5, 0.5, 1), 1, 200 * MIB, 0)
        for cpus, left in ((None, 0.5), (0.5, 0.25), (0.125, 0.0625), (None, 0.5)):
            limiter.relax(US_PER_S, 0, 0)  # version 1 refuses a ceiling above that is tighter than one below
            assert outer.set_limits(cpus, False, 200 * MIB) == []
            limiter.arm(0)
            assert (limiter.ceiling_cpus, limiter.limits.cpus, limiter.problems) == (left, 0.5, [])
            assert ceiling(f"{side}/node/cosched") == pytest.approx(left, 0.01)
    finally:
        inner.close()


def test_a_guard_that_was_started_in_the_parallel_side_makes_room_for_jobs(side: str, groups: Cgroups) -> None:
    """systemd starts it there; in v2, a group that has groups with controllers may have no process."""
    inner = f"{side}/unit"
    first = cgroup_find.find("auto", MOUNT, inner)
    trees = places(inner)
    for control in trees:
        if (control / "cgroup.subtree_control").exists():
            (control / "cgroup.subtree_control").write_text("-cpu -memory -pids")

    def guard() -> None:
        for tree in trees:
            (tree / "cgroup.procs").write_text(str(os.getpid()))
        found = cgroup_find.find("auto", MOUNT, inner)
        found.create(NAME, 64 * MIB, 50)
        found.enter(NAME)
        os._exit(42 if (found.kind, found.procs(NAME)) == (groups.kind, [os.getpid()]) else 1)

    pid = os.fork()
    if pid == 0:
        try:
            guard()
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42
    wait_for(lambda: removed(first, NAME), "the removal")
    for tree in trees:
        if (tree / "guard").exists():
            (tree / "guard").rmdir()
    first.close()


def node_settings(side: str, *, private_tmp: bool) -> Any:
    """The sections of node.toml that a check looks at."""
    section = SimpleNamespace(
        mode="auto", mount=MOUNT, cosched=side, desk="user.slice", users="switch", private_tmp=private_tmp
    )
    return SimpleNamespace(cgroup=section, security=section, weights=NONE)


def test_nothing_of_the_check_is_left(side: str, groups: Cgroups) -> None:
    mine, side = side, f"{side}-2"

    can = check.what_can(node_settings(side, private_tmp=True))
    assert can["cgroups"] in {"v1", "v2"}
    yes = {name for name, why in can.items() if why == "yes"}
    expected = {"cpu ceiling", "memory limit", "job kill", "protects the desk", "switch user"}
    assert yes >= (expected if trouble_with_namespaces() else expected | {"private /tmp"})
    assert places(side) == []
    assert places(mine) != []  # what was there before is left


def test_frozen_group_of_a_killed_check_is_removed_by_the_next_one(side: str, groups: Cgroups) -> None:
    checker = subprocess.Popen(["true"])
    checker.wait()
    name = cgroups.trial_name(checker.pid)
    groups.create(name, None, 50)
    pid = inside(groups, sleep, name)
    wait_for(lambda: groups.procs(name) == [pid], "the child in the group")
    wait_for(lambda: groups.freeze(name, frozen=True), "the group to stand still")
    assert check.found(node_settings(side, private_tmp=False), groups)["job kill"] == YES
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    assert groups.names() == []


def test_frozen_group_does_nothing_until_it_is_thawed(groups: Cgroups) -> None:
    groups.create(NAME, None, 50)
    reader, writer = os.pipe2(os.O_NONBLOCK)

    def write() -> None:
        while True:
            with contextlib.suppress(BlockingIOError):
                os.write(writer, b"x")

    inside(groups, write)
    with select.epoll() as epoll:
        epoll.register(reader, select.EPOLLIN)
        assert epoll.poll(BOUND_S)
        wait_for(lambda: groups.freeze(NAME, frozen=True), "the group to stand still")
        while epoll.poll(0):
            os.read(reader, 1 << 16)
        assert not epoll.poll(0.05)
        assert groups.freeze(NAME, frozen=False)
        assert epoll.poll(BOUND_S)
    os.close(reader)
    os.close(writer)


def test_weight_and_idle_class_are_set_and_taken_back(groups: Cgroups, side: str) -> None:
    groups.create(NAME, None, 50)
    for percent, idle in ((1000, False), (100, True), (1000, False), (100, False)):
        groups.weigh(NAME, percent, idle=idle)
        assert lever_of(f"{side}/{NAME}") == (percent, idle)


def test_herald_is_in_a_group_beside_the_jobs_which_goes_with_it(groups: Cgroups, side: str) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    try:
        groups.place_herald(child.pid)
        (group,) = (place for place in places(f"{side}/{HERALD}") if (place / "cgroup.procs").exists())
        assert (group / "cgroup.procs").read_text() == f"{child.pid}\n"
        assert lever_of(f"{side}/{HERALD}") > (1000, False)
    finally:
        child.kill()
        child.wait()

    def gone() -> bool:
        groups.forget_decoys("cosched-test-none")
        return not places(f"{side}/{HERALD}")

    wait_for(gone, "the group to be removed")


@pytest.mark.parametrize(
    ("cosched", "desk", "idle", "protects"),
    [
        ("cosched", "user.slice", False, True),
        ("cosched.slice", "user.slice", False, True),
        ("lab/one/node1/cosched", "lab/one/node1/desk", False, True),
        ("cosched.slice/cosched-jobs.service/jobs", "user.slice", False, False),
        ("cosched.slice/cosched-jobs.service/jobs", "user.slice", True, True),
        ("user.slice/user-1000.slice/cosched", "user.slice", False, False),
        ("user.slice/user-1000.slice/cosched", "user.slice", True, False),
    ],
)
def test_only_beside_the_desk_or_below_who_is_idle_it_is_protected(
    cosched: str, desk: str, idle: bool, protects: bool
) -> None:
    assert (cgroups.beside_desk(cosched, desk, idle=idle) == "yes") is protects


def test_a_process_at_the_desk_takes_no_controllers_from_its_owner(groups: Cgroups, side: str) -> None:
    """In v2, a group with a process cannot give controllers to groups below it, as systemd wants to at any time."""
    top = next(top for top in (Path(MOUNT, "cpu"), Path(MOUNT)) if (top / "cgroup.procs").exists())
    desk = top / f"{side}-desk"
    desk.mkdir()
    child = subprocess.Popen(["sleep", "1000"])
    try:
        groups.place_at_desk(child.pid, desk.name, PROBE)
        there = [int(pid) for listing in desk.glob("**/cgroup.procs") for pid in listing.read_text().split()]
        assert there == [child.pid]
        if (control := desk / "cgroup.subtree_control").exists():
            control.write_text("+memory")
            assert "memory" in control.read_text().split()
    finally:
        child.kill()
        child.wait()
        groups.forget_leaf(desk.name, PROBE)
        desk.rmdir()


def test_v2_without_controllers_is_not_v2(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("pids\n")
    with pytest.raises(NoCgroups, match="has no controller cpu and no memory"):
        cgroup_find.find("v2", str(tmp_path), "cosched")
    found = cgroup_find.find("auto", str(tmp_path), "cosched")
    assert found.kind == "none"
    assert "cgroup v1: no controller" in found.can()["cpu ceiling"]
    assert [path.name for path in tmp_path.iterdir()] == ["cgroup.controllers"]


def test_without_rights_there_are_no_cgroups() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: becomes somebody without rights")
    root = Path(__file__).resolve().parents[3]
    script = (
        "import os, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from cosched.linux.cgroup_find import find\n"
        "os.setgroups([]), os.setresgid(65534, 65534, 65534), os.setresuid(65534, 65534, 65534)\n"
        "print(find('auto', '/sys/fs/cgroup', 'cosched-test-none').can())\n"
    )
    command = [sys.executable, "-c", script, str(root)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=BOUND_S)
    assert "by affinity (cgroup v2: " in found.stdout or "one CPU (cgroup v2: " in found.stdout


def test_the_job_of_a_group_is_in_its_name() -> None:
    assert cgroups.job_of(cgroups.group_name(12, 3)) == (12, 3)
    for name in ("job-1", "job-1.2.3", "job--1.2", "job-1.2\n", "xjob-1.2", "guard", "job-1.x"):
        assert cgroups.job_of(name) is None


def test_who_is_held_has_a_thousandth_and_is_let_go(groups: Cgroups, side: str) -> None:
    """Written and read back: there is nobody in it, so it may be tried on any kernel."""

    def quota() -> list[str]:
        for place in places(f"{side}/{NAME}"):
            if (place / "cpu.max").exists():
                return (place / "cpu.max").read_text().split()
            if (place / "cpu.cfs_quota_us").exists():
                return [(place / name).read_text().strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
        pytest.fail("no quota")

    groups.create(NAME, None, 10)
    groups.hold(NAME, held=True)
    assert quota() == ["1000", "1000000"]
    groups.hold(NAME, held=False)
    assert quota()[0] in ("-1", "max")
    groups.remove(NAME)
    for held in (True, False):
        with pytest.raises(FileNotFoundError):
            groups.hold(NAME, held=held)

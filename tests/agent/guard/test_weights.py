"""Weights on the network and on disks: packets counted by a real queue, a real disk read by both sides."""

import contextlib
import ctypes
import json
import mmap
import os
import platform
import re
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.groups import parallel_side
from kit.guards import MIB, RealGuard
from kit.waiting import BOUND_S, wait_for

from cosched.linux import packet_priority, weights
from cosched.linux.cgroup_none import CgroupsNone
from cosched.linux.cgroups import Cgroups
from cosched.linux.weights import Weights

MOUNT = "/sys/fs/cgroup"
NEW_NETWORK = 0x40000000
#: The class 1:2 of a queue that has classes by priority.
SECOND = 0x10002
PACKETS = 20
#: Of the I/O classes (ioprio_set(2)) that whose requests are served when there are no others.
IDLE = 3
PORT = 9009
libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def side() -> str:
    if os.geteuid() != 0:
        pytest.skip("needs root: makes cgroups")
    return f"cosched-test-{uuid.uuid4().hex[:12]}"


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=BOUND_S).stdout


def forked(work: Callable[[], object], groups: Cgroups | None = None, name: str = "") -> Any:
    """What a child answers, which has entered a job's group first where one is named."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if groups is not None:
                groups.enter(name)
            os.write(write, json.dumps(work()).encode())
            status = 0
        except BaseException as error:
            os.write(write, json.dumps(repr(error)).encode())
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as answer:
        told = json.loads(answer.read() or '"nothing was told"')
    _, status = os.waitpid(pid, 0)
    assert status == 0, told
    return told


# --- the network ------------------------------------------------------------------------------------------------------


def load_module(name: str) -> None:
    """A module of the running kernel, which knows no /lib/modules (User Mode Linux)."""
    for path in Path("/usr/lib/uml/modules", platform.release()).rglob(f"{name}.ko"):
        with path.open("rb") as file:
            libc.syscall(313, file.fileno(), b"", 0)  # finit_module


def own_network() -> None:
    """A network with one interface, whose queue has a class for each of two priorities."""
    assert libc.unshare(NEW_NETWORK) == 0
    run("ip", "link", "set", "lo", "up")
    load_module("sch_htb")
    run("tc", "qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb", "default", "1")
    for number in ("1", "2"):
        run("tc", "class", "add", "dev", "lo", "parent", "1:", "classid", f"1:{number}", "htb", "rate", "1gbit")


def packets() -> dict[str, int]:
    """How many packets each class has sent."""
    told = run("tc", "-s", "class", "show", "dev", "lo")
    return {
        number: int(count) for number, count in re.findall(r"class htb (\S+) .*?Sent \d+ bytes (\d+) pkt", told, re.S)
    }


def send() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        for _ in range(PACKETS):
            out.sendto(b"x", ("127.0.0.1", PORT))


def counted(side: str) -> dict[str, Any]:
    """Packets by class: of nobody's, of a job that was there before the weights, and of a later one."""
    own_network()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        parallel_side(side, Weights(network_priority=SECOND)) as groups,
    ):
        receiver.bind(("127.0.0.1", PORT))
        groups.create("job-1.1", None, 16)
        problems = groups.set_limits(None, True, 64 * MIB)
        groups.create("job-2.1", None, 16)
        found: dict[str, Any] = {"problems": problems, "can": groups.can(), "queues": weights.queues()}
        for name in ("", "job-1.1", "job-2.1"):
            before = packets()
            if name:
                forked(send, groups, name)
            else:
                send()
            after = packets()
            found[name] = [after[number] - before[number] for number in ("1:1", "1:2")]
        return found


@pytest.mark.system("iproute2")
def test_packets_of_jobs_have_the_priority_that_was_asked_for(side: str) -> None:
    if not any(Path(MOUNT, place).exists() for place in ("cgroup.procs", "unified/cgroup.procs")):
        pytest.skip("needs a mounted cgroup v2")
    found = forked(lambda: counted(side))
    assert found[""] == [PACKETS, 0]
    assert found["job-1.1"] == [0, PACKETS], found
    assert found["job-2.1"] == [0, PACKETS], found
    assert found["problems"] == []
    assert found["queues"] == {"lo": "htb"}
    assert found["can"]["network priority"] == "yes"


def taken_back(group: Path) -> list[list[int]]:
    """Packets by class with a priority, and when it has been taken back."""
    own_network()
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", PORT))
        (group / "cgroup.procs").write_text("0")
        changes: list[Callable[[], object]] = [
            lambda: packet_priority.set_priority(str(group), 1),
            lambda: packet_priority.set_priority(str(group), SECOND),  # in the place of the first
            lambda: packet_priority.forget_priority(str(group)),
        ]
        for change in changes:
            change()
            before = packets()
            send()
            after = packets()
            found.append([after[number] - before[number] for number in ("1:1", "1:2")])
    return found


@pytest.mark.system("iproute2")
def test_a_priority_is_replaced_and_taken_back(side: str) -> None:
    tree = next((place for place in (Path(MOUNT, "unified"), Path(MOUNT)) if (place / "cgroup.procs").exists()), None)
    if tree is None:
        pytest.skip("needs a mounted cgroup v2")
    group = tree / side
    group.mkdir()
    try:
        assert forked(lambda: taken_back(group)) == [[PACKETS, 0], [0, PACKETS], [PACKETS, 0]]
    finally:
        wait_for(lambda: _removed(group), "the group to be empty")


def test_an_interface_whose_queue_has_no_priorities_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "queues", lambda: {"lo": "noqueue", "eth0": "fq_codel", "eth1": "pfifo_fast"})
    assert weights.interfaces().startswith("yes, but the queue of eth0 (fq_codel) looks at no priorities")


# --- disks ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[str]:
    """A disk that goes by groups' weights: a file, as bfq schedules it."""
    if os.geteuid() != 0:
        pytest.skip("needs root: makes a loop device")
    file = tmp_path / "disk"
    file.write_bytes(os.urandom(MIB) * 64)
    made = subprocess.run(["losetup", "-f", "--show", file], check=False, capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"needs a loop device: {made.stderr.strip()}")
    device = made.stdout.strip()
    queue = Path("/sys/block", Path(device).name, "queue")
    try:
        try:
            (queue / "scheduler").write_text("bfq")
        except OSError:
            pytest.skip("needs a kernel with the disk scheduler bfq")
        (queue / "iosched/low_latency").write_text("0")  # who has just begun goes first there
        (queue / "iosched/strict_guarantees").write_text("1")  # one request at a time: this disk is as fast as memory
        yield device
    finally:
        (queue / "scheduler").write_text("none")
        run("losetup", "-d", device)


def read_for(device: str, seconds: float, done: mmap.mmap) -> None:
    """Read off the disk itself, and tell in shared memory how many bytes it has been."""
    buffer = mmap.mmap(-1, 1 << 17)
    disk = os.open(device, os.O_RDONLY | os.O_DIRECT)
    end_s, total = time.monotonic() + seconds, 0
    while time.monotonic() < end_s:
        total += os.preadv(disk, [buffer], total % (64 * MIB))
        done[:8] = total.to_bytes(8, "big")
    os.close(disk)


def shared(side: str, device: str, wanted: Weights) -> float:
    """Of what an owner and a job read off a disk at the same time, the job's share."""
    owners = Path(MOUNT, "blkio", f"{side}-desk")
    owners.mkdir()
    told = {"owner": mmap.mmap(-1, 8), "job": mmap.mmap(-1, 8)}
    pids = []
    try:
        with parallel_side(side, wanted) as groups:
            assert groups.set_limits(None, False, 64 * MIB) == []
            assert "io weight" in groups.can()
            groups.create("job-1.1", None, 16)
            for who, done in told.items():
                pids.append(os.fork())
                if pids[-1] == 0:
                    try:
                        os.setpriority(os.PRIO_PROCESS, 0, -20)  # who waits for a CPU leaves the disk to the other
                        if who == "owner":
                            (owners / "cgroup.procs").write_text("0")
                        else:
                            groups.enter("job-1.1")
                        read_for(device, 10.0, done)
                    finally:
                        os._exit(0)
            time.sleep(0.5)
            before = {who: int.from_bytes(done[:8], "big") for who, done in told.items()}
            time.sleep(1.5)
            read = {who: int.from_bytes(done[:8], "big") - before[who] for who, done in told.items()}
            assert read["owner"] > 0
            return read["job"] / (read["job"] + read["owner"])
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        wait_for(lambda: _removed(owners), "the owner's group to be empty")


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return False
    return True


@pytest.mark.slow
def test_jobs_get_a_small_share_of_a_busy_disk(side: str, disk: str) -> None:
    if not Path(MOUNT, "blkio/cgroup.procs").exists():
        pytest.skip("needs the controller blkio of cgroup version 1")
    assert shared(side, disk, Weights(io=100)) > 0.35, "alike with the same weight"
    # a reader that waits for a CPU leaves the disk to the other: one look has to be undisturbed by other work, and
    # where the weight does nothing none of them is below a third
    wait_for(lambda: shared(side, disk, Weights(io=10)) < 0.25, "a quarter at most with a tenth of the weight", 120)


def test_disks_that_go_by_no_weights_are_named(tmp_path: Path) -> None:
    for name, scheduler in (("sda", "mq-deadline [bfq] none"), ("vda", "[none] bfq"), ("loop0", "[none]")):
        (tmp_path / name / "queue").mkdir(parents=True)
        (tmp_path / name / "queue/scheduler").write_text(f"{scheduler}\n")
    found = weights.disks(str(tmp_path))
    assert found == f"yes, but vda obeys no weights: write bfq to {tmp_path}/vda/queue/scheduler"
    (tmp_path / "vda/queue/scheduler").write_text("none [bfq]\n")
    assert weights.disks(str(tmp_path)) == "yes"


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ("mq-deadline [bfq] none", "yes"),
        ("[mq-deadline] bfq", "in part: sda [mq-deadline] among requests that the disk has not taken yet"),
        ("[none] bfq", "no: sda [none] serves jobs like its owner: write bfq to {}/sda/queue/scheduler"),
    ],
)
def test_disks_that_do_not_serve_the_idle_class_last_are_named(tmp_path: Path, chosen: str, told: str) -> None:
    for name, scheduler in (("sda", chosen), ("sdb", "[bfq]"), ("loop0", "[none]")):
        (tmp_path / name / "queue").mkdir(parents=True)
        (tmp_path / name / "queue/scheduler").write_text(f"{scheduler}\n")
    assert weights.idle_class_on_disks(str(tmp_path)) == told.format(tmp_path)


def test_without_cgroups_jobs_are_in_the_disks_idle_class() -> None:
    groups = CgroupsNone("no rights", Weights(io=10, network_priority=1))
    groups.create("job-1.1", None, 16)
    assert "network priority 1: not without cgroups (no rights)" in groups.set_limits(None, True, MIB)
    assert groups.can()["io weight"].startswith("no weight, but the disks' idle class")

    if platform.machine() == "x86_64":
        assert forked(io_class, groups, "job-1.1") == IDLE


def io_class(pid: int = 0) -> int:
    """The I/O class of a process, 0 for this one (ioprio_get(2))."""
    return int(libc.syscall(252, 1, pid)) >> 13


@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of system calls are x86_64's")
def test_job_is_in_the_idle_io_class_where_the_contract_protects_an_owner(side: str) -> None:
    with parallel_side(side, Weights(io=weights.LAST)) as groups:
        groups.create("job-1.1", None, 16)
        for idle, wanted in ((True, IDLE), (False, 0)):  # a dedicated machine has no owner
            groups.set_limits(None, idle, 64 * MIB)
            assert forked(io_class, groups, "job-1.1") == wanted
        assert "io weight" not in groups.can()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of system calls are x86_64's")
@pytest.mark.parametrize(("weight", "wanted"), [({}, IDLE), ({"io": 0}, 0)])
def test_commands_of_a_guards_jobs_and_their_children_have_the_io_class(
    make_guard: Callable[..., RealGuard], weight: dict[str, int], wanted: int
) -> None:
    guard = make_guard(start=False, contract={"cpu_ratio": 0.5})
    guard.config["weights"] = dict(weight)
    guard.start()
    guard.prepare()
    guard.shell("echo main $$; sh -c 'echo child $$; exec sleep 600'")
    assert [io_class(pid) for pid in guard.told("main", "child")] == [wanted, wanted]


# --- the guard's settings ---------------------------------------------------------------------------------------------


def test_a_guard_sets_and_shows_them(make_guard: Callable[..., RealGuard]) -> None:
    guard = make_guard(start=False)
    guard.config["weights"] = {"io": 10}
    guard.start()
    assert "io weight" in guard.ask({"do": "status"})["can"]


def test_a_weight_that_is_refused_keeps_no_other_from_being_set(tmp_path: Path) -> None:
    done: list[str] = []
    problems = weights.tried(
        ("I/O weight 10", (tmp_path / "gone").rmdir), ("network priority 1", lambda: done.append("packets"))
    )
    assert done == ["packets"]
    assert problems == ["I/O weight 10: No such file or directory"]

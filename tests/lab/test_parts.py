"""The lab's parts, each by itself: network, mounts, control groups, packets, what is kept and what is swept."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.command import Call
from kit.groups import groups
from kit.labs import Bench
from kit.needs import need_root
from kit.waiting import wait_for

from cosched.apps.lab import cgroups, control, kernel, process, rooms, state, sweep
from cosched.apps.lab.making import Patience, checked
from cosched.apps.lab.netlink import Network, NetworkError
from cosched.apps.lab.plan import Settings
from cosched.apps.lab.tiers import tried
from cosched.errors import BadInput, Failed

#: From Python 3.12 on, a fork beside pytest's own threads is warned of; what is forked here uses no locks of theirs.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def in_own_network(do: Callable[[], None]) -> str:
    """What went wrong with this in a child with a network of its own; empty when nothing did."""

    def whole() -> None:
        kernel.unshare(kernel.NEW_NET, "network")
        do()

    return tried(whole)


def test_a_bridge_and_a_pair_of_interfaces_carry_a_connection() -> None:
    need_root()

    def wire() -> None:
        told, tell = socket.socketpair()
        go, gone = socket.socketpair()
        if os.fork() == 0:
            kernel.unshare(kernel.NEW_NET, "peer")
            control.send(tell, {}, [os.open("/proc/self/ns/net", os.O_RDONLY)])
            go.recv(1)
            with Network() as there:
                there.add_address("eth0", "10.9.8.1/24")
                there.set_up("eth0")
            server = socket.create_server(("10.9.8.1", 7000))
            tell.send(b"{}")
            server.accept()[0].sendall(b"hello")
            os._exit(0)
        packet = control.receive(told)
        assert packet is not None
        with Network() as here:
            here.set_up("lo")
            here.add_bridge("lan")
            here.add_address("lan", "10.9.8.254/24")
            here.add_pair("port1", "eth0", packet[1][0], "lan")
        gone.send(b"x")
        told.recv(16)
        with socket.create_connection(("10.9.8.1", 7000), 10) as connection:
            assert connection.recv(16) == b"hello"
        os.wait()

    assert in_own_network(wire) == ""


def test_the_kernels_refusal_says_what_was_asked() -> None:
    need_root()

    def twice() -> None:
        with Network() as network:
            network.add_bridge("lan")
            with pytest.raises(NetworkError, match="File exists: 'bridge lan'"):
                network.add_bridge("lan")

    assert in_own_network(twice) == ""


def test_what_lies_in_a_private_place_is_kept_and_the_place_itself_is_not(tmp_path: Path) -> None:
    inner = tmp_path / "checkout with spaces"
    (inner / "deeper").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(inner)
    places: list[str | Path] = [inner / "deeper", link, "/tmp", "/", "/usr", "/dev/shm", tmp_path / "missing"]
    assert rooms.kept(places) == [str(inner.resolve())]


def test_control_groups_of_a_lab_have_its_limits_and_go_with_what_is_in_them() -> None:
    need_root()
    name = f"parts-{os.getpid()}"
    try:
        cgroups.make(name, {"node1": cgroups.Share(2, 128 << 20, 0.5)})
        assert not cgroups.occupied(name)
        sleeper = process.start(
            process.Program(
                ["sleep", "600"], dict(os.environ), "/", (0, 1, 2), groups=cgroups.doors(name, "node1", "desk")
            )
        )
        assert cgroups.occupied(name)
        (group,) = {
            str(path.parent)
            for kind in ("shares", "weight")
            for path in groups(f"**/cosched-lab/{name}/node1/cpu.{kind}")
        }
        quota = Path(group, "cpu.max") if Path(group, "cpu.max").exists() else Path(group, "cpu.cfs_quota_us")
        assert quota.read_text().split()[0] == "5000"
    finally:
        removed = cgroups.remove(name)
    assert removed
    assert process.ended(os.waitpid(sleeper, 0)[1]) == {"signal": 9}
    assert groups(f"**/cosched-lab/{name}") == []
    assert cgroups.remove(name)


def test_version_2_is_taken_where_it_has_cpu_and_memory_else_version_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = tmp_path / "cpu memory", tmp_path / "unified"
    first.mkdir()
    second.mkdir()
    table = (
        f"cgroup {str(first).replace(' ', chr(92) + '040')} cgroup rw,cpu,memory 0 0\n"
        f"cgroup2 {second} cgroup2 rw 0 0\n"
        "systemd /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0\n"
    )
    monkeypatch.setattr(cgroups, "_MOUNTS", tmp_path / "mounts")
    (tmp_path / "mounts").write_text(table)
    (second / "cgroup.controllers").write_text("pids\n")
    assert [(each.version, each.mount) for each in cgroups.hierarchies()] == [(1, first)]
    (second / "cgroup.controllers").write_text("cpu memory pids\n")
    assert [(each.version, each.mount) for each in cgroups.hierarchies()] == [(2, second)]
    (tmp_path / "mounts").write_text("cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n")
    assert cgroups.hierarchies() == []


def test_cpu_of_all_processes_is_exact_where_none_is_in_the_root_of_version_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "hierarchies", lambda: [cgroups.Hierarchy(tmp_path, 2, frozenset({"cpu"}))])
    for name, used_us in (("system.slice", 1_500_000), ("user.slice", 2_000_000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpu.stat").write_text(f"usage_usec {used_us}\nuser_usec 0\n")
    (tmp_path / "cgroup.procs").write_text("2\n")
    monkeypatch.setattr(os.path, "exists", lambda path: path != "/proc/2/exe")
    assert cgroups.all_used_s() == 3.5
    monkeypatch.setattr(os.path, "exists", lambda _: True)
    assert cgroups.all_used_s() != 3.5


@pytest.mark.parametrize("version", [1, 2])
def test_pinned_node_gets_a_cpuset_only_where_the_controller_is(version: int) -> None:
    share = cgroups.Share(1, 0, own_cpus="0")
    for controllers in ({"cpu", "memory"}, {"cpu", "memory", "cpuset"}):
        written = dict(cgroups._settings(cgroups.Hierarchy(Path("/"), version, frozenset(controllers)), share))
        assert ("cpuset.cpus" in written) == ("cpuset" in controllers)


def test_packets_carry_descriptors_and_a_bad_one_leaks_none() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        before = len(os.listdir("/proc/self/fd"))
        with open(os.devnull) as file:
            control.send(ours, {"do": "x"}, [file.fileno()])
        packet = control.receive(theirs)
        assert packet is not None
        message, descriptors = packet
        assert (message, len(descriptors)) == ({"do": "x"}, 1)
        assert not os.get_inheritable(descriptors[0])
        control.close(descriptors)
        for bad in (b"[1]", b"{", b"x" * (control.MAX_PACKET_BYTES + 1)):
            socket.send_fds(ours, [bad], [0])
            with pytest.raises(ValueError):  # noqa: PT011 (json's and ours)
                control.receive(theirs)
        assert len(os.listdir("/proc/self/fd")) == before


def test_an_order_comes_back_as_it_was() -> None:
    order = {"argv": ["a b", os.fsdecode(b"\xff")], "env": {"X": "y" * 300_000}, "cwd": "/", "rows": 1, "columns": 2}
    paper = control.written_order(order)
    try:
        assert control.read_order(paper) == order
    finally:
        os.close(paper)


def test_what_carries_the_cookie_is_killed_with_all_below_and_nothing_else() -> None:
    cookie = os.urandom(8).hex()
    script = "import subprocess, time; p = subprocess.Popen(['env', '-i', 'sleep', '605'], start_new_session=True); print(p.pid, flush=True); time.sleep(605)"  # noqa: E501
    other = subprocess.Popen(["sleep", "605"])
    marked = subprocess.Popen(
        [sys.executable, "-c", script],
        env=os.environ | {"COSCHED_LAB_COOKIE": cookie},
        stdout=subprocess.PIPE,
        text=True,
    )
    with other, marked:
        assert marked.stdout is not None
        below = int(marked.stdout.readline())
        try:
            assert sweep.kill_marked(cookie)
            assert marked.wait(10) == -9
            wait_for(lambda: state.start_time(below) is None, "the process below to go")
            assert other.poll() is None
        finally:
            other.kill()
            marked.kill()


GOOD = Settings(nodes=4, cpus=1, memory_bytes=None, tier=0, policy="easy", users=0, cap=False)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nodes": 0}, "--nodes: 0; expected 1 to 64"),
        ({"nodes": 65}, "--nodes: 65; expected 1 to 64"),
        ({"cpus": 0}, "--cpus: 0; expected 1 to 64"),
        ({"tier": 4}, "--tier: 4; expected 1, 2 or 3"),
        ({"users": 5}, "--users: 5; expected 0 to 4"),
        ({"mpl": 0}, "--mpl: 0; expected 1 to 16"),
        ({"pin": True, "nodes": 64, "cpus": 64}, "--pin: 64 nodes of 64 CPUs; expected at most the"),
        ({"memory_bytes": 1}, "--mem: 1 B for each node; expected 64 MiB to"),
    ],
)
def test_settings_that_no_lab_can_have(change: dict[str, int], said: str) -> None:
    assert checked(GOOD) == GOOD
    fields = {key: getattr(GOOD, key) for key in GOOD.__dataclass_fields__}
    with pytest.raises(BadInput) as refused:
        checked(Settings(**(fields | change)))
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("up", "--name", "a/b"), "letters, digits"),
        (("up", "--mem", "12"), "--mem"),
        (("up", "--mem", "2GX"), "--mem: unknown unit 'GX'"),
        (("up", "--users", "50x"), "--users: '50x'"),
        (("up", "--users", "101%"), "--users: '101%'"),
        (("up", "--tier", "7"), "--tier: 7"),
        (("up", "--policy", "eazy"), "did you mean 'easy'?"),
        (("up", "--keep", "/no/such/place"), "--keep: /no/such/place is no directory"),
        (("up", "--node", "2"), "No such option"),
        (("down", "--all", "--name", "x"), "one of the two"),
        (("run", "node1"), "no lab 'lab' is up"),
        (("run", "--lab", "x", "node1"), "no lab 'x' is up"),
    ],
)
def test_bad_input_of_the_commands(
    cosched: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.setenv("COSCHED_RUNTIME_DIR", str(tmp_path / "run"))
    ended = cosched("lab", *arguments)
    assert ended.status == (1 if arguments[0] == "run" else 2)
    assert said in ended.err
    assert list(tmp_path.iterdir()) == []


def test_a_runtime_directory_of_somebody_else_is_not_used(user_bench: Bench, tmp_path: Path) -> None:
    need_root()
    user_bench.env["COSCHED_RUNTIME_DIR"] = "/usr"
    ended = user_bench.call("up", "--nodes", "1")
    assert ended.returncode == 1
    assert "not this user's own directory" in ended.stderr


def test_a_lock_is_had_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSCHED_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(state, "_LOCK_S", 0.1)
    directory = tmp_path / "run" / "labs" / "x"
    with state.locked(directory) as there:
        assert not there
    with state.locked(directory, make=True) as there:
        assert there
        assert state.in_work(directory)
        with pytest.raises(Failed, match="another command"), state.locked(directory):
            pass
    assert not state.in_work(directory)


def test_each_new_sign_of_progress_begins_the_time_limit_anew() -> None:
    patience = Patience(60, 0)
    assert not patience.exhausted({"guard.log"}, 59)
    assert not patience.exhausted({"guard.log", "node1"}, 118)
    assert not patience.exhausted({"guard.log"}, 178)
    assert patience.exhausted({"guard.log", "node1"}, 179)


def test_a_process_is_known_by_number_and_start() -> None:
    me = {"holder": {"pid": os.getpid(), "start": state.start_time(os.getpid())}}
    assert state.is_held(json.loads(json.dumps(me)))
    assert not state.is_held({"holder": {"pid": os.getpid(), "start": 1}})
    assert not state.is_held({})

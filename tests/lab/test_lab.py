"""Labs for real, in each tier: up, nodes that do not see each other, commands at their desks, down."""

import contextlib
import json
import os
import pty
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.groups import groups, pids
from kit.labs import Bench, bench_of
from kit.waiting import BOUND_S, wait_for

from cosched.apps.lab import Lab, cgroups
from cosched.errors import Failed
from local_load.profile import find

#: From Python 3.12 on, a fork beside pytest's own threads is warned of; what is forked here uses no locks of theirs.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


EXAMPLES = Path(__file__).resolve().parents[2] / "docs/examples"
Tiered = tuple[Bench, int]
NODES = ("node1", "node2")


def of_tier(tier: int) -> pytest.MarkDecorator:
    """Tests that look at one lab run in one process, where it is made once."""
    return pytest.mark.xdist_group(f"lab of tier {tier}")


@pytest.fixture(scope="module", params=[pytest.param(f"tier {each}", marks=of_tier(each)) for each in (1, 2, 3)])
def two_nodes(request: pytest.FixtureRequest) -> Iterator[Tiered]:
    """A lab of each tier, for all tests that leave it as it is."""
    tier = int(request.param[-1])
    with bench_of(tier) as bench:
        assert bench.up("--nodes", 2, "--tier", tier).splitlines()[0] == bench.done("status").splitlines()[0]
        yield bench, tier
        bench.down()
        assert bench.left() == []


def test_lab_commands_print_the_tier(two_nodes: Tiered) -> None:
    bench, tier = two_nodes
    line = bench.done("status").splitlines()[0]
    assert line.startswith(f"lab {bench.name}: tier {tier}, ")
    assert ("; not tier " in line) == (tier > 1)
    ran = bench.call("run", "node1", "--", "true")
    assert (ran.stdout, ran.stderr.splitlines()[0]) == ("", line)
    told = json.loads(bench.done("status", "--json"))
    assert (told["name"], told["state"], told["tier"]) == (bench.name, "up", tier)
    assert [(node["name"], node["state"]) for node in told["nodes"]] == [(name, "up") for name in NODES]
    assert all(node["services"] == {"guard": "running", "agent": "running"} for node in told["nodes"])
    assert told["scheduler"] == {"scheduler": "running"}


def test_a_policy_of_ones_own_decides_and_the_user_at_a_desk_is_seen(
    namespaced_user_bench: Bench, tmp_path: Path
) -> None:
    """Its directory is seen by the scheduler, in a namespace of its own, in a lab of an ordinary user."""
    bench = namespaced_user_bench
    for place in (tmp_path, *tmp_path.parents[:3]):
        place.chmod(place.stat().st_mode | 0o055)  # the lab may be an ordinary user's
    shutil.copy(EXAMPLES / "least_work.py", tmp_path)
    (tmp_path / "job.sh").write_text("#!/bin/sh\nexit 7\n")
    bench.up("--nodes", 2, "--users", "50%", "--policy", "least_work:LeastWorkFirst", cwd=tmp_path)
    submit = [*bench.prefix, bench.python, "-P", "-m", "cosched.apps.cli.main", "submit", "--lab", bench.name]
    job = [*submit, "--wait", "--output", "/dev/null", str(tmp_path / "job.sh")]
    ended = subprocess.run(job, env=bench.environment(), cwd="/", capture_output=True, text=True, check=False)
    assert ended.returncode == 7, ended
    refused = bench.call("up", "--name", "other", "--policy", "least_work:LeastWorkFirst", cwd="/")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "policy least_work:LeastWorkFirst: no module 'least_work'" in refused.stderr

    def desks() -> list[str]:
        return [node.desk for node in bench.nodes()]

    wait_for(lambda: desks() == ["present", "away"], "the user at node1 and none at node2")


def test_a_second_up_with_the_same_settings_is_content_and_with_others_it_says_so(two_nodes: Tiered) -> None:
    bench, tier = two_nodes
    before = json.loads(bench.done("status", "--json"))["holder"]
    assert "was up already" in bench.up("--nodes", 2, "--tier", tier)
    other = bench.call("up", "--name", bench.name, "--nodes", 3)
    assert other.returncode == 2
    assert f"--nodes: 3, but the lab {bench.name} is up with 2" in other.stderr
    assert json.loads(bench.done("status", "--json"))["holder"] == before


def test_a_command_has_the_callers_pipes_directory_arguments_and_its_status_comes_back(two_nodes: Tiered) -> None:
    bench, _ = two_nodes
    shell = bench.run(
        "node1", "sh", "-c", 'tr a-z A-Z; pwd; echo "$1"; echo to the error >&2; exit 7', "x", "a  b", cwd="/usr",
        input="piped\n",
    )  # fmt: skip
    assert (shell.returncode, shell.stdout) == (7, "PIPED\n/usr\na  b\n")
    assert "to the error" in shell.stderr
    assert bench.run("node1", "sh", "-c", "kill -9 $$").returncode == 128 + 9
    missing = bench.run("node1", "no-such-program")
    assert (missing.returncode, missing.stderr) == (127, "cosched: node1: no-such-program: command not found\n")
    assert bench.run("node1", "/etc/hosts").returncode == 126
    other = bench.run("node7", "true")
    assert other.returncode == 2
    assert "no node 'node7'" in other.stderr


def test_a_long_environment_and_bytes_that_are_no_text_arrive(two_nodes: Tiered) -> None:
    bench, _ = two_nodes
    odd = {"LONG": "x" * 100_000, "ODD": os.fsdecode(b"caf\xe9")}
    ended = subprocess.run(
        bench.argv("run", "-q", "node2", "--", "sh", "-c", 'echo ${#LONG}; printf %s "$ODD"'),
        env=bench.environment() | odd,
        cwd="/", capture_output=True, timeout=BOUND_S, check=True,
    )  # fmt: skip
    assert ended.stdout == b"100000\ncaf\xe9"


def test_a_signal_to_the_caller_reaches_the_command(two_nodes: Tiered) -> None:
    bench, _ = two_nodes
    script = "trap 'exit 42' INT; echo ready; while :; do sleep 0.05; done"
    with bench.running("node1", "sh", "-c", script) as running:
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGINT)
        assert running.wait(BOUND_S) == 42


def test_a_command_whose_caller_dies_gets_hung_up(two_nodes: Tiered) -> None:
    bench, _ = two_nodes
    with bench.running("node1", "sh", "-c", "echo $$; exec sleep 600") as running:
        pid = running.stdout.readline().strip()
        running.kill()
    ended = f"kill -0 {pid} || echo ended"
    wait_for(lambda: bench.output("node1", "sh", "-c", ended), "the command to end")


def test_at_a_terminal_the_command_has_one_of_the_node(two_nodes: Tiered) -> None:
    bench, _ = two_nodes
    pid, master = pty.fork()
    if pid == 0:
        os.chdir("/")
        os.execvpe(
            bench.prefix[0] if bench.prefix else bench.python,
            bench.argv("run", "-q", "node1", "--", "sh"),
            bench.environment(),
        )
    typed = b"sh -c 'tty; exec sleep 600'\n"  # one job: no moment at which the key reaches the shell instead
    seen = b""
    try:
        for keys, until in ((typed, b"/dev/pts/"), (b"\x03", b"^C"), (b"echo after=$?; exit 9\n", b"after=130")):
            os.write(master, keys)
            seen = read_until(master, until)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        os.close(master)
    assert status == 9
    assert b"after=130" in seen


def read_until(master: int, mark: bytes) -> bytes:
    seen = b""
    while mark not in seen.replace(b"echo after=", b""):
        assert select.select([master], [], [], 30)[0], f"waited for {mark!r}, saw {seen!r}"
        seen += os.read(master, 4096)
    return seen


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, Path]]:
    """A lab of root's as a context, with limits of memory, and a directory that its nodes see too."""
    kept = tmp_path_factory.mktemp("places") / "with a space"
    kept.mkdir()
    with bench_of(1) as bench, pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSCHED_RUNTIME_DIR", str(bench.runtime))
        said: list[str] = []
        with Lab.up(2, name=bench.name, cpus=2, memory_bytes=256 << 20, keep=[kept], say=said.append) as lab:
            assert said == [lab.headline]
            yield bench, kept
        assert bench.left() == []
        with pytest.raises(Failed, match="no lab"):
            Lab(bench.name)


@pytest.mark.xdist_group("limited lab")
def test_kept_directory_is_seen_and_another_is_reported_as_not_seen(limited: tuple[Bench, Path]) -> None:
    bench, kept = limited
    other = kept.with_name("other")
    other.mkdir()
    (kept / "file").write_text("seen\n")
    ran = bench.run("node1", "pwd", cwd=other)
    assert ran.returncode == 0
    assert ran.stdout.strip() != str(other)
    assert f"{other} is not to be seen on node1" in ran.stderr
    assert bench.run("node1", "cat", "file", cwd=kept).stdout == "seen\n"
    assert bench.output("node1", "ls", kept.parent).splitlines() == [kept.name]


@pytest.fixture
def separated(two_nodes: Tiered) -> Bench:
    """Two nodes with namespaces."""
    return two_nodes[0]


with_namespaces = pytest.mark.parametrize(
    "two_nodes", [pytest.param(f"tier {each}", marks=of_tier(each)) for each in (1, 2)], indirect=True
)


@with_namespaces
def test_nodes_have_names_of_their_own_and_know_each_other(separated: Bench) -> None:
    assert [separated.output(node, "hostname").strip() for node in NODES] == list(NODES)
    known = separated.output("node1", "getent", "hosts", "node2", "head").split()
    assert known[1::2] == ["node2", "head"]


@with_namespaces
def test_nodes_do_not_see_each_others_processes(separated: Bench) -> None:
    commands = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
    with separated.running("node1", "sh", "-c", "echo here; exec sleep 604") as running:
        running.stdout.readline()
        assert "sleep 604" in separated.output("node1", "sh", "-c", commands)
        assert "sleep 604" not in separated.output("node2", "sh", "-c", commands)
        assert b"sleep\x00604\0" in cmdlines()  # the host does see it


def cmdlines() -> list[bytes]:
    """The command lines of all processes but those that end meanwhile."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.append(path.read_bytes())
    return found


@with_namespaces
def test_nodes_do_not_see_each_others_files_memory_and_terminals(separated: Bench) -> None:
    mark = f"mark-{separated.name}"
    places = ("/tmp", "/var/tmp", "/dev/shm", "/run")
    separated.output("node1", "sh", "-c", "; ".join(f"echo mine >{place}/{mark}" for place in places))
    script = "; ".join(f"test -e {place}/{mark} && echo {place}" for place in places) + "; ls /dev/pts"
    assert separated.output("node1", "sh", "-c", script).split() == [*places, "ptmx"]
    assert separated.output("node2", "sh", "-c", script).split() == ["ptmx"]
    assert [place for place in places if Path(place, mark).exists()] == []
    consoles = separated.output("node1", "sh", "-c", "ls /dev")
    assert set(consoles.split()) <= {
        "fd", "full", "fuse", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
        "urandom", "zero",
    }  # fmt: skip


@with_namespaces
def test_ipc_is_a_nodes_own(separated: Bench) -> None:
    made = separated.output("node1", "ipcmk", "-M", "4096")
    assert "Shared memory id" in made
    assert len(separated.output("node1", "ipcs", "-m").strip().splitlines()) == 3
    assert len(separated.output("node2", "ipcs", "-m").strip().splitlines()) == 2


SERVE = """
import socket
with socket.create_server(("", 9999)) as server:
    print("listening", flush=True)
    connection, peer = server.accept()
    with connection:
        connection.sendall(peer[0].encode())
"""
ASK = "import socket; c = socket.create_connection(('node1', 9999), 10); print(c.recv(99).decode()); c.close()"


@with_namespaces
def test_nodes_reach_each_other_by_name(separated: Bench) -> None:
    python = separated.python
    with separated.running("node1", python, "-c", SERVE) as server:
        assert server.stdout.readline() == "listening\n"
        assert separated.output("node2", python, "-c", ASK) == "10.77.0.2\n"
        assert server.wait(BOUND_S) == 0


@with_namespaces
def test_the_scheduler_is_found_from_a_desk(separated: Bench) -> None:
    python = separated.python
    told = separated.run("node2", python, "-P", "-m", "cosched.apps.cli.main", "nodes", "--json")
    assert [node["name"] for node in json.loads(told.stdout)["nodes"]] == list(NODES)


@pytest.mark.xdist_group("limited lab")
def test_desk_command_over_the_cgroups_memory_limit_is_killed_alone(limited: tuple[Bench, Path]) -> None:
    bench, _ = limited
    lines = bench.output("node2", "cat", "/proc/self/cgroup").splitlines()
    places = {line.split(":")[1]: line.split(":")[2] for line in lines}
    group = f"/cosched-lab/{bench.name}/node2"
    if places.get(""):  # version 2, in whole or beside version 1
        places.setdefault("memory", places[""])
        places.setdefault("cpu", places[""])
    by_controller = {name: place for names, place in places.items() for name in names.split(",")}
    assert by_controller["cpu"] == by_controller["memory"] == f"{group}/desk"
    files = ("memory.limit_in_bytes", "memory.max")
    limits = [path.read_text().strip() for file in files for path in groups(f"**{group}/{file}")]
    assert limits == [str(256 << 20)]
    eater = bench.run("node1", bench.python, "-c", "x = bytearray(400 << 20); print(len(x))")
    assert eater.returncode == 128 + signal.SIGKILL
    services = json.loads(bench.done("status", "--json"))["nodes"][0]["services"]
    assert services == {"guard": "running", "agent": "running"}
    assert bench.output("node1", "hostname") == "node1\n"


def test_a_capped_node_has_its_part_its_user_asks_for_less_and_its_agent_is_outside(root_bench: Bench) -> None:
    root_bench.up("--nodes", 4, "--cpus", 1, "--cap", "--users", 2, "--mem", "256MiB")
    lab = f"**/cosched-lab/{root_bench.name}"
    part = min(1.0, 0.85 * (os.cpu_count() or 1) / 4)
    (cap,) = {each for node in NODES if (each := cgroups.ceiling_cpus(cgroups.path(root_bench.name, node))) is not None}
    assert cap == pytest.approx(part, 0.01)
    assert pids(f"{lab}/agents/system/cgroup.procs")
    assert not pids(f"{lab}/node*/system/cgroup.procs")
    users = [json.loads(file.read_text()) for file in sorted(root_bench.directory.glob("nodes/*/user.json"))]
    assert {each["name"] for each in users} == {"xwindows", "internet"}  # of all desks: no kind was asked for
    user = users[0]
    whole = find(user["name"])
    assert user["cpu_share"] == pytest.approx(whole.cpu_share * part)
    assert user["typing"]["work_s"] == pytest.approx(whole.typing.work_s * part)


@pytest.mark.parametrize("two_nodes", [pytest.param("tier 3", marks=of_tier(3))], indirect=True)
def test_tier_3_takes_no_job_over_several_nodes_and_says_what_to_do(two_nodes: Tiered) -> None:
    bench, _ = two_nodes
    script = bench.runtime.parent / "job.sh"
    script.write_text("#!/bin/sh\n")
    submit = [*bench.prefix, bench.python, "-P", "-m", "cosched.apps.cli.main", "submit", "--lab", bench.name]
    ended = subprocess.run(
        [*submit, "-n", "2", script],
        env=bench.environment(), cwd="/", capture_output=True, text=True, timeout=BOUND_S, check=False,
    )  # fmt: skip
    assert ended.returncode != 0
    assert "tier 3" in ended.stderr


@pytest.mark.parametrize("two_nodes", [pytest.param("tier 1", marks=of_tier(1))], indirect=True)
def test_a_lab_of_one_cluster_has_no_link(separated: Bench) -> None:
    ended = separated.call("cut", "--name", separated.name, "c1", "c2")
    assert (ended.returncode, "it has one cluster" in ended.stderr) == (2, True)


@pytest.mark.xdist_group("limited lab")
def test_in_python_a_lab_runs_commands_and_has_a_client(limited: tuple[Bench, Path]) -> None:
    """Made, left and no more there as a context: the fixture."""
    lab = Lab(limited[0].name)
    assert (lab.nodes, lab.tier, lab.widest_job) == (list(NODES), 1, 4)
    ran = lab.run("node2", ["sh", "-c", "cat; hostname; exit 3"], stdin=b"given\n", directory="/usr")
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, b"given\nnode2\n", b"")
    with pytest.raises(TimeoutError):
        lab.run("node1", ["sleep", "600"], timeout_s=0.2)
    with lab.popen("node1", ["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
        assert cat.communicate(b"through", timeout=BOUND_S) == (b"through", None)
    with lab.client() as client:
        assert client.cluster().name == lab.name
    assert lab.journal.is_file()


def test_down_ends_what_ignores_every_signal_and_leaves_nothing(two_nodes: Tiered) -> None:
    """The last of its lab."""
    bench, _ = two_nodes
    line = bench.done("status").splitlines()[0]
    stubborn = (
        "import os, signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; print('deaf', flush=True); "
        "os.setsid() if os.fork() == 0 else 0; time.sleep(607)"
    )
    with bench.running("node1", bench.python, "-c", stubborn) as running:
        assert running.stdout.readline() == "deaf\n"
        first, *_, last = bench.down().splitlines()
        assert (first, last) == (line, f"lab {bench.name} is down")
        running.wait(BOUND_S)
        assert bench.left() == []
    assert bench.down() == f"lab {bench.name} was not up\n"
    assert json.loads(bench.done("status", "--json", "--name", bench.name))["state"] == "down"

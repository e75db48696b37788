"""PVM and MPICH: their host files, what a job's environment tells them, and their words for failures, as they were."""

import dataclasses
import os
import subprocess
from pathlib import Path

import msgspec
import pytest
from kit.kept_frames import known
from kit.waiting import BOUND_S

from cosched.config.node import node_config
from cosched.linux.interfaces import interface_of
from cosched.wire.api import Failure
from cosched.wire.messages import Fence, JobFile, OrderId, Peer, Prepare
from cosched.wire.version_4 import HYDRA, PVMD, files_of, mpich_hosts, pvm_hosts, watched_in
from node_agent.core.attempt import Attempt
from node_agent.service.attempts import AttemptFiles
from node_agent.service.environment import Environment
from space_scheduler.launch import Context, diagnose, job_environment, job_files

PEERS = (Peer("node1", "10.77.0.1", 1, 2), Peer("node2", "10.77.0.2", 1, 2))


@pytest.fixture
def context() -> Context:
    return Context(
        job_id=12, attempt=2, name="cavity", tasks=4, user="ann", cluster="lab", peers=PEERS, network="10.77.0.0/24",
        directory="/data/ann/run", submitted={"PATH": "/usr/bin"},
    )  # fmt: skip


def test_every_job_has_a_virtual_machine_of_its_own(context: Context) -> None:
    environment = job_environment(context)
    again = job_environment(dataclasses.replace(context, attempt=3))
    assert environment["PVM_VMID"] != again["PVM_VMID"]
    assert environment["PVM_TMP"] == "{tmp}"
    assert environment["PVM_RSH"] == environment["HYDRA_LAUNCHER_EXEC"] == "{rsh}"
    assert environment["PVM_WD"] == "/data/ann/run"
    assert environment["PVM_PATH"].split(":")[0] == "/data/ann/run"


def test_a_users_own_virtual_machine_stays_out_of_his_job(context: Context) -> None:
    mine = {"PVMSOCK": "/tmp/pvmtmp000001.0", "PVMEPID": "7", "PVM_VMID": "mine", "PVM_TMP": "/tmp", "PVM_RSH": "ssh"}
    environment = job_environment(dataclasses.replace(context, submitted=mine))
    assert "PVMSOCK" not in environment
    assert "PVMEPID" not in environment
    assert (environment["PVM_VMID"], environment["PVM_TMP"], environment["PVM_RSH"]) == (
        "cosched-12-2",
        "{tmp}",
        "{rsh}",
    )


def test_where_tasks_are_looked_for_may_be_said_otherwise(context: Context) -> None:
    mine = {"PVM_PATH": "/opt/bin", "PVM_WD": "/scratch", "PVMHOSTFILE": "/data/ann/hosts", "UCX_TLS": "all"}
    environment = job_environment(dataclasses.replace(context, submitted=mine))
    assert {name: environment[name] for name in mine} == mine


def test_a_directory_that_pvms_search_path_cannot_have_is_left_out(context: Context) -> None:
    odd = job_environment(dataclasses.replace(context, directory="/data/ann/12:30"))
    assert "12:30" not in odd["PVM_PATH"]
    assert odd["PVM_WD"] == "/data/ann/12:30"


def test_only_roots_jobs_let_pvm_run_as_root(context: Context) -> None:
    assert "PVM_ALLOW_ROOT" not in job_environment(context)
    assert job_environment(dataclasses.replace(context, user="root"))["PVM_ALLOW_ROOT"] == "1"


def test_host_files_of_both() -> None:
    assert mpich_hosts(PEERS).text == "10.77.0.1:2\n10.77.0.2:2\n"
    assert mpich_hosts(PEERS[:1]).text == "localhost:2\n"
    assert pvm_hosts(PEERS, "node1").text == "{host_name} ip=10.77.0.1\nnode2 ip=10.77.0.2\n"
    assert pvm_hosts(PEERS[:1], "node1").text == "{host_name} ip=127.0.0.1\n"


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    said = {"name": "node2", "cluster": "c", "procs": 1, "memory_bytes": 1 << 30, "launch": {"address": "127.0.0.1"}}
    scheduler = {"url": "wss://127.0.0.1:1/v1/agent"}
    config = node_config({**said, "scheduler": scheduler, "paths": {"run": str(tmp_path)}}, "node.toml")
    (tmp_path / "bin").mkdir()
    return Environment(config, str(tmp_path / "bin/cosched-rsh"), "agent.sock", "job.sock")


def test_agent_writes_a_jobs_files_with_its_own_names_for_all_to_read(
    tmp_path: Path, environment: Environment, context: Context
) -> None:
    environment.write((12, 2), job_files(context, "node2"), PEERS)
    directory = tmp_path / "jobs" / "12.2"
    texts = {path.name: path.read_text() for path in directory.iterdir()}
    assert set(texts) >= {"nodes", "nodes.mpich", "nodes.pvm"}
    assert texts["nodes.pvm"] == f"node1 ip=10.77.0.1\n{os.uname().nodename} ip=10.77.0.2\n"
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o644}
    programs = {path.name: path for path in (tmp_path / "bin").iterdir()}
    assert set(programs) >= {"cosched-rank", "cosched-pvmd"}
    assert {path.stat().st_mode & 0o777 for path in programs.values()} == {0o755}
    assert f'-I -S "{tmp_path}/bin/witness.py" "$$"' in programs["cosched-rank"].read_text()
    environment.forget((12, 2))
    assert not directory.exists()


def test_agent_knows_a_launchers_files_by_its_order_alone(
    tmp_path: Path, environment: Environment, context: Context
) -> None:
    files = (JobFile("{made_up}", "hosts.made-up", "{boot} {host_name} {tmp} {starter}\n"),
             JobFile("{starter}", "cosched-starter", "#!/bin/sh\n", program=True))  # fmt: skip
    order = prepare({"MADE_UP": "{made_up}", "START": "{starter}", "KEPT": "{unknown}"}, files)
    environment.write((12, 2), files, PEERS)
    made = environment.of((12, 2), order)
    assert made["KEPT"] == "{unknown}"
    assert made["START"] == f"{tmp_path}/bin/cosched-starter"
    assert Path(made["MADE_UP"]).read_text() == f"{{boot}} {os.uname().nodename} /tmp {made['START']}\n"
    theirs = "x=/there/bin/cosched-starter -h /there/jobs/12.2/hosts.made-up /there/jobs/12.2/nodes"
    ours = f"x={made['START']} -h {made['MADE_UP']} /there/jobs/12.2/nodes"
    assert environment.localized(Attempt(12, 2, "boot", "c", order), theirs) == ours


def test_program_that_is_in_place_is_not_written_again(environment: Environment, tmp_path: Path) -> None:
    """It may lie on a disk that does not answer, and the agent's loop would wait for it at each order."""
    program = tmp_path / "bin" / PVMD.name
    environment.write((12, 2), (PVMD,), PEERS)
    first = program.stat().st_ino
    environment.write((13, 1), (PVMD,), PEERS)
    assert program.stat().st_ino == first
    environment.write((13, 1), (msgspec.structs.replace(PVMD, text="#!/bin/sh\n"),), PEERS)
    assert program.read_text() == "#!/bin/sh\n"


@pytest.mark.parametrize("name", ["cosched-rsh", "witness.py", "sh"])
def test_program_in_place_of_one_of_the_agents_is_refused(environment: Environment, name: str) -> None:
    with pytest.raises(ValueError, match=f"a launcher's program cannot be called {name}"):
        environment.write((12, 2), (JobFile("{rsh}", name, "", program=True),), PEERS)


def test_record_of_an_attempt_with_files_can_be_read_by_version_4(tmp_path: Path, context: Context) -> None:
    attempt = Attempt(12, 2, "boot", "c", prepare({"A": "{rsh}"}, job_files(context, "node2")))
    AttemptFiles(tmp_path).keep(attempt)
    assert set(msgspec.msgpack.decode((tmp_path / "12.2").read_bytes())["prepare"]) <= known(4)["Prepare"]
    assert AttemptFiles(tmp_path).load() == [attempt]


def test_order_without_files_brings_those_of_version_4(context: Context) -> None:
    assert set(files_of(prepare({}), "node2")) <= set(job_files(context, "node2"))
    assert (watched_in(prepare({})), watched_in(prepare({}, ()))) == ((HYDRA,), ())


def prepare(environment: dict[str, str], files: object = msgspec.UNSET) -> Prepare:
    fence, order = Fence("c", 1, "i"), OrderId(12, 2, 1)
    return Prepare(fence, order, "ann", PEERS, 2, None, None, 0, "/", environment, b"", files=files)  # type: ignore[arg-type]


@pytest.mark.parametrize("address", ["203.0.113.7", "desk1.lab.example", "::1", "1.2.3.400", ""])
def test_an_address_that_is_nobodys_here_has_no_interface(address: str) -> None:
    assert interface_of(address) == ""


def test_the_interface_of_an_address_is_found() -> None:
    assert interface_of("127.0.0.1") == "lo"


def test_only_files_of_a_daemon_that_is_gone_are_removed(tmp_path: Path) -> None:
    """``cosched-pvmd`` before it becomes the daemon, which here is a program that says its arguments."""
    pvmd = tmp_path / "cosched-pvmd"
    pvmd.write_text(PVMD.text)
    pvmd.chmod(0o755)
    (tmp_path / "root" / "lib").mkdir(parents=True)
    daemon = tmp_path / "root" / "lib" / "pvmd"
    daemon.write_text('#!/bin/sh\necho "$@"\n')
    daemon.chmod(0o755)
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    gone, others = tmp / f"pvmd.{os.getuid()}.cosched-1-1", tmp / "pvmd.other"
    (tmp / "pvmtmp000000.0").touch()
    gone.write_text(f"{tmp}/pvmtmp000000.0")
    others.write_text(f"{tmp}/pvmtmp000000.0")
    # a process called pvmd, and its file
    with subprocess.Popen(["/bin/sh", "-c", "echo pvmd >/proc/$$/comm; echo; read line"], stdin=-1, stdout=-1) as alive:
        assert alive.stdout
        alive.stdout.readline()
        living = tmp / f"pvmd.{os.getuid()}.cosched-2-1"
        living.write_text(f"{tmp}/pvmtmp{alive.pid:06d}.0")
        ended = subprocess.run(
            [pvmd, "-s", "x y"], capture_output=True, text=True, timeout=BOUND_S, check=True,
            env={"PATH": "/usr/bin:/bin", "PVM_TMP": str(tmp), "PVM_ROOT": str(tmp_path / "root")},
        )  # fmt: skip
        alive.communicate(b"\n", timeout=BOUND_S)
    assert (ended.stdout, ended.stderr) == ("-s x y\n", "")
    assert sorted(path.name for path in tmp.iterdir()) == sorted([living.name, others.name])


SAID = {
    "a call that is wrong": (
        "Abort(873089542) on node 2 (rank 2 in comm 0): Fatal error in internal_Send: Invalid rank, error stack:\n"
        "internal_Send(120): MPI_Send(buf=0x7ffd9163cbd4, count=1, MPI_INT, 4, 0, MPI_COMM_WORLD) failed\n",
        Failure("rank 2 on node2 stopped at Fatal error in internal_Send: Invalid rank", "node2", 2),
    ),
    "an abort": (
        "Abort(7) on node 2 (rank 2 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 7) - process 2\n",
        Failure("rank 2 on node2 called MPI_Abort with error code 7", "node2", 2),
    ),
    "a crash": (
        "[node2:52   :0:52] Caught signal 11 (Segmentation fault: tkill(2) or tgkill(2) at address 0x34)\n"
        "==== backtrace (tid:     52) ====\n",
        Failure("a rank on node2 was ended by signal 11 (Segmentation fault)", "node2"),
    ),
    "a program that is missing": (
        "[proxy:0:1@node2] HYDU_create_process (utils/launch/launch.c:73): execvp error on file ./nosuch "
        "(No such file or directory)\n",
        Failure("mpiexec found no program ./nosuch that can be run on node2", "node2"),
    ),
    "a host that is not the job's, in the daemon's log": (
        "[t80000000] 11/22 01:39:22 stderr@desk9: cosched-rsh: desk9: desk9 is not a node of job 19; its nodes are "
        "node1, node2\n[t80040000] 11/22 01:39:22 startack() host desk9 expected version, got \"PvmCantStart\"\n",
        Failure("cosched-rsh: desk9: desk9 is not a node of job 19; its nodes are node1, node2"),
    ),
    "a host without /etc/services, in the daemon's log": (
        "[t80040000] 11/28 11:41:49 ready Sat Nov 28 11:41:49 2026\n"
        "[t80000000] 11/28 11:41:49 phase1() can't getservbyname(): exec\n[t80000000] 11/28 11:41:49 pvmbailout(0)\n",
        Failure("PVM starts no other node where /etc/services lacks exec/tcp: install netbase there"),
    ),
    "no daemon": (
        "libpvm [pid1520] mksocs() connect: Connection refused\n"
        "libpvm [pid1520]: pvm_mytid(): Can't contact local daemon\n",
        Failure("a PVM program found no daemon: start the virtual machine first (echo quit | pvm)"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", SAID)
def test_a_failure_is_read_from_what_was_said(what: str) -> None:
    error, expected = SAID[what]
    assert diagnose(f"before\n{error}after\n".encode(), PEERS) == expected

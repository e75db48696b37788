"""PVM and MPICH: their host files, what a job's environment tells them, and their words for failures, as they were."""

import dataclasses
import os
import subprocess
from pathlib import Path

import pytest
from kit.waiting import BOUND_S

from cosched.linux.interfaces import interface_of
from cosched.wire.api import Failure
from cosched.wire.hostfile import mpich_hosts, pvm_hosts
from cosched.wire.messages import LOCAL_VALUES, Peer
from node_agent.service.files import NodeFiles, install_rsh
from space_scheduler.launch import Context, diagnose, job_environment

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
    assert {value for value in environment.values() if value.startswith("{")} <= set(LOCAL_VALUES)


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
    assert mpich_hosts(PEERS) == "10.77.0.1:2\n10.77.0.2:2\n"
    assert mpich_hosts(PEERS[:1]) == "localhost:2\n"
    assert pvm_hosts(PEERS, "node1", "desk") == "desk ip=10.77.0.1\nnode2 ip=10.77.0.2\n"
    assert pvm_hosts(PEERS[:1], "node1", "desk") == "desk ip=127.0.0.1\n"


def test_the_agent_writes_them_for_all_to_read(tmp_path: Path) -> None:
    files = NodeFiles(tmp_path, "node2")
    files.write(12, 2, PEERS)
    texts = {path.name: path.read_text() for path in (tmp_path / "jobs" / "12.2").iterdir()}
    assert set(texts) == {"nodes", "nodes.mpich", "nodes.pvm"}
    assert texts["nodes.pvm"] == f"node1 ip=10.77.0.1\n{os.uname().nodename} ip=10.77.0.2\n"
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "jobs" / "12.2").iterdir()} == {0o644}
    files.remove(12, 2)
    assert not (tmp_path / "jobs" / "12.2").exists()


@pytest.mark.parametrize("address", ["203.0.113.7", "desk1.lab.example", "::1", "1.2.3.400", ""])
def test_an_address_that_is_nobodys_here_has_no_interface(address: str) -> None:
    assert interface_of(address) == ""


def test_the_interface_of_an_address_is_found() -> None:
    assert interface_of("127.0.0.1") == "lo"


def test_only_files_of_a_daemon_that_is_gone_are_removed(tmp_path: Path) -> None:
    """``cosched-pvmd`` before it becomes the daemon, which here is a program that says its arguments."""
    rsh = install_rsh(tmp_path / "bin")
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
            [rsh.with_name("cosched-pvmd"), "-s", "x y"], capture_output=True, text=True, timeout=BOUND_S, check=True,
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

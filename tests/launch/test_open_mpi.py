"""A plain ``mpirun`` of both Open MPIs in a job's environment: where ranks are, what is refused, how failures are told.

Real launches over three hosts of namespaces, by a remote shell that is nsenter, with no name server to ask.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from kit.hosts import System, processes_in
from kit.waiting import BOUND_S, wait_for
from launch.test_diagnosis import EXPECTED

from space_scheduler.launch import diagnose, unnoticed

TASKS = [1, 2, 1]


def test_ranks_are_mapped_by_slot_unbound_with_the_jobs_environment(system: System) -> None:
    """Ranks of other nodes get the environment by the remote shell: mpirun hands on next to nothing.

    Bound to processors, ranks of nodes that are fractions of a machine would share its first core beside idle ones.
    """
    ended = system.run(TASKS, system.program, "where")  # it begins with a sum over all ranks
    assert ended.status == 0
    assert "error" not in ended.err.lower()
    same = f"job=7 yields=1 cpus={len(os.sched_getaffinity(0))}"
    assert sorted(ended.out.splitlines()) == [
        f"0 node1 {same}",
        f"1 node2 {same}",
        f"2 node2 {same}",
        f"3 node3 {same}",
    ]
    for host in (1, 2, 3):  # after a signal some may stay; the job's private directories end with it
        wait_for(lambda: not temporary_files(system, host), f"the removal of node{host}'s files")  # noqa: B023


def test_ranks_are_run_by_the_witness_at_the_place_of_their_own_node(system: System) -> None:
    """On hosts whose run or state directories differ; mpirun of Open MPI 5 hands the path on the first to all."""
    ended = system.run(TASKS, "hostname")
    assert (ended.status, sorted(ended.out.split())) == (0, ["node1", "node2", "node2", "node3"]), ended.err


def test_more_ranks_than_the_gang_has_are_refused(system: System) -> None:
    ended = system.run(TASKS, "-n", "5", "echo", "started")
    assert ended.status != 0
    assert "started" not in ended.out
    assert diagnose(ended.err.encode(), system.hosts.peers_of(TASKS)) == EXPECTED["slots"]


def test_more_ranks_than_processors_fit_on_a_node_that_has_the_slots(system: System) -> None:
    tasks = 2 * len(os.sched_getaffinity(0)) + 1
    ended = system.run([tasks, 1], system.program, "ok")
    assert ended.out == f"{tasks + 1} ranks\n", ended.err


SHARED_MEMORY = {"wheel": "tcp,sm,self", "debian": "tcp,vader,self"}
ALL_NODES = "0 node1\n1 node2\n2 node2\n3 node3\n"

#: Switches of mpirun that the guide names, without the program -> what that prints, rank and host where it tells.
SWITCHES = {
    "-n 5 --oversubscribe": "5 ranks\n",
    "-n 5 --map-by slot:OVERSUBSCRIBE": "5 ranks\n",
    "-n 2 --host 10.77.0.1:1,10.77.0.3:1": "0 node1\n1 node3\n",
    "-n 2 --map-by node": "0 node1\n1 node2\n",
    "--map-by slot --stdin none --bind-to none": ALL_NODES,
}


@pytest.mark.parametrize("switches", SWITCHES)
def test_switches_of_mpirun_that_the_guide_names_are_obeyed(system: System, switches: str) -> None:
    ended = system.run(TASKS, *switches.split(), system.program, "ok" if "ranks" in SWITCHES[switches] else "where")
    told = [line.partition(" job=")[0] for line in sorted(ended.out.splitlines())]
    assert "\n".join([*told, ""]) == SWITCHES[switches], ended.err


def test_binding_variables_and_shared_memory_may_be_changed(system: System) -> None:
    bound = system.run(TASKS, "-n", "1", "--bind-to", "core", system.program, "where")
    assert bound.out == "0 node1 job=7 yields=1 cpus=1\n", bound.err
    handed = system.run(TASKS, "-x", "MINE=3", "sh", "-c", 'echo "$MINE"')
    assert handed.out == "3\n" * 4, handed.err
    changed = {"OMPI_MCA_mpi_yield_when_idle": "0", "OMPI_MCA_btl": SHARED_MEMORY[system.name], "PATH": "/usr/bin:/bin"}
    ended = system.hosts.run(1, [system.mpirun, system.program, "where"], system.hosts.job(TASKS, changed))
    assert [line.split()[3] for line in ended.out.splitlines()] == ["yields=0"] * 4, ended.err
    exported = 'export OMPI_MCA_mpi_yield_when_idle=0 && exec "$@"'
    script: list[str | Path] = ["sh", "-c", exported, "sh", system.mpirun, system.program, "where"]
    ended = system.hosts.run(1, script, system.hosts.job(TASKS))
    assert "0 node1 job=7 yields=0" in ended.out, ended


#: Open MPI -> a switch with which a job goes on without a rank, and whether mpirun ends with the other ranks then.
GOES_ON = {"wheel": ("--with-ft mpi", True), "debian": ("--enable-recovery", False)}

#: Runs a command, kills it once it has written three lines, and writes them; fails where the command ends by itself.
ENDED_AFTER_THREE_LINES = """
out=$(mktemp)
"$@" >"$out" &
until [ "$(grep -c . "$out")" = 3 ]; do kill -0 $! || exit 9; sleep 0.1; done
sleep 3 # that it does not end by itself can only be waited for
kill -9 $! || exit 8
cat "$out"
rm "$out"
"""


@pytest.mark.slow
def test_mpirun_recovery_switch_keeps_job_running_after_rank_loss(system: System) -> None:
    """mpirun of 4.1 does not come back then: it is ended once the other ranks have gone on, as a job is at its limit.

    The witness of the lost rank would end the job after 5.25 s. What each switch means to it: ``test_rank_witness``.
    """
    rank = '[ "$OMPI_COMM_WORLD_RANK" != 1 ] || kill -9 $$; sleep 8; echo on'
    switch, ends = GOES_ON[system.name]
    words: list[str | Path] = [system.mpirun, *switch.split(), "sh", "-c", rank]
    if not ends:
        words = ["sh", "-c", ENDED_AFTER_THREE_LINES, "sh", *words]
    ended = system.hosts.run(1, words, system.hosts.job(TASKS), timeout_s=BOUND_S)
    assert (ended.status, ended.out) == (0, "on\n" * 3), ended


def test_programs_see_the_end_of_a_standard_input_that_was_not_asked_for(system: System) -> None:
    """Open MPI 5.0.11 by itself never tells rank 0 that its input has ended: not even that of /dev/null."""
    ended = system.run(TASKS, "sh", "-c", "cat && echo ended")
    assert (ended.status, ended.out) == (0, "ended\n" * 4), ended


def test_a_job_on_one_node_needs_no_network_no_name_and_no_remote_shell(system: System) -> None:
    calls = system.hosts.directory / "calls"
    calls.unlink(missing_ok=True)
    environment = system.hosts.job([3])
    alone = ["unshare", "--net", "--uts", "sh", "-c", 'hostname nobody-knows && ip link set lo up && exec "$@"', "sh"]
    ended = system.hosts.run(1, [*alone, system.mpirun, system.program, "ok"], environment)
    assert (ended.status, ended.out) == (0, "3 ranks\n"), ended.err
    assert not calls.exists()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["exit", "abort", "kill"])
def test_failed_rank_is_named_with_its_node_and_cause(system: System, how: str) -> None:
    """One failure for each source of the words: the witness or mpirun by status, the library, either by signal.

    What is read from the words of each other failure: ``test_diagnosis``.
    """
    ended = system.run(TASKS, system.program, how, "2")
    found = diagnose(ended.err.encode(), system.hosts.peers_of(TASKS))
    if how == "kill":  # by its witness's words, or by those of mpirun, which it sometimes loses
        assert found is not None, ended.err
        assert (found.rank, found.node) == (2, "node2")
        assert found.message in (EXPECTED[how].message, re.sub(r"\(.*\)", "(SIGKILL)", EXPECTED[how].message))
    else:
        assert found == EXPECTED[how], ended.err
    assert ended.status == {"exit": 3, "abort": 7, "kill": 137}[how]
    wait_for(lambda: processes_in(system.hosts) == [], "the end of all ranks")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tasks", "moments_ms"),
    [([2], (0, 70, 110)), ([1, 1], (0, 60))],
    ids=["on one node", "on two nodes"],
)
def test_a_rank_that_is_killed_while_it_starts_ends_the_job_and_is_named(
    system: System, tasks: list[int], moments_ms: Sequence[int]
) -> None:
    for moment_ms in moments_ms if system.name == "wheel" else moments_ms[:1]:
        culprit = moment_ms // 10 % 2
        after = f"(sleep {moment_ms / 1000}; kill -9 $$) &"
        rank = f'[ "$OMPI_COMM_WORLD_RANK" != {culprit} ] || {after} exec {system.program} wait {culprit}'
        script: list[str | Path] = ["sh", "-c", '"$@"; echo "ended $?"', "script", system.mpirun, "sh", "-c", rank]
        ended = system.hosts.run(1, script, system.hosts.job(tasks), timeout_s=120)
        assert ended.out.endswith("ended 137\n"), f"killed after {moment_ms} ms: {ended}"
        found = diagnose(ended.err.encode(), system.hosts.peers_of(tasks))
        assert found is not None, f"killed after {moment_ms} ms: {ended}"
        assert (found.rank, found.node) == (culprit, "node1" if len(tasks) == 1 else f"node{culprit + 1}")
        assert "signal 9" in found.message


def test_a_program_that_is_not_there_is_named(system: System) -> None:
    ended = system.run(TASKS, "./nosuch")
    assert ended.status != 0
    found = diagnose(ended.err.encode(), system.hosts.peers_of(TASKS))
    assert found
    assert found.message == f"mpirun found no program ./nosuch that can be run on {found.node}"
    assert found.node in ("node1", "node2", "node3")  # whichever is the first to look


def test_a_host_that_is_not_the_jobs_is_refused_by_the_remote_shell(system: System) -> None:
    ended = system.run(TASKS, "--host", "10.77.0.77:1,10.77.0.1:1", "echo", "started")
    assert ended.status != 0
    assert "started" not in ended.out
    assert diagnose(ended.err.encode(), system.hosts.peers_of(TASKS)) == EXPECTED["host"]


@pytest.fixture
def running(system: System) -> Iterator["subprocess.Popen[str]"]:
    """mpirun with a program that waits, all of whose ranks are in MPI_Barrier or waiting."""
    words: list[str | Path] = ["timeout", "600", system.mpirun, system.program, "wait", "3"]
    with subprocess.Popen(
        system.hosts.command(1, words, system.hosts.directory),
        env=system.hosts.job(TASKS),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "waiting\n"
            yield process
        finally:
            system.hosts.clear()
            process.communicate(timeout=BOUND_S)


def pids_of(system: System, *words: str) -> list[str]:
    lines = [line.split() for line in processes_in(system.hosts)]
    return [pid for pid, program, *_ in lines if any(word == Path(program).name for word in words)]


def test_mpirun_session_directory_is_the_jobs_and_sigterm_ends_all_ranks(
    system: System, running: "subprocess.Popen[str]"
) -> None:
    for host in (1, 2, 3):
        assert temporary_files(system, host), f"node{host} has no session there"
    system.hosts.inside("kill", "-TERM", *pids_of(system, "prterun", "mpirun.openmpi"))
    running.wait(timeout=BOUND_S)
    wait_for(lambda: processes_in(system.hosts) == [], "the end of all ranks")


def temporary_files(system: System, host: int) -> str:
    return system.hosts.run(host, ["ls", system.hosts.directory / "tmp"], os.environ).out


def test_the_loss_of_a_daemon_does_not_look_like_a_success(system: System, running: "subprocess.Popen[str]") -> None:
    """Open MPI 5 then exits with status 0 as often as not."""
    daemons = pids_of(system, "prted", "orted")
    names = {pid: system.hosts.inside("nsenter", "--target", pid, "--uts", "hostname").strip() for pid in daemons}
    system.hosts.inside("kill", "-KILL", *(pid for pid, name in names.items() if name == "node3"))
    _, error = running.communicate(timeout=BOUND_S)
    found = unnoticed(error.encode(), system.hosts.peers_of(TASKS))
    assert found == EXPECTED["daemon"] or running.returncode != 0


@pytest.mark.system("openmpi-bin")
def test_mpi4pys_wheel_runs_under_debians_open_mpi_with_its_library(system: System) -> None:
    """The recipe of docs/guide/jobs.md: the library is named to the ranks, on all nodes."""
    pytest.importorskip("mpi4py")
    if system.name != "debian":
        pytest.skip("the other Open MPI is the one that mpi4py finds by itself")
    libraries = sorted(Path("/usr/lib").glob("*/libmpi.so.40"))
    assert libraries, "openmpi-bin without its library"
    script = "from mpi4py import MPI; w = MPI.COMM_WORLD; print(w.allreduce(1), MPI.Get_library_version()[:12])"
    ended = system.run(TASKS, "-x", f"MPI4PY_LIBMPI={libraries[0]}", sys.executable, "-c", script)
    assert ended.out.splitlines() == ["4 Open MPI v4."] * 4, ended.err

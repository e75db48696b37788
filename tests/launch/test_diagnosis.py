"""What launchers and shells said of real failures, read: the texts in ``outputs`` are what both Open MPIs printed.

There, rank 2 of four failed; ranks 1 and 2 were on node2, and host names were node1 to node3.
"""

from pathlib import Path

import pytest

from cosched.wire.api import Failure
from cosched.wire.messages import Peer
from space_scheduler.launch import diagnose, unnoticed

OUTPUTS = Path(__file__).parent / "outputs"
PEERS = [Peer("node1", "10.77.0.1", 1, 1), Peer("node2", "10.77.0.2", 1, 2), Peer("node3", "10.77.0.3", 1, 1)]

EXPECTED = {
    "exit": Failure("rank 2 on node2 exited with status 3", "node2", 2),
    "early": Failure("rank 2 on node2 exited with status 5", "node2", 2),
    "leave": Failure("rank 2 on node2 ended without MPI_Finalize (or before MPI_Init)", "node2", 2),
    "abort": Failure("rank 2 on node2 called MPI_Abort with error code 7", "node2", 2),
    "invalid": Failure("rank 2 on node2 stopped at MPI_ERR_RANK: invalid rank in MPI_Send", "node2", 2),
    "crash": Failure("rank 2 on node2 was ended by signal 11 (Segmentation fault)", "node2", 2),
    "kill": Failure("rank 2 on node2 was ended by signal 9 (Killed)", "node2", 2),
    "missing": Failure("mpirun found no program ./nosuch that can be run on node1", "node1"),
    "slots": Failure("mpirun was to start 5 ranks, and the job has 4 tasks: submit with -n 5"),
    "host": Failure("cosched-rsh: 10.77.0.77: not a node of job 7"),
    "daemon": Failure("mpirun lost its daemon on node3, and the ranks there", "node3"),
}
NO_DAEMON = "An ORTE daemon has failed to report back after being spawned.\n  Remote host:   "


@pytest.mark.parametrize("version", ["4", "5"])
@pytest.mark.parametrize("case", EXPECTED)
def test_a_failure_is_read_from_what_mpirun_prints(case: str, version: str) -> None:
    assert diagnose((OUTPUTS / f"{version}-{case}.txt").read_bytes(), PEERS) == EXPECTED[case]


@pytest.mark.parametrize("file", sorted(path.name for path in OUTPUTS.glob("*.txt")))
def test_every_output_kept_is_one_that_is_expected(file: str) -> None:
    version, case = file.removesuffix(".txt").split("-")
    assert version in "45"
    assert case in EXPECTED


@pytest.mark.parametrize("version", ["4", "5"])
@pytest.mark.parametrize("case", EXPECTED)
def test_only_a_lost_daemon_makes_a_success_a_failure(case: str, version: str) -> None:
    found = unnoticed((OUTPUTS / f"{version}-{case}.txt").read_bytes(), PEERS)
    assert found == (EXPECTED["daemon"] if case == "daemon" else None)


def test_the_programs_own_words_around_do_no_harm() -> None:
    noise = b"Traceback (most recent call last):\nValueError: \xff\xfe\0 rank 9 on node nowhere\n"
    text = noise + (OUTPUTS / "5-kill.txt").read_bytes() + noise
    assert diagnose(text, PEERS) == EXPECTED["kill"]


def test_of_several_runs_in_a_script_the_last_counts() -> None:
    text = (OUTPUTS / "4-kill.txt").read_bytes() + (OUTPUTS / "4-exit.txt").read_bytes()
    assert diagnose(text, PEERS) == EXPECTED["exit"]


def test_an_output_of_which_the_beginning_is_cut_off_is_still_read() -> None:
    text = (OUTPUTS / "5-crash.txt").read_bytes()
    assert diagnose(text[-400:], PEERS) == EXPECTED["crash"]


def test_a_rank_that_is_only_accused_is_not_named() -> None:
    """Open MPI 5 without our settings: the peer of the one that died is accused of an abort."""
    text = b'prterun has exited due to process rank 0 with PID 0 on node node1 calling\n"abort". This may have'
    assert diagnose(text, PEERS) == Failure("a rank closed its connections: it crashed, or ended early")


def test_a_vanished_peer_is_named_by_its_node_and_by_its_rank_where_that_is_the_only_one() -> None:
    text = "An MPI communication peer process has unexpectedly disconnected. …\n  Local host: node1\n  Peer host:  {}\n"
    vanished = "closed its connections: it crashed, or ended early"
    assert diagnose(text.format("node3").encode(), PEERS) == Failure(f"rank 3 on node3 {vanished}", "node3", 3)
    assert diagnose(text.format("node2").encode(), PEERS) == Failure(f"a rank on node2 {vanished}", "node2")


@pytest.mark.parametrize(
    ("text", "message", "node", "rank"),
    [
        (
            "noticed that process rank 9 with PID 7 on node x exited on signal 9 (Killed)",
            "was ended by signal 9 (Killed)",
            None,
            9,
        ),
        ("cosched: rank 2 ended with status 139", "was ended by signal 11 (SIGSEGV)", "node2", 2),
        ("cosched: rank 2 ended with status 255", "exited with status 255", "node2", 2),
        (f"{NO_DAEMON}10.77.0.3", "mpirun could not start its daemon on node3", "node3", None),
        (f"{NO_DAEMON}elsewhere", "mpirun could not start its daemon on elsewhere", None, None),
        (
            "ORTE was unable to reliably start one or more daemons",
            "mpirun could not start its daemon on one of the nodes",
            None,
            None,
        ),
        (
            "2 processes returned\na non-zero exit code",
            "a rank exited with a status other than 0; mpirun does not say which",
            None,
            None,
        ),
    ],
)
def test_failure_is_read_from_a_line(text: str, message: str, node: str | None, rank: int | None) -> None:
    where = "" if rank is None else f"rank {rank}{f' on {node}' if node else ''} "
    assert diagnose(text.encode(), PEERS) == Failure(f"{where}{message}", node, rank)


def test_the_rank_of_another_communicator_is_not_taken_for_one_of_the_job() -> None:
    text = b"MPI_ABORT was invoked on rank 0 in communicator MPI COMMUNICATOR 3 SPLIT FROM 0\nwith errorcode 2.\n"
    assert diagnose(text, PEERS) == Failure("a rank called MPI_Abort with error code 2")


def test_on_a_single_node_a_foreign_host_name_is_that_node() -> None:
    text = b"mpirun noticed that process rank 1 with PID 7 on node some-laptop exited on signal 9 (Killed)."
    assert diagnose(text, [Peer("n1", "127.0.0.1", 1, 2)]) == Failure(
        "rank 1 on n1 was ended by signal 9 (Killed)", "n1", 1
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/tmp/j/script: 3: nosuch: not found\n", "line 3 of the script: nosuch: not found"),
        ("/tmp/j/script: line 3: nosuch: command not found\n", "line 3 of the script: nosuch: command not found"),
        ("/tmp/j/script: line 9: ./a: Permission denied\n", "line 9 of the script: ./a: Permission denied"),
    ],
)
def test_a_command_that_the_script_did_not_find(text: str, message: str) -> None:
    assert diagnose(text.encode(), PEERS) == Failure(message, "node1")


@pytest.mark.parametrize("text", ["", "it failed\n", "Traceback (most recent call last):\n  …\nKeyError: 'rank 3'\n"])
def test_of_what_nobody_recognises_nothing_is_claimed(text: str) -> None:
    assert diagnose(text.encode(), PEERS) is None

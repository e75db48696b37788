"""When a node is set aside for a file system that does not answer, and what is told of it."""

import pytest

from cosched.model.stall import Stall, StalledProcess
from space_scheduler.service.launch.owners import why_aside


def stall(user: str, device: str = "0:42", *, own: bool = False) -> Stall:
    mount = f"/mnt/{device}" if device else ""
    return Stall(user, 1, processes=(StalledProcess(7, "cat", "nfs_wait", "/mnt/x", mount, device, own),))


@pytest.mark.parametrize(
    ("stalls", "why"),
    [
        ([], ""),
        ([stall("ann")], ""),
        ([stall("ann"), stall("ann"), stall("ann")], ""),
        ([stall("ann", "0:42"), stall("bob", "0:43")], ""),
        ([stall("ann", ""), stall("bob", "")], ""),
        ([stall("bob"), stall("ann")], "/mnt/0:42 does not answer: jobs of ann and bob wait for it"),
        ([stall("ann", own=True)], "/mnt/0:42 does not answer, to which this node's guard and agent write"),
    ],
    ids=[
        "nothing", "one job", "jobs of one user", "a mount of each user", "where they wait is not known",
        "two users on one file system", "the node's own file system",
    ],
)  # fmt: skip
def test_node_is_set_aside_for_its_own_file_system_or_two_users_alone(stalls: list[Stall], why: str) -> None:
    assert why_aside(stalls) == why


@pytest.mark.parametrize(
    ("process", "words"),
    [
        (StalledProcess(7, "cat", "nfs_wait", "/mnt/x", "/mnt"), "process 7 (cat) waits for /mnt"),
        (StalledProcess(7, "cat", "nfs_wait"), "process 7 (cat) waits in the kernel (nfs_wait)"),
        (StalledProcess(7), "process 7 does not end"),
    ],
)
def test_words_of_a_process_that_cannot_be_ended_leave_out_its_path(process: StalledProcess, words: str) -> None:
    assert process.words == words

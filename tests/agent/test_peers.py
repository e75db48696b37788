"""Credentials of Unix sockets' peers, asked about real processes of other users."""

import os
import socket
from pathlib import Path

import pytest

from cosched.linux.peers import Credentials, peer_credentials

#: On both sides of the sign bit, up to the last uid: 2^32 - 1 means "none" to the kernel.
UIDS = [1, 65_534, 2**31 - 1, 2**31, 3_000_000_000, 2**32 - 2]


def test_credentials_of_a_pair_are_those_of_this_process() -> None:
    left, right = socket.socketpair()
    with left, right:
        assert peer_credentials(left) == Credentials(os.getpid(), os.geteuid(), os.getegid())


@pytest.mark.parametrize("number", UIDS)
def test_uid_and_gid_of_another_users_process_are_unsigned(tmp_path: Path, number: int) -> None:
    if os.geteuid():
        pytest.skip("needs root, to have processes of other users")
    address = f"\0{tmp_path}"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        if (child := os.fork()) == 0:
            try:
                os.setgroups([])
                os.setresgid(number, number, number)
                os.setresuid(number, number, number)
                with socket.socket(socket.AF_UNIX) as connecting:
                    connecting.connect(address)
                    connecting.recv(1)  # until it has been asked about
            finally:
                os._exit(0)
        connection, _ = listening.accept()
        with connection:
            found = peer_credentials(connection)
        os.waitpid(child, 0)
    assert found == Credentials(child, number, number)

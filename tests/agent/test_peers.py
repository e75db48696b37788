"""Credentials of sockets' peers, asked about real processes of other users."""

import contextlib
import os
import socket
import struct
from pathlib import Path

import pytest
from kit.floods import STRANGERS

from cosched.linux.peers import Credentials, TcpPeers, peer_credentials
from cosched.linux.sock_diag import SockDiag

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


@pytest.mark.parametrize("way", ["diagnostics", "table"])
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["IPv4", "mapped"])
def test_uid_of_a_tcp_peer_is_that_of_its_socket(family: int, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "table":
        monkeypatch.setattr(SockDiag, "tcp_uid", lambda self, local, remote: None)
    uid = STRANGERS[0] if os.geteuid() == 0 else os.geteuid()
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        peers = stack.enter_context(contextlib.closing(TcpPeers()))
        os.seteuid(uid)  # a socket belongs to the user that made it
        try:
            here = stack.enter_context(socket.socket(family))
        finally:
            os.seteuid(os.getuid())
        address = "127.0.0.1" if family == socket.AF_INET else "::ffff:127.0.0.1"
        here.connect((address, listening.getsockname()[1]))
        there = stack.enter_context(listening.accept()[0])
        assert peers.uid(there) == uid
        here.close()
        assert there.recv(1) == b""
        assert peers.uid(there) is None, "it may be anybody's that has closed its end"


def test_uid_of_a_closed_tcp_peer_is_not_that_of_a_listener_on_its_port() -> None:
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        private = ("127.0.0.77", 0)  # no other process takes a port of it in between
        here = stack.enter_context(socket.create_connection(listening.getsockname(), source_address=private))
        there = stack.enter_context(listening.accept()[0])
        peers = stack.enter_context(contextlib.closing(TcpPeers()))
        assert peers.uid(there) == os.geteuid()
        here.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        name, other = here.getsockname(), there.getsockname()
        here.close()
        stack.enter_context(socket.create_server(name))
        diag = stack.enter_context(contextlib.closing(SockDiag()))
        assert diag.tcp_uid(name, other) is None

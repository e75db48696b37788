"""The process at the other end of a Unix socket, as the kernel reports it (SO_PEERCRED in unix(7))."""

import socket
import struct
from typing import Final, NamedTuple

_UCRED: Final = struct.Struct("iII")  # struct ucred: pid_t is signed, uid_t and gid_t are not


class Credentials(NamedTuple):
    """The peer when it connected, or when it listened. ``uid`` and ``gid`` are in 0 to 2^32 - 1, as ``pwd`` has them.

    All are as the caller's namespaces show them: ``pid`` is 0 for a process that they do not show, ``uid`` the kernel's
    overflow uid (65534) for a user that has no number in them.
    """

    pid: int
    uid: int
    gid: int


def peer_credentials(connection: socket.socket) -> Credentials:
    """The credentials of the peer of a connected Unix socket. Raises OSError."""
    return Credentials(*_UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))

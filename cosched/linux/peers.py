"""The process at the other end of a Unix socket, as the kernel reports it (SO_PEERCRED in unix(7)).

TCP has no such option: of a connection from this machine the kernel's socket diagnostics tell the uid.
"""

import socket
import struct
from contextlib import suppress
from typing import Final, NamedTuple

from cosched.linux.sock_diag import SockDiag

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


class TcpPeers:
    """Tells the uid at the other end of a TCP connection over IPv4 from this machine, for one thread."""

    def __init__(self) -> None:
        self._diag: SockDiag | None = None
        with suppress(OSError):
            self._diag = SockDiag()
        self._has_answered = False

    def close(self) -> None:
        """Ask no more."""
        if self._diag is not None:
            self._diag.close()

    def uid(self, connection: socket.socket) -> int | None:
        """The uid that the peer's socket belongs to; None where it is closed, or on another machine. Raises OSError.

        A kernel without diagnostics of TCP answers as if there were no such socket: /proc/net/tcp, which is read whole,
        is looked at only until they have answered once.
        """
        local, remote = connection.getpeername(), connection.getsockname()
        if self._diag is not None:
            found = self._diag.tcp_uid(local, remote)
            self._has_answered |= found is not None
            if self._has_answered:
                return found
        return _uid_in_table(local, remote)


def _uid_in_table(local: tuple[str, int], remote: tuple[str, int]) -> int | None:
    """As :meth:`SockDiag.tcp_uid`, from /proc/net."""
    ends = tuple(f"{struct.unpack('=I', socket.inet_aton(host))[0]:08X}:{port:04X}" for host, port in (local, remote))
    for name in ("tcp", "tcp6"):  # a socket of IPv6 may be connected to an address of IPv4
        with suppress(FileNotFoundError), open(f"/proc/net/{name}", encoding="ascii") as table:
            for line in table:
                fields = line.split()
                if fields[1].endswith(ends[0]) and fields[2].endswith(ends[1]) and fields[9] != "0":
                    return int(fields[7])
    return None

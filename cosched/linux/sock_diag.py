"""Bytes that wait in sockets, asked of the kernel (sock_diag(7)): exact sockets cost little, a dump finds them.

A dump of all TCP sockets walks the kernel's whole table, so it is made seldom, and its answers name each socket with
its addresses and a cookie; by these it is asked for again as often as one likes. Only sockets of the network namespace
that this process is in are seen. Structures are those of linux/inet_diag.h and linux/unix_diag.h.
"""

import errno
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

_NETLINK_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST, _DUMP = 0x1, 0x300
_ERROR, _DONE = 2, 3
_HEADER: Final = struct.Struct("=IHHII")
_INET_REQUEST: Final = struct.Struct("=BBBxI48s")
_INET_ANSWER: Final = struct.Struct("=BBBB48sIIIII")
_UNIX_REQUEST: Final = struct.Struct("=BBHIIIII")
_UNIX_ANSWER: Final = struct.Struct("=BBBBIII")
_ATTRIBUTE: Final = struct.Struct("=HH")
_INFO: Final = 2
_INFO_BIT: Final = 1 << (_INFO - 1)
_BYTES_RECEIVED_AT: Final = 128  # in struct tcp_info
_DATA_SEGS_IN_AT: Final = 152
_ESTABLISHED: Final = 1
_CLOSED: Final = 7  # what a UDP socket without a peer is
_UNIX_RQLEN: Final = 4
_SHOW_RQLEN: Final = 0x10
_ALL_STATES: Final = 0xFFFFFFFF
_ANY_COOKIE: Final = (0xFFFFFFFF, 0xFFFFFFFF)
_PATIENCE: Final = struct.pack("@ll", 1, 0)  # a struct timeval: one second
_PACKET_BYTES: Final = 256 << 10
_BATCH: Final = 32
_MOST_SEQUENCE: Final = 1 << 30
_UDP_STATES: Final = 1 << _ESTABLISHED | 1 << _CLOSED


class Inet(NamedTuple):
    """A TCP or UDP socket as it was found: how to ask for it again, what waits; of TCP how often data has come, and
    how much.
    """

    inode: int
    family: int
    protocol: int
    name: bytes
    waiting_bytes: int
    arrivals: int
    received_bytes: int = 0


class SockDiag:
    """A connection to the kernel's socket diagnostics."""

    def __init__(self) -> None:
        """Raises OSError where the kernel has none."""
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
        for patience in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):  # the kernel's, without a call of its own each time
            self._socket.setsockopt(socket.SOL_SOCKET, patience, _PATIENCE)
        self._answer = memoryview(bytearray(_PACKET_BYTES))
        self._sequence = 0

    def close(self) -> None:
        """Ask no more."""
        self._socket.close()

    def inet(self) -> list[Inet]:
        """Every connected TCP socket, and every UDP one. Raises OSError."""
        found = []
        for family in (socket.AF_INET, socket.AF_INET6):
            for protocol, states in ((socket.IPPROTO_TCP, 1 << _ESTABLISHED), (socket.IPPROTO_UDP, _UDP_STATES)):
                request = _INET_REQUEST.pack(family, protocol, _INFO_BIT, states, bytes(48))
                found += [_inet(body, protocol) for _, body in self._ask([request], _DUMP)]
        return found

    def inet_now(self, sockets: Sequence[Inet]) -> list[Inet | None]:
        """Each of these as it is now; None for one that is gone. Raises OSError."""
        found: list[Inet | None] = [None] * len(sockets)
        for start in range(0, len(sockets), _BATCH):
            batch = sockets[start : start + _BATCH]
            requests = [
                _INET_REQUEST.pack(each.family, each.protocol, _INFO_BIT, _ALL_STATES, each.name) for each in batch
            ]
            for at, body in self._ask(requests, 0):
                found[start + at] = _inet(body, batch[at].protocol)
        return found

    def unix_waiting(self, inodes: Sequence[int]) -> list[int]:
        """How many bytes wait in each Unix socket with these inodes now; -1 for one that is gone. Raises OSError."""
        waiting = [-1] * len(inodes)
        for start in range(0, len(inodes), _BATCH):
            batch = inodes[start : start + _BATCH]
            requests = [
                _UNIX_REQUEST.pack(socket.AF_UNIX, 0, 0, _ALL_STATES, inode, _SHOW_RQLEN, *_ANY_COOKIE)
                for inode in batch
            ]
            for at, body in self._ask(requests, 0):
                waiting[start + at] = _unix_rqlen(body)
        return waiting

    def tcp_uid(self, local: tuple[str, int], remote: tuple[str, int]) -> int | None:
        """The uid of the IPv4 TCP socket with these two ends; None where no process has it open. Raises OSError."""
        (address, port), (to_address, to_port) = local, remote
        name = struct.pack(
            "!HH4s12x4s12xIII", port, to_port, *map(socket.inet_aton, (address, to_address)), 0, *_ANY_COOKIE
        )
        request = _INET_REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, _ALL_STATES, name)
        for _, body in self._ask([request], 0):
            _, _, _, _, found, _, _, _, uid, inode = _INET_ANSWER.unpack_from(body)
            # where the socket is gone, a listening one with its port is found; one that was closed has no inode
            if found[:4] == name[:4] and inode:
                return int(uid)
        return None

    def _ask(self, requests: Iterable[bytes], flags: int) -> list[tuple[int, bytes]]:
        """Send all at once; (number of the request, answer) as they come. What is refused has no answer."""
        packet, answers = bytearray(), []
        if self._sequence > _MOST_SEQUENCE:
            self._sequence = 0
        first = self._sequence + 1
        for request in requests:
            self._sequence += 1
            packet += _HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _REQUEST | flags, self._sequence, 0)
            packet += request
        open_ = set(range(first, self._sequence + 1))
        self._socket.send(packet)
        while open_:
            try:
                data = self._answer[: self._socket.recv_into(self._answer)]
            except BlockingIOError:
                raise TimeoutError(errno.ETIMEDOUT, "the kernel's socket diagnostics do not answer") from None
            at = 0
            while at + _HEADER.size <= len(data):
                length, kind, _, number, _ = _HEADER.unpack_from(data, at)
                if length < _HEADER.size:
                    break
                if number in open_:
                    if kind == _BY_FAMILY:
                        answers.append((number - first, bytes(data[at + _HEADER.size : at + length])))
                    if kind in (_DONE, _ERROR) or not flags & _DUMP:
                        open_.discard(number)
                at += (length + 3) & ~3
        return answers


def _inet(body: bytes, protocol: int) -> Inet:
    family, _, _, _, name, _, rqueue, _, _, inode = _INET_ANSWER.unpack_from(body)
    arrivals = received_bytes = 0
    if protocol == socket.IPPROTO_TCP:
        info = _attribute(body, _INET_ANSWER.size, _INFO)
        if len(info) >= _DATA_SEGS_IN_AT + 4:
            (arrivals,) = struct.unpack_from("=I", info, _DATA_SEGS_IN_AT)
            (received_bytes,) = struct.unpack_from("=Q", info, _BYTES_RECEIVED_AT)
    else:  # asked for by name, UDP wants to hear the peer first
        name = name[2:4] + name[0:2] + name[20:36] + name[4:20] + name[36:]
    return Inet(inode, family, protocol, name, rqueue, arrivals, received_bytes)


def _unix_rqlen(body: bytes) -> int:
    value = _attribute(body, _UNIX_ANSWER.size, _UNIX_RQLEN)
    return int(struct.unpack_from("=I", value)[0]) if len(value) >= 4 else 0


def _attribute(body: bytes, at: int, wanted: int) -> bytes:
    while at + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, at)
        if length < _ATTRIBUTE.size:
            break
        if kind == wanted:
            return body[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
    return b""

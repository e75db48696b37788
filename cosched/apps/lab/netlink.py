"""Just enough of rtnetlink to wire up a lab: bridges, pairs of virtual Ethernet, addresses, rates. No ``ip`` is needed.

Messages as in rtnetlink(7), linux/if_link.h and linux/pkt_sched.h: a header, a fixed part, attributes (length, type,
value, padded to four bytes; some hold attributes themselves). The kernel answers each request with an error number, 0
for done.
"""

import ipaddress
import os
import socket
import struct
from types import TracebackType
from typing import Final

_REQUEST_ACK: Final = 0x01 | 0x04
_CREATE_EXCLUSIVE: Final = 0x400 | 0x200
_NEWLINK: Final = 16
_NEWADDR: Final = 20
_NEWQDISC: Final = 36
_ERROR: Final = 2
_UP: Final = 0x1
_IFLA_IFNAME: Final = 3
_IFLA_MASTER: Final = 10
_IFLA_LINKINFO: Final = 18
_IFLA_NET_NS_FD: Final = 28
_INFO_KIND: Final = 1
_INFO_DATA: Final = 2
_VETH_PEER: Final = 1
_IFA_ADDRESS: Final = 1
_IFA_LOCAL: Final = 2
_TCA_KIND: Final = 1
_TCA_OPTIONS: Final = 2
_TBF_PARMS: Final = 1
_TBF_BURST: Final = 6
_NETEM_LATENCY64: Final = 10
_RATE_HANDLE: Final = 1 << 16
_DELAY_HANDLE: Final = 2 << 16
#: As many as are on their way at 10 Gbit/s and 10 ms, in packets of Ethernet.
_DELAYED_PACKETS: Final = 10_000
_ROOT: Final = 0xFFFFFFFF
_ETHERNET: Final = 1
#: What a rate lets through at once: what comes in a tick of the slowest kernel clock (100 Hz), and a whole packet.
_BURST_S: Final = 0.01
_LEAST_BURST_BYTES: Final = 64 << 10
#: How long a packet may wait for the rate before others are dropped.
_QUEUE_S: Final = 0.1
_QDISC: Final = struct.Struct("=BxxxiIII")
_RATE: Final = struct.Struct("=BBHhHI")
_HEADER: Final = struct.Struct("=IHHII")
_LINK: Final = struct.Struct("=BxHiII")
_TIMEOUT_S: Final = 10.0


class NetworkError(OSError):
    """The kernel refuses a change of the network; the message says which."""


class Network:
    """The network namespace that the caller is in when this is made."""

    def __init__(self) -> None:
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
            self._socket.bind((0, 0))
        except OSError as error:
            raise NetworkError(error.errno, error.strerror, "rtnetlink") from None
        self._socket.settimeout(_TIMEOUT_S)
        self._sequence = 0

    def __enter__(self) -> "Network":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()

    def add_bridge(self, name: str) -> None:
        """Create a bridge and set it up. Raises :class:`NetworkError`, as all of these do."""
        attributes = _attribute(_IFLA_IFNAME, _text(name)) + _kind("bridge")
        self._ask(_NEWLINK, _CREATE_EXCLUSIVE, _link(up=True) + attributes, f"bridge {name}")

    def add_pair(self, name: str, peer: str, peer_namespace: int, bridge: str) -> None:
        """Make two joined interfaces: ``name`` here, up and in the bridge, ``peer`` in that descriptor's namespace."""
        there = _link() + _attribute(_IFLA_IFNAME, _text(peer))
        there += _attribute(_IFLA_NET_NS_FD, struct.pack("=I", peer_namespace))
        attributes = (
            _attribute(_IFLA_IFNAME, _text(name))
            + _attribute(_IFLA_MASTER, struct.pack("=I", socket.if_nametoindex(bridge)))
            + _kind("veth", _attribute(_VETH_PEER, there))
        )
        self._ask(_NEWLINK, _CREATE_EXCLUSIVE, _link(up=True) + attributes, f"interfaces {name} and {peer}")

    def join(self, name: str, bridge: str) -> None:
        """Put an interface into a bridge, and set it up."""
        master = _attribute(_IFLA_MASTER, struct.pack("=I", socket.if_nametoindex(bridge)))
        self._ask(_NEWLINK, 0, _link(socket.if_nametoindex(name), up=True) + master, f"{name} into {bridge}")

    def limit_rate(self, name: str, bit_s: int) -> None:
        """Let so many bits per second leave by an interface (``tbf``, tc-tbf(8))."""
        bytes_s = bit_s // 8
        burst = max(_LEAST_BURST_BYTES, int(bytes_s * _BURST_S))
        rate = _RATE.pack(0, _ETHERNET, 0, 0, 0, bytes_s)
        parameters = rate + bytes(_RATE.size) + struct.pack("=III", burst + int(bytes_s * _QUEUE_S), 0, 0)
        options = _attribute(_TBF_PARMS, parameters) + _attribute(_TBF_BURST, struct.pack("=I", burst))
        self._add_qdisc(name, "tbf", options, _RATE_HANDLE, _ROOT)

    def delay(self, name: str, delay_us: int, *, within_rate: bool = False) -> None:
        """Hold what leaves by an interface for so long (``netem``, tc-netem(8)); ``within_rate``: at a rate set before.

        A kernel without it refuses with ENOENT.
        """
        options = struct.pack("=6I", 0, _DELAYED_PACKETS, 0, 0, 0, 0)
        options += _attribute(_NETEM_LATENCY64, struct.pack("=q", delay_us * 1000))
        self._add_qdisc(name, "netem", options, _DELAY_HANDLE, _RATE_HANDLE | 1 if within_rate else _ROOT)

    def _add_qdisc(self, name: str, kind: str, options: bytes, handle: int, parent: int) -> None:
        fixed = _QDISC.pack(socket.AF_UNSPEC, socket.if_nametoindex(name), handle, parent, 0)
        body = fixed + _attribute(_TCA_KIND, _text(kind)) + _attribute(_TCA_OPTIONS, options)
        self._ask(_NEWQDISC, _CREATE_EXCLUSIVE, body, f"{kind} of {name}")

    def set_up(self, name: str) -> None:
        """Set an interface up."""
        self._ask(_NEWLINK, 0, _link(socket.if_nametoindex(name), up=True), f"{name} up")

    def set_down(self, name: str) -> None:
        """Set an interface down: nothing passes."""
        body = _LINK.pack(socket.AF_UNSPEC, 0, socket.if_nametoindex(name), 0, _UP)
        self._ask(_NEWLINK, 0, body, f"{name} down")

    def add_address(self, name: str, address: str) -> None:
        """Give an interface an IPv4 address, ``10.77.0.1/24``."""
        interface = ipaddress.IPv4Interface(address)
        fixed = struct.pack("=BBBBI", socket.AF_INET, interface.network.prefixlen, 0, 0, socket.if_nametoindex(name))
        ip = interface.ip.packed
        self._ask(
            _NEWADDR, _CREATE_EXCLUSIVE, fixed + _attribute(_IFA_LOCAL, ip) + _attribute(_IFA_ADDRESS, ip), address
        )

    def _ask(self, kind: int, flags: int, body: bytes, what: str) -> None:
        self._sequence += 1
        header = _HEADER.pack(_HEADER.size + len(body), kind, _REQUEST_ACK | flags, self._sequence, 0)
        try:
            self._socket.send(header + body)
            while True:
                answer = self._socket.recv(1 << 16)
                _, answered, _, sequence, _ = _HEADER.unpack_from(answer)
                if answered == _ERROR and sequence == self._sequence:
                    break
        except OSError as error:
            raise NetworkError(error.errno, error.strerror or str(error), what) from None
        (negative,) = struct.unpack_from("=i", answer, _HEADER.size)
        if negative:
            raise NetworkError(-negative, os.strerror(-negative), what)


def _link(index: int = 0, *, up: bool = False) -> bytes:
    return _LINK.pack(socket.AF_UNSPEC, 0, index, _UP if up else 0, _UP if up else 0)


def _kind(name: str, data: bytes = b"") -> bytes:
    info = _attribute(_INFO_KIND, _text(name))
    return _attribute(_IFLA_LINKINFO, info + (_attribute(_INFO_DATA, data) if data else b""))


def _text(value: str) -> bytes:
    return value.encode() + b"\0"


def _attribute(kind: int, value: bytes) -> bytes:
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value + b"\0" * (-length % 4)

"""What parallel work weighs on disks and on the network beside everybody else, where the desk's owner wants it to.

Weights only count where something obeys them: a disk whose scheduler is bfq (or that iocost controls), an interface
whose queue looks at priorities. This module tells of those that are here which do not.
"""

import os
import socket
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from cosched.linux import files

YES: Final = "yes"
_BLOCK: Final = "/sys/block"
_OBEYS: Final = "[bfq]"
#: Disks in memory, or only seen through another one.
_NO_DISKS: Final = ("loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd")

#: Queues that look at a packet's priority: bands of it, or classes named by it.
_ORDERED: Final = frozenset({"pfifo_fast", "prio", "htb", "hfsc", "drr", "ets", "mqprio", "skbprio"})
_NETLINK_ROUTE: Final = 0
_GET_QDISC: Final = 38
_ERROR, _DONE = 2, 3
_REQUEST_DUMP: Final = 0x1 | 0x300
_HEADER: Final = struct.Struct("=IHHII")
_TC: Final = struct.Struct("=BxxxiIII")
_ATTRIBUTE: Final = struct.Struct("=HH")
_KIND: Final = 1
_ROOT: Final = 0xFFFFFFFF
_ANSWER_BYTES: Final = 1 << 16
_PATIENCE_S: Final = 1.0


class Weights(NamedTuple):
    """``io``: of the 100 that others' groups weigh on disks; ``network_priority``: of packets. 0: as everybody's."""

    io: int = 0
    network_priority: int = 0


NONE: Final = Weights()


def tried(*acts: tuple[str, Callable[[], None]]) -> list[str]:
    """Do all of these, each with its name, whatever becomes of the others; what was refused."""
    problems = []
    for name, act in acts:
        try:
            act()
        except OSError as error:
            problems.append(f"{name}: {error.strerror}")
    return problems


def disks(block: str = _BLOCK) -> str:
    """Whether this machine's disks go by weights of groups: "yes", or which don't."""
    deaf = []
    try:
        names = sorted(os.listdir(block))
    except OSError as error:
        return f"yes, if the disks go by weights: which there are cannot be told ({error.strerror})"
    for name in names:
        if name.startswith(_NO_DISKS):
            continue
        try:
            scheduler = files.read(os.path.join(block, name, "queue/scheduler")).strip()
        except OSError:
            continue
        if _OBEYS not in scheduler.split():
            deaf.append(name)
    if not deaf:
        return YES
    return f"yes, but {' and '.join(deaf)} obeys no weights: write bfq to {block}/{deaf[0]}/queue/scheduler"


def interfaces() -> str:
    """Whether the queues of this machine's interfaces look at priorities: "yes", or which don't."""
    try:
        found = queues()
    except OSError as error:
        return f"yes, if the interfaces' queues look at it: which there are cannot be told ({error.strerror})"
    deaf = [f"{name} ({kind})" for name, kind in sorted(found.items()) if kind not in _ORDERED and name != "lo"]
    if not deaf:
        return YES
    return f"yes, but the queue of {' and '.join(deaf)} looks at no priorities: give it pfifo_fast or prio, by tc"


def queues() -> dict[str, str]:
    """The kind of the root queue (qdisc) of each interface that this process sees. Raises OSError."""
    found: dict[str, str] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_ROUTE) as kernel:
        kernel.settimeout(_PATIENCE_S)
        body = _TC.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        kernel.send(_HEADER.pack(_HEADER.size + len(body), _GET_QDISC, _REQUEST_DUMP, 1, 0) + body)
        while True:
            data = kernel.recv(_ANSWER_BYTES)
            while data:
                size, kind, _, _, _ = _HEADER.unpack_from(data)
                if kind == _DONE:
                    return found
                if kind == _ERROR:
                    number = -struct.unpack_from("=i", data, _HEADER.size)[0]
                    raise OSError(number, os.strerror(number), "queues of interfaces")
                _, index, _, parent, _ = _TC.unpack_from(data, _HEADER.size)
                if parent == _ROOT:
                    found[socket.if_indextoname(index)] = _named(data[_HEADER.size + _TC.size : size])
                data = data[(size + 3) & ~3 :]


def _named(attributes: bytes) -> str:
    """The kind among a queue's attributes."""
    while len(attributes) >= _ATTRIBUTE.size:
        size, kind = _ATTRIBUTE.unpack_from(attributes)
        if kind == _KIND:
            return attributes[_ATTRIBUTE.size : size].rstrip(b"\0").decode(errors="replace")
        attributes = attributes[max(_ATTRIBUTE.size, (size + 3) & ~3) :]
    return "unknown"

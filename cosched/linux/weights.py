"""What parallel work weighs on disks and on the network beside everybody else, where the desk's owner wants it to.

Weights only count where something obeys them: a disk whose scheduler is bfq (or that iocost controls), an interface
whose queue looks at priorities. The lowest weight on disks is the idle I/O class of each process, which bfq obeys, too,
and mq-deadline among the requests that wait in its own queue. This module tells of those that are here which do not.
"""

import contextlib
import os
import socket
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from cosched.linux import files, process

YES: Final = "yes"
_BLOCK: Final = "/sys/block"
_OBEYS: Final = "[bfq]"
_OBEYS_IN_PART: Final = "[mq-deadline]"
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


#: The lowest weight on disks: each process of a job is in the idle I/O class. A group of jobs that has a weight anyway
#: gets this one; no controller is turned on for it.
LAST: Final = 1


class Weights(NamedTuple):
    """``io``: of the 100 that others' groups weigh on disks; ``network_priority``: of packets. 0: as everybody's."""

    io: int = LAST
    network_priority: int = 0

    @property
    def share(self) -> bool:
        """Whether parallel work is to have a share of a disk that others use, by a group's weight."""
        return self.io > LAST

    def enter(self) -> None:
        """Put the calling process, and those that it starts, into the idle I/O class where that is wanted.

        A kernel that refuses is no reason not to run the job.
        """
        if self.io == LAST:
            with contextlib.suppress(OSError):
                process.disks_idle_class()


NONE: Final = Weights(io=0)


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
    try:
        deaf = [name for name, chosen in _schedulers(block).items() if chosen != _OBEYS]
    except OSError as error:
        return f"yes, if the disks go by weights: which there are cannot be told ({error.strerror})"
    if not deaf:
        return YES
    return f"yes, but {' and '.join(deaf)} obeys no weights: write bfq to {block}/{deaf[0]}/queue/scheduler"


def idle_class_on_disks(block: str = _BLOCK) -> str:
    """Whether this machine's disks serve the idle I/O class last: "yes", or which do so in part or not at all."""
    try:
        chosen = _schedulers(block)
    except OSError as error:
        return f"which disks there are cannot be told ({error.strerror})"
    deaf = [name for name in chosen if chosen[name] not in (_OBEYS, _OBEYS_IN_PART)]
    in_part = [name for name in chosen if chosen[name] == _OBEYS_IN_PART]
    if deaf:
        named = " and ".join(f"{name} {chosen[name]}" for name in deaf)
        return f"no: {named} serves jobs like its owner: write bfq to {block}/{deaf[0]}/queue/scheduler"
    if in_part:
        return f"in part: {' and '.join(in_part)} {_OBEYS_IN_PART} among requests that the disk has not taken yet"
    return YES


def _schedulers(block: str) -> dict[str, str]:
    """The scheduler of each disk, in brackets as the kernel's file has it. Raises OSError."""
    found = {}
    for name in sorted(os.listdir(block)):
        if name.startswith(_NO_DISKS):
            continue
        with contextlib.suppress(OSError):
            words = files.read(os.path.join(block, name, "queue/scheduler")).split()
            found[name] = next((word for word in words if word.startswith("[")), "")
    return found


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

"""A profile out of a real session: watches a user's own processes, and writes down what kind of user it was.

CPU by each process's own clock, memory as what they hold (PSS), network by what the kernel says of their TCP
connections (``inet_diag``; what goes by UDP is not seen), keys by whoever tells that a terminal was read from. System
calls are not traced: their mixture stays that of the profile it starts from.
"""

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from statistics import mean, median
from typing import Final, NamedTuple, Protocol

import msgspec

from local_load import machine
from local_load.memory import resident_bytes
from local_load.peer import wire_bytes_of
from local_load.profile import MAX_CPU_SHARE, Distribution, Profile

_EVERY_S: Final = 0.5
_MEMORY_EVERY_S: Final = 2.0
_WORD_S: Final = 0.5  # keys further apart are not of one word
_FEW_KEYS: Final = 20
_BUSY: Final = 0.5  # of a CPU, over one look: a burst
_REQUEST: Final = struct.Struct("=IHHII BBBxI 48s")
_NETLINK: Final = struct.Struct("=IHHII")
_DIAG_BYTES, _INODE, _INFO, _DONE, _REFUSED = 72, 68, 2, 3, 2


class Keys(Protocol):
    """Tells which terminals (device numbers) were read from since it was last asked."""

    def fileno(self) -> int:
        """Readable when there is news."""

    def used(self) -> set[int]:
        """Those terminals."""


class Recorded(NamedTuple):
    """What was seen: sums over ``seconds``, moments of keys, and the CPU of each look (seconds passed, CPU seconds)."""

    seconds: float
    cpu_s: float
    memory_bytes: float
    wire_bytes: int
    keys_s: list[float]
    looks: list[tuple[float, float]]


def record(
    processes: Callable[[], Iterable[int]],
    seconds: float,
    keys: Keys | None,
    *,
    loopback: bool = False,
) -> Recorded:
    """Watch ``processes`` (asked again at each look) so long; ``loopback``: connections within the machine count."""
    began_s = looked_s = time.monotonic()
    cpu, wire = _Deltas(), _Deltas()
    cpu.add(_clocks(processes()))
    wire.add(_wire(processes(), loopback))
    looks: list[tuple[float, float]] = []
    memory: list[float] = [float(resident_bytes(processes()))]
    memory_s = began_s
    terminals: set[int] = _terminals(processes())
    moments: list[float] = []
    total_s = total_bytes = 0.0
    while (now_s := time.monotonic()) < began_s + seconds:
        timeout_s = max(0.0, min(looked_s + _EVERY_S, began_s + seconds) - now_s)
        if select.select([keys] if keys else [], [], [], timeout_s)[0]:
            assert keys is not None
            if keys.used() & terminals:
                moments.append(time.monotonic() - began_s)
            if time.monotonic() < looked_s + _EVERY_S:
                continue
        now_s = time.monotonic()
        watched = list(processes())
        used_s = cpu.add(_clocks(watched))
        looks.append((now_s - looked_s, used_s))
        total_s, total_bytes = total_s + used_s, total_bytes + wire.add(_wire(watched, loopback))
        terminals = _terminals(watched)
        if now_s >= memory_s + _MEMORY_EVERY_S:
            memory.append(float(resident_bytes(watched)))
            memory_s = now_s
        looked_s = now_s
    return Recorded(looked_s - began_s, total_s, median(memory), round(total_bytes), moments, looks)


def fitted(seen: Recorded, name: str, node_bytes: int, base: Profile) -> tuple[Profile, list[str]]:
    """The profile of what was seen, and what in it is not from there but from ``base``."""
    notes = []
    seconds = max(seen.seconds, 1e-3)
    typing = base.typing
    if len(seen.keys_s) >= _FEW_KEYS:
        gaps = [after - before for before, after in pairwise(seen.keys_s)]
        within, between = [gap for gap in gaps if gap < _WORD_S], [gap for gap in gaps if gap >= _WORD_S]
        words = 1 + len(between)
        typing = msgspec.structs.replace(
            typing,
            word_keys=_exponential(len(seen.keys_s) / words, 1.0),
            key_gap_s=_exponential(mean(within), 0.02) if within else typing.key_gap_s,
            think_s=_exponential(mean(between), 0.3) if between else typing.think_s,
        )
    else:
        notes.append(f"typing is {base.name}'s: only {len(seen.keys_s)} keys were seen")
    notes.append(f"calls, transfers and message gaps are {base.name}'s: they are not traced")
    bursts = 1 + sum(
        before[1] / before[0] <= _BUSY < after[1] / after[0] for before, after in pairwise(seen.looks) if before[0]
    )
    phase_s = min(30.0, max(1.5, seconds / bursts))
    share = seen.cpu_s / seconds
    if share > MAX_CPU_SHARE:
        notes.append(f"{share:.2f} CPUs were used: a profile has at most {MAX_CPU_SHARE}")
    return msgspec.structs.replace(
        base,
        name=name,
        about=f"recorded for {seconds:.0f} s",
        users_share=0.0,
        cpu_share=round(min(share, MAX_CPU_SHARE), 4),
        memory_share=round(min(1.0, seen.memory_bytes / node_bytes), 4),
        network_bytes_per_s=round(seen.wire_bytes / seconds, 1),
        phase_s=Distribution("lognormal", round(phase_s, 2), 0.5, 1.0),
        typing=typing,
        day=None,
    ), notes


def _exponential(average: float, least: float) -> Distribution:
    return Distribution("exponential", round(max(average, 1.05 * least), 4), least=least)


def of_user(uid: int) -> Iterator[int]:
    """All processes of a user, but for this one."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == uid:
                    yield int(name)


class _Deltas:
    """What grew since the last look, by key; a key that is new counts whole, but for those of the first look."""

    def __init__(self) -> None:
        self._before: dict[int, float] | None = None

    def add(self, now: dict[int, float]) -> float:
        before, self._before = self._before, now
        if before is None:
            return 0.0
        return sum(max(0.0, value - before.get(key, 0.0)) for key, value in now.items())


def _clocks(pids: Iterable[int]) -> dict[int, float]:
    return {pid: machine.cpu_s([pid]) for pid in pids}


def _terminals(pids: Iterable[int]) -> set[int]:
    """Device numbers of the controlling terminals of processes."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
            number = int(file.read().rpartition(b")")[2].split()[4])  # minor in bits 31-20 and 7-0, major in 15-8
            if number:
                found.add(os.makedev(number >> 8 & 0xFFF, number >> 12 & 0xFFF00 | number & 0xFF))
    return found


def _wire(pids: Iterable[int], loopback: bool) -> dict[int, float]:
    """Bytes on the wire so far of each TCP connection of these processes, by its inode."""
    inodes = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
                    if target.startswith("socket:["):
                        inodes.add(int(target[8:-1]))
    found: dict[int, float] = {}
    for family in (socket.AF_INET, socket.AF_INET6) if inodes else ():
        for inode, local, info in _connections(family):
            if inode in inodes and (loopback or not local):
                found[inode] = float(wire_bytes_of(info, family == socket.AF_INET6))
    return found


def _connections(family: int) -> Iterator[tuple[int, bool, bytes]]:
    """(inode, whether its other end is this machine's loopback, TCP_INFO) of every TCP connection."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 4) as netlink:
        size = _REQUEST.size
        netlink.send(_REQUEST.pack(size, 20, 0x301, 1, 0, family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0xFFF, b""))
        while True:
            data = netlink.recv(1 << 17)
            at = 0
            while at < len(data):
                length, kind, _, _, _ = _NETLINK.unpack_from(data, at)
                if kind in (_DONE, _REFUSED) or length < 16:  # the end, or a refusal
                    return
                message = data[at + 16 : at + length]
                (inode,) = struct.unpack_from("=I", message, _INODE)
                far = message[24:40]
                local = far[0] == 127 if family == socket.AF_INET else far == bytes(15) + b"\1"
                yield inode, local, _attribute(message[_DIAG_BYTES:])
                at += (length + 3) & ~3


def _attribute(data: bytes) -> bytes:
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if kind == _INFO:
            return data[at + 4 : at + length]
        at += max(4, (length + 3) & ~3)
    return b""

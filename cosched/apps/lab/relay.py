"""The link between a lab's clusters where the kernel has no ``netem``, or they are more than two (design, section 6).

A process of ours holds each frame for the delay. Each cluster's bridge has a TAP device, and this process has the other
ends. A frame that comes out of one waits for the delay, then goes into the one of its receiver, or into all others
where that is not known (as a learning switch does). A pair of clusters can be cut: what is on its way between them
then, and what comes, is dropped. The rate is the kernel's matter (``tbf`` on each TAP device): a frame is read here
when it has passed that. How much later than due frames went is kept of the last ones, and told.
"""

import fcntl
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from cosched.apps.lab.link_orders import LinkOrders

_TUN: Final = "/dev/net/tun"
_TUNSETIFF: Final = 0x400454CA
_TAP_WITHOUT_HEADER: Final = 0x0002 | 0x1000
_REQUEST: Final = struct.Struct("16sH22x")
_MAX_FRAME_BYTES: Final = 65_536
_ADDRESS_BYTES: Final = 6
_MULTICAST: Final = 0x01
_AT_ONCE: Final = 64
_KEPT: Final = 10_000
#: More senders than a lab has are somebody's invention: then all are learnt anew.
_MOST_SENDERS: Final = 4096


def open_tap(name: str) -> int:
    """Make a TAP device in the network namespace that the caller is in; the descriptor of its other end."""
    try:
        descriptor = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        remedy = f"chmod 666 {_TUN}" if isinstance(error, PermissionError) else "modprobe tun"
        raise OSError(error.errno, f"{error.strerror}; remedy: as root: {remedy}", _TUN) from None
    try:
        fcntl.ioctl(descriptor, _TUNSETIFF, _REQUEST.pack(name.encode(), _TAP_WITHOUT_HEADER))
    except OSError as error:
        os.close(descriptor)
        raise OSError(error.errno, error.strerror, f"TAP device {name}") from None
    return descriptor


class Held(NamedTuple):
    """A frame on its way."""

    due_s: float
    source: str
    target: str
    frame: bytes


class Relay:
    """The link of these clusters (name -> descriptor of a TAP device); orders come to ``listener``."""

    def __init__(self, taps: Mapping[str, int], listener: socket.socket, delay_s: float) -> None:
        self._taps = dict(taps)
        self._named = {descriptor: name for name, descriptor in taps.items()}
        self._delay_s = delay_s
        self._held: deque[Held] = deque()
        self._places: dict[bytes, str] = {}
        self._orders = LinkOrders("relay", list(taps), listener, more=self._figures)
        self._late_s: deque[float] = deque(maxlen=_KEPT)
        self._passed = self._dropped = 0

    def run(self) -> None:
        """Carry frames for ever."""
        orders = self._orders.listener.fileno()
        while True:
            pause_s = max(0.0, self._held[0].due_s - time.monotonic()) if self._held else None
            ready, _, _ = select.select([orders, *self._named], [], [], pause_s)
            for descriptor in ready:
                if descriptor == orders:
                    self._orders.serve()
                else:
                    self._take(descriptor)
            self._release()

    def _take(self, descriptor: int) -> None:
        """What has come out of a device is on its way from now on; a bounded number, for others wait too."""
        source = self._named[descriptor]
        due_s = time.monotonic() + self._delay_s
        for _ in range(_AT_ONCE):
            try:
                frame = os.read(descriptor, _MAX_FRAME_BYTES)
            except OSError:  # there is no more
                return
            if len(self._places) >= _MOST_SENDERS:
                self._places.clear()
            self._places[frame[_ADDRESS_BYTES : 2 * _ADDRESS_BYTES]] = source
            for target in self._targets(frame, source):
                self._held.append(Held(due_s, source, target, frame))

    def _targets(self, frame: bytes, source: str) -> list[str]:
        known = None if frame[0] & _MULTICAST else self._places.get(frame[:_ADDRESS_BYTES])
        return [name for name in self._taps if name != source and known in (None, name)]

    def _release(self) -> None:
        while self._held and self._held[0].due_s <= (now_s := time.monotonic()):
            due_s, source, target, frame = self._held.popleft()
            if frozenset((source, target)) in self._orders.cut:
                self._dropped += 1
                continue
            try:
                os.write(self._taps[target], frame)
            except OSError:  # its queue is full
                self._dropped += 1
                continue
            self._passed += 1
            self._late_s.append(now_s - due_s)

    def _figures(self) -> dict[str, Any]:
        late = sorted(self._late_s)
        late_us = {name: _at(late, part) for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))}
        return {"frames": self._passed, "dropped": self._dropped, "late_us": late_us}


def _at(late_s: list[float], part: float) -> int | None:
    """That quantile in microseconds; None: nothing has gone yet."""
    return round(1e6 * late_s[min(len(late_s) - 1, int(part * len(late_s)))]) if late_s else None

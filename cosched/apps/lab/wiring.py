"""The network of a lab: a bridge for each cluster, and the link between them.

The first bridge is where the lab's head is; each other one has a network namespace of its own, so that nothing passes
from one to another but over the link (in one namespace the kernel would answer for all of its addresses on every
bridge).
"""

import contextlib
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cosched.apps.lab import control, kernel
from cosched.apps.lab.netlink import Network
from cosched.apps.lab.relay import Relay, open_tap
from cosched.linux.process import die_with_parent, set_name

_BRIDGE: Final = "lan"
_TAP: Final = "link"
_FIRST_FREE: Final = 3


class Lan(NamedTuple):
    """A cluster's bridge; ``namespace`` is a descriptor of where it is."""

    cluster: str
    namespace: int

    def attach(self, name: str, node: int) -> None:
        """Join a node (a descriptor of its network namespace) to it, by the node's interface eth0."""
        with kernel.in_network(self.namespace), Network() as network:
            network.add_pair(name, "eth0", node, _BRIDGE)


def lans(clusters: Sequence[str], head: str) -> dict[str, Lan]:
    """A bridge for each cluster (one without a name where there are none); the first has the head's address."""
    made: dict[str, Lan] = {}
    for cluster in clusters or [""]:
        namespace = kernel.new_network() if made else kernel.own_network()
        with kernel.in_network(namespace), Network() as network:
            network.set_up("lo")
            network.add_bridge(_BRIDGE)
            if not made:
                network.add_address(_BRIDGE, head)
        made[cluster] = Lan(cluster, namespace)
    return made


def start_link(lab: str, between: Sequence[Lan], place: Path, delay_us: int, rate_bit_s: int) -> None:
    """Start the link between these bridges, which takes orders at that socket. Raises OSError."""
    taps = {}
    for lan in between:
        with kernel.in_network(lan.namespace), Network() as network:
            taps[lan.cluster] = open_tap(_TAP)
            if rate_bit_s:
                network.limit_rate(_TAP, rate_bit_s)
            network.join(_TAP, _BRIDGE)
    listener = control.listen(place)
    if os.fork() == 0:
        try:
            _carry(lab, taps, listener, delay_us)
        finally:
            os._exit(1)
    for descriptor in taps.values():
        os.close(descriptor)
    listener.close()


def _carry(lab: str, taps: dict[str, int], listener: socket.socket, delay_us: int) -> None:
    die_with_parent(os.getppid())
    set_name(f"{lab}-link")
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    _close_others({*taps.values(), listener.fileno()})
    with contextlib.suppress(OSError):  # what waits for it are frames that are due
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    Relay(taps, listener, delay_us / 1e6).run()


def _close_others(kept: set[int]) -> None:
    before = _FIRST_FREE
    for descriptor in sorted(kept):
        os.closerange(before, descriptor)
        before = descriptor + 1
    os.closerange(before, os.sysconf("SC_OPEN_MAX"))

"""The network of a lab: a bridge for each cluster, and the link between them.

The first bridge is where the lab's head is; each other one has a network namespace of its own, so that nothing passes
from one to another but over the link (in one namespace the kernel would answer for all of its addresses on every
bridge).
"""

import contextlib
import os
import select
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cosched.apps.lab import control, kernel
from cosched.apps.lab.link_orders import LinkOrders
from cosched.apps.lab.netlink import Network, NetworkError
from cosched.apps.lab.relay import Relay, open_tap
from cosched.linux.process import die_with_parent, set_name

_BRIDGE: Final = "lan"
_TAP: Final = "link"


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
    listener = control.listen(place)
    if len(between) == 2 and kernel_delays():
        _start(lab, {}, listener, _cross(between, listener, delay_us, rate_bit_s).run)
    else:
        taps = _taps(between, rate_bit_s)
        _start(lab, taps, listener, Relay(taps, listener, delay_us / 1e6).run)


def kernel_delays() -> bool:
    """Whether this kernel can hold packets for a delay."""
    namespace = kernel.new_network()
    try:
        with kernel.in_network(namespace), Network() as network:
            network.delay("lo", 1)
    except NetworkError:
        return False
    finally:
        os.close(namespace)
    return True


def _cross(between: Sequence[Lan], listener: socket.socket, delay_us: int, rate_bit_s: int) -> "KernelLink":
    """Join two bridges by a pair of interfaces, each of which delays what leaves by it."""
    first, second = between
    with kernel.in_network(first.namespace), Network() as network:
        network.add_pair(_TAP, _TAP, second.namespace, _BRIDGE)
    with kernel.in_network(second.namespace), Network() as network:
        network.join(_TAP, _BRIDGE)
    for lan in between:
        with kernel.in_network(lan.namespace), Network() as network:
            if rate_bit_s:
                network.limit_rate(_TAP, rate_bit_s)
            network.delay(_TAP, delay_us, within_rate=bool(rate_bit_s))
    return KernelLink([lan.cluster for lan in between], listener, first.namespace)


class KernelLink:
    """A link of two clusters whose packets the kernel carries; ``namespace`` has the end that is set down to cut it."""

    def __init__(self, clusters: Sequence[str], listener: socket.socket, namespace: int) -> None:
        self._orders = LinkOrders("netem", clusters, listener, self._changed)
        with kernel.in_network(namespace):
            self._network = Network()
        self._namespace = namespace

    def run(self) -> None:
        """Take orders for ever."""
        while True:
            select.select([self._orders.listener], [], [])
            self._orders.serve()

    def _changed(self) -> None:
        with kernel.in_network(self._namespace):
            (self._network.set_down if self._orders.cut else self._network.set_up)(_TAP)


def _taps(between: Sequence[Lan], rate_bit_s: int) -> dict[str, int]:
    """The other ends of a TAP device in each bridge, by cluster."""
    taps = {}
    for lan in between:
        with kernel.in_network(lan.namespace), Network() as network:
            taps[lan.cluster] = open_tap(_TAP)
            if rate_bit_s:
                network.limit_rate(_TAP, rate_bit_s)
            network.join(_TAP, _BRIDGE)
    return taps


def _start(lab: str, taps: dict[str, int], listener: socket.socket, carry: Callable[[], None]) -> None:
    """Fork the process of the link; what it alone uses is closed here."""
    if os.fork() == 0:
        try:
            _become_link(lab)
            carry()
        finally:
            os._exit(1)
    for descriptor in taps.values():
        os.close(descriptor)
    listener.close()


def _become_link(lab: str) -> None:
    die_with_parent(os.getppid())
    set_name(f"{lab}-link")
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(OSError):  # what waits for it are frames that are due
        os.setpriority(os.PRIO_PROCESS, 0, -20)

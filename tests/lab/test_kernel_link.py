"""The link between two clusters where the kernel holds the packets (netem): tests for a kernel that can.

``tests/agent/guard/test_guard_uml.py`` runs them in a User Mode Linux, whose modules have it.
"""

import ctypes
import platform
import socket
import threading
import time
from pathlib import Path

import pytest
from kit.needs import need_root
from kit.waiting import BOUND_S

from cosched.apps.lab import kernel, link, wiring
from cosched.apps.lab.netlink import Network
from cosched.apps.lab.tiers import tried
from cosched.linux.process import checked

DELAY_US = 20_000
_libc = ctypes.CDLL(None, use_errno=True)
_FINIT_MODULE = 313  # of x86_64
#: In this order, each after those that it needs.
_MODULES = (
    *("lib/crc-ccitt", "net/ipv6/ipv6", "net/llc/llc", "net/802/stp", "net/bridge/bridge"),
    *("drivers/net/veth", "net/sched/sch_tbf", "net/sched/sch_netem"),
)


@pytest.fixture(scope="module", autouse=True)
def needs_netem() -> None:
    place = Path("/usr/lib/uml/modules", platform.release(), "kernel")
    for name in _MODULES if place.is_dir() else ():
        with (place / f"{name}.ko").open("rb") as module:
            checked(_libc.syscall(_FINIT_MODULE, module.fileno(), b"", 0), f"load {name}")
    need_root()
    if trouble := tried(lambda: kernel.unshare(kernel.NEW_NET, "network")):
        pytest.skip(trouble)
    if not wiring.kernel_delays():
        pytest.skip("this kernel has no netem")


def round_trip_us(port: int, patience_s: float = 2.0) -> float:
    began_s = time.monotonic()
    with socket.create_connection(("10.9.0.2", port), patience_s):
        return 1e6 * (time.monotonic() - began_s)


def round_trip_at_last_us(port: int) -> float:
    """Of the first connection that can be made."""
    end_s = time.monotonic() + BOUND_S
    while True:
        try:
            return round_trip_us(port, BOUND_S)
        except OSError:
            assert time.monotonic() < end_s


@pytest.mark.parametrize("rate_bit_s", [0, 20_000_000])
def test_it_delays_and_is_cut_and_mended(tmp_path: Path, rate_bit_s: int) -> None:
    def whole() -> None:
        kernel.unshare(kernel.NEW_NET, "network")
        lans = list(wiring.lans(["c1", "c2"], "10.9.0.1/24").values())
        with kernel.in_network(lans[1].namespace):
            with Network() as network:
                network.add_address("lan", "10.9.0.2/24")
            server = socket.create_server(("10.9.0.2", 0))
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        port = server.getsockname()[1]
        wiring.start_link("try", lans, tmp_path / "link.sock", DELAY_US, rate_bit_s)
        assert link.asked(tmp_path, "status") == {"by": "netem", "clusters": ["c1", "c2"], "cut": []}
        round_trip_at_last_us(port)  # with the question for the address
        took_us = min(round_trip_at_last_us(port) for _ in range(5))
        assert took_us >= 2 * DELAY_US, took_us
        assert link.asked(tmp_path, "cut", ("c2", "c1"))["cut"] == [["c1", "c2"]]
        with pytest.raises(OSError, match=r"timed out|No route"):
            round_trip_us(port)
        assert link.asked(tmp_path, "mend", ("c1", "c2"))["cut"] == []
        round_trip_at_last_us(port)

    assert tried(whole) == ""


def answer(server: socket.socket) -> None:
    while True:
        server.accept()[0].close()

"""What is measured of real processes while they run: time in the kernel, asleep, and what comes over TCP."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.waiting import BOUND_S

from cosched.linux.job_signs import JobGroups
from cosched.linux.process import boottime_us
from cosched.linux.sock_diag import SockDiag
from cosched.model.effort import LEAST_COMMUNICATION, Effort
from cosched.wire.version_4 import HYDRA, seen_in
from node_agent.service import watching as watching_module
from node_agent.service.watching import Watching

_ECHO_S = 0.003
#: What was measured over a time in which the machine stood still counts for nothing: it looks like sleep.
_STALLED_S = 0.5
_COMPUTES = "while True: pass"
_TALKS = """
import select, socket, sys, time
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
asked = select.poll()
asked.register(peer, select.POLLIN)
patience_ms = None if sys.argv[2] == "block" else 0
while True:
    end = time.thread_time() + 0.001
    while time.thread_time() < end: pass
    peer.sendall(b"?" * 100)
    while not asked.poll(patience_ms): pass
    peer.recv(100)
"""


class These(JobGroups):
    """A job whose processes are these."""

    def __init__(self, *pids: int) -> None:
        self._pids = list(pids)

    def pids(self, name: str) -> list[int]:
        return self._pids

    def cpu_us(self, name: str) -> int:
        return 0


@contextlib.contextmanager
def echo() -> Iterator[int]:
    """A peer that answers after a while; its port."""
    listening = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = listening.accept()
        with connection, contextlib.suppress(ConnectionError):  # the child is killed in the end
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := connection.recv(1000):
                time.sleep(_ECHO_S)
                connection.sendall(data)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    with listening:
        yield listening.getsockname()[1]
    thread.join(10)


def watched(*argv: str, until_ran_us: int = 400_000) -> Effort:
    """What is measured of a Python program until it has run so long."""
    diag = SockDiag()
    with subprocess.Popen([sys.executable, "-S", "-c", *argv]) as child:
        try:
            watching = Watching((1, 1), These(child.pid))
            end_s = looked_s = time.monotonic()
            end_s += 5 * BOUND_S  # beside other work most looks see too little to count
            while watching.effort.ran_us < until_ran_us:
                assert looked_s < end_s, watching.effort
                time.sleep(0.2)
                watching.look({each.inode: each for each in diag.inet()}, boottime_us())
                if time.monotonic() - looked_s > _STALLED_S:
                    watching = Watching((1, 1), These(child.pid))
                looked_s = time.monotonic()
            return watching.effort
        finally:
            child.kill()
            diag.close()


def test_who_only_computes_communicates_nothing() -> None:
    found = watched(_COMPUTES)
    assert (found.kernel_us, found.asleep_us, found.arrivals, found.communication) == (0, 0, 0, 0.0)


@pytest.mark.parametrize("how", ["block", "poll"])
def test_who_waits_for_messages_communicates_whether_he_sleeps_or_polls(how: str) -> None:
    with echo() as port:
        found = watched(_TALKS, str(port), how)
    assert found.communication > LEAST_COMMUNICATION
    assert found.arrivals > 10
    assert found.received_bytes >= 100 * found.arrivals * 0.5  # some may come together
    assert (found.asleep_us > found.ran_us / 2) == (how == "block")


def test_who_shares_a_cpu_is_seen_to_wait_for_it() -> None:
    cpu = min(os.sched_getaffinity(0))
    diag = SockDiag()
    pinned = f"import os; os.sched_setaffinity(0, [{cpu}])\n{_COMPUTES}"
    argv = [sys.executable, "-S", "-c", pinned]
    with subprocess.Popen(argv) as child, subprocess.Popen(argv) as neighbour:
        try:
            watching = Watching((1, 1), These(child.pid))
            end_s = looked_s = time.monotonic()
            end_s += 5 * BOUND_S
            while watching.ran_us < 400_000:
                assert looked_s < end_s, (watching.ran_us, watching.queued_us)
                time.sleep(0.1)
                watching.look({each.inode: each for each in diag.inet()}, boottime_us())
                if time.monotonic() - looked_s > _STALLED_S:
                    watching = Watching((1, 1), These(child.pid))
                looked_s = time.monotonic()
            assert watching.ran_us < 0.75 * (watching.ran_us + watching.queued_us)
            signs = watching.signs(boottime_us())
            assert (signs.ran_us, signs.queued_us) == (watching.ran_us, watching.queued_us)
        finally:
            child.kill()
            neighbour.kill()
            diag.close()


def test_of_what_was_not_looked_at_lately_or_may_not_be_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    watching = Watching((1, 1), These(os.getpid()))

    def told(after_s: int = 0) -> tuple[int, int]:
        signs = watching.signs(boottime_us() + after_s * 1_000_000)
        return signs.ran_us, signs.queued_us

    assert told() == (-1, -1), "never looked at"
    watching.look({}, boottime_us())
    assert told() == (0, 0)
    assert told(60) == (-1, -1), "looks fail"
    monkeypatch.setattr(watching_module, "threads", lambda _: [])  # as with hidepid=2
    watching.look({}, boottime_us())
    assert told() == (-1, -1)


def test_look_sees_watched_processes_by_name_and_remembers_them(tmp_path: Path) -> None:
    proxy = tmp_path / HYDRA
    shutil.copy("/bin/sleep", proxy)
    watching = Watching((1, 1), groups := These(), 1, (HYDRA, "other"))
    for program, seen in (("/bin/sleep", False), (str(proxy), True)):
        with subprocess.Popen([program, "60"]) as child:
            groups._pids = [child.pid]
            watching.look({}, boottime_us())
            child.kill()
        assert seen_in(watching.signs(0)) == ({HYDRA} if seen else set())
    groups._pids = []
    watching.look({}, boottime_us())
    signs = watching.signs(0)
    assert (signs.seen, signs.hydra) == ((HYDRA,), True), "the latter for a scheduler of version 4"


def test_memory_that_ranks_share_some_looks_after_their_start_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank under load takes several looks to come as far as ``MPI_Init``."""
    one, two, three = range(2**22 + 1, 2**22 + 4)  # no processes: more than the kernel counts to
    groups, asked = These(one, two), list[int]()
    sharing: set[int] = set()

    def shares(pid: int) -> bool:
        asked.append(pid)
        return pid in sharing

    monkeypatch.setattr(watching_module, "shares_memory", shares)
    watching = Watching((1, 1), groups)
    for look, now_sharing, told in [(1, (), False), (2, (one,), False), (3, (one, two), False), (4, (one, two), True)]:
        sharing.update(now_sharing)
        watching.look({}, boottime_us())
        assert bool(watching.signs(0).transports) == told, look
    assert asked == [one, two, one, two, two], "each time less often, and who shares never again"
    groups._pids = [two, three]
    watching.look({}, boottime_us())
    assert not watching.signs(0).transports, "one alone shares with nobody"

"""Real sockets and threads of real processes: what waits in them is seen, and how a thread receives."""

import contextlib
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cosched.linux.job_signs import seen, shares_memory, sockets, threads
from cosched.linux.sock_diag import Inet, SockDiag
from cosched.model.coscheduling import Receives
from node_agent.policy.receives import Counts, received


@pytest.fixture
def diag() -> Iterator[SockDiag]:
    made = SockDiag()
    yield made
    made.close()


@pytest.fixture(params=[socket.AF_INET, socket.AF_INET6], ids=["IPv4", "IPv6"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a TCP connection over loopback."""
    host = "127.0.0.1" if request.param == socket.AF_INET else "::1"
    try:
        listening = socket.create_server((host, 0), family=request.param)
    except OSError as error:
        pytest.skip(f"no loopback for {host}: {error.strerror}")
    with contextlib.ExitStack() as stack:
        stack.enter_context(listening)
        here = stack.enter_context(socket.create_connection(listening.getsockname()[:2]))
        there = stack.enter_context(listening.accept()[0])
        yield here, there


def waiting(diag: SockDiag, sockets: list[Inet]) -> list[int]:
    """Bytes that wait in each; -1 for one that is gone."""
    return [-1 if each is None else each.waiting_bytes for each in diag.inet_now(sockets)]


def of(diag: SockDiag, end: socket.socket) -> Inet:
    inode = os.fstat(end.fileno()).st_ino
    return next(each for each in diag.inet() if each.inode == inode)


def arrived(diag: SockDiag, found: Inet, bytes_: int) -> bool:
    """Whether so much waits, in the end (loopback is quick, but not at once)."""
    end = time.monotonic() + 30
    while waiting(diag, [found])[0] != bytes_:
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def test_bytes_that_wait_in_a_tcp_socket_are_seen(diag: SockDiag, pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    found, other = of(diag, there), of(diag, here)
    assert waiting(diag, [found, other]) == [0, 0]
    here.sendall(b"x" * 17)
    assert arrived(diag, found, 17)
    assert waiting(diag, [other, found]) == [0, 17]
    assert there.recv(17) == b"x" * 17
    assert waiting(diag, [found]) == [0]
    assert of(diag, there).arrivals - found.arrivals == 1


def test_a_socket_that_is_gone_is_told(diag: SockDiag, pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    found, other = of(diag, there), of(diag, here)
    there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    there.close()  # at once, without a goodbye
    here.close()
    assert waiting(diag, [found, other]) == [-1, -1]


def test_datagrams_that_wait_are_seen(diag: SockDiag) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there, socket.socket(type=socket.SOCK_DGRAM) as here:
        there.bind(("127.0.0.1", 0))
        found = of(diag, there)
        here.sendto(b"hello", there.getsockname())
        end = time.monotonic() + 30
        while waiting(diag, [found])[0] <= 0:
            assert time.monotonic() < end
            time.sleep(0.001)
        there.recv(10)
        assert waiting(diag, [found]) == [0]


def test_bytes_that_wait_in_a_unix_socket_are_seen(diag: SockDiag) -> None:
    here, there = socket.socketpair()
    with here, there:
        inodes = [os.fstat(end.fileno()).st_ino for end in (here, there)]
        assert diag.unix_waiting(inodes) == [0, 0]
        here.sendall(b"y" * 5)
        assert diag.unix_waiting(inodes) == [0, 5]
        assert diag.unix_waiting([*inodes, 2**31]) == [0, 5, -1]
    assert diag.unix_waiting(inodes) == [-1, -1]


def test_a_processs_sockets_are_found_by_their_inodes(
    diag: SockDiag, pair: tuple[socket.socket, socket.socket]
) -> None:
    here, there = pair
    unix = socket.socketpair()
    with unix[0], unix[1]:
        child = subprocess.Popen(
            [sys.executable, "-c", "import sys; print(); sys.stdout.flush(); sys.stdin.read()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[there.fileno(), unix[0].fileno()],
        )
        with child:
            assert child.stdout is not None
            child.stdout.readline()
            found = seen([child.pid, 2**22 + 1], {each.inode: each for each in diag.inet()})
            child.kill()
    inode = os.fstat(there.fileno()).st_ino
    assert [each.inode for each in found.inet[child.pid]] == [inode]
    assert len(found.unix[child.pid]) == 1
    assert found.readable
    assert sockets(2**22 + 1).inodes == frozenset()
    here.close()


_YIELDS = "import os\nwhile True: os.sched_yield()"
_POLLS = """
import socket
end, _ = socket.socketpair()
end.setblocking(False)
while True:
    try: end.recv(1)
    except BlockingIOError: pass
"""
_BLOCKS = "import time\nwhile True:\n time.sleep(.001)\n for _ in range(10000): pass"


@pytest.mark.parametrize(
    ("programs", "expected"),
    [
        ((_POLLS,), Receives.POLLS),
        ((_BLOCKS,), Receives.BLOCKS),
        # in one group: each yield lets the other run, and both are switched off against their will
        ((_YIELDS, _YIELDS), Receives.YIELDS),
    ],
)
def test_how_real_threads_receive(programs: tuple[str, ...], expected: Receives) -> None:
    cpu = min(os.sched_getaffinity(0))
    children = [subprocess.Popen([sys.executable, "-S", "-c", text]) for text in programs]
    try:
        for child in children:
            os.sched_setaffinity(child.pid, {cpu})
        end = time.monotonic() + 60
        found = Receives.UNKNOWN
        while found is not expected:
            assert time.monotonic() < end, f"seen last: {found}"
            before = _busiest(children[0].pid)
            time.sleep(0.3)
            found = received(before, _busiest(children[0].pid), messages=True)
    finally:
        for child in children:
            child.kill()
            child.wait()


def _busiest(pid: int) -> Counts:
    return Counts(*max(threads([pid]), key=lambda thread: thread.cpu_us)[2:5])


def test_all_threads_of_a_process_are_listed() -> None:
    text = "import threading; t = threading.Thread(target=input); t.start(); print(t.native_id, flush=True); t.join()"
    with subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        second = int(child.stdout.readline())
        listed = threads([child.pid])
        child.communicate(b"\n")
    assert {(each.pid, each.tid) for each in listed} == {(child.pid, child.pid), (child.pid, second)}
    assert threads([2**22 + 1]) == []


def test_shared_memory_is_noticed(tmp_path: Path) -> None:
    segment = Path(f"/dev/shm/cosched-test-{os.getpid()}")
    text = f"import mmap; f = open({str(segment)!r}, 'r+b'); m = mmap.mmap(f.fileno(), 0); print(flush=True); input()"
    segment.write_bytes(bytes(4096))
    try:
        with subprocess.Popen(
            [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path
        ) as child:
            assert child.stdout is not None
            child.stdout.readline()
            assert shares_memory(child.pid)
            child.kill()
    finally:
        segment.unlink()
    assert not shares_memory(2**22 + 1)

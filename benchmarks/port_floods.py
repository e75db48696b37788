"""The scheduler's port and socket under floods: who it is for goes on, and nothing grows.

A real ``cosched scheduler`` with 1 024 descriptors and two agents. One flood after the other, each from several
processes at full speed: over the socket from three users (as root, by uids of nobody's; else one user), over TLS from
strangers at addresses 127.0.1.x. Meanwhile ``/healthz`` is asked ten times a second, and one of the agents, killed
before, comes back. Told of each: that one's seconds until its welcome, ``/healthz``, log lines, peak memory.

    ./run bench port_floods [SECONDS [FLOOD ...]]
"""

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import ssl
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.measure import forget_peak, header, machine, memory_mib
from benchmarks.service import Lab, asked
from cosched.client.transport import Transport

_DESCRIPTORS: Final = 1024
_UIDS: Final = (40_001, 40_002, 40_003)
_MOST_MIB: Final = 64
_LEASE_S: Final = 10.0
_KEPT: Final = 300  # connections that a flood keeps open, each process

Flood = Callable[["Aim", int], None]


class Aim:
    """Where a flood goes; ``until_s`` of CLOCK_MONOTONIC."""

    def __init__(self, path: str, port: int, until_s: float) -> None:
        self.path, self.port, self.until_s = path, port, until_s

    @property
    def on(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() < self.until_s

    def unix(self) -> socket.socket:
        """A connection over the socket."""
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(5.0)
        made.connect(self.path)
        return made

    def tcp(self, number: int) -> socket.socket:
        """A connection to the port, from one of 250 addresses."""
        made = socket.socket()
        made.settimeout(5.0)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((f"127.0.1.{2 + number % 250}", 0))
        made.connect(("127.0.0.1", self.port))
        return made


def _kept(aim: Aim, connect: Callable[[int], socket.socket], said: bytes) -> None:
    """So many connections that have said something and then nothing; whoever is sent away comes again."""
    kept: list[socket.socket] = []
    number = 0
    while aim.on:
        number += 1
        try:
            made = connect(number)
            made.sendall(said)
            made.setblocking(False)
            kept.append(made)
        except OSError:
            pass
        if len(kept) >= _KEPT:
            kept.pop(0).close()


def _asked(aim: Aim, request: bytes) -> None:
    """One request after the other, answers read, on new connections where the old one is ended."""
    made: socket.socket | None = None
    while aim.on:
        try:
            made = made or aim.unix()
            made.sendall(request)
            if not made.recv(1 << 16):
                made.close()
                made = None
        except OSError:
            made = None


def _many(aim: Aim, request: bytes, threads: int) -> None:
    running = [threading.Thread(target=_asked, args=(aim, request)) for _ in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()


def _shaken(aim: Aim, offset: int) -> None:
    """TLS to its end, without a certificate, and nothing after it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    kept: list[ssl.SSLSocket] = []
    number = offset
    while aim.on:
        number += 1
        with contextlib.suppress(OSError):
            kept.append(context.wrap_socket(aim.tcp(number), server_hostname="scheduler"))
        if len(kept) >= _KEPT:
            kept.pop(0).close()


def _get(path: str, headers: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode()


_HALF_HELLO: Final = b"\x16\x03\x01\x00\xc8"
_HALF_HEAD: Final = b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"y" * 1900) for n in range(30))
_HALF_BODY: Final = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 8388608\r\n\r\n" + b'["' + b"x" * 150_000
_GZIP: Final = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nnoise"
#: Each with the number of its process, from 0 on; over the socket each is another user.
FLOODS: dict[str, tuple[bool, Flood]] = {
    "history": (True, lambda aim, n: _many(aim, _get("/v1/history?limit=1000"), 80)),
    "requests": (True, lambda aim, n: _many(aim, _get("/v1/cluster"), 20)),
    "bad gzip": (True, lambda aim, n: _many(aim, _GZIP, 20)),
    "half heads": (True, lambda aim, n: _kept(aim, lambda _: aim.unix(), _HALF_HEAD)),
    "half bodies": (True, lambda aim, n: _kept(aim, lambda _: aim.unix(), _HALF_BODY)),
    "connections": (True, lambda aim, n: _kept(aim, lambda _: aim.unix(), b"")),
    "TLS: silent": (False, lambda aim, n: _kept(aim, lambda number: aim.tcp(number + 83 * n), b"")),
    "TLS: half hellos": (False, lambda aim, n: _kept(aim, lambda number: aim.tcp(number + 83 * n), _HALF_HELLO)),
    "TLS: noise": (False, lambda aim, n: _kept(aim, lambda number: aim.tcp(number + 83 * n), b"x" * 3000)),
    "TLS: no certificate": (False, lambda aim, n: _shaken(aim, 83 * n)),
}  # fmt: skip


def _flooding(name: str, aim: Aim) -> list[int]:
    over_socket, flood = FLOODS[name]
    made = []
    for number, uid in enumerate(_UIDS):
        if (pid := os.fork()) == 0:
            try:
                os.nice(5)
                if over_socket and os.geteuid() == 0:
                    os.setgroups([])
                    os.setgid(uid)
                    os.setuid(uid)
                flood(aim, number)
            finally:
                os._exit(0)
        made.append(pid)
    return made


def _fill_history(lab: Lab, count: int) -> None:
    """Jobs that have ended: cancelled while they are held."""
    client = Transport(str(lab.socket))
    job = json.dumps({"script": "#!/bin/sh\n" + "# what it does\n" * 20, "directory": "/tmp", "hold": True}).encode()
    for _ in range(count):
        made = json.loads(client.request("POST", "/v1/jobs", job).body)
        client.request("POST", f"/v1/jobs/{made['job_id']}/cancel")


def measure(lab: Lab, name: str, seconds: float) -> bool:
    """One flood; whether every promise was kept."""
    pid = lab.scheduler.pid
    log = lab.path / "scheduler.log"
    lines = log.read_text().count("\n")
    forget_peak(pid)
    base = memory_mib(pid, "VmRSS")
    lab.agents.kill()
    lab.agents.wait()
    with asked(lab, "/healthz") as answers:
        floods = _flooding(name, Aim(str(lab.socket), lab.port, time.monotonic() + seconds))
        try:
            time.sleep(min(2.0, seconds / 4))
            again_s = time.monotonic()
            lab.start_agents()
            back_s = lab.all_welcomed(again_s) - again_s
        finally:
            for each in floods:
                os.waitpid(each, 0)
    peak = memory_mib(pid)
    took_ms = [1000 * took_s for took_s, _ in answers]
    more = log.read_text().count("\n") - lines
    good = (
        lab.scheduler.poll() is None and back_s < _LEASE_S and peak <= base + _MOST_MIB
        and all(status == 200 for _, status in answers) and more <= 30 + 60 * (1 + seconds / 60)
    )  # fmt: skip
    print(
        f"| {name} | {base:.0f} | {peak - base:+.0f} | {back_s:.2f} | {statistics.median(took_ms):.0f} "
        f"| {max(took_ms):.0f} | {more} | {'kept' if good else 'BROKEN'} |",
        flush=True,
    )
    return good


def main(arguments: list[str]) -> int:
    """See above; 1 where a promise was broken."""
    seconds = float(arguments[0]) if arguments else 60.0
    names = arguments[1:] or list(FLOODS)
    path = Path(tempfile.mkdtemp(prefix="cosched-bench-"))
    path.chmod(0o755)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_DESCRIPTORS, before[1]), before[1]))
    lab = Lab(path, 2)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS, _DESCRIPTORS))
        lab.start()
        lab.start_agents()
        lab.all_welcomed(0.0)
        _fill_history(lab, 1000)
        print(f"{machine()}; {seconds:g} s each, the first two floods twice")
        header("flood | before, MiB | peak, MiB | agents back, s | healthz ms | worst | log lines |")
        kept = [measure(lab, name, seconds) for name in (*names, names[0])]
        return 0 if all(kept) else 1
    finally:
        lab.close()
        shutil.rmtree(path)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    sys.exit(main(sys.argv[1:]))

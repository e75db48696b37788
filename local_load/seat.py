"""Seat a user: start him and his probe for each session, take in what they measure, and say at the end how it was.

Two processes do the work: the user (``local_load.user``), whose use is held to the profile, and the probe
(``local_load.probe``), which must not wait for him. This one only listens to both, is the peer of the user's messages
where no other was named, keeps samples, and lets Prometheus look.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

import msgspec

from local_load.measured import Measured, Room
from local_load.peer import Peer
from local_load.probe import CALLS, DEFAULT_RATE_HZ, SAMPLE
from local_load.profile import Profile
from local_load.schedule import Session
from local_load.terminal import logged_in

PROBED: Final = tuple(call for call in CALLS if call != "key")  # keys are the user's own
_KEY: Final = CALLS.index("key")
_ASKED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LEAVES_S: Final = 15.0
#: So many samples are kept in a file; what comes after is only counted.
MOST_SAMPLES: Final = 3_000_000


@dataclass(frozen=True)
class Wanted:
    """A run. ``peer`` None: messages go to this process, over the loopback. ``alone``: no user, the probe alone.

    ``punctual``: sessions end when they are to, as in a trace; else each has its whole length, however long it took to
    start. ``samples`` is the file of raw samples (:data:`local_load.probe.SAMPLE`), ``listen`` for Prometheus.
    """

    profile: Profile
    seed: int
    sessions: Iterable[Session]
    seconds: float
    room: Room
    punctual: bool = False
    alone: bool = False
    peer: tuple[str, int] | None = None
    calls: tuple[str, ...] = PROBED
    rate_hz: float = DEFAULT_RATE_HZ
    samples: Path | None = None
    listen: tuple[str, int] | None = None


class Run:
    """One run; ``measured`` can be looked at from another thread."""

    def __init__(self, wanted: Wanted, say: Callable[[str], None] = lambda line: None) -> None:
        self._wanted = wanted
        self._say = say
        self.measured = Measured(wanted.profile, wanted.room)
        self._selector = selectors.DefaultSelector()
        self._left = threading.Event()
        self._lock: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        self._file: IO[bytes] | None = None
        self._kept = 0
        self._base_ns = 0
        self._peer: Peer | None = None
        self._streams: dict[int, bytearray] = {}
        self._logins = contextlib.ExitStack()

    def run(self) -> dict[str, Any]:
        """Seat the user for all sessions; what was measured. SIGTERM, SIGINT and SIGHUP end it early, and well."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._selector)
            stack.enter_context(self._asked_to_leave())
            if self._wanted.listen:
                from local_load.export import Exporter  # noqa: PLC0415 (HTTP, where metrics are asked for)

                exporter = Exporter(self.measured, *self._wanted.listen)
                stack.callback(exporter.close)
                self._lock = exporter.lock
                self._say(f"metrics at {self._wanted.listen[0]}:{exporter.port}")
            if self._wanted.samples:
                self._file = stack.enter_context(self._wanted.samples.open("wb"))
            if not self._wanted.peer:
                self._peer = Peer(self._selector)
                stack.callback(self._peer.close)
            self._base_ns = time.monotonic_ns()
            for session in self._wanted.sessions:
                if session.begin_s >= self._wanted.seconds:
                    break
                self._attend(session.begin_s)
                if self._left.is_set():
                    break
                self._session(session)
                if self._left.is_set() or self.measured.problems:
                    break
            if not self.measured.problems and not self._left.is_set():
                self._attend(self._wanted.seconds)
        summary = {"seed": self._wanted.seed, "seconds": round(self._now_s(), 3)} | self.measured.summary()
        if self._kept > MOST_SAMPLES:
            summary["problems"].append(f"{self._kept - MOST_SAMPLES} samples are counted, but not in the file")
        return summary

    def _session(self, session: Session) -> None:
        number = self.measured.sessions
        seconds = min(session.end_s, self._wanted.seconds) - self._now_s()
        if seconds <= 0:
            return
        self._say(f"{self._now_s():8.1f} s  {'probing' if self._wanted.alone else 'he sits down'}")
        with self._lock:
            self.measured.begin_session()
        started = [self._start("probe", self._probe_order(number, seconds), self._hear_probe)]
        if not self._wanted.alone:
            started.append(self._start("user", self._user_order(number, seconds), self._hear_user))
        try:
            self._attend_all(started, session.end_s if self._wanted.punctual else self._now_s() + seconds + _LEAVES_S)
        finally:
            for process in started:
                _end(process)
            self._drain(started)
            self._logins.close()
            with self._lock:
                self.measured.end_session()
        self._say(f"{self._now_s():8.1f} s  {'done' if self._wanted.alone else 'he has left'}")

    def _attend_all(self, started: list["subprocess.Popen[bytes]"], until_s: float) -> None:
        """Listen until all have ended by themselves, or it is enough."""
        while not self._left.is_set() and self._streams and (left_s := until_s - self._now_s()) > 0:
            self._listen(min(0.5, left_s))
            user = started[-1]
            if user.poll():
                how = f"signal {-user.returncode}" if user.returncode < 0 else f"status {user.returncode}"
                self.measured.problems.append(f"a process of the user's ended with {how} after {self._now_s():.0f} s")
                return

    def _start(
        self, module: str, order: dict[str, Any], hear: Callable[[bytearray], None]
    ) -> "subprocess.Popen[bytes]":
        root = str(Path(__file__).parents[1])
        search = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", f"local_load.{module}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": search},
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.close()
        descriptor = process.stdout.fileno()
        os.set_blocking(descriptor, False)
        self._streams[descriptor] = bytearray()
        self._selector.register(descriptor, selectors.EVENT_READ, lambda: self._read(descriptor, hear))
        return process

    def _user_order(self, number: int, seconds: float) -> dict[str, Any]:
        room = self._wanted.room
        return {
            "profile": msgspec.to_builtins(self._wanted.profile),
            "seed": f"{self._wanted.seed}:{number}",
            "seconds": seconds,
            "base_ns": self._base_ns,
            "peer": self._wanted.peer or ("127.0.0.1", self._peer.port if self._peer else 0),
            "memory_bytes": room.allowed_bytes,
            "reserve_bytes": room.reserve_bytes,
            "family": os.getpid(),
            "parent": os.getpid(),
        }

    def _probe_order(self, number: int, seconds: float) -> dict[str, Any]:
        return {
            "calls": self._wanted.calls,
            "rate_hz": self._wanted.rate_hz,
            "seed": f"{self._wanted.seed}:{number}",
            "seconds": seconds,
            "base_ns": self._base_ns,
            "parent": os.getpid(),
        }

    def _attend(self, until_s: float) -> None:
        """Let time pass."""
        while not self._left.is_set() and (left_s := until_s - self._now_s()) > 0:
            self._listen(left_s)

    def _listen(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            key.data()

    def _now_s(self) -> float:
        return (time.monotonic_ns() - self._base_ns) / 1e9

    def _read(self, descriptor: int, hear: Callable[[bytearray], None]) -> None:
        try:
            data = os.read(descriptor, 1 << 18)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(descriptor)
            del self._streams[descriptor]
            return
        self._streams[descriptor] += data
        with self._lock:
            hear(self._streams[descriptor])

    def _drain(self, started: list["subprocess.Popen[bytes]"]) -> None:
        """Hear what those who have ended still said."""
        while self._streams:
            self._listen(0.1)
        for process in started:
            assert process.stdout is not None
            process.stdout.close()

    def _hear_probe(self, heard: bytearray) -> None:
        whole = len(heard) // SAMPLE.size * SAMPLE.size
        self._keep(self.measured.samples(bytes(heard[:whole])))
        del heard[:whole]

    def _hear_user(self, heard: bytearray) -> None:
        *lines, rest = bytes(heard).split(b"\n")
        heard[:] = rest
        for line in lines:
            told = json.loads(line)
            if "sat" in told:
                self.measured.logins += self._logins.enter_context(logged_in(told["sat"], told["editor"]))
                continue
            self.measured.use(told)
            for at_ns, took_ns in told["keys"]:
                self.measured.add("key", took_ns, took_ns)
                self._keep(SAMPLE.pack(_KEY, 0, at_ns, took_ns, took_ns))

    def _keep(self, samples: bytes) -> None:
        if self._file:
            if self._kept < MOST_SAMPLES:
                self._file.write(samples)
            self._kept += len(samples) // SAMPLE.size

    @contextlib.contextmanager
    def _asked_to_leave(self) -> Iterator[None]:
        """Within, signals that ask for an end are obeyed at the next moment; afterwards all is as it was."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

        def leave(number: int, frame: FrameType | None) -> None:
            self._left.set()
            with contextlib.suppress(BlockingIOError):
                os.write(wake, b"x")

        before = {number: signal.signal(number, leave) for number in _ASKED}
        self._selector.register(woken, selectors.EVENT_READ, lambda: os.read(woken, 64))
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(woken)
            os.close(wake)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ask it to leave, wait a while, then insist."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        process.wait(_LEAVES_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

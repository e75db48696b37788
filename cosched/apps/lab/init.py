"""Process 1 of a lab's node, and of its head: starts its services, runs commands for ``cosched lab run``, reaps.

One thread, one loop. Which services are started again when they end, ``keeping`` says. See ``control`` for what
callers may ask.
"""

import contextlib
import fcntl
import os
import selectors
import signal
import socket
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

from cosched.apps.lab import control, process
from cosched.apps.lab.keeping import Kept, Service

_REAP_S: Final = 5.0  # a child's signal can be missed by nobody; this bounds the harm if it were


@dataclass
class Init:
    """What process 1 of ``node`` knows. ``environment`` is its services'; commands bring their own, plus ``marks``."""

    node: str
    listener: socket.socket
    environment: Mapping[str, str]
    marks: Mapping[str, str]
    desk: Sequence[str] = ()
    mortal: bool = False
    on_orphan: Callable[[int, int], None] | None = None
    services: dict[str, Kept] = field(default_factory=dict)
    _runs: dict[int, socket.socket] = field(default_factory=dict)
    _ending: bool = False

    def __post_init__(self) -> None:
        process.oom_score("-900")  # a node that is out of memory loses a command, not its process 1 and all with it
        self._selector = selectors.DefaultSelector()
        self._wake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _noted)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._end)
        self.watch(self._wake, self._woken)
        self.watch(self.listener, self._greet)

    def watch(self, source: int | socket.socket, do: Callable[[], None]) -> None:
        """Call ``do`` whenever there is something to read."""
        self._selector.register(source, selectors.EVENT_READ, do)

    def unwatch(self, source: int | socket.socket) -> None:
        """Do so no more."""
        self._selector.unregister(source)

    def start(self, name: str, service: Service) -> None:
        """Start a service, and keep it if it is to be kept."""
        kept = self.services[name] = Kept(service, self._launch)
        if kept.signs is not None:
            self.watch(kept.signs, kept.heard)
        kept.start()

    def _launch(self, service: Service, more: Mapping[str, str]) -> int:
        """Its number. One that cannot be started counts as ended, and its log says why."""
        log = os.open(service.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            streams = (nothing, log, log)
            program = process.Program(
                service.argv, {**self.environment, **more}, "/", streams, groups=service.groups, mortal=self.mortal
            )
            return process.start(program)
        except process.CannotStart as error:
            os.write(log, f"{error}\n".encode())
            for kept in self.services.values():
                if kept.service is service:
                    kept.has_ended({"status": error.status})
            return 0
        finally:
            control.close([log, nothing])

    def run(self) -> None:
        """Serve until a signal says that it is enough."""
        while not self._ending:
            for key, _ in self._selector.select(self._pause_s()):
                key.data()
            self._reap()
            for kept in self.services.values():
                kept.tick()

    def _pause_s(self) -> float:
        dues_s = [due_s for kept in self.services.values() if (due_s := kept.due_s()) is not None]
        return min([_REAP_S, *(max(0.0, due_s - time.monotonic()) for due_s in dues_s)])

    def end(self) -> None:
        """Leave :meth:`run`."""
        self._ending = True

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._ending = True

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            ended = process.ended(status)
            for service in self.services.values():
                if service.pid == pid and service.ended is None:
                    service.has_ended(ended)
            if connection := self._runs.pop(pid, None):
                with contextlib.suppress(OSError):
                    control.send(connection, ended)
                self._forget(connection)
            elif self.on_orphan:
                self.on_orphan(pid, status)

    def _greet(self) -> None:
        try:
            connection, _ = self.listener.accept()
        except OSError:  # the caller has gone already
            return
        if not control.may_command(connection):
            connection.close()
            return
        self.watch(connection, lambda: self._serve(connection))

    def _serve(self, connection: socket.socket) -> None:
        try:
            packet = control.receive(connection)
        except (OSError, ValueError):
            packet = None
        if packet is None:
            self._hang_up(connection)
            return
        message, descriptors = packet
        try:
            self._answer(connection, message, descriptors)
        except OSError:  # the caller has gone
            self._hang_up(connection)
        finally:
            control.close(descriptors)

    def _answer(self, connection: socket.socket, message: dict[str, Any], descriptors: list[int]) -> None:
        do = message.get("do")
        if do == "status":
            services = {
                name: {"pid": each.pid, "ended": each.trouble(), "starts": each.starts}
                for name, each in self.services.items()
            }
            control.send(connection, {"services": services})
        elif do == "signal":
            for pid in (pid for pid, caller in self._runs.items() if caller is connection):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, int(message["signal"]))
        elif do == "run" and len(descriptors) == (1 if message.get("tty") else 4):
            try:
                order = control.read_order(descriptors[0])
            except ValueError as error:
                control.send(connection, {"error": str(error), "status": 1})
                return
            self._run(connection, order, descriptors[1:])
        else:
            control.send(connection, {"error": f"not understood: {do}", "status": 1})

    def _run(self, connection: socket.socket, order: dict[str, Any], streams: list[int]) -> None:
        terminal = not streams
        opened: list[int] = []
        try:
            if terminal:
                opened = list(os.openpty())
                size = struct.pack("4H", int(order.get("rows", 24)), int(order.get("columns", 80)), 0, 0)
                fcntl.ioctl(opened[1], termios.TIOCSWINSZ, size)
                streams = [opened[1]] * 3
            directory = _visible(order["cwd"], order["env"].get("HOME", ""))
            program = process.Program(
                order["argv"], order["env"] | self.marks, directory, (streams[0], streams[1], streams[2]), terminal,
                self.desk, self.mortal, int(order.get("umask", -1)),
            )  # fmt: skip
            pid = process.start(program)
        except process.CannotStart as error:
            control.send(connection, {"error": str(error), "status": error.status})
        except OSError as error:
            control.send(connection, {"error": f"a terminal: {error.strerror}", "status": 1})
        else:
            self._runs[pid] = connection
            control.send(connection, {"pid": pid, "cwd": directory}, opened[:1])
        finally:
            control.close(opened)

    def _hang_up(self, connection: socket.socket) -> None:
        for pid in [pid for pid, caller in self._runs.items() if caller is connection]:
            del self._runs[pid]
            for number in (signal.SIGHUP, signal.SIGCONT):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, number)
        self._forget(connection)

    def _forget(self, connection: socket.socket) -> None:
        self.unwatch(connection)
        connection.close()


def _noted(number: int, frame: FrameType | None) -> None:
    """Nothing: the signal has woken the loop."""


def _visible(*directories: str) -> str:
    """The first of these that a command can start in."""
    return next((each for each in directories if os.path.isabs(each) and os.access(each, os.X_OK)), "/")

"""Run a command on a node, through its process 1: with the caller's own descriptors, or at a terminal of the node's."""

import contextlib
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import termios
import tty
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final, Self

from cosched.apps.lab import control
from cosched.client.places import own_umask
from cosched.errors import Failed

_FORWARDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_PIECE_BYTES: Final = 64 << 10


class Command:
    """A command that runs on a node. ``directory`` is where it started; ``master`` its terminal's other end, or -1."""

    def __init__(
        self,
        node: Path,
        argv: Sequence[str],
        env: Mapping[str, str],
        directory: str,
        streams: Sequence[int] = (),
        size: tuple[int, int] = (24, 80),
    ) -> None:
        """Start it. ``node`` is the socket of its process 1; no ``streams``: a terminal of this size, rows and columns.

        Raises :class:`CannotRun` where the program cannot be started, :class:`Failed` where the node is gone.
        """
        order = {"argv": list(argv), "env": dict(env), "cwd": directory, "umask": own_umask()}
        order |= {"rows": size[0], "columns": size[1]}
        self._ended: dict[str, Any] | None = None
        try:
            self.connection = control.connect(node)
        except OSError as error:
            raise Failed(f"{node.parent.name} does not answer: {error.strerror}") from None
        paper = control.written_order(order)
        try:
            control.send(self.connection, {"do": "run", "tty": not streams}, [paper, *streams])
            packet = control.receive(self.connection)
        except OSError as error:
            self.close()
            raise Failed(f"{node.parent.name} does not answer: {error.strerror or error}") from None
        finally:
            os.close(paper)
        answer, descriptors = packet or ({"error": "its process 1 has ended", "status": 1}, [])
        self.master = descriptors[0] if descriptors else -1
        if "error" in answer:
            self.close()
            raise CannotRun(f"{node.parent.name}: {answer['error']}", answer["status"])
        self.pid: int = answer["pid"]
        self.directory: str = answer["cwd"]
        self.connection.settimeout(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of it: if it runs still, it gets SIGHUP."""
        self.connection.close()
        if getattr(self, "master", -1) >= 0:
            os.close(self.master)
            self.master = -1

    def signal(self, number: int) -> None:
        """Send a signal to its process group."""
        with contextlib.suppress(OSError):  # it has ended
            control.send(self.connection, {"do": "signal", "signal": int(number)})

    def wait(self, timeout_s: float | None = None) -> int:
        """Its exit status, or 128 + the signal that killed it, as in a shell. Raises TimeoutError, :class:`Failed`."""
        if self._ended is None:
            self.connection.settimeout(timeout_s)
            packet = control.receive(self.connection)
            if packet is None:
                raise Failed("the node has gone away while the command ran")
            self._ended = packet[0]
        return int(self._ended["status"] if "status" in self._ended else 128 + self._ended["signal"])


class CannotRun(Failed):
    """A program that is not there or cannot be executed; ``shell_status`` is what a shell says then, 127 or 126."""

    def __init__(self, message: str, shell_status: int) -> None:
        super().__init__(message)
        self.shell_status = shell_status


def attached(start: Callable[[], Command]) -> int:
    """Stand in for a command with our own descriptors: pass signals on, wait, give its exit status."""
    with _begun(start, _FORWARDED) as command:
        return command.wait()


def at_terminal(start: Callable[[], Command], source: int = 0, sink: int = 1) -> int:
    """Be the terminal of a command: keys there, its output here, until it has ended; its exit status."""
    with _begun(start, (signal.SIGTERM, signal.SIGHUP)) as command, _raw(source):

        def resize(number: int = 0, frame: FrameType | None = None) -> None:
            rows, columns = terminal_size(source)
            with contextlib.suppress(OSError):
                fcntl.ioctl(command.master, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

        with _handlers({signal.SIGWINCH: resize}):
            resize()
            return _mediated(command, source, sink)


def _mediated(command: Command, source: int, sink: int) -> int:
    sources: list[int | socket.socket] = [source, command.master, command.connection]
    while True:
        ready, _, _ = select.select(sources, [], [])
        if command.master in ready and not _passed_on(command.master, sink):
            sources.remove(command.master)
        if source in ready:
            keys = os.read(source, _PIECE_BYTES)
            if keys:
                os.write(command.master, keys)
            else:
                sources.remove(source)
        if command.connection in ready:
            status = command.wait()
            while select.select([command.master], [], [], 0)[0] and _passed_on(command.master, sink):
                pass
            return status


@contextlib.contextmanager
def _begun(start: Callable[[], Command], forwarded: Iterable[signal.Signals]) -> Iterator[Command]:
    """A command, started so that no signal is lost: from the moment it runs, it gets those that we get."""
    forwarded = tuple(forwarded)
    signal.pthread_sigmask(signal.SIG_BLOCK, forwarded)
    try:
        command = start()
    except BaseException:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, forwarded)
        raise

    def forward(number: int, frame: FrameType | None) -> None:
        command.signal(number)

    with command, _handlers(dict.fromkeys(forwarded, forward)):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, forwarded)
        yield command


def terminal_size(descriptor: int) -> tuple[int, int]:
    """Rows and columns."""
    size = os.get_terminal_size(descriptor)
    return size.lines or 24, size.columns or 80


def _passed_on(source: int, sink: int) -> bool:
    """Copy what there is; False at the end."""
    try:
        data = os.read(source, _PIECE_BYTES)
    except OSError as error:
        if error.errno == errno.EIO:  # nobody has the terminal open any more
            return False
        raise
    while data:
        data = data[os.write(sink, data) :]
    return True


@contextlib.contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor, termios.TCSADRAIN)  # what was typed ahead stays
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _handlers(handlers: Mapping[signal.Signals, Any]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""A remote command's standard streams, kept by its supervisor: agents may come and go, nothing is lost or said twice.

The supervisor holds the command's pipes and a socket in the job's directory, ``state/jobs/ID.ATTEMPT/STREAM``, the
agent's own, where ``STREAM`` is the caller's name for this one command: a second supervisor of that name gets nowhere,
so a command that is asked for twice is started once. Frames and who says what are in ``cosched.wire.stream``; on this
socket the first frame is ACK, which says where the caller stands, or HANGUP. What was read from the command is kept
until the caller has it, what the caller has sent is taken once: both in windows, so whoever is slow slows the other.

A command whose caller is gone is ended: at once when an agent says so, after :data:`PATIENCE_US` when nobody calls.
"""

import contextlib
import errno
import json
import math
import os
import select
import signal
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from cosched.linux import files, process
from node_agent.guard.base.requests import Refusal
from node_agent.guard.base.sockets import listening
from node_agent.programs import rsh

WINDOW_BYTES: Final = 256 << 10
#: For how long a command goes on without a connection to its caller. An agent that is started anew takes a second.
PATIENCE_US: Final = 60 * process.US_PER_S
_GRACE_US: Final = process.US_PER_S  # between SIGTERM and SIGKILL when the caller has gone
_LINGER_US: Final = 300_000  # for output after the command's own end
_MOST_WAITING: Final = 2 * WINDOW_BYTES
_HEADER_BYTES: Final = 5
_BACKLOG: Final = 8
_STANDS: Final = struct.Struct(">QQ")
_COUNT: Final = struct.Struct(">Q")
_SIGNALS: Final = frozenset(
    (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
)


class NotUnderstood(Exception):
    """What came over the connection makes no sense."""


class Output:
    """One of the two streams from the command. ``kept`` begins at byte ``base``; ``sent`` of all went out by now."""

    def __init__(self, kind: int, fd: int) -> None:
        self.kind, self.fd = kind, fd
        self.base = self.sent = 0
        self.kept = bytearray()

    @property
    def wants(self) -> bool:
        """Whether it should be read from now."""
        return self.fd >= 0 and len(self.kept) < WINDOW_BYTES

    def read(self) -> bool:
        """Take what is there; false at its end."""
        try:
            data = os.read(self.fd, rsh.MAX_PIECE)
        except BlockingIOError:
            return True
        self.kept += data
        if not data:
            self.close()
        return bool(data)

    def next(self) -> bytes:
        """The frame that goes out next; empty when there is none."""
        data = bytes(self.kept[self.sent - self.base :][: rsh.MAX_PIECE])
        self.sent += len(data)
        return rsh.frame(self.kind, data) if data else b""

    def acknowledged(self, count: int) -> None:
        """The caller has so many bytes of it. Raises :class:`NotUnderstood`."""
        if not self.base <= count <= self.base + len(self.kept):
            raise NotUnderstood(f"it has {count} bytes, and {self.base} to {self.base + len(self.kept)} are here")
        del self.kept[: count - self.base]
        self.base = count

    def close(self) -> None:
        """No more is expected of it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Streams:
    """The pipes, the socket, and what is on its way."""

    def __init__(self, name: str, directory_fd: int, agent_uid: int) -> None:
        """Raises OSError, and :class:`Refusal` for a name that is, or was, another command's.

        ``theirs`` are the command's ends: close them once it is started.
        """
        self._name, self._directory = name, directory_fd
        self._listener = _named(name, directory_fd, agent_uid)
        (stdin, self._input), (out, stdout), (err, stderr) = os.pipe(), os.pipe(), os.pipe()
        self.theirs = (stdin, stdout, stderr)
        self._outputs = (Output(rsh.STDOUT, out), Output(rsh.STDERR, err))
        self._connection: socket.socket | None = None
        self._attached = self._told = False  # this connection: the caller has said where it stands; it has the exit
        self._outgoing = bytearray()
        self._incoming = bytearray()
        self._waiting: deque[tuple[int, bytes]] = deque()  # frames for the command, in order
        self._waiting_bytes = 0
        self._seen = self._done = 0  # frames of the caller's that have arrived, and that are done with
        self._alone_since_us = process.boottime_us()
        self._last_us = 0  # when the command last wrote
        self._gone = False  # the caller, for good
        self._hurry = False  # once the command has ended, nothing is waited for
        self._looked_us = 0  # when the clock was looked at
        self._kill_at_us = 0  # when it is killed next; 0: its end has not begun
        self._ended_us: int | None = None
        self._exit = b""
        for fd in (self._input, out, err):
            os.set_blocking(fd, False)

    def give_up(self) -> None:
        """It was not started: nothing of it stays."""
        self._listener.close()
        files.drop(self._name, self._directory)

    def carry(self, woken: int, reap: Callable[[], int | None], kill: Callable[[int], object]) -> None:
        """Pass everything on until there is nothing more to pass on.

        ``woken`` is readable when a child may have ended: ``reap`` gives the command's exit status (as Popen's) once it
        has. ``kill`` signals the command. SIGTERM to the caller of this, on ``woken`` too: wait for nobody any more.
        """
        while not self._over():
            poll = select.poll()
            calls = {}
            for fd, events, call in self._awaited(woken, reap, kill):
                poll.register(fd, events)
                calls[fd] = call
            for fd, _ in poll.poll(self._pause_ms()):
                calls[fd]()
            self._look_at_the_clock(kill)
            self._send()
        self._hang_up()
        self._listener.close()
        if self._gone:  # whoever asked has what there was, or will never ask again
            files.drop(self._name, self._directory)

    # --- when it is over ----------------------------------------------------------------------------------------------

    @property
    def _patience_ends_us(self) -> float:
        """When a command whose caller is not connected is ended; inf: while one is connected."""
        return math.inf if self._connection is not None else self._alone_since_us + PATIENCE_US

    @property
    def _output_ends_us(self) -> float:
        """When no more output is waited for; inf: while the command runs."""
        return math.inf if self._ended_us is None else max(self._ended_us, self._last_us) + _LINGER_US

    def _over(self) -> bool:
        now_us = process.boottime_us()
        return self._ended_us is not None and (
            self._gone or (self._hurry and now_us >= self._ended_us + _LINGER_US) or now_us >= self._patience_ends_us
        )

    def _look_at_the_clock(self, kill: Callable[[int], object]) -> None:
        self._looked_us = now_us = process.boottime_us()
        if self._ended_us is None:
            due = now_us >= self._kill_at_us if self._kill_at_us else self._gone or now_us >= self._patience_ends_us
            if due:
                kill(signal.SIGKILL if self._kill_at_us else signal.SIGTERM)
                self._kill_at_us = now_us + _GRACE_US
        elif now_us >= self._output_ends_us:
            for each in self._outputs:  # a process that it left behind may hold them open; that one is not waited for
                if each.wants:
                    each.close()

    def _end(self, status: int) -> None:
        self._ended_us = process.boottime_us()
        document = {"status": status} if status >= 0 else {"signal": -status}
        self._exit = rsh.frame(rsh.EXIT, json.dumps(document).encode())
        self._close_input()
        self._feed()

    # --- what is ready ------------------------------------------------------------------------------------------------

    def _awaited(
        self, woken: int, reap: Callable[[], int | None], kill: Callable[[int], object]
    ) -> Iterator[tuple[int, int, Callable[[], object]]]:
        """Descriptors, each with the events to wait for and what is done then."""
        yield woken, select.POLLIN, lambda: self._woken(woken, reap)
        yield self._listener.fileno(), select.POLLIN, self._accept
        for each in self._outputs:
            if each.wants:
                yield each.fd, select.POLLIN, partial(self._read, each)
        if self._connection is not None:
            events = select.POLLIN | (select.POLLOUT if self._outgoing else 0)
            yield self._connection.fileno(), events, lambda: self._converse(kill)
        if self._waiting and self._input >= 0:
            yield self._input, select.POLLOUT, self._feed

    def _pause_ms(self) -> int | None:
        """Milliseconds until the first moment that is due after the latest look at the clock; None: there is none."""
        kill_at_us = self._kill_at_us if self._ended_us is None else 0
        moments = (kill_at_us, self._patience_ends_us, self._output_ends_us)
        due_us = min((each for each in moments if self._looked_us < each < math.inf), default=None)
        return None if due_us is None else max(0, int(due_us) - process.boottime_us()) // 1000 + 1

    def _woken(self, woken: int, reap: Callable[[], int | None]) -> None:
        self._hurry = signal.SIGTERM in os.read(woken, 64) or self._hurry
        if self._ended_us is None and (status := reap()) is not None:
            self._end(status)

    def _read(self, output: Output) -> None:
        if output.read():
            self._last_us = process.boottime_us()

    def _feed(self) -> None:
        """The caller's input, as much as the command takes."""
        before = self._done
        while self._waiting:
            kind, data = self._waiting[0]
            if kind == rsh.STDIN and self._input >= 0:
                try:
                    written = os.write(self._input, data)
                except BlockingIOError:
                    break
                except OSError:  # it reads no more
                    self._close_input()
                    continue
                self._waiting_bytes -= written
                data = data[written:]
                if data:
                    self._waiting[0] = (kind, data)
                    break
            elif kind == rsh.EOF:
                self._close_input()
            self._waiting_bytes -= _HEADER_BYTES + len(data)
            self._waiting.popleft()
            self._done += 1
        if self._attached and not self._told and self._done > before:
            self._outgoing += rsh.frame(rsh.TAKEN, _COUNT.pack(self._done))

    def _close_input(self) -> None:
        if self._input >= 0:
            os.close(self._input)
            self._input = -1

    # --- the connection -----------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        """A new connection takes the place of an old one: its agent knows no more of that."""
        with contextlib.suppress(OSError):
            fresh, _ = self._listener.accept()
            self._hang_up()
            fresh.setblocking(False)
            self._connection = fresh

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._alone_since_us = process.boottime_us()
        self._attached = self._told = False
        self._outgoing.clear()
        self._incoming.clear()

    def _send(self) -> None:
        if self._connection is None:
            return
        if self._attached:
            for each in self._outputs:
                while len(self._outgoing) < rsh.MAX_PIECE and (piece := each.next()):
                    self._outgoing += piece
            drained = all(each.fd < 0 and each.sent == each.base + len(each.kept) for each in self._outputs)
            if drained and self._ended_us is not None and not self._told:
                self._outgoing += self._exit
                self._told = True
        try:
            if self._outgoing:
                del self._outgoing[: self._connection.send(self._outgoing)]
        except BlockingIOError:
            pass
        except OSError:
            self._hang_up()

    def _converse(self, kill: Callable[[int], object]) -> None:
        assert self._connection is not None
        try:
            data = self._connection.recv(rsh.MAX_PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._hang_up()
            return
        self._incoming += data
        try:
            while len(self._incoming) >= _HEADER_BYTES:
                kind, end = self._incoming[0], _HEADER_BYTES + int.from_bytes(self._incoming[1:5], "big")
                if end > _HEADER_BYTES + rsh.MAX_PIECE:
                    raise NotUnderstood(f"a frame of {end - _HEADER_BYTES} bytes")
                if len(self._incoming) < end:
                    return
                piece = bytes(self._incoming[_HEADER_BYTES:end])
                del self._incoming[:end]
                self._take(kind, piece, kill)
        except NotUnderstood as error:
            with contextlib.suppress(OSError):
                self._connection.send(rsh.frame(rsh.FAIL, str(error).encode()))
            self._hang_up()
            self._gone = True

    def _take(self, kind: int, data: bytes, kill: Callable[[int], object]) -> None:
        if kind == rsh.HANGUP:
            self._gone = True
        elif kind == rsh.ACK and len(data) == _STANDS.size:
            self._stands(*_STANDS.unpack(data))
        elif kind in (rsh.STDIN, rsh.EOF, rsh.SIGNAL):
            self._seen += 1
            if kind == rsh.SIGNAL:
                if not data.isdigit() or len(data) > 2 or int(data) not in _SIGNALS:
                    raise NotUnderstood("a signal that is not passed on")
                if self._ended_us is None:
                    kill(int(data))
            self._waiting.append((kind, data))
            self._waiting_bytes += _HEADER_BYTES + len(data)
            if self._waiting_bytes > _MOST_WAITING:
                raise NotUnderstood("more than was agreed on")
            self._feed()
        else:
            raise NotUnderstood(f"a frame of kind {kind} from a caller")

    def _stands(self, *counts: int) -> None:
        for each, count in zip(self._outputs, counts, strict=True):
            each.acknowledged(count)
            if not self._attached:
                each.sent = count
        if not self._attached:
            self._attached = True
            # what was taken while nobody called is told now: the caller's window may be full of it
            attached, taken = _COUNT.pack(self._seen), _COUNT.pack(self._done)
            self._outgoing += rsh.frame(rsh.ATTACHED, attached) + rsh.frame(rsh.TAKEN, taken)


def _named(name: str, directory_fd: int, agent_uid: int) -> socket.socket:
    """A socket that appears under its name ready to be called, or not at all. Raises OSError, :class:`Refusal`."""
    fresh = f".{os.getpid()}"
    made = listening(f"/proc/self/fd/{directory_fd}/{fresh}", 0o177, _BACKLOG, socket.SOCK_STREAM)
    try:
        if agent_uid != os.geteuid():
            os.chown(fresh, agent_uid, -1, dir_fd=directory_fd, follow_symlinks=False)
        os.link(fresh, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd, follow_symlinks=False)
        return made
    except OSError as error:
        made.close()
        if error.errno == errno.EEXIST:
            raise Refusal("busy", f"command {name} has been started already") from None
        raise
    finally:
        files.drop(fresh, directory_fd)

"""A command that another node (or this one) asks for within a job: streams to and fro, as ``cosched-rsh`` has them.

The command is a line for ``/bin/sh -c``, as sshd takes it, and is born in the job's cgroup as the job's user. When the
connection breaks it is killed, and nothing else of the job is. It has ended when its process has: what a daemon that it
left behind might still write is waited for a moment only.
"""

import asyncio
import contextlib
import json
import logging
import os
import select
import signal
from collections import Counter
from typing import Any

from cosched.wire.messages import Exit
from cosched.wire.stream import MAX_PIECE, Frames, Kind, frame
from node_agent.guard.client import GuardGone, GuardRefused
from node_agent.service.attempts import Attempt
from node_agent.service.groups import Groups

_log = logging.getLogger("cosched.agent")
_LINGER_S = 0.3  # for output after the command's own end
_GRACE_S = 1.0  # between SIGTERM and SIGKILL when the caller has gone
_LOOK_S = 1.0  # between looks at a connection that may have been closed unseen
_MOST = 256  # of one attempt at a time on one node
_SIGNALS = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2})


class CallerGone(Exception):
    """The other end has closed the connection, or says what makes no sense."""


class Commands:
    """Runs commands within attempts that are prepared here."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._running: Counter[str] = Counter()

    async def serve(
        self, attempt: Attempt, command: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Run a command to its end, with streams over a connection whose request has been read."""
        if self._running[attempt.key] >= _MOST:
            await fail(writer, f"more than {_MOST} commands of job {attempt.key} at a time on this node")
            return
        self._running[attempt.key] += 1
        try:
            await _Command(self._groups, attempt, reader, writer).serve(command)
        finally:
            self._running[attempt.key] -= 1
            if not self._running[attempt.key]:
                del self._running[attempt.key]


class _Command:
    """One command and its caller."""

    def __init__(
        self, groups: Groups, attempt: Attempt, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._groups, self._attempt = groups, attempt
        self._reader, self._writer = reader, writer
        self._number = groups.next_command(attempt)
        self._input: int | None = None

    async def serve(self, command: str) -> None:
        """Start it, pass everything on, tell how it ended."""
        node = self._groups.config.name
        (their_in, self._input), (out, their_out), (err, their_err) = (os.pipe2(os.O_CLOEXEC) for _ in range(3))
        try:
            theirs = [their_in, their_out, their_err]
            try:
                argv = ["/bin/sh", "-c", command]
                _, end = await self._groups.spawn(self._attempt, self._number, argv, theirs)
            except (GuardGone, GuardRefused, ValueError) as error:
                await fail(self._writer, f"{node} cannot run it: {error}")
                return
            finally:
                for descriptor in theirs:
                    os.close(descriptor)
            for descriptor in (self._input, out, err):
                os.set_blocking(descriptor, False)
            try:
                await self._stream(end, out, err)
            except* (CallerGone, ConnectionError):
                _log.info("job %s: whoever called command %d has gone", self._attempt.key, self._number)
                await self._kill(end)
        finally:
            os.close(out)
            os.close(err)
            self._close_input()

    async def _stream(self, end: asyncio.Future[Exit], out: int, err: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            watching = [tasks.create_task(self._inward()), tasks.create_task(hung_up(self._writer))]
            outward = [
                tasks.create_task(self._outward(out, Kind.STDOUT, end)),
                tasks.create_task(self._outward(err, Kind.STDERR, end)),
            ]
            await asyncio.wait(outward)
            await asyncio.wait([end])
            for task in watching:
                task.cancel()
            how = end.result()
            document = {"signal": how.signal} if how.signal is not None else {"status": how.status}
            if how.signal is None and how.status is None:
                await fail(self._writer, "how the command ended is not known")
                return
            self._writer.write(frame(Kind.EXIT, json.dumps(document).encode()))
            await self._writer.drain()

    async def _outward(self, descriptor: int, kind: Kind, end: asyncio.Future[Exit]) -> None:
        """Until its end, or until the command has ended and nothing more comes."""
        while True:
            try:
                data = os.read(descriptor, MAX_PIECE)
            except BlockingIOError:
                if not await _readable(descriptor, end):
                    return
                continue
            if not data:
                return
            self._writer.write(frame(kind, data))
            await self._writer.drain()

    async def _inward(self) -> None:
        """Standard input and signals, for as long as the caller is there."""
        frames = Frames()
        while True:
            data = await self._reader.read(MAX_PIECE)
            if not data:
                raise CallerGone
            try:
                for kind, piece in frames.feed(data):
                    await self._take(kind, piece)
            except ValueError as error:
                raise CallerGone(str(error)) from None

    async def _take(self, kind: Kind, piece: bytes) -> None:
        match kind:
            case Kind.STDIN:
                await self._feed(piece)
            case Kind.EOF:
                self._close_input()
            case Kind.SIGNAL if piece.isdigit() and int(piece) in _SIGNALS:
                with contextlib.suppress(GuardGone, GuardRefused):
                    await self._signal(int(piece))
            case _:
                raise CallerGone(f"a frame of kind {kind.name} from a caller")

    async def _feed(self, piece: bytes) -> None:
        view = memoryview(piece)
        while view and self._input is not None:
            try:
                view = view[os.write(self._input, view) :]
            except BlockingIOError:
                await _writable(self._input)
            except OSError:  # it reads no more
                self._close_input()

    def _close_input(self) -> None:
        if self._input is not None:
            os.close(self._input)
            self._input = None

    async def _kill(self, end: asyncio.Future[Exit]) -> None:
        for what in (signal.SIGTERM, signal.SIGKILL):
            if not end.done():
                with contextlib.suppress(GuardGone, GuardRefused):
                    await self._signal(what)
                await asyncio.wait([end], timeout=_GRACE_S)

    async def _signal(self, what: int) -> None:
        attempt = self._attempt
        request = {"do": "signal", "job": attempt.job_id, "attempt": attempt.attempt, "n": self._number}
        await self._groups.guard.ask({**request, "signal": int(what)})


async def fail(writer: asyncio.StreamWriter, message: str) -> None:
    """Tell the caller that there will be no command, and why."""
    with contextlib.suppress(ConnectionError):
        writer.write(frame(Kind.FAIL, message.encode(errors="replace")[:MAX_PIECE]))
        await writer.drain()


async def hung_up(writer: asyncio.StreamWriter) -> None:
    """Raises :class:`CallerGone` when the other end has closed the connection, also while nothing is read from it."""
    poll = select.poll()
    poll.register(writer.get_extra_info("socket").fileno(), select.POLLRDHUP)
    while not poll.poll(0):
        await asyncio.sleep(_LOOK_S)
    raise CallerGone


async def _readable(descriptor: int, end: asyncio.Future[Exit]) -> bool:
    """Wait until there is something to read; false when the command has ended and nothing came any more."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _done, ready)
    try:
        either: list[asyncio.Future[Any]] = [ready, end]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            await asyncio.wait([ready], timeout=_LINGER_S)
        return ready.done()
    finally:
        loop.remove_reader(descriptor)


async def _writable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(descriptor, _done, ready)
    try:
        await ready
    finally:
        loop.remove_writer(descriptor)


def _done(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)

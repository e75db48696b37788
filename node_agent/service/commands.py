"""A command that another node (or this one) asks for within a job, as ``cosched-rsh`` has them.

The command is a line for ``/bin/sh -c``, as sshd takes it, and is born in the job's cgroup as the job's user. Its
supervisor keeps its streams (``launcher.streams``); what is here only carries frames between that and the caller, and
remembers nothing: an agent that is started anew is asked again, for the same command, and carries on.
"""

import asyncio
import contextlib
import logging
import os
import struct
from collections import Counter
from pathlib import Path
from typing import Annotated

import msgspec

from cosched.linux.descriptors import short_of_descriptors
from cosched.model.quantities import Bytes
from cosched.wire.stream import MAX_PIECE, Frames, Kind, frame
from node_agent.core.attempt import Attempt
from node_agent.core.replies import AWAY, Declined
from node_agent.service.groups import Groups
from node_agent.service.tasks import ended

_log = logging.getLogger("cosched.agent")
_GUARD_WAIT_S = 5.0  # a command that is asked for while the guard is being started anew
_BORN_S = 10.0  # until the supervisor of a command that somebody else has asked for listens
_LOOK_S = 0.02
_MOST = 256  # of one attempt at a time on one node
_STANDS = struct.Struct(">QQ")


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command, by the name that its caller gave it, and the bytes of its output that the caller has already.

    ``again``: it was asked for before, and the connection broke.
    """

    command: str
    id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    stdout: Bytes
    stderr: Bytes
    again: bool


class CannotRun(Exception):
    """There will be no command; the message says why."""


class Commands:
    """Runs commands within attempts that are prepared here."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._running: Counter[str] = Counter()

    async def serve(
        self,
        attempt: Attempt,
        wanted: Wanted,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        caller_is_near: bool,
    ) -> None:
        """Run a command to its end, or carry on with it, over a connection whose request has been read.

        ``caller_is_near``: the connection is the caller's own, so that its end is the caller's.
        """
        if self._running[attempt.key] >= _MOST:
            await fail(writer, f"more than {_MOST} commands of job {attempt.key} at a time on this node")
            return
        self._running[attempt.key] += 1
        try:
            theirs, ours = await self._attached(attempt, wanted)
            with contextlib.closing(ours):
                ours.write(frame(Kind.ACK, _STANDS.pack(wanted.stdout, wanted.stderr)))
                await relayed(reader, writer, theirs, ours, caller_is_near=caller_is_near)
        except CannotRun as error:
            await fail(writer, f"{self._groups.config.name} cannot run it: {error}")
        finally:
            self._running -= Counter((attempt.key,))  # drops a count of 0

    async def _attached(self, attempt: Attempt, wanted: Wanted) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the supervisor of that command, which is started if it was not. Raises :class:`CannotRun`."""
        deadline_s = asyncio.get_running_loop().time() + _BORN_S
        while True:
            try:
                return await self._connected(attempt, wanted.id)
            except FileNotFoundError:
                pass  # not started yet
            except ConnectionRefusedError:
                raise CannotRun("how the command ended is not known: its supervisor was killed") from None
            except OSError as error:
                if short_of_descriptors(error):
                    raise CannotRun("its agent has no descriptor left") from None
                raise CannotRun(error.strerror or str(error)) from None
            if not await self._start(attempt, wanted) and asyncio.get_running_loop().time() > deadline_s:
                raise CannotRun("its supervisor does not answer")

    async def _start(self, attempt: Attempt, wanted: Wanted) -> bool:
        """Have it started; false where that has been asked for already. Raises :class:`CannotRun`."""
        guard = self._groups.guard
        argv = ["/bin/sh", "-c", self._groups.environment.localized(attempt, wanted.command)]
        try:
            async with asyncio.timeout(_GUARD_WAIT_S):
                await guard.ready.wait()
            reply = await self._groups.start_command(attempt.id, argv, wanted.id)
        except TimeoutError:
            raise CannotRun(f"the node's guard is not there: {guard.problem}") from None
        if not isinstance(reply, Declined):
            return True
        if reply.code == AWAY:  # it may or may not have begun: whoever is first under that name is the one
            _log.warning("job %s: a command is asked for again: %s", attempt.key, reply.message)
        elif reply.code == "busy":
            await asyncio.sleep(_LOOK_S)
        else:
            raise CannotRun(reply.message)
        return False

    async def _connected(self, attempt: Attempt, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises OSError."""
        directory = Path(self._groups.config.paths.state) / "jobs" / attempt.key
        fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:  # by descriptor: a socket's path has 107 bytes at most
            return await asyncio.open_unix_connection(f"/proc/self/fd/{fd}/{name}")
        finally:
            os.close(fd)


async def relayed(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    there: asyncio.StreamReader,
    theirs: asyncio.StreamWriter,
    *,
    caller_is_near: bool,
) -> None:
    """Carry frames from a caller (``reader``, ``writer``) to the command's side and back, until either ends.

    A near caller that has gone is told onwards; otherwise an end means only that somebody in between has gone.
    """
    inward = asyncio.create_task(_inward(reader, theirs))
    back = asyncio.create_task(_copy(there, writer))
    try:
        await asyncio.wait([inward, back], return_when=asyncio.FIRST_COMPLETED)
        if caller_is_near and inward.done():
            theirs.write(frame(Kind.HANGUP))
            await theirs.drain()
    finally:
        await ended((inward, back))


async def fail(writer: asyncio.StreamWriter, message: str) -> None:
    """Tell the caller that there will be no command, and why."""
    with contextlib.suppress(ConnectionError):
        writer.write(frame(Kind.FAIL, message.encode(errors="replace")[:MAX_PIECE]))
        await writer.drain()


async def _inward(reader: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Whole frames only: what a caller that was killed has said in part is not passed on."""
    frames = Frames()
    while data := await reader.read(MAX_PIECE):
        for kind, piece in frames.feed(data):
            sink.write(frame(kind, piece))
        await sink.drain()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(MAX_PIECE):
        sink.write(data)
        await sink.drain()

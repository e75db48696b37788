"""The launch route's two doors: the Unix socket for ``cosched-rsh`` on this node, the TLS port for other agents.

Who calls at the first one is asked of the kernel, never of the environment: peer credentials give the process, its
cgroup the job, and its user must be the job's. Only processes of a job get that far, and only to nodes of that job.
At the second one a certificate of the cluster says which node calls, and the scheduler's signature which nodes may run
ranks for each other; and this node must have prepared that very attempt.

(A process that ends while its connection is being looked at may leave its number to another; that one's user must be
the job's too, so at worst two jobs of one user are mixed up.)
"""

import asyncio
import contextlib
import json
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from cosched.errors import BadInput
from cosched.identity import tls
from cosched.identity.grants import load_grant_pub
from cosched.wire.grant import verified
from cosched.wire.hostfile import peer_named
from cosched.wire.messages import Peer
from cosched.wire.stream import MAX_PIECE, Kind
from node_agent.service.attempts import Attempt
from node_agent.service.commands import CallerGone, Commands, fail, hung_up
from node_agent.service.complaints import Complaints
from node_agent.service.groups import Groups
from node_agent.service.whose import Whose

_log = logging.getLogger("cosched.agent")
_PATIENCE_S = 10.0
_MOST = 1024  # connections at a time, of all jobs
_MAX_CALL_BYTES = 256 << 10
_LENGTH = struct.Struct(">I")
_NO_LINGER = struct.pack("ii", 1, 0)


class NotAllowed(Exception):
    """The caller may not have this run; the message says why."""


class Call(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What an agent tells another before the streams: MessagePack behind its length (four bytes, big endian)."""

    grant: bytes
    host: str
    caller: str
    command: str


class Doors:
    """Both servers. They stand open for as long as the agent runs, whether or not the scheduler does."""

    def __init__(self, groups: Groups, commands: Commands, whose: Whose, complaints: Complaints) -> None:
        self._groups, self._commands, self._whose = groups, commands, whose
        self._complain = complaints
        self._config = groups.config
        self._identity = Path(groups.config.paths.identity)
        self._open = 0

    async def local(self, path: str) -> asyncio.Server:
        """Listen for ``cosched-rsh`` at a path. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        server = await asyncio.start_unix_server(self._guarded(self._from_here), path)
        os.chmod(path, 0o666)  # whoever connects is asked of the kernel
        return server

    async def remote(self) -> asyncio.Server:
        """Listen for other agents. Raises OSError, :class:`BadInput`."""
        return await asyncio.start_server(
            self._guarded(self._from_there),
            self._config.launch.address,
            self._config.launch.port,
            ssl=tls.agent_server_context(self._identity),
            ssl_handshake_timeout=_PATIENCE_S,
            ssl_shutdown_timeout=1.0,
        )

    def _guarded(
        self, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._open += 1
            try:
                if self._open > _MOST:
                    raise NotAllowed(f"more than {_MOST} connections at a time")
                await serve(reader, writer)
            except (NotAllowed, BadInput) as error:
                self._complain("launch", str(error))
                await fail(writer, str(error))
            except (TimeoutError, asyncio.IncompleteReadError, ConnectionError, CallerGone):
                pass  # there is nobody to tell
            finally:
                self._open -= 1
                writer.close()
                with contextlib.suppress(OSError, TimeoutError):
                    await writer.wait_closed()

        return served

    async def _from_here(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        attempt = await self._caller(writer.get_extra_info("socket"))
        async with asyncio.timeout(_PATIENCE_S):
            host, command = await _request(reader)
        prepare = attempt.prepare
        if prepare is None or not attempt.open:
            raise NotAllowed(f"job {attempt.key} is ending")
        peer = peer_named(host, prepare.peers)
        if peer is None:
            names = ", ".join(each.name for each in prepare.peers)
            raise NotAllowed(f"{host} is not a node of job {attempt.job_id}; its nodes are {names}")
        if peer.name == self._config.name:
            await self._commands.serve(attempt, command, reader, writer)
        else:
            call = Call(prepare.grant, peer.name, self._config.name, command)
            await self._pass_on(peer, call, reader, writer)

    async def _caller(self, connection: socket.socket) -> Attempt:
        """The attempt that a process on this node belongs to. Raises :class:`NotAllowed`."""
        pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        found = await self._whose.attempt_of(pid)
        if found is None:
            raise NotAllowed("the caller is not part of a job: cosched-rsh works inside jobs only")
        attempt = self._groups.attempts.get(*found)
        if attempt is None or attempt.prepare is None:
            raise NotAllowed(f"job {found[0]}.{found[1]} is not known to this node's agent")
        if uid != self._groups.uid(attempt):
            raise NotAllowed(f"user {uid} is not the one whose job {attempt.key} is")
        return attempt

    async def _pass_on(
        self, peer: Peer, call: Call, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Have another node's agent run it, and carry bytes between it and the caller."""
        where = f"{peer.name} ({peer.address} port {peer.port})"
        try:
            async with asyncio.timeout(_PATIENCE_S):
                there, theirs = await asyncio.open_connection(
                    peer.address,
                    peer.port,
                    ssl=tls.client_context(self._identity),
                    server_hostname=peer.name,
                    ssl_shutdown_timeout=1.0,
                )
        except TimeoutError:
            raise NotAllowed(f"{where} does not answer") from None
        except OSError as error:
            raise NotAllowed(f"{where} cannot be reached: {error.strerror or error}") from None
        try:
            tls.expect(theirs.get_extra_info("ssl_object"), "node", peer.name)
            data = msgspec.msgpack.encode(call)
            theirs.write(_LENGTH.pack(len(data)) + data)
            await self._splice(reader, writer, there, theirs)
        finally:
            theirs.close()
            with contextlib.suppress(OSError, TimeoutError):
                await theirs.wait_closed()

    async def _splice(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        theirs: asyncio.StreamWriter,
    ) -> None:
        """Both ways, until the other agent has said its last; when the caller goes, the connection is broken off."""
        back = asyncio.create_task(_copy(there, writer))
        watching = [asyncio.create_task(_copy(reader, theirs)), asyncio.create_task(hung_up(writer))]
        try:
            await asyncio.wait([back, *watching], return_when=asyncio.FIRST_COMPLETED)
            if not back.done():  # the caller has gone: at once, with nothing left to be sent
                theirs.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
                theirs.transport.abort()
        finally:
            for task in (back, *watching):
                task.cancel()
            await asyncio.gather(back, *watching, return_exceptions=True)

    async def _from_there(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caller = tls.expect(writer.get_extra_info("ssl_object"), "node").name
        async with asyncio.timeout(_PATIENCE_S):
            (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
            if length > _MAX_CALL_BYTES:
                raise NotAllowed(f"a call of {length} bytes; at most {_MAX_CALL_BYTES}")
            data = await reader.readexactly(length)
        try:
            call = msgspec.msgpack.decode(data, type=Call)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise NotAllowed(f"what {caller} sent is not a call: {error}") from None
        attempt = self._allowed(call, caller)
        _log.info("job %s: %s calls", attempt.key, caller)
        await self._commands.serve(attempt, call.command, reader, writer)

    def _allowed(self, call: Call, caller: str) -> Attempt:
        """The attempt in which a call from another node may run. Raises :class:`NotAllowed`, :class:`BadInput`."""
        grant = verified(call.grant, load_grant_pub(self._identity))
        here = self._config.name
        if caller != call.caller or caller not in grant.nodes:
            raise NotAllowed(f"{caller} is not a node of job {grant.job_id}")
        if call.host != here or here not in grant.nodes:
            raise NotAllowed(f"the call is for {call.host}, the grant for {', '.join(grant.nodes)}; this is {here}")
        attempt = self._groups.attempts.get(grant.job_id, grant.attempt)
        if attempt is None or attempt.prepare is None or not attempt.open:
            raise NotAllowed(f"job {grant.job_id}.{grant.attempt} is not prepared on {here}")
        ours = verified(attempt.prepare.grant, load_grant_pub(self._identity))
        if grant.cluster_id != ours.cluster_id or grant.epoch < ours.epoch:
            raise NotAllowed(f"a grant of epoch {grant.epoch}; this job was prepared in epoch {ours.epoch}")
        if grant.user != ours.user:
            raise NotAllowed(f"the grant is for {grant.user}, job {attempt.key} is {ours.user}'s")
        return attempt


async def _request(reader: asyncio.StreamReader) -> tuple[str, str]:
    """Host and command of the first frame. Raises :class:`NotAllowed`."""
    header = await reader.readexactly(5)
    length = int.from_bytes(header[1:], "big")
    if header[0] != Kind.REQUEST or length > MAX_PIECE:
        raise NotAllowed("what was said is not a request")
    try:
        document = json.loads(await reader.readexactly(length))
        host, command = document["host"], document["command"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise NotAllowed("what was said is not a request") from None
    if not isinstance(host, str) or not isinstance(command, str) or "\0" in command:
        raise NotAllowed("a request without host and command")
    return host, command.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(MAX_PIECE):
        sink.write(data)
        await sink.drain()

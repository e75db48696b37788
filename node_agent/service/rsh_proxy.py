"""The launch route's two doors: the Unix socket for ``cosched-rsh`` on this node, the TLS port for other agents.

Who calls at the first one is asked of the kernel, never of the environment: peer credentials give the process, its
cgroup the job, and its user must be the job's. Only processes of a job get that far, and only to nodes of that job.
At the second one a certificate of the cluster says which node calls, and the scheduler's signature which nodes may run
ranks for each other; and this node must have prepared that very attempt. Each call answers a challenge of its own
connection, so that none counts twice.

(A process that ends while its connection is being looked at may leave its number to another; that one's user must be
the job's too, so at worst two jobs of one user are mixed up.)
"""

import asyncio
import contextlib
import json
import secrets
import socket
import ssl
import struct
from functools import partial
from pathlib import Path

import msgspec

from cosched.admission import Bounds
from cosched.errors import BadInput
from cosched.identity import tls
from cosched.identity.grants import load_grant_pub
from cosched.linux.descriptors import short_of_descriptors
from cosched.linux.peers import peer_credentials
from cosched.wire.grant import verified
from cosched.wire.hostfile import peer_named
from cosched.wire.messages import Peer
from cosched.wire.stream import MAX_PIECE, Kind, frame
from node_agent.core.attempt import Attempt
from node_agent.guard.base.client import GuardGone
from node_agent.service.commands import Commands, Wanted, fail, relayed
from node_agent.service.complaints import Complaints
from node_agent.service.entrance import Entrance, Place, Serve, open_to_all
from node_agent.service.groups import Groups
from node_agent.service.job_lookup import JobLookup
from node_agent.service.revocations import Revocations

_PATIENCE_S = 10.0
#: Of a job (or of a user in none) at the Unix socket, and of a machine at the TLS port: connections, share of a CPU and
#: microseconds of it at once. A job has some 300 calls at once, then three a second; a machine 500, then 17.
_HERE = Bounds(768, 384, idle=256, idle_of_one=128), 0.01, 1_000_000
_THERE = Bounds(1024, 512, idle=64, idle_of_one=32), 0.05, 1_500_000
_MAX_CALL_BYTES = 256 << 10
_CHALLENGE_BYTES = 16
_LENGTH = struct.Struct(">I")


class NotAllowed(Exception):
    """The caller may not have this run; the message says why."""


class Ending(Exception):
    """The job of a command that is asked for again is being killed: nobody need be told."""


class Away(Exception):
    """It is not possible now; the message says why."""


class Call(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What an agent tells another before the streams: MessagePack behind its length (four bytes, big endian)."""

    grant: bytes
    host: str
    caller: str
    wanted: Wanted
    challenge: bytes = b""


class RshProxy:
    """Both servers. They stand open for as long as the agent runs, whether or not the scheduler does."""

    def __init__(
        self,
        groups: Groups,
        commands: Commands,
        job_lookup: JobLookup,
        complaints: Complaints,
        revocations: Revocations,
    ) -> None:
        self._groups, self._commands, self._job_lookup = groups, commands, job_lookup
        self._complain = complaints
        self._config = groups.config
        self._identity = Path(groups.config.paths.identity)
        self._revocations = revocations
        revocations.on_change = self._cut_revoked
        self._connections: dict[asyncio.StreamWriter, str] = {}  # to and from other agents, by their certificates

    async def local(self, path: str) -> Entrance:
        """Listen for ``cosched-rsh`` at a path. Raises OSError."""
        return Entrance(
            [open_to_all(path)],
            *_HERE,
            self._job_lookup.job_or_user,
            partial(self._served, self._from_here),
            self._full,
        )

    async def remote(self, context: ssl.SSLContext) -> Entrance:
        """Listen for other agents. Raises OSError."""
        launch = self._config.launch
        sockets = await _bound(launch.address, launch.port)
        for each in sockets:
            if each.family == socket.AF_INET:
                self._groups.environment.address = each.getsockname()[0]
        return Entrance(
            sockets,
            *_THERE,
            lambda connection: str(connection.getpeername()[0]),  # the machine that it comes from
            partial(self._served, self._from_there),
            lambda connection, why: None,  # nothing that is said before the handshake would be understood
            context,
            _PATIENCE_S,
        )

    def _full(self, connection: socket.socket, why: str) -> None:
        """A caller without a place is told to come again."""
        self._complain("launch", why, f"user {peer_credentials(connection).uid}")
        connection.send(frame(Kind.AWAY, why.encode()))

    async def _served(
        self, serve: Serve, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: Place
    ) -> None:
        try:
            await serve(reader, writer, place)
        except (NotAllowed, BadInput) as error:
            self._complain("launch", str(error), _said_by(writer))
            await fail(writer, str(error))
        except Ending:
            await fail(writer, "")
        except Away as error:
            writer.write(frame(Kind.AWAY, str(error).encode(errors="replace")[:MAX_PIECE]))
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            pass  # there is nobody to tell
        except Exception as error:  # a mistake of ours costs this connection
            self._complain("mistake", f"{type(error).__name__}: {error}", "this agent itself")
        finally:
            self._connections.pop(writer, None)

    async def _from_here(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: Place) -> None:
        job_id, number, uid = await self._caller(writer.get_extra_info("socket"))
        attempt = self._groups.core.get(job_id, number)
        if attempt is not None and attempt.prepare is not None:
            owner = self._groups.environment.uid(attempt)
            if owner is None:  # this agent has just begun
                raise Away(f"the guard of {self._config.name} has not said yet whose job {attempt.key} is")
            if uid != owner:
                raise NotAllowed(f"user {uid} is not the one whose job {attempt.key} is")
        async with asyncio.timeout(_PATIENCE_S):
            host, wanted = await _request(reader)
        place.finished()
        attempt = self._groups.core.get(job_id, number)
        if attempt is None or (prepare := attempt.prepare) is None or not attempt.open:
            raise Ending if wanted.again else NotAllowed(f"job {job_id}.{number} is not known here, or is ending")
        peer = peer_named(host, prepare.peers)
        if peer is None:
            names = ", ".join(each.name for each in prepare.peers)
            raise NotAllowed(f"{host} is not a node of job {attempt.job_id}; its nodes are {names}")
        if peer.name == self._config.name:
            await self._commands.serve(attempt, wanted, reader, writer, caller_is_near=True)
        else:
            call = Call(prepare.grant, peer.name, self._config.name, wanted)
            await self._pass_on(peer, call, reader, writer)

    async def _caller(self, connection: socket.socket) -> tuple[int, int, int]:
        """The job and attempt that a process on this node belongs to, and its user.

        Raises :class:`NotAllowed`, and :class:`Away` where the guard has to say it and does not answer.
        """
        pid, uid, _ = peer_credentials(connection)
        try:
            found = await self._job_lookup.attempt_of(pid)
        except GuardGone as error:
            raise Away(f"the guard of {self._config.name} is not there: {error}") from None
        if found is None:
            raise NotAllowed("the caller is not part of a job: cosched-rsh works inside jobs only")
        return *found, uid

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
            raise Away(f"{where} does not answer") from None
        except OSError as error:
            if short_of_descriptors(error):  # held against nobody: it is this machine's
                raise Away(f"{self._config.name} has no descriptor left to reach it") from None
            raise Away(f"{where} cannot be reached: {error.strerror or error}") from None
        try:
            tls.expect(theirs.get_extra_info("ssl_object"), "node", peer.name)
            self._known(theirs)
            async with asyncio.timeout(_PATIENCE_S):
                kind, challenge = await _frame(there)
            if kind != Kind.CHALLENGE:
                raise NotAllowed(challenge.decode(errors="replace") if kind == Kind.FAIL else f"{where} is no agent")
            data = msgspec.msgpack.encode(msgspec.structs.replace(call, challenge=challenge))
            theirs.write(_LENGTH.pack(len(data)) + data)
            await relayed(reader, writer, there, theirs, caller_is_near=True)
        finally:
            self._connections.pop(theirs, None)
            theirs.close()
            with contextlib.suppress(OSError, TimeoutError):
                await theirs.wait_closed()

    async def _from_there(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: Place) -> None:
        caller = tls.expect(writer.get_extra_info("ssl_object"), "node").name
        self._known(writer)
        challenge = secrets.token_bytes(_CHALLENGE_BYTES)
        writer.write(frame(Kind.CHALLENGE, challenge))
        async with asyncio.timeout(_PATIENCE_S):
            (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
            if length > _MAX_CALL_BYTES:
                raise NotAllowed(f"a call of {length} bytes; at most {_MAX_CALL_BYTES}")
            data = await reader.readexactly(length)
        place.finished()
        call = _call(data, caller, challenge)
        await self._commands.serve(self._allowed(call, caller), call.wanted, reader, writer, caller_is_near=False)

    def _known(self, writer: asyncio.StreamWriter) -> None:
        """Remember a connection by its other end's certificate. Raises :class:`NotAllowed` for one that was revoked."""
        serial = tls.serial_of(writer.get_extra_info("ssl_object"))
        if serial in self._revocations:
            raise NotAllowed("the certificate was revoked: that node was removed from the cluster")
        self._connections[writer] = serial

    def _cut_revoked(self) -> None:
        for writer in [each for each, serial in self._connections.items() if serial in self._revocations]:
            self._complain("revoked", "its certificate was revoked, its connection is cut", _said_by(writer))
            writer.transport.abort()

    def _allowed(self, call: Call, caller: str) -> Attempt:
        """The attempt in which a call from another node may run.

        Raises :class:`NotAllowed`, :class:`Ending`, :class:`BadInput`.
        """
        grant = verified(call.grant, load_grant_pub(self._identity))
        here = self._config.name
        if caller != call.caller or caller not in grant.nodes:
            raise NotAllowed(f"{caller} is not a node of job {grant.job_id}")
        if call.host != here or here not in grant.nodes:
            raise NotAllowed(f"the call is for {call.host}, the grant for {', '.join(grant.nodes)}; this is {here}")
        attempt = self._groups.core.get(grant.job_id, grant.attempt)
        if attempt is None or attempt.prepare is None or not attempt.open:
            words = f"job {grant.job_id}.{grant.attempt} is not prepared on {here}"
            raise Ending if call.wanted.again else NotAllowed(words)
        ours = verified(attempt.prepare.grant, load_grant_pub(self._identity))
        if grant.cluster_id != ours.cluster_id or grant.epoch < ours.epoch:
            raise NotAllowed(f"a grant of epoch {grant.epoch}; this job was prepared in epoch {ours.epoch}")
        if grant.age < ours.age and caller not in ours.nodes:
            raise NotAllowed(f"{caller} is not a node of job {attempt.key} any more: its grant is of before")
        if grant.user != ours.user:
            raise NotAllowed(f"the grant is for {grant.user}, job {attempt.key} is {ours.user}'s")
        return attempt


def _call(data: bytes, caller: str, challenge: bytes) -> Call:
    """What another agent wants. Raises :class:`NotAllowed`."""
    try:
        call = msgspec.msgpack.decode(data, type=Call)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotAllowed(f"what {caller} sent is not a call: {error}") from None
    if call.challenge != challenge:
        raise NotAllowed(f"the call of {caller} answers another connection's challenge: it was replayed")
    return call


async def _request(reader: asyncio.StreamReader) -> tuple[str, Wanted]:
    """Host, and what is wanted there, from the first frame. Raises :class:`NotAllowed`."""
    kind, data = await _frame(reader)
    if kind != Kind.REQUEST:
        raise NotAllowed("what was said is not a request")
    try:
        document = json.loads(data)
        host, command = document.pop("host"), document.pop("command")
        if not isinstance(host, str) or not isinstance(command, str):
            raise TypeError
        command = command.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        wanted = msgspec.convert({**document, "command": command}, Wanted)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # msgspec's are ValueErrors
        raise NotAllowed("what was said is not a request") from None
    if "\0" in command:
        raise NotAllowed("a request without host and command")
    return host, wanted


async def _frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The next frame. Raises :class:`NotAllowed`."""
    header = await reader.readexactly(5)
    length = int.from_bytes(header[1:], "big")
    if length > MAX_PIECE:
        raise NotAllowed("what was said is not a request")
    return header[0], await reader.readexactly(length)


async def _bound(address: str, port: int) -> list[socket.socket]:
    """Sockets for each of an address's meanings. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    with contextlib.ExitStack() as opened:
        made = [
            opened.enter_context(socket.create_server(where, family=family))
            for family, _, _, _, where in dict.fromkeys(found)
        ]
        opened.pop_all()
    return made


def _said_by(writer: asyncio.StreamWriter) -> str:
    """Who is at the other end, for the log."""
    if (secured := writer.get_extra_info("ssl_object")) is not None:
        try:
            peer = tls.peer_of(secured)
        except BadInput:
            return "a certificate of no kind"
        return f"{peer.kind} {peer.name}"
    return f"user {peer_credentials(writer.get_extra_info('socket')).uid}"

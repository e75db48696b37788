"""The agent's end of the channel to malleable programs: tells the ranks on this node which of them are enabled.

Lines of ASCII over a Unix stream socket (docs/design/adaptive.md). Who calls is asked of the kernel, as at the launch
route's local door: peer credentials give the process, its cgroup the job, and its user must be the job's. What a rank
says is bounded in length and rate; a rank that says anything else, or that does not read, is hung up on and counted
among the complaints. It comes again by itself, and loses nothing but time.
"""

import asyncio
import re
import socket
from collections.abc import Callable, Mapping
from typing import Final

from cosched.admission import Bounds
from cosched.linux.peers import peer_credentials
from node_agent.core.attempt import Key
from node_agent.guard.base.budget import Budget
from node_agent.guard.base.client import GuardGone
from node_agent.service.complaints import Complaints
from node_agent.service.entrance import Entrance, Place, open_to_all
from node_agent.service.job_lookup import JobLookup

MAX_LINE_BYTES: Final = 8 << 10
#: The most ranks of a job on one node that can be connected, with twice as many connections of all jobs.
MAX_RANKS: Final = 384
_BOUNDS: Final = Bounds(2 * MAX_RANKS, MAX_RANKS, idle=256, idle_of_one=128)
_SHARE, _AT_ONCE_US = 0.01, 1_500_000
#: What is written and not read: a few maps, after which the reader is cut.
_UNREAD_BYTES: Final = 64 << 10
#: Lines of one job: so many at once, then ten a second.
_LINES_AT_ONCE: Final = 100
_LINE_US, _SHARE_OF_LINES = 1000, 0.01
_PATIENCE_S: Final = 10.0
_HELLO: Final = re.compile(rb"adaptive 1 (\d{1,9}) (\d{1,9})\n")
_ADAPTED: Final = re.compile(rb"adapted (\d{1,18})\n")
_ASK: Final = re.compile(rb"ask ([+-]?\d{1,9})\n")


class Refused(Exception):
    """What a rank says or is; the message says why it is hung up on."""


class JobChannel:
    """All jobs' ranks on this node.

    ``owner`` gives the user of a job that may have a channel now, None for one that may not. ``on_adapted`` gets the
    number of a map that all ranks of a job have adopted, perhaps twice, and not necessarily the newest; ``on_asked``
    how many processes more (or fewer) a job asks for.
    """

    def __init__(
        self,
        node: str,
        lookup: JobLookup,
        owner: Callable[[Key], int | None],
        complaints: Complaints,
        on_adapted: Callable[[Key, int], None],
        on_asked: Callable[[Key, int], None],
    ) -> None:
        self._node, self._lookup, self._owner = node, lookup, owner
        self._complain = complaints
        self._on_adapted, self._on_asked = on_adapted, on_asked
        self._offers: dict[Key, tuple[int, bytes]] = {}  # each job's newest map: its number and line
        self._ranks: dict[Key, dict[asyncio.StreamWriter, None]] = {}
        self._budgets: dict[Key, Budget] = {}
        self._askers: dict[Key, asyncio.StreamWriter] = {}

    def listen(self, path: str) -> Entrance:
        """Listen for ranks at a path. Raises OSError."""
        return Entrance(
            [open_to_all(path)], _BOUNDS, _SHARE, _AT_ONCE_US, self._lookup.job_or_user, self._served, self._full
        )

    def offer(self, key: Key, number: int, shares: Mapping[str, int]) -> None:
        """Tell a job's ranks its map, now and when they connect; an older one than it has is left unsaid.

        Raises ValueError for one that a line cannot hold (some 400 nodes): nothing has been said then.
        """
        if key in self._offers and self._offers[key][0] >= number:
            return
        words = " ".join(f"{node}={cpus}" for node, cpus in shares.items())
        line = f"map {number} {words}\n".encode("ascii")
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"a map of {len(line)} bytes; a line has at most {MAX_LINE_BYTES}")
        self._offers[key] = number, line
        for writer in list(self._ranks.get(key, ())):
            self._tell(writer, line)

    def answer(self, key: Key, given: int, waits: bool) -> None:
        """Tell the rank that asked last for how many its job is given, and whether the rest is waited for."""
        if (asker := self._askers.pop(key, None)) is not None:
            self._tell(asker, f"answer {given} {int(waits)}\n".encode())

    def forget(self, key: Key) -> None:
        """A job has ended: its map is dropped and its ranks are hung up on."""
        self._offers.pop(key, None)
        self._budgets.pop(key, None)
        for writer in list(self._ranks.get(key, ())):
            writer.transport.abort()

    def joined(self, key: Key) -> bool:
        """Whether any rank of the job is connected."""
        return key in self._ranks

    def _full(self, connection: socket.socket, why: str) -> None:
        self._complain("channel", why, f"user {peer_credentials(connection).uid}")

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: Place) -> None:
        pid, uid, _ = peer_credentials(writer.get_extra_info("socket"))
        try:
            key = await self._caller(pid, uid)
            await _hello(reader)
            place.finished()
            await self._heard(key, reader, writer)
        except Refused as error:
            self._complain("channel", str(error), f"user {uid}")

    async def _caller(self, pid: int, uid: int) -> Key:
        try:
            key = await self._lookup.attempt_of(pid)
        except GuardGone as error:  # the rank comes again
            raise Refused(f"whose rank it is cannot be said: {error}") from None
        if key is None:
            raise Refused("the caller is not part of a job")
        owner = self._owner(key)
        if owner is None:
            raise Refused(f"job {key[0]}.{key[1]} is not known here, or is ending")
        if owner != uid:
            raise Refused(f"not the user whose job {key[0]}.{key[1]} is")
        return key

    async def _heard(self, key: Key, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a rank that has said who it is until it goes."""
        self._ranks.setdefault(key, {})[writer] = None
        try:
            # in one piece: a rank that knows its node knows the map as well
            self._tell(writer, f"node {self._node}\n".encode() + self._offers.get(key, (0, b""))[1])
            while True:
                self._take(key, await _line(reader), writer)
        finally:
            del self._ranks[key][writer]
            if not self._ranks[key]:
                del self._ranks[key]
            if self._askers.get(key) is writer:
                del self._askers[key]

    def _take(self, key: Key, line: bytes, writer: asyncio.StreamWriter) -> None:
        """Do what a rank's line asks. Raises :class:`Refused`."""
        budget = self._budgets.setdefault(key, Budget(_SHARE_OF_LINES, _LINES_AT_ONCE * _LINE_US))
        if budget.rest_us():
            raise Refused("its job says too much")
        budget.spend(_LINE_US * 1000)
        if found := _ADAPTED.fullmatch(line):
            self._on_adapted(key, int(found[1]))
        elif (found := _ASK.fullmatch(line)) and (more := int(found[1])):
            self._askers[key] = writer
            self._on_asked(key, more)
        else:
            raise Refused(f"{line[:40]!r} is nothing that a rank says")

    def _tell(self, writer: asyncio.StreamWriter, line: bytes) -> None:
        if writer.transport.is_closing():
            return
        writer.write(line)
        if writer.transport.get_write_buffer_size() > _UNREAD_BYTES:
            self._complain("channel", "a rank does not read what it is told", "a job")
            writer.transport.abort()


async def _hello(reader: asyncio.StreamReader) -> None:
    """Read a rank's first line. Raises :class:`Refused`."""
    async with asyncio.timeout(_PATIENCE_S):
        line = await _line(reader)
    found = _HELLO.fullmatch(line)
    if found is None or int(found[1]) >= int(found[2]):
        raise Refused(f"{line[:40]!r} is no rank's first line")


async def _line(reader: asyncio.StreamReader) -> bytes:
    """The next line, with its end. Raises :class:`Refused`, IncompleteReadError."""
    try:
        line = await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError:
        line = bytes(MAX_LINE_BYTES + 1)
    if len(line) > MAX_LINE_BYTES:
        raise Refused(f"a line of more than {MAX_LINE_BYTES} bytes")
    return line

"""The link to the scheduler: dialled from here, kept up, and dialled again with a growing, jittered pause."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from cosched.errors import BadInput
from cosched.identity import tls
from cosched.identity.names import SCHEDULER
from cosched.linux.process import boottime_us
from cosched.wire.messages import (
    HOLDING_VERSION,
    MAX_FRAME_BYTES,
    NO_WORD,
    REPORTING_VERSION,
    RIGID_VERSION,
    VERSION,
    WRONG_VERSION,
    AskAnswered,
    DeskReported,
    FromAgent,
    Hello,
    Order,
    OutputChunk,
    OwnersWord,
    ReadOutput,
    Rejected,
    Revoked,
    Survey,
    Surveyed,
    ToAgent,
    Turns,
    Welcome,
    encode,
    to_agent,
)
from cosched.wire.sequence import Numbering, OutOfTurn, Turn, checked_session
from node_agent.core import inputs as happened
from node_agent.core.attempt import Key
from node_agent.service.complaints import Complaints, log_change
from node_agent.service.coscheduler import Coscheduler
from node_agent.service.desk_watch import Desk
from node_agent.service.groups import Groups
from node_agent.service.revocations import Revocations
from node_agent.service.tasks import first_ended

_log = logging.getLogger("cosched.agent")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 5.0  # so all are back within 10 s, however long the scheduler was away
_PATIENCE_S = 10.0
_MOST_WORDS = 4096


class _Problem(msgspec.Struct, frozen=True):
    message: str


class LinkEnded(Exception):
    """The link is of no use; the message says why."""


class Link:
    """Talks to one scheduler at a time, and hands in what it says. What the shell has to tell is sent from here."""

    def __init__(
        self,
        url: str,
        identity: Path,
        hello: Callable[[], Hello],
        groups: Groups,
        output: Callable[[ReadOutput], OutputChunk],
        desk: Desk,
        coscheduler: Coscheduler,
        complaints: Complaints,
        revocations: Revocations,
        survey: Callable[[Survey], Awaitable[Surveyed]],
        answer_ranks: Callable[[Key, int, bool], None],
    ) -> None:
        """``answer_ranks`` passes on answers to jobs; ``output`` and ``survey`` have nothing to do with orders.

        Raises :class:`BadInput`.
        """
        if urlsplit(url).scheme != "wss" or not urlsplit(url).hostname:
            raise BadInput("scheduler.url", f"found {url!r}", "wss://HOST:PORT/v1/agent")
        self._url, self._identity = url, identity
        self._hello, self._groups, self._output, self._desk = hello, groups, output, desk
        groups.tell, groups.hang_up = self.tell, _hang_up
        desk.tell_word = self._tell_word
        self._spoken = VERSION  # on the link that there is now
        self._speaks = VERSION  # in the next hello
        self._coscheduler = coscheduler
        self._complain = complaints
        self._revocations, self._survey, self._answer_ranks = revocations, survey, answer_ranks
        self._outgoing: asyncio.Queue[FromAgent] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._problem = ""
        #: Set when the node has another certificate, or trusts another authority: dial again.
        self.renewed = asyncio.Event()

    def tell(self, message: FromAgent) -> None:
        """Send it if the scheduler is there. What matters is kept elsewhere, and told when the agent joins again."""
        if self._outgoing is not None:
            self._outgoing.put_nowait(message)

    async def beat_now(self) -> None:
        """Send a heartbeat, where there is a link; ends when it is on its way, and all that was to be sent before."""
        if (outgoing := self._outgoing) is not None:
            self._tell_beat()
            await outgoing.join()

    async def keep(self) -> None:
        """Dial, talk, dial again; until cancelled."""
        pause_s = _FIRST_PAUSE_S
        while True:
            began_us = boottime_us()
            try:
                await self._talk()
            except (LinkEnded, OSError, WebSocketException, BadInput) as error:
                self._tell_problem(error)
            finally:
                self._outgoing = None
            if boottime_us() - began_us > _LONGEST_PAUSE_S * 1_000_000:
                pause_s = _FIRST_PAUSE_S
            await asyncio.sleep(random.uniform(0.5, 1.0) * pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _tell_problem(self, error: BaseException) -> None:
        words = str(error) or type(error).__name__
        if isinstance(error, InvalidStatus) and (said := _problem_in(bytes(error.response.body or b""))):
            words = said
        self._problem = log_change(self._problem, words, "no link to the scheduler at %s: %s", self._url)

    async def _talk(self) -> None:
        """Dial, and talk until the node's identity is another one. Raises :class:`LinkEnded` and errors of the link."""
        self.renewed.clear()
        async with connect(
            self._url,
            ssl=tls.client_context(self._identity),
            server_hostname=SCHEDULER,
            max_size=MAX_FRAME_BYTES,
            compression=None,
            ping_interval=None,
            open_timeout=_PATIENCE_S,
            close_timeout=1,
            proxy=None,
            user_agent_header=None,
        ) as connection:
            secured = connection.transport.get_extra_info("ssl_object")
            tls.expect(secured, "scheduler")
            if tls.serial_of(secured) in self._revocations:
                raise LinkEnded("its certificate was revoked")
            hello = self._hello()
            cluster = msgspec.UNSET if self._speaks == RIGID_VERSION else hello.cluster  # which that version refuses
            hello = msgspec.structs.replace(hello, version=self._speaks, cluster=cluster)
            self._speaks = VERSION
            await connection.send(encode(hello))
            welcome = await self._welcomed(connection, hello)
            self._problem, self._spoken = "", welcome.version
            _log.info("linked to the scheduler at %s, epoch %d", self._url, welcome.fence.epoch)
            self._outgoing = asyncio.Queue()
            if self._desk.word != NO_WORD:
                self._tell_word(self._desk.word)
            self._groups.hand_in(happened.Joined())
            await first_ended(
                self._listen(connection, Turn(hello.session)),  # knows best why a connection has ended
                self._send(connection, self._outgoing, Numbering(welcome.session)),
                self._beat(connection, welcome),
                self.renewed.wait(),
            )
            _log.info("the scheduler is dialled again: this node's certificate or its authorities have changed")

    async def _welcomed(self, connection: ClientConnection, hello: Hello) -> Welcome:
        async with asyncio.timeout(_PATIENCE_S):
            answer = to_agent(_binary(await connection.recv()))
        if isinstance(answer, Rejected):
            if answer.reason.startswith(WRONG_VERSION) and hello.version > RIGID_VERSION:
                self._speaks = hello.version - 1  # it may be an older scheduler
            self._not_wanted(answer)
        if not isinstance(answer, Welcome):
            raise LinkEnded(f"it began with {type(answer).__name__}")
        if not RIGID_VERSION <= answer.version <= hello.version:
            words = f"this agent {RIGID_VERSION} to {VERSION}, and said {hello.version}"
            raise LinkEnded(f"it speaks version {answer.version}, {words}")
        if answer.hello != hello.session:
            raise LinkEnded("it answers another hello than this one: a welcome that was replayed")
        checked_session(answer.session, "welcome")
        if problem := answer.contract.impossible():
            raise LinkEnded(f"its contract is impossible: {problem[0]} {problem[1]}")
        self._groups.hand_in(happened.Welcomed(answer.fence, answer.lease_us))
        self._coscheduler.welcome()
        self._revocations.learn(answer.revoked)
        self._desk.welcome(answer.contract, answer.fence.epoch)
        return answer

    def _tell_word(self, word: OwnersWord) -> None:
        """The owner's word, to a scheduler that may know what that is; the guard holds to it in any case."""
        if self._spoken > RIGID_VERSION:
            self.tell(word)

    def _not_wanted(self, answer: Rejected) -> NoReturn:
        if answer.removed_by is not None:
            self._groups.hand_in(happened.Removed(answer.removed_by))
        raise LinkEnded(f"it does not want this node: {answer.reason}")

    async def _send(
        self, connection: ClientConnection, outgoing: asyncio.Queue[FromAgent], numbering: Numbering
    ) -> None:
        while True:
            message = await outgoing.get()
            try:
                frame = encode(message)
            except ValueError as error:
                self._complain("too long", str(error))
            else:
                await connection.send(numbering.frame(frame))
            outgoing.task_done()

    async def _beat(self, connection: ClientConnection, welcome: Welcome) -> None:
        """Heartbeats; a ping with each, whose answer is the scheduler's sign of life."""
        while True:
            self._tell_beat()
            asyncio.ensure_future(await connection.ping()).add_done_callback(self._heard)
            await asyncio.sleep(welcome.heartbeat_us / 1e6)
            self._groups.hand_in(happened.LeaseLooked())

    def _tell_beat(self) -> None:
        """A heartbeat; before it the desk's report and the jobs here, to a scheduler that knows these messages."""
        if self._spoken >= REPORTING_VERSION:
            self.tell(DeskReported(self._desk.report()))
        if self._spoken >= HOLDING_VERSION:
            self.tell(self._groups.core.held())
        beat = self._coscheduler.signed(self._desk.heartbeat())
        self.tell(msgspec.structs.replace(beat, jobs=self._groups.core.signed(beat.jobs, boottime_us())))

    def _heard(self, pong: asyncio.Future[float]) -> None:
        if not pong.cancelled() and pong.exception() is None:
            self._groups.hand_in(happened.Heard())

    async def _listen(self, connection: ClientConnection, turn: Turn) -> None:
        while True:
            try:
                data = await connection.recv()
            except ConnectionClosed as error:
                if error.sent is not None and error.sent.code == 1009:
                    self._complain("oversized", f"a message of more than {MAX_FRAME_BYTES} bytes from the scheduler")
                raise LinkEnded(f"the connection has ended: {error}") from None
            try:
                message = to_agent(turn.payload(_binary(data)))
            except OutOfTurn as error:
                self._complain(error.kind, str(error))
                if error.kind == "out of order":
                    raise LinkEnded(f"a message is missing: {error}") from None
                continue
            except BadInput as error:
                self._complain("message", str(error))
                continue
            self._groups.hand_in(happened.Heard())
            self._handle(message)

    def _handle(self, message: ToAgent) -> None:
        match message:
            case Order():
                try:
                    self._groups.hand_in(happened.Ordered(message))
                except Exception:
                    _log.exception("an order was not obeyed because of a fault of the agent")
            case AskAnswered(job_id, attempt, given, waits):
                self._answer_ranks((job_id, attempt), given, waits)
            case Turns():
                self._coscheduler.told(message)
            case ReadOutput():
                self.tell(self._output(message))
            case Survey():
                task = asyncio.create_task(self._tell_survey(message))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case Revoked(serials):
                self._revocations.learn(serials)
            case Rejected():
                self._not_wanted(message)
            case _:
                self._complain("message", f"{type(message).__name__} after the welcome")

    async def _tell_survey(self, message: Survey) -> None:
        try:
            self.tell(await self._survey(message))
        except Exception:
            _log.exception("a question was not answered because of a fault of the agent")


def _hang_up(reason: str) -> NoReturn:
    raise LinkEnded(reason)


def _binary(data: str | bytes) -> bytes:
    if isinstance(data, str):
        raise BadInput("message", "text", "MessagePack")
    return data


def _problem_in(body: bytes) -> str:
    """What a scheduler has said that does not let this node in, as it has its problems; empty: nothing that is one."""
    try:
        return msgspec.json.decode(body[:_MOST_WORDS], type=_Problem).message[:500]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


logging.getLogger("websockets").setLevel(logging.CRITICAL)  # what it has to say is said here

"""A real scheduler service for tests: real sockets, real TLS, a real journal; and a scripted agent that speaks to it.

The agent is a peer of the tests, not one of ours: it says what a test wants it to say, over the real link.
"""

import asyncio
import os
import pwd
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec
from websockets.asyncio.client import ClientConnection, connect

from cosched.config.cluster import ClusterConfig, Listen
from cosched.identity.authority import create_authority, issue
from cosched.identity.names import Kind
from cosched.identity.tls import client_context
from cosched.model.node import Presence, Usage
from cosched.wire import messages as wire
from cosched.wire.api import JobDoc
from cosched.wire.grant import Grant
from cosched.wire.sequence import Numbering, Turn, new_session
from kit.waiting import BOUND_S
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.agent import AgentCore
from node_agent.core.attempt import Attempt, Key
from node_agent.core.guard_model import GuardModel, ModelGroup
from node_agent.core.played import PlayedAgent, Player
from space_scheduler.service.app import Service
from space_scheduler.service.launch.values import Ticked
from space_scheduler.service.log import Log

DEADLINE_S = BOUND_S
ME = pwd.getpwuid(os.geteuid()).pw_name
GIB = 1 << 30
NOBODY = wire.Fence("", 0, "")
Message = TypeVar("Message")


def order_id(job_id: int, attempt: int, n: int, epoch: int = 1) -> wire.OrderId:
    """That of the n-th order that a scheduler of this epoch gives a node for an attempt."""
    return wire.OrderId(job_id, attempt, (epoch << 20) + n)


class Cluster:
    """The files of a cluster in a directory of its own: identities of the scheduler, of nodes and users; settings."""

    def __init__(self, **settings: Any) -> None:
        # not tmp_path: with a test's long name in it, a socket's path may be longer than Linux takes
        self._made = tempfile.TemporaryDirectory(prefix="cosched-")
        self.path = Path(self._made.name)
        self.path.chmod(0o755)  # so that other users reach the socket
        self.socket = self.path / "run/scheduler.sock"
        self.identity = self.path / "identity"
        create_authority(self.identity, "test")
        issue(self.identity, "scheduler", "scheduler", self.identity)
        given: dict[str, Any] = {
            "name": "test",
            "nodes": ["n1", "n2", "n3"],
            "listen": Listen(str(self.socket), "127.0.0.1", 0),
            "state": str(self.path / "state"),
            "identity": str(self.identity),
            "allow_root": True,
            "pass_interval": "1ms",
            "lease": "60s",
            "launch_timeout": "60s",
        }
        self.config = ClusterConfig(**(given | settings))

    def certificate(self, kind: Kind, name: str) -> ssl.SSLContext:
        """What somebody of that kind and name dials with."""
        directory = self.path / f"{kind}-{name}"
        if not directory.exists():
            issue(self.identity, kind, name, directory)
        return client_context(directory)

    def close(self) -> None:
        """Remove it all."""
        self._made.cleanup()


class Running:
    """A running service and how to talk to it."""

    def __init__(self, cluster: Cluster, service: Service, log: StringIO, *, still: bool = False) -> None:
        self.cluster = cluster
        self.service = service
        self.log = log
        self._passed = PassedTime(service, still=still)
        self.http = aiohttp.ClientSession(
            "http://localhost", connector=aiohttp.UnixConnector(str(cluster.socket)), timeout=_patience()
        )

    async def get(self, path: str, status: int = 200) -> Any:
        """The JSON at an address."""
        async with self.http.get(path) as answer:
            body = await answer.read()
            assert answer.status == status, (answer.status, body)
            return msgspec.json.decode(body)

    async def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        """Post a document; the answer's JSON."""
        data = BytesIO(msgspec.json.encode(body)) if body is not None else None
        async with self.http.post(path, data=data) as answer:
            answered = await answer.read()
            assert answer.status == status, (answer.status, answered)
            return msgspec.json.decode(answered)

    async def text(self, path: str) -> str:
        """The text at an address."""
        async with self.http.get(path) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.text()

    async def answer_to(
        self, user: str, path: str, method: str = "GET", body: Any = None, *, kind: Kind = "user"
    ) -> tuple[int, str]:
        """Status and text of what is answered over TLS to another user, or a node, by that one's certificate."""
        secured = self.cluster.certificate(kind, user)
        url = f"https://127.0.0.1:{self.service.port}{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, ssl=secured, server_hostname="scheduler", json=body) as answer,
        ):
            return answer.status, await answer.text()

    async def submit(self, **given: Any) -> int:
        """Submit a job; its number."""
        made = {"script": "#!/bin/sh\ntrue\n", "directory": "/tmp"} | given
        return int((await self.post("/v1/jobs", made, 201))["job_id"])

    async def runs(self, **given: Any) -> int:
        """Submit a job; its number, as soon as it runs."""
        job_id = await self.submit(**given)
        await self.job_in(job_id, "running")
        return job_id

    async def job(self, job_id: int) -> JobDoc:
        """A job's document."""
        return msgspec.convert(await self.get(f"/v1/jobs/{job_id}"), JobDoc)

    async def job_in(self, job_id: int, *states: str) -> JobDoc:
        """The job as soon as it is in one of these states."""
        found: JobDoc | None = None
        deadline_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline_s:
            found = await self.job(job_id)
            if found.state in states:
                return found
            await asyncio.sleep(0.01)
        raise AssertionError(f"job {job_id} is not {' or '.join(states)}, but {found}")

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition."""
        deadline_s = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline_s, f"not {what}; the log: {self.log.getvalue()}"
            await asyncio.sleep(0.01)

    async def passes(self, seconds: int, *heard: "Agent") -> None:
        """So many seconds go by at once for the service's rules; of these agents a heartbeat comes in each of them."""
        for _ in range(seconds):
            self._passed.second()
            for agent in heard:
                await agent.beat()
                await self.until(lambda node=agent.node: self._heard_now(node), f"heard: {agent.node}")  # type: ignore[misc]

    def _heard_now(self, node: str) -> bool:
        return self.service.book.entry(node).heard_s == self.service.shell.now_s()

    async def beaten(self, node: str, presence: Presence = Presence.AWAY) -> None:
        """Wait for a heartbeat of that node that says so."""
        entry = self.service.book.entry(node)
        await self.until(lambda: entry.beat is not None and entry.beat.presence is presence, f"{presence} at {node}")

    async def logged(self, *words: str) -> str:
        """The first line of the log that has all these words, as soon as it is there."""

        def line() -> str:
            return next((each for each in self.log.getvalue().splitlines() if all(w in each for w in words)), "")

        await self.until(lambda: bool(line()), f"logged: {words}")
        return line()

    @asynccontextmanager
    async def agent(
        self, node: str = "n1", *, answers: bool = True, agrees: bool = True, joins: bool = True, **hello: Any
    ) -> AsyncIterator["Agent"]:
        """An agent that was welcomed, after its first heartbeat (``agrees``) and when its node is up (``joins``).

        A node that reports groups which have to end first is up later.
        """
        async with self.dial("node", node) as connection:
            agent = Agent(connection, node, answers=answers)
            await agent.say(agent.hello(**hello))
            await agent.heard(wire.Welcome)
            if agrees:
                await agent.say(wire.Heartbeat(Usage(), Presence.UNKNOWN))
                if joins:
                    await self.until(lambda: self.service.book.entry(node).size is not None, f"joined: {node}")
            try:
                yield agent
            finally:
                agent.close()

    @asynccontextmanager
    async def dial(self, kind: Kind, name: str) -> AsyncIterator[ClientConnection]:
        """A connection to the agents' link, with the certificate of somebody of that kind and name."""
        async with connect(
            f"wss://127.0.0.1:{self.service.port}/v1/agent",
            ssl=self.cluster.certificate(kind, name),
            server_hostname="scheduler",
            max_size=wire.MAX_FRAME_BYTES,
            compression=None,
            proxy=None,
            open_timeout=BOUND_S,
            close_timeout=1,
        ) as connection:
            yield connection


class PassedTime:
    """The time of a service's rules: it stands still but for the seconds that a test lets go by, from the first on.

    ``still``: from the service's start on. (Timers go by real time as well, either way.)
    """

    def __init__(self, service: Service, *, still: bool) -> None:
        self._shell = service.shell
        self._passed_s = 0.0
        self._due_s: dict[asyncio.TimerHandle, float] = {}
        if still:
            self._stand_at(service.book.now_s())

    def _stand_at(self, now_s: float) -> None:
        self._shell.now_s = lambda: now_s

    def second(self) -> None:
        """A second goes by: what is due by then comes, and so does a tick."""
        timers = self._shell._timers
        for timer in timers.values():
            self._due_s.setdefault(timer, timer.when() + self._passed_s)
        self._stand_at(self._shell.now_s() + 1.0)
        self._passed_s += 1.0
        for key, timer in list(timers.items()):
            if self._due_s[timer] <= asyncio.get_running_loop().time() + self._passed_s:
                timer.cancel()
                self._shell._timed_out(key)
        self._shell.feed(Ticked())


class Agent(Player):
    """The other side of the link, which says what a test wants.

    Where it ``answers``, orders go to an agent's core with a model of a guard: scripts do nothing until they are ended.
    """

    def __init__(self, connection: ClientConnection, node: str, *, answers: bool) -> None:
        self.connection = connection
        self.node = node
        self.answers = answers
        self.hung: tuple[type[wire.ToAgent], ...] = ()  # at these it hangs
        self.refuses: dict[type[wire.ToAgent], str] = {}  # these it refuses, with that code
        self.spool: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        self.final = False
        self.received: list[wire.ToAgent] = []
        self._taken = 0
        self.session = new_session()
        self.turn = Turn(self.session)
        self.numbering: Numbering | None = None  # there once it was welcomed
        self._tails: dict[Key, bytes] = {}
        self._told: list[wire.FromAgent] = []
        self._played = self._player(())
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    def _player(self, groups: Sequence[wire.GroupReport]) -> PlayedAgent:
        """What answers orders, of whom these attempts are known already."""
        guard, attempts = GuardModel(1_500_000, 1 << 20), []
        for each in groups:
            key = each.job_id, each.attempt
            prepare = wire.Prepare(NOBODY, wire.OrderId(*key, 1), ME, (), 1, None, None, 0, "/", {}, b"")
            runs, ended = each.state == "running" and each.exit is None, each.state == "ended"
            guard.groups[key] = ModelGroup(prepare)
            guard.groups[key].ending = ended
            if runs:
                guard.ask(fx.Spawn(key, 0, prepare, ("script",)))
            attempt = Attempt(*key, "b00t", "", prepare, each.last_order, ran=runs, exit=each.exit)
            end = wire.GroupEnded(*key) if ended else None
            attempts.append(msgspec.structs.replace(attempt, ended=end, asked_kill_us=0 if ended else None))
        played = PlayedAgent(
            AgentCore(self.node, "b00t", None, attempts),
            guard,
            self,
            lambda blob: msgspec.msgpack.decode(blob[64:], type=Grant),  # after the signature, which nobody looks at
            lambda fence: None,
            lambda after_us, call: None,  # the guard is always there, and nobody takes the node over
            lambda: time.monotonic_ns() // 1000,
        )
        played.tell = self._told.append
        return played

    def hello(self, **given: Any) -> wire.Hello:
        """Its first message."""
        self._played = self._player(given.get("groups", ()))
        fields: dict[str, Any] = {
            "version": wire.VERSION,
            "node": self.node,
            "boot_id": "b00t",
            "procs": 2,
            "memory_bytes": 4 * GIB,
            "address": "127.0.0.1",
            "port": 7421,
            "software": "test",
            "session": self.session,
        }
        return wire.Hello(**(fields | given))

    async def say(self, message: wire.FromAgent) -> None:
        """Send a message."""
        frame = wire.encode(message)
        await self.connection.send(self.numbering.frame(frame) if self.numbering else frame)

    async def beat(
        self, presence: Presence = Presence.AWAY, paused: str = "", guard: str = "", limited_cpus: float | None = 1.5
    ) -> None:
        """Send a heartbeat."""
        usage = Usage(0.5, 0.25, 0.125, 1, 2, 3, 4, 0.75)
        await self.say(wire.Heartbeat(usage, presence, "tty", limited_cpus, True, paused=paused, guard=guard))

    async def heard(self, kind: type[Message]) -> Message:
        """The next message of that kind that was not asked for before; waits for it."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                for at in range(self._taken, len(self.received)):
                    if isinstance(found := self.received[at], kind):
                        self._taken = at + 1
                        return found
                self._news.clear()
                await self._news.wait()

    def heard_already(self, kind: type[Message]) -> list[Message]:
        """All messages of that kind until now."""
        return [each for each in self.received if isinstance(each, kind)]

    async def ends(self, job_id: int, how: wire.Exit, tail: bytes = b"") -> None:
        """Say that a job's script has ended."""
        self._tails[job_id, 1] = tail
        self._played.end_script((job_id, 1), how)
        if not self._told:  # it runs in a test's words alone
            self._told.append(wire.ProgramEnded(job_id, 1, how, tail))
        await self._say_told()

    def error_tail(self, key: Key) -> bytes:
        return self._tails.get(key, b"")

    async def _say_told(self) -> None:
        """Send what the core has told."""
        while self._told:
            await self.say(self._told.pop(0))

    async def _read(self) -> None:
        async for frame in self.connection:
            assert isinstance(frame, bytes)
            message = wire.to_agent(self.turn.payload(frame) if self.numbering else frame)
            if isinstance(message, wire.Welcome):
                self.numbering = Numbering(message.session)
                self._played.hand_in(happened.Welcomed(message.fence, message.lease_us))
            self.received.append(message)
            self._news.set()
            if self.answers:
                await self._answer(message)

    async def _answer(self, message: wire.ToAgent) -> None:
        if isinstance(message, self.hung):
            return
        if isinstance(message, wire.Order) and (code := self.refuses.get(type(message))):
            await self.say(wire.Refused(message.order, code, f"{code} is what it is"))
        elif isinstance(message, wire.Order):
            self._played.hand_in(happened.Ordered(message))
            await self._say_told()
        elif isinstance(message, wire.ReadOutput):
            whole = self.spool[message.stream]
            data = whole[message.offset : message.offset + message.max_bytes]
            final = self.final and message.offset + len(data) >= len(whole)
            await self.say(wire.OutputChunk(message.request, data, len(whole), final))
        elif isinstance(message, wire.Survey):
            await self.say(wire.Surveyed(message.request, time.time_ns() // 1000, {}))

    def close(self) -> None:
        """Stop reading."""
        self._reader.cancel()


@asynccontextmanager
async def running(
    cluster: Cluster, *, take_over: bool = False, record: Path | None = None, still: bool = False
) -> AsyncIterator[Running]:
    """The cluster's service, started; stopped in the end. ``record``: where its inputs are kept.

    ``still``: no time goes by for its rules but what ``passes``, so that no lease runs out while the machine is slow.
    """
    log = StringIO()
    service = Service(cluster.config, Log(log, people=False), take_over=take_over, record=record)
    await service.start()
    run = Running(cluster, service, log, still=still)
    try:
        yield run
    finally:
        await run.http.close()
        await service.stop()


def _patience() -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=DEADLINE_S)

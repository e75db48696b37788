"""A real service with one node whose agent is a puppet: it speaks the agents' protocol and plays how a job goes.

For tests of what users see: every end a job can have comes at once and for certain. What the puppet plays is the job's
name, up to a space: ``ok``, ``fail`` (exit status 3), ``crash`` (signal 11), ``sit`` (until it is killed), ``refuse``
(launch fails).
"""

import asyncio
import contextlib
import json
import os
import pwd
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from cosched.identity import authority, names, tls
from cosched.identity.grants import load_grant_pub
from cosched.model.node import Presence, Usage
from cosched.wire import messages as wire
from cosched.wire.grant import verified
from cosched.wire.sequence import Numbering, Turn, new_session
from kit.waiting import BOUND_S
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.agent import AgentCore
from node_agent.core.attempt import Key
from node_agent.core.guard_model import GuardModel
from node_agent.core.played import PlayedAgent, Player
from node_agent.core.replies import Declined

FAIL_TAIL = b"starting\nTraceback (most recent call last):\nValueError: no such grid\n"


class Puppet(Player):
    """The agent of one node, in a thread: an agent's core with a model of a guard."""

    def __init__(self, url: str, identity: Path, name: str, procs: int) -> None:
        self.name = name
        self._procs = procs
        self.limited_cpus: float | None = None
        self._output: dict[tuple[int, str], bytes] = {}
        self._names: dict[int, str] = {}
        key = load_grant_pub(identity)
        self._played = PlayedAgent(
            AgentCore(name, "boot"),
            GuardModel(1_500_000, 1 << 20, wire.Exit(signal=15, cause="killed")),
            self,
            lambda blob: verified(blob, key),
            lambda fence: None,
            lambda after_us, call: _later(after_us / 1e6, call),
            lambda: time.monotonic_ns() // 1000,
        )
        self._played.tell = self._send
        self._outgoing: list[wire.FromAgent] = []
        self._stop = threading.Event()
        self._joined: Future[None] = Future()
        # One thread alone reads and writes: a TLS connection that two use at a time can hang.
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live(url, identity)), daemon=True)
        self._thread.start()
        self._joined.result(BOUND_S)

    async def _live(self, url: str, identity: Path) -> None:
        hello = wire.Hello(
            wire.VERSION,
            self.name,
            "boot",
            self._procs,
            8 << 30,
            "127.0.0.1",
            7421,
            "puppet",
            {"cpu limit": "yes"},
            session=new_session(),
        )
        try:
            context = tls.client_context(identity)
            async with connect(
                url, ssl=context, server_hostname=names.SCHEDULER, proxy=None, open_timeout=BOUND_S
            ) as connection:
                await connection.send(wire.encode(hello))
                welcome = wire.to_agent(self._frame(await connection.recv()))
                assert isinstance(welcome, wire.Welcome)
                self._played.hand_in(happened.Welcomed(welcome.fence, welcome.lease_us))
                self._played.hand_in(happened.Joined())
                self._joined.set_result(None)
                await self._talk(connection, Numbering(welcome.session), Turn(hello.session))
        except ConnectionClosed as error:
            if not self._joined.done():
                self._joined.set_exception(error)
        except Exception as error:
            if self._joined.done():
                raise
            self._joined.set_exception(error)

    @staticmethod
    def _frame(frame: str | bytes) -> bytes:
        assert isinstance(frame, bytes)
        return frame

    def write(self, job_id: int, data: bytes, stream: str = "stdout") -> None:
        """What the job writes next."""
        key = (job_id, stream)
        self._output[key] = self._output.get(key, b"") + data

    def close(self) -> None:
        """The agent goes away."""
        self._stop.set()
        self._thread.join(BOUND_S)

    async def _talk(self, connection: ClientConnection, numbering: Numbering, turn: Turn) -> None:
        next_beat_s = 0.0
        while not self._stop.is_set():
            if time.monotonic() >= next_beat_s:
                usage = Usage(cpu_parallel=0.5, cpu_local=0.1, cpu_system=0.0)
                self._send(wire.Heartbeat(usage, Presence.AWAY, "terminals", self.limited_cpus, False))
                next_beat_s = time.monotonic() + 0.5
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0 if self._outgoing else 0.1):
                    self._obey(wire.to_agent(turn.payload(self._frame(await connection.recv()))))
            while self._outgoing:
                await connection.send(numbering.frame(wire.encode(self._outgoing.pop(0))))

    def _send(self, message: wire.FromAgent) -> None:
        self._outgoing.append(message)

    def _obey(self, message: wire.ToAgent) -> None:
        match message:
            case wire.Order():
                self._played.hand_in(happened.Ordered(message))
            case wire.Survey(request=request):
                self._send(wire.Surveyed(request, time.time_ns() // 1000, {}))
            case wire.ReadOutput(request=request, job_id=job_id, stream=stream, offset=offset, max_bytes=most):
                there = self._output.get((job_id, stream), b"")
                attempt = self._played.core.get(job_id, message.attempt)
                final = attempt is not None and attempt.exit is not None
                self._send(wire.OutputChunk(request, there[offset : offset + most], len(there), final))
            case _:
                pass

    def refusal(self, request: fx.GuardRequest) -> Declined | None:
        if isinstance(request, fx.PrepareGroup):
            self._names[request.key[0]] = request.prepare.environment["COSCHED_JOB_NAME"].partition(" ")[0]
            if self._names[request.key[0]] == "refuse":
                return Declined("directory", f"{self.name} has no directory {request.prepare.directory}")
        return None

    def script_started(self, key: Key) -> None:
        match self._names[key[0]]:
            case "fail":
                self.write(key[0], FAIL_TAIL, "stderr")
                self._played.end_script(key, wire.Exit(status=3))
            case "crash":
                self._played.end_script(key, wire.Exit(signal=signal.SIGSEGV))
            case "sit":
                pass
            case _:
                self.write(key[0], b"hello\n")
                self._played.end_script(key, wire.Exit(status=0))

    def error_tail(self, key: Key) -> bytes:
        return self._output.get((key[0], "stderr"), b"")


def _later(after_s: float, call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(after_s, call)


class Live:
    """A service whose operator runs the tests, its files, and its one node."""

    def __init__(self, place: Path, procs: int = 4, policy: str = "easy") -> None:
        """``policy`` may be a module's in the folder ``policies`` of the place."""
        self.place = place
        self.socket = place / "s.sock"
        self.identity = place / "identity"
        authority.create_authority(self.identity, "puppets")
        authority.issue(self.identity, "scheduler", names.SCHEDULER, self.identity)
        authority.issue(self.identity, "node", "desk1", place / "desk1")
        self.settings = place / "cluster.yaml"
        settings = {
            "name": "puppets",
            "nodes": ["desk1", "desk2"],
            "listen": {"socket": str(self.socket), "address": "127.0.0.1", "port": 0},
            "state": str(place / "state"),
            "identity": str(self.identity),
            "allow_root": True,
            "operators": [pwd.getpwuid(os.geteuid()).pw_name],
            "pass_interval": "10ms",
            "max_time": "2h",
            "policy": policy,
            "policy_directory": str(place / "policies"),
        }
        self.settings.write_text(json.dumps(settings))
        self._log = place / "log"
        self._procs = procs
        self.start()

    def start(self) -> None:
        """Start the service and let the node join."""
        command = [sys.executable, "-m", "cosched.apps.cli.main", "scheduler", "--config", str(self.settings)]
        began = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        try:
            assert self.process.stdout is not None
            assert self.process.stdout.readline() == b"ready\n", self._log.read_text()
            lines = self._log.read_bytes()[began:].splitlines()
            said = next(line for line in map(json.loads, lines) if line["event"] == "listening")
            self.port = said["port"]
            self.node = Puppet(f"wss://127.0.0.1:{self.port}/v1/agent", self.place / "desk1", "desk1", self._procs)
        except BaseException:
            self._kill()
            raise

    def stop(self) -> None:
        """End the service; its files stay."""
        self.node.close()
        self.process.terminate()
        try:
            assert self.process.wait(BOUND_S) == 0, self._log.read_text()
        finally:
            self._kill()

    def _kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(BOUND_S)
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextlib.contextmanager
def live(place: Path, policy: str = "easy") -> Iterator[Live]:
    """A service in a directory of its own, stopped at the end; ``policy`` as :class:`Live` has it."""
    service = Live(place, policy=policy)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.stop()

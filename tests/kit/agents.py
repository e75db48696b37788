"""Real agents with real guards and certificates on one machine, and a scheduler that says what a test tells it to."""

import asyncio
import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import tomllib
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from websockets.asyncio.server import Server, ServerConnection, serve

from cosched.apps.lab import rooms
from cosched.config.node import node_config
from cosched.config.templates import node_toml
from cosched.identity.authority import create_authority, issue
from cosched.identity.grants import load_grant_key
from cosched.identity.tls import expect, server_context
from cosched.linux.cgroups import read_pids
from cosched.linux.files import write
from cosched.model.contract import SocialContract
from cosched.model.desk import DeskReport
from cosched.wire import messages as wire
from cosched.wire.grant import Grant, signed
from cosched.wire.sequence import Numbering, Turn, new_session
from kit.needs import need_namespaces
from kit.waiting import BOUND_S, wait_for

DEADLINE_S = BOUND_S
CLUSTER = "c" * 32
_FEW_PORTS = 4_096  # below these, ports are for root and few
_given: set[int] = set()
Found = TypeVar("Found")


async def until(found: Callable[[], Found | Literal[False] | None], what: str, deadline_s: float = DEADLINE_S) -> Found:
    """Wait for a condition; fails by what was waited for."""
    end_s = time.monotonic() + deadline_s
    while not (result := found()):
        assert time.monotonic() < end_s, f"waited {deadline_s:g} s for {what}"
        await asyncio.sleep(0.01)
    return result


def free_port() -> int:
    """A port that nobody listens at, and that the kernel gives no connection while an agent is started anew on it.

    It may be used later: no port is given twice, and each process of a test run has ports of its own.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    ports = range(lowest // 2 + worker, lowest, workers) if lowest > _FEW_PORTS else [0]
    for _ in range(100):
        port = random.SystemRandom().choice(ports)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            port = int(probe.getsockname()[1])
            if port not in _given:
                _given.add(port)
                return port
    raise AssertionError("no port is free")


class Scheduler:
    """The scheduler's end of the link: real TLS, real messages, no opinion."""

    def __init__(self, identity: Path, port: int, epoch: int = 1, cluster_id: str = CLUSTER) -> None:
        self.identity, self.port = identity, port
        self.fence = wire.Fence(cluster_id, epoch, f"instance-{epoch}")
        self.lease_us, self.heartbeat_us = 120_000_000, 100_000
        self.contract = SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=1)
        self.links: dict[str, ServerConnection] = {}
        self.numberings: dict[str, Numbering] = {}
        self.hellos: list[wire.Hello] = []
        self.beats: dict[str, wire.Heartbeat] = {}
        self.reports: dict[str, DeskReport] = {}
        self.held: dict[str, wire.JobsHeld] = {}
        self.payloads: list[bytes] = []  # all that nodes have said after their hello, as it came
        self.got: list[tuple[str, Any]] = []
        self.welcome: Callable[[wire.Hello], wire.Welcome | wire.Rejected] = lambda hello: wire.Welcome(
            wire.VERSION, self.fence, self.heartbeat_us, self.lease_us, self.contract, new_session(), hello.session
        )
        self._server: Server | None = None

    async def __aenter__(self) -> "Scheduler":
        context: ssl.SSLContext = server_context(self.identity)
        self._server = await serve(
            self._serve, "127.0.0.1", self.port, ssl=context, ping_interval=None, max_size=wire.MAX_FRAME_BYTES
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Be there no more."""
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, link: ServerConnection) -> None:
        name = expect(link.transport.get_extra_info("ssl_object"), "node").name
        hello = wire.from_agent(await link.recv(decode=False))
        assert isinstance(hello, wire.Hello)
        assert hello.node == name
        self.hellos.append(hello)
        welcome = self.welcome(hello)
        await link.send(wire.encode(welcome))
        turn = Turn(welcome.session if isinstance(welcome, wire.Welcome) else b"")
        self.links[name], self.numberings[name] = link, Numbering(hello.session)
        async for data in link:
            assert isinstance(data, bytes)
            self.payloads.append(turn.payload(data))
            message = wire.from_agent(self.payloads[-1])
            if isinstance(message, wire.Heartbeat):
                self.beats[name] = message
            elif isinstance(message, wire.DeskReported):
                self.reports[name] = message.report
            elif isinstance(message, wire.JobsHeld):
                self.held[name] = message
            else:
                self.got.append((name, message))

    async def tell(self, node: str, message: wire.ToAgent) -> None:
        await until(lambda: node in self.links, f"{node} to join")
        await self.links[node].send(self.numberings[node].frame(wire.encode(message)))

    async def order(self, kind: type[wire.Order], job_id: int, n: int, node: str = "a", **fields: object) -> None:
        """Give a node the n-th order for that job."""
        order: Any = kind
        await self.tell(node, order(self.fence, wire.OrderId(job_id, 1, n), **fields))

    async def next(self, node: str, kind: type[Found], **fields: object) -> Found:
        """The next message of that kind (and those fields) from a node; it is taken out of what was got."""

        def there() -> Found | None:
            for index, (name, message) in enumerate(self.got):
                if (
                    name == node
                    and isinstance(message, kind)
                    and all(getattr(message, key) == value for key, value in fields.items())
                ):
                    del self.got[index]
                    return message
            return None

        return await until(there, f"{kind} {fields} from {node}; got {self.got}, hellos {len(self.hellos)}")

    async def output(self, node: str, job_id: int, stream: str = "stdout", attempt: int = 1) -> bytes:
        await self.tell(node, wire.ReadOutput(7, job_id, attempt, stream, 0, wire.MAX_CHUNK_BYTES))
        return (await self.next(node, wire.OutputChunk, request=7)).data


class Node:
    """A workstation: its directories, its guard's and its agent's process."""

    def __init__(
        self, base: Path, name: str, scheduler_port: int, authority: Path, group: str, **settings: str
    ) -> None:
        self.name, self.group = name, f"{group}/{name}"
        self.base = base / name
        self.port = free_port()
        self.run, self.state, self.identity = (self.base / part for part in ("run", "state", "identity"))
        issue(authority, "node", name, self.identity)
        self.config = self.base / "node.toml"
        extra = {
            "presence": "away_after_s = 60.0\npoll_s = 0.2",
            "cgroup": f'cosched = "{self.group}/cosched"\ndesk = "{self.group}/desk"',
            "security": "allow_root = true\nmin_uid = 1",
        }
        raw = {
            "name": name,
            "cluster": "test",
            "procs": 2,
            "memory_bytes": 1_000_000_000,
            "scheduler": {"url": f"wss://127.0.0.1:{scheduler_port}/v1/agent"},
            "launch": {"address": "127.0.0.1", "port": self.port},
            "paths": {
                "run": str(self.run),
                "state": str(self.state),
                "identity": str(self.identity),
                "keep": [str(base), *rooms.kept(rooms.own_places())],
            },
        }
        raw |= {section: tomllib.loads(text) for section, text in (extra | settings).items()}
        self.config.write_text(node_toml(node_config(raw, str(self.config))))
        self.guard: subprocess.Popen[bytes] | None = None
        self.agent: subprocess.Popen[bytes] | None = None
        self.log = self.base / "agent.log"
        self.environment: dict[str, str] = {}  # more of it, for agent and guard
        self._within: list[str] = []
        self._confined: list[str] = []
        self._account_uid: int | None = None

    def start_guard(self) -> None:
        self.guard = self._start("node_agent.guard", self.base / "guard.log")

    def start_agent(self) -> None:
        if self._account_uid is not None:  # systemd starts it when the guard has said that it is ready
            wait_for(lambda: self._given_to(self._account_uid), "the guard to give the agent its places")
        self.agent = self._start("node_agent", self.log, self._confined)

    def _given_to(self, uid: int | None) -> bool:
        return all(place.is_dir() and place.stat().st_uid == uid for place in (self.run, self.state))

    def own_account(self, account: str, *, hidepid: int = 0) -> None:
        """From its next start on the agent is that account, without capabilities or new privileges, as an installation
        has it; the guard stays root. Python is readable for it, also where it lies in root's home. ``hidepid``: how it
        sees /proc.
        """
        need_namespaces()
        entry = pwd.getpwnam(account)
        self._account_uid = entry.pw_uid
        os.chown(self.identity / "node.key", entry.pw_uid, -1)
        raw = tomllib.loads(self.config.read_text())
        raw.setdefault("security", {})["agent_user"] = account
        self.config.write_text(node_toml(node_config(raw, str(self.config))))
        python = Path(sys.executable).resolve().parents[1]
        seen = self.base / "seen"
        place = seen / python.relative_to(python.anchor).relative_to(python.parts[1])
        place.mkdir(parents=True)
        seen.chmod(0o700)  # for it alone: jobs' users have the system's Python, as without this
        os.chown(seen, entry.pw_uid, -1)
        mounts = f"mount -t proc -o hidepid={hidepid} proc /proc"
        if python.parts[1] == "root":
            mounts += f" && mount --bind {python} {place} && mount --rbind {seen} /{python.parts[1]}"
        self._confined = [
            "unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh",
            "setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups", "--bounding-set=-all",
            "--inh-caps=-all", "--no-new-privs",
        ]  # fmt: skip

    def own_terminals(self) -> "subprocess.Popen[bytes]":
        """Have terminals that nobody else on this machine uses: call it first, and end what it gives last.

        What it gives is a keyboard: a line on its standard input is a key pressed and read at one of them.
        """
        need_namespaces()
        mounts = (
            "mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts /dev/pts"
            " && mount --bind /dev/pts/ptmx /dev/ptmx"
        )
        keys = (
            "import os, pty, sys\n"
            "keys, program = pty.openpty()\n"
            "print(flush=True)\n"
            "for _ in sys.stdin:\n"
            "    os.write(keys, b'x\\n')\n"
            "    os.read(program, 10)\n"
        )
        keyboard = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh", sys.executable, "-c", keys],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert keyboard.stdout is not None
        assert keyboard.stdout.readline() == b"\n"
        self._within = ["nsenter", f"--mount=/proc/{keyboard.pid}/ns/mnt"]
        return keyboard

    @contextlib.contextmanager
    def at_keyboard(self) -> Iterator[Callable[[], None]]:
        """Start it with terminals of its own, and give what presses a key at one."""
        keyboard = self.own_terminals()

        def press() -> None:
            assert keyboard.stdin is not None
            keyboard.stdin.write(b"\n")
            keyboard.stdin.flush()

        try:
            self.start_guard()
            self.start_agent()
            yield press
        finally:
            keyboard.communicate(timeout=BOUND_S)

    def own_file(self, path: Path, there: str) -> None:
        """See that file, or directory, in another place."""
        need_namespaces()
        self._mounted(f"mount --bind {path} {there}")

    def broken(self, *places: str) -> None:
        """Have a file where these directories of ``/dev`` or ``/run`` should be."""
        need_namespaces()
        dev, run = self.base / "dev", self.base / "run-of-machine"
        makes = [f"mkdir -p {dev} {run}", f"mount -t tmpfs none {dev}", f"mount -t tmpfs none {run}"]
        devices = ("null", "zero", "full", "random", "urandom", "tty", "ptmx")
        makes += [f"touch {dev}/{each} && mount --bind /dev/{each} {dev}/{each}" for each in devices]
        makes.append(f"mkdir -p {dev}/shm {run}/systemd")
        for place in places:
            within = {"dev": dev, "run": run}[place.split("/")[1]]
            makes.append(f"touch {within}/{place.split('/', 2)[2]}")
        makes.append(f"mount -n --move {dev} /dev && mount -n --move {run} /run")
        self._mounted(" && ".join(makes))

    def _mounted(self, makes: str) -> None:
        self._within = ["unshare", "--mount", "sh", "-c", f'{makes} && exec "$@"', "sh"]

    def reboot(self) -> None:
        """End agent, guard and all jobs as a power cut does; what is started next sees another boot of the machine."""
        for process in (self.agent, self.guard):
            if process is not None:
                process.kill()
                process.wait(DEADLINE_S)
        self._end_supervisors(signal.SIGKILL)
        remove_groups(self.group)
        fresh = self.base / "boot_id"
        fresh.write_text(f"{uuid.uuid4()}\n")
        need_namespaces()
        mount = f"mount --bind {fresh} /proc/sys/kernel/random/boot_id"
        self._within = ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh"]

    def _start(self, module: str, log: Path, within: Sequence[str] = ()) -> "subprocess.Popen[bytes]":
        command = [*self._within, *within, sys.executable, "-m", module, "--config", str(self.config)]
        with log.open("ab") as file:
            return subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, **self.environment})

    def stop_agent(self, how: int = signal.SIGTERM) -> int:
        assert self.agent is not None
        self.agent.send_signal(how)
        status = self.agent.wait(DEADLINE_S)
        self.agent = None
        return status

    def peer(self, tasks: int = 1) -> wire.Peer:
        return wire.Peer(self.name, "127.0.0.1", self.port, tasks)

    def rsh(self, *arguments: str, **more: Any) -> "subprocess.CompletedProcess[bytes]":
        """``cosched-rsh`` as the agent has installed it, called from outside any job."""
        environment = {**os.environ, "COSCHED_AGENT_SOCKET": str(self.run / "agent.sock")}
        program = self.run / "bin" / "cosched-rsh"
        return subprocess.run(
            [program, *arguments], env=environment, capture_output=True, timeout=DEADLINE_S, check=False, **more
        )

    def close(self) -> None:
        """Whatever state it is in: end agent, jobs, guard; remove the cgroups."""
        for process in (self.agent, self.guard):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait(DEADLINE_S)
        remove_groups(self.group)
        self._end_supervisors(signal.SIGTERM)  # who without guard and agent would wait for a caller
        for mount in (place for kept in ("shm", "ipc") for place in (self.state / "jobs").glob(f"*/{kept}")):
            subprocess.run(["umount", mount], check=False, capture_output=True, timeout=DEADLINE_S)

    def _end_supervisors(self, how: int) -> None:
        end_s = time.monotonic() + DEADLINE_S
        while left := [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._runs_here(pid)]:
            assert time.monotonic() < end_s, f"{left} do not end"
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)
            time.sleep(0.01)

    def _runs_here(self, pid: int) -> bool:
        try:
            return os.fsencode(self.config) in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False


def remove_groups(group: str) -> None:
    """Kill and remove everything below a cgroup, in every hierarchy."""
    mount = Path("/sys/fs/cgroup")
    tops = [
        top for top in (mount / group, *(each / group for each in mount.iterdir() if each.is_dir())) if top.is_dir()
    ]
    end_s = time.monotonic() + DEADLINE_S
    for top in tops:
        while top.exists():
            for place, _, _ in os.walk(top, topdown=False):  # each time anew: supervisors that reap make groups
                for pid in read_pids(f"{place}/cgroup.procs"):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(OSError):  # a guard that was killed may have left it frozen
                    write(f"{place}/freezer.state", "THAWED")
                with contextlib.suppress(OSError):
                    os.rmdir(place)
            assert not top.exists() or time.monotonic() < end_s, f"{top} cannot be emptied"
            time.sleep(0.01)


class Cluster:
    """An authority, a scheduler's identity, and nodes."""

    def __init__(self, base: Path, group: str) -> None:
        self.base, self.group = base, group
        self.authority = base / "authority"
        create_authority(self.authority, "test")
        self.identity = base / "scheduler"
        issue(self.authority, "scheduler", "scheduler", self.identity, addresses=["127.0.0.1"])
        self.port = free_port()
        self.nodes: dict[str, Node] = {}

    def scheduler(self, epoch: int = 1, cluster_id: str = CLUSTER) -> Scheduler:
        return Scheduler(self.identity, self.port, epoch, cluster_id)

    def node(self, name: str, *, start: bool = True, **settings: str) -> Node:
        node = self.nodes[name] = Node(self.base, name, self.port, self.authority, self.group, **settings)
        if start:
            node.start_guard()
            node.start_agent()
        return node

    def grant(
        self, job_id: int, nodes: tuple[str, ...], user: str = "root", epoch: int = 1, attempt: int = 1, serial: int = 0
    ) -> bytes:
        return signed(Grant(CLUSTER, epoch, job_id, attempt, user, nodes, serial), load_grant_key(self.authority))

    def prepare(
        self, fence: wire.Fence, job_id: int, *names: str, user: str = "root", n: int = 1, **more: Any
    ) -> wire.Prepare:
        """The order to make ready for a job on those nodes, one task each."""
        fields: dict[str, Any] = {
            "user": user,
            "peers": tuple(self.nodes[name].peer() for name in names),
            "tasks": 1,
            "memory_bytes": None,
            "limit_us": None,
            "grace_us": 200_000,
            "directory": "/",
            "environment": {
                "PATH": os.environ.get("PATH", os.defpath),
                "COSCHED_NODE_FILE": "{node_file}",
                "RSH": "{rsh}",
                "TMPDIR": "{tmp}",
            },
            "grant": self.grant(job_id, names, user, fence.epoch),
        }
        return wire.Prepare(fence, wire.OrderId(job_id, 1, n), **(fields | more))

    async def run(self, scheduler: Scheduler, script: bytes, job_id: int = 5, **prepare: Any) -> int:
        """Have node a run a job of that script for the shell; its process, once it has started."""
        await scheduler.tell("a", self.prepare(scheduler.fence, job_id, "a", **prepare))
        await scheduler.next("a", wire.Prepared)
        await scheduler.order(wire.Run, job_id, 2, script=b"#!/bin/sh\n" + script, arguments=())
        return (await scheduler.next("a", wire.Started)).pid

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()
            for log in (node.base / "guard.log", node.log):  # shown with a test that failed
                said = log.read_text()[-2000:] if log.exists() else ""
                sys.stdout.write(f"the last of {log.name} of {node.name}:\n{said}\n")
        remove_groups(self.group)
        shutil.rmtree(self.base)

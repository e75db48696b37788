"""The agent of one workstation: everything put together, and run until it is told to stop.

It keeps ``state/epoch``, ``state/attempts``, ``state/spool``; in ``run`` its socket, node files, ``cosched-rsh``.
Stopping it stops no job: the guard goes on with them, arms the contract, and tells the next agent what has happened.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path

import cosched
from cosched.config.node import NodeConfig
from cosched.errors import Failed
from cosched.identity.grants import load_grant_pub
from cosched.linux import slices
from cosched.linux.cgroups import YES
from cosched.wire.messages import VERSION, Hello
from cosched.wire.sequence import new_session
from node_agent.guard import requests
from node_agent.guard.client import GuardGone, GuardRefused
from node_agent.service.attempts import Attempt, Attempts
from node_agent.service.commands import Commands
from node_agent.service.complaints import Complaints
from node_agent.service.coscheduler import Coscheduler
from node_agent.service.desk_watch import Desk
from node_agent.service.disk import Disk
from node_agent.service.entrance import Entrance
from node_agent.service.fence import EpochFile
from node_agent.service.files import NodeFiles, install_rsh
from node_agent.service.groups import Groups
from node_agent.service.job_lookup import JobLookup
from node_agent.service.link import Link
from node_agent.service.orders import Orders
from node_agent.service.revocations import Revocations
from node_agent.service.rsh_proxy import RshProxy
from node_agent.service.spool import Spool
from node_agent.service.survey import surveyed

_log = logging.getLogger("cosched.agent")
_SWEEP_S = 0.5
_AGAIN_S = 1.0


class Agent:
    """One node's agent. Make it, then :meth:`run` it."""

    def __init__(self, config: NodeConfig) -> None:
        """Read what was kept. Raises :class:`BadInput`, :class:`Failed`."""
        self.config = config
        run, state = Path(config.paths.run), Path(config.paths.state)
        self.socket = str(run / "agent.sock")
        self.complaints = Complaints()
        self.boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        try:
            for directory in (run, state):
                directory.mkdir(parents=True, exist_ok=True, mode=0o755)
            self.epochs = EpochFile(state / "epoch")
            self.revocations = Revocations(state / "revoked")
            rsh = str(install_rsh((run / "bin", state / "bin")))
            attempts = Attempts(state / "attempts", self.boot_id)
        except OSError as error:
            raise Failed(f"{error.filename or config.paths.run}: {error.strerror or error}") from None
        except ValueError as error:
            raise Failed(str(error)) from None
        spool = Spool(state / "spool", config.output.limit_bytes)
        self.groups = Groups(config, attempts, spool, NodeFiles(run, config.name), rsh, self.socket)
        self.job_lookup = JobLookup(self.groups.guard, config.cgroup.cosched, Path(config.cgroup.mount))
        self.desk = Desk(config, self.groups.guard, self.job_lookup)
        self.groups.on_guard.append(self.desk.again)
        self.coscheduler = Coscheduler(config, self.groups.guard, self.groups.attempts)
        self.groups.on_guard.append(self.coscheduler.guard_is_new)
        identity = Path(config.paths.identity)
        self.disk = Disk(state, config.output, self.groups)
        self.orders = Orders(self.groups, self.epochs, lambda: load_grant_pub(identity), self.complaints, self.disk)
        self.rsh_proxy = RshProxy(
            self.groups, Commands(self.groups), self.job_lookup, self.complaints, self.revocations
        )
        self.link = Link(
            config.scheduler.url,
            identity,
            self.hello,
            self.orders,
            self.epochs,
            self.desk,
            self.coscheduler,
            self.complaints,
            self.revocations,
            lambda request: surveyed(request, config),
            self._taken_over,
        )
        self.groups.tell = self.link.tell
        self._abandoning: asyncio.Task[None] | None = None

    def hello(self) -> Hello:
        """Who this is, and what is running here."""
        config = self.config
        return Hello(
            VERSION,
            config.name,
            self.boot_id,
            config.procs,
            config.memory_bytes,
            config.launch.address,
            config.launch.port,
            cosched.__version__,
            self.desk.enforces,
            tuple(attempt.report(self.boot_id) for attempt in self.groups.attempts if not attempt.forgotten),
            config.contract,
            self.epochs.fence,
            new_session(),
        )

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises :class:`BadInput`, :class:`Failed`."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        async with self.serving():
            await stop.wait()
        _log.info("stopping; jobs go on")

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve for as long as the context lasts. Raises :class:`BadInput`, :class:`Failed`."""
        servers: list[Entrance] = []
        tasks: list[asyncio.Task[None]] = []
        try:
            try:
                servers.append(await self.rsh_proxy.local(self.socket))
                servers.append(await self.rsh_proxy.remote())
            except OSError as error:
                raise Failed(f"cannot listen: {error.strerror or error}") from None
            tasks.append(asyncio.create_task(self._fatal(self.groups.guard.keep())))
            await self._first_words()
            tasks.append(asyncio.create_task(self._fatal(self.desk.keep())))
            tasks.append(asyncio.create_task(self._fatal(self.coscheduler.keep())))
            tasks.append(asyncio.create_task(self._fatal(self.link.keep())))
            tasks.append(asyncio.create_task(self._fatal(self.disk.keep())))
            yield
        finally:
            if self._abandoning is not None:
                tasks.append(self._abandoning)
            await _ended(tasks)
            for server in servers:
                server.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.socket)

    async def _first_words(self) -> None:
        """What the guard says this machine can enforce, if it is there."""
        with contextlib.suppress(TimeoutError, GuardGone, GuardRefused):
            async with asyncio.timeout(2.0):
                await self.groups.guard.ready.wait()
                self.desk.take(await self.groups.guard.ask(requests.Status()))

    async def _fatal(self, work: Coroutine[object, object, None]) -> None:
        """A part that fails for a reason nobody thought of takes the agent down: its supervisor starts it anew."""
        try:
            await work
        except asyncio.CancelledError:
            raise
        except BaseException:
            _log.exception("the agent cannot go on")
            os.kill(os.getpid(), signal.SIGTERM)
            raise

    def _taken_over(self, cluster_id: str) -> None:
        """What the last cluster left here is ended and forgotten: another's is obeyed from now on, or none ("")."""
        if self._abandoning is not None and not self._abandoning.done():
            if not cluster_id:
                return
            self._abandoning.cancel()
        what = f"cluster {cluster_id} has taken this node over" if cluster_id else "this node was removed"
        _log.warning("%s: what there is of the last cluster's jobs is ended", what)
        self._abandoning = asyncio.create_task(self._abandon(cluster_id))

    async def _abandon(self, cluster_id: str) -> None:
        left = [each for each in self.groups.attempts if each.cluster_id not in ("", cluster_id)]
        while left := [each for each in left if self.groups.attempts.get(each.job_id, each.attempt) is each]:
            for attempt in left:
                with contextlib.suppress(GuardGone, GuardRefused):
                    await self._give_up(attempt)
            await asyncio.sleep(_SWEEP_S)

    async def _give_up(self, attempt: Attempt) -> None:
        if not attempt.forgotten:
            if attempt.asked_kill_us is None:
                await self.groups.kill(attempt, 0)
            if attempt.ended is None:
                return
            await self.groups.forget(attempt)
        self.groups.discard(attempt)


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel them until they have ended: a TaskGroup that fails at that very moment tells of its failure alone."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=_AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)


def start(config: NodeConfig) -> None:
    """Run the agent of this node until it is told to stop. Raises :class:`BadInput`, :class:`Failed`."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    if (gives_way := slices.give_way()) != YES:
        _log.info("the owner's processes may have to wait for this agent's: %s", gives_way)
    asyncio.run(Agent(config).run())

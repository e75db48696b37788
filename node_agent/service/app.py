"""The agent of one workstation: everything put together, and run until it is told to stop.

It keeps ``state/epoch``, ``state/attempts``, ``state/spool``; in ``run`` its socket, node files, ``cosched-rsh``.
Stopping it stops no job: the guard goes on with them, arms the contract, and tells the next agent what has happened.
"""

import asyncio
import contextlib
import logging
import os
import signal
import ssl
from collections.abc import AsyncIterator, Coroutine
from functools import partial
from pathlib import Path

import cosched
from cosched.config.node import NodeConfig
from cosched.errors import Failed, NeedsRepair
from cosched.identity import tls
from cosched.identity.grants import load_grant_pub
from cosched.identity.renewal import Renewal
from cosched.linux import slices
from cosched.linux.cgroups import YES
from cosched.linux.process import boot_id
from cosched.wire.messages import VERSION, Hello
from cosched.wire.sequence import new_session
from node_agent.core import inputs as happened
from node_agent.core.agent import AgentCore
from node_agent.guard.base import requests
from node_agent.guard.base.client import GuardGone, GuardRefused
from node_agent.service.attempts import AttemptFiles
from node_agent.service.commands import Commands
from node_agent.service.complaints import Complaints
from node_agent.service.coscheduler import Coscheduler
from node_agent.service.desk_watch import Desk
from node_agent.service.disk import Disk
from node_agent.service.entrance import Entrance
from node_agent.service.environment import Environment
from node_agent.service.fence import EpochFile
from node_agent.service.files import install_rsh, programs_directory, script_problem
from node_agent.service.groups import Groups
from node_agent.service.job_channel import JobChannel
from node_agent.service.job_lookup import JobLookup
from node_agent.service.link import Link
from node_agent.service.output import output_chunk
from node_agent.service.revocations import Revocations
from node_agent.service.rsh_proxy import RshProxy
from node_agent.service.sleep_watch import SleepWatch
from node_agent.service.spool import Spool
from node_agent.service.survey import UserSurveys
from node_agent.service.tasks import ended

_log = logging.getLogger("cosched.agent")
_NOT_RENEWED = "the identity was changed and cannot be used; the one from before is used on: %s"


class Agent:
    """One node's agent. Make it, then :meth:`run` it."""

    def __init__(self, config: NodeConfig) -> None:
        """Read what was kept. Raises :class:`BadInput`, :class:`Failed`."""
        self.config = config
        run, state = Path(config.paths.run), Path(config.paths.state)
        self.socket, self.job_socket = str(run / "agent.sock"), str(run / "job.sock")
        self.complaints = Complaints()
        self.boot_id = boot_id()
        try:
            if problem := script_problem(config.paths):
                raise Failed(problem)
            for directory in (run, state):
                directory.mkdir(parents=True, exist_ok=True, mode=0o755)
            epochs = EpochFile(state / "epoch")
            self.revocations = Revocations(state / "revoked")
            rsh = str(install_rsh(programs_directory(config.paths)))
            records = AttemptFiles(state / "attempts")
            self.core = AgentCore(config.name, self.boot_id, epochs.fence, records.load())
        except OSError as error:
            raise Failed(f"{error.filename or config.paths.run}: {error.strerror or error}") from None
        except ValueError as error:
            raise NeedsRepair(str(error)) from None
        identity = self._identity = Path(config.paths.identity)
        spool = Spool(state / "spool", config.output.limit_bytes)
        self.disk = Disk(config, self.core.attempts, records, spool)
        self.groups = Groups(
            config,
            self.core,
            epochs,
            records,
            self.disk,
            spool,
            Environment(config, rsh, self.socket, self.job_socket),
            lambda: load_grant_pub(identity),
            self.complaints,
        )
        self.job_lookup = JobLookup(self.groups.guard, config.cgroup.cosched, Path(config.cgroup.mount))
        self.channel = self.groups.channel = JobChannel(
            config.name,
            self.job_lookup,
            self.groups.owner,
            self.complaints,
            lambda key, number: self.groups.hand_in(happened.RanksAdapted(key, number)),
            lambda key, more: self.groups.hand_in(happened.RanksAsked(key, more)),
        )
        self.desk = Desk(config, self.groups.guard, self.job_lookup, self.core.lease, self.disk.problem)
        self.groups.on_desk = self.desk.decided
        self.groups.on_keys = self.desk.sources.terminals_used
        self.coscheduler = Coscheduler(config, self.groups.guard, self.core.attempts)
        self.groups.on_guard += [self.desk.again, self.coscheduler.guard_is_new]
        self.rsh_proxy = RshProxy(
            self.groups, Commands(self.groups), self.job_lookup, self.complaints, self.revocations
        )
        self.link = Link(
            config.scheduler.url,
            identity,
            self.hello,
            self.groups,
            partial(output_chunk, self.core, spool),
            self.desk,
            self.coscheduler,
            self.complaints,
            self.revocations,
            UserSurveys(self.groups.guard).answer,
            self.channel.answer,
        )

        self.sleep_watch = SleepWatch(self.desk, self.link.beat_now)

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
            self.core.reports(),
            config.contract,
            self.core.fence,
            new_session(),
            config.cluster,
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
        renewal = Renewal(self._identity, lambda: tls.agent_server_context(self._identity))
        servers: list[Entrance] = []
        tasks: list[asyncio.Task[None]] = []
        try:
            try:
                servers.append(await self.rsh_proxy.local(self.socket))
                servers.append(remote := await self.rsh_proxy.remote(renewal.made))
                servers.append(self.channel.listen(self.job_socket))
            except OSError as error:
                raise Failed(f"cannot listen: {error.strerror or error}") from None
            tasks.append(asyncio.create_task(self._fatal(self.groups.guard.keep())))
            await self._first_words()
            parts = (self.desk, self.coscheduler, self.link, self.disk, self.sleep_watch)
            work = [
                *(each.keep() for each in parts),
                renewal.keep(partial(self._renewed, remote), partial(_log.warning, _NOT_RENEWED)),
            ]
            tasks += [asyncio.create_task(self._fatal(each)) for each in work]
            yield
        finally:
            await ended(tasks)
            for server in servers:
                server.close()
            for path in (self.socket, self.job_socket):
                Path(path).unlink(missing_ok=True)

    def _renewed(self, remote: Entrance, context: ssl.SSLContext) -> None:
        _log.info("the identity in %s was renewed", self._identity)
        remote.context = context
        self.link.renewed.set()

    async def _first_words(self) -> None:
        """What the guard says this machine can enforce, if it is there."""
        with contextlib.suppress(TimeoutError, GuardGone, GuardRefused):
            async with asyncio.timeout(2.0):
                await self.groups.guard.ready.wait()
                self.desk.take(await self.groups.guard.ask(requests.Status()))

    async def _fatal(self, work: Coroutine[object, object, None]) -> None:
        """A part that fails unexpectedly takes the agent down: its supervisor starts it anew."""
        try:
            await work
        except asyncio.CancelledError:
            raise
        except BaseException:  # of libraries too, such as the PanicException of cryptography
            _log.exception("the agent cannot go on")
            os.kill(os.getpid(), signal.SIGTERM)
            raise


def start(config: NodeConfig) -> None:
    """Run the agent of this node until it is told to stop. Raises :class:`BadInput`, :class:`Failed`."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    if (gives_way := slices.give_way()) != YES:
        _log.info("the owner's processes may have to wait for this agent's: %s", gives_way)
    os.umask(0o022)  # jobs' users reach its sockets and programs
    asyncio.run(Agent(config).run())

"""The live service: one asyncio process around the core's host (docs/design/live.md).

It holds no scheduling rule. Users' wishes and nodes' reports become events of the core; what the core decides is
carried out once it is in the journal. When the service ends, jobs go on; the next start adopts them.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path
from time import time
from typing import Final, NamedTuple

from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import cosched
from cosched.config.cluster import ClusterConfig
from cosched.errors import Failed
from cosched.identity.grants import load_grant_key
from cosched.identity.renewal import Renewal
from cosched.identity.tls import Peer, server_context
from cosched.linux.descriptors import raised_limit
from cosched.linux.notify import notify
from cosched.model.time import US_PER_S
from cosched.wire.messages import TAKE_OVER_EPOCH
from space_scheduler.machine.instructions import Start
from space_scheduler.progress import ALONE_PPM
from space_scheduler.service.access import listen
from space_scheduler.service.access.accepting import Acceptor
from space_scheduler.service.access.callers import AGENTS, Callers
from space_scheduler.service.access.certificates import Certificates
from space_scheduler.service.access.members import Members
from space_scheduler.service.access.operators import Operators
from space_scheduler.service.access.problems import told
from space_scheduler.service.access.readers import Readers
from space_scheduler.service.access.tokens import Tokens
from space_scheduler.service.api import openapi
from space_scheduler.service.api.administration import Administration
from space_scheduler.service.api.api import Api
from space_scheduler.service.api.bodies import MAX_BODY_BYTES, Bodies
from space_scheduler.service.api.heavy import Heavy
from space_scheduler.service.api.waiting import Jobs
from space_scheduler.service.core.host import CoreHost
from space_scheduler.service.core.journalled import Settings
from space_scheduler.service.discard import Discarder
from space_scheduler.service.journal.clock import boottime_s
from space_scheduler.service.journal.records import Committed, JobRecord
from space_scheduler.service.launch.orders import Orders
from space_scheduler.service.launch.service_core import ServiceCore
from space_scheduler.service.launch.sharing import eligibility_of, policy_of, rules_of
from space_scheduler.service.launch.values import InJournal, Started
from space_scheduler.service.link.link import Link
from space_scheduler.service.log import Log
from space_scheduler.service.metrics.exposition import Metrics
from space_scheduler.service.page.page import Page
from space_scheduler.service.page.rows import Rows
from space_scheduler.service.page.streams import Streams
from space_scheduler.service.recorder import Recorder
from space_scheduler.service.shell import Shell
from space_scheduler.service.tell import Bridge, tell

_STOP_S: Final = 10.0
#: Within which a request's head has to arrive, the first one's and the next ones'.
_HEAD_S: Final = 30.0
#: For how long the rest of a body is read that was not wanted, so that the answer is read.
_LINGERING_S: Final = 0.5
#: Of a request: enough for tokens and what proxies add, and hardly anything while it is unfinished.
_HEADERS: Final = 32
_FIELD_BYTES: Final = 2048
#: No process may have more (fs.nr_open, unless it was raised).
_DESCRIPTORS: Final = 1 << 20
_DAY_S: Final = 86_400.0
#: How often certificates are looked at that end soon; the log says each once a day.
_FORETELL_S: Final = 60.0


class Service:
    """The scheduler of one cluster: ``start``, then ``stop``.

    ``port`` is where TLS is listened for (of use where the settings say 0), None where it is not.
    """

    def __init__(
        self, config: ClusterConfig, log: Log | None = None, *, take_over: bool = False, record: Path | None = None
    ) -> None:
        """``take_over``: give orders also to nodes that have obeyed another journal's scheduler.

        ``record``: a file to be made, for all that happens (``recorder``).
        """
        self.config = config
        self._take_over = take_over
        self._record = record
        self.recorder: Recorder | None = None
        self.log = log or Log()
        self.port: int | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._opened = AsyncExitStack()

    async def start(self) -> None:
        """Recover, adopt what runs, listen. Raises :class:`BadInput` and :class:`Failed`, and leaves nothing open."""
        async with AsyncExitStack() as opened:
            bridge = Bridge(self.log)
            for logger in map(logging.getLogger, ("space_scheduler", "aiohttp", "asyncio")):
                logger.addHandler(bridge)
                opened.callback(logger.removeHandler, bridge)
            await self._start(opened)
            self._opened = opened.pop_all()

    async def _start(self, opened: AsyncExitStack) -> None:
        """Start; ``opened`` is told how to close what is opened here, the last first."""
        config = self.config
        identity = Path(config.identity) if config.listen.address else None
        renewal = Renewal(identity, lambda: identity_of(config)) if identity is not None else None
        # without TLS there are no agents, and no grants are given
        key = renewal.made.key if renewal is not None else Ed25519PrivateKey.generate()
        listening = listen.unix_socket(Path(config.listen.socket)) if config.listen.socket else None
        if listening is not None:
            opened.callback(Path(config.listen.socket).unlink, missing_ok=True)
            opened.enter_context(listening)
        # closed after the core: its last events are recorded, and connections wait in the backlog meanwhile
        after_core = opened.enter_context(ExitStack())
        self.host = host_of(config, self._committed, self._problem, take_over=self._take_over)
        opened.push_async_callback(self.host.close)
        recovered = await self.host.start()
        # until the next await nothing of this start's events has been handed on
        fence = self.host.fence
        state = Path(config.state)
        members = Members(state / "members.json", config.nodes)
        tokens = Tokens(state / "tokens.json")
        self._orders = Orders(config, fence, key)
        rules = ServiceCore(config, members.nodes, fence, self._orders)
        self.book, self.launches, self.coscheduling = rules.book, rules.launches, rules.coscheduling
        self.certificates = Certificates(identity, lambda peer, serial: self._counts(peer, serial, members))
        self.shell = Shell(rules, self.host, self.log, boottime_s)
        if self._record is not None:
            self.recorder = self.shell.record = Recorder(
                self._record, config, members.nodes, fence, lambda why: self.log.warn("record", why=why)
            )
            after_core.callback(self.recorder.close)
        self.link = self.shell.link = Link(
            config, self.book, fence, self.log, self.shell.feed, members,
            None if self._take_over else recovered.last_job_id,
        )  # fmt: skip
        self.jobs = Jobs(self.host)
        live = tuple(recovered.jobs.values())
        self.metrics = self._measured(live)
        now_us = self.host.clock.now_us()
        progress = {
            job_id: (float(each.left_at(now_us)) / ALONE_PPM, float(each.rate_ppm) / ALONE_PPM)
            for job_id, each in recovered.progress.items()
        }
        self.shell.feed(Started(live, recovered.nodes, progress, recovered.turns, recovered.resizing, recovered.asked))
        self.log.info("recovered", what=str(recovered), cluster=config.name, cluster_id=fence.cluster_id)

        callers = Callers(Operators(config.operators), members, tokens if config.listen.tokens else None, self.log)
        bodies = Bodies()
        administration = Administration(
            config, self.host, self.link, members, tokens, self.certificates, callers, bodies, self.log
        )
        api = Api(
            config,
            self.host,
            self.book,
            self.link,
            self.jobs,
            self.metrics,
            self.coscheduling,
            callers,
            self.launches.comparison,
            bodies,
        )
        await self._begin(opened, self._application(callers, self._page(callers, api), api, administration), members)
        callers.proven, administration.cut = self.acceptor.proven, self.acceptor.cut
        if listening is not None:
            self.acceptor.local.add(listening)
        if renewal is not None:
            served = after_core.enter_context(listen.tcp_socket(config.listen.address, config.listen.port))
            self.acceptor.secured = renewal.made.secured
            self.acceptor.remote.add(served)
            self.port = served.getsockname()[1]
            keeping = renewal.keep(self._renewed, lambda why: self.log.warn("identity cannot be used", why=why))
            self._tasks += [asyncio.create_task(keeping), asyncio.create_task(self._foretell())]
        self._watch(self._runner)
        self.log.info("listening", socket=config.listen.socket, address=config.listen.address, port=self.port)

    def _application(self, callers: Callers, page: Page, *holders: object) -> web.Application:
        """Every address with its handler, a method of one of the holders, behind what all requests pass."""
        app = web.Application(
            client_max_size=MAX_BODY_BYTES,
            middlewares=[told(self.log, partial(callers.admit, openapi.READABLE), self.metrics.http.count)],
        )
        app.add_routes(openapi.routes(Heavy(callers), page, *holders))
        app.add_routes(page.routes())
        app.router.add_get(AGENTS, self.link.accept)
        app.on_response_prepare.append(_anonymous)
        return app

    def _page(self, callers: Callers, api: Api) -> Page:
        rows = Rows(self.config, self.book, self.host.clock, lambda: self.host.policy_name)
        self.streams = Streams(self.host, rows, self.log)
        return Page(callers, api, self.streams)

    def _measured(self, jobs: Iterable[JobRecord]) -> Metrics:
        """What counts, and is told what to count."""
        metrics = Metrics(
            self.host, self.host.clock.now_us, self.config, self.book, self.link,
            self.launches.suspects.counted,
            self.host.path, self.certificates,
        )  # fmt: skip
        self.host.on_journalled = metrics.service.commit.observe
        self.host.on_pass = metrics.service.passes.observe
        metrics.service.record_differences = lambda: self.host.record_differences
        metrics.jobs.recovered(jobs)
        metrics.disk.look()
        metrics.http.expect((each.method, each.path, each.status) for each in openapi.ROUTES)
        return metrics

    async def _begin(self, opened: AsyncExitStack, application: web.Application, members: Members) -> None:
        """Answer requests on connections that are accepted; nothing is listened to yet."""
        self._runner = web.AppRunner(
            application,
            access_log=None, handle_signals=False, shutdown_timeout=2.0,
            auto_decompress=False, keepalive_timeout=_HEAD_S, lingering_time=_LINGERING_S,
            max_headers=_HEADERS, max_field_size=_FIELD_BYTES,
        )  # fmt: skip
        opened.push_async_callback(self._end, self._runner)
        await self._runner.setup()
        assert self._runner.server is not None
        descriptors, nodes = raised_limit(_DESCRIPTORS), len(members.nodes)
        limits = listen.Limits.of(
            descriptors, nodes, self.config.listen.max_connections, self.config.listen.max_connections_per_user
        )
        if limits.needed > descriptors:
            self.log.warn("too few descriptors", allowed=descriptors, needed=limits.needed, nodes=nodes)
        self.acceptor = Acceptor(
            self._runner.server,
            limits,
            self.log,
            lambda peer, serial: self._counts(peer, serial, members),
            self.certificates.was_shown,
        )
        opened.callback(self.acceptor.close)

    def _counts(self, peer: Peer, serial: str, members: Members) -> bool:
        """Whether a certificate is one of this cluster's now."""
        belongs = peer.kind == "user" or (peer.kind == "node" and peer.name in self.book.allowed)
        return belongs and not members.is_revoked(serial)

    def _renewed(self, made: "Identity") -> None:
        """The scheduler has another certificate, trusts another authority, or signs grants with another key."""
        self.acceptor.secured = made.secured
        self._orders.key = made.key
        self.certificates.renewed()
        self.log.info("identity renewed")

    async def _foretell(self) -> None:
        """Have the log say which certificates end soon, for ever."""
        while True:
            now_s = time()
            for name, until_s in self.certificates.to_foretell(now_s).items():
                self.log.warn("certificate expires", whose=name, days_left=round((until_s - now_s) / _DAY_S, 1))
            await asyncio.sleep(_FORETELL_S)

    def _watch(self, runner: web.AppRunner) -> None:
        """What has to be looked at from time to time."""
        assert runner.server is not None
        self.readers = Readers(runner.server, self.config.time_us("slow_reader") / US_PER_S, self.log)
        self.metrics.service.slow_readers = lambda: self.readers.cut
        self.metrics.service.refused = lambda: self.acceptor.refused
        self._tasks += [
            asyncio.create_task(each)
            for each in (
                *(self.link.watch(), self.readers.watch(), self.acceptor.watch()),
                Discarder(self.config, self.host, self.shell, self.link, self.log).run(),
                *(self.metrics.disk.watch(), self.streams.run()),
            )
        ]

    async def stop(self) -> None:
        """Answer what is open, journal what was reported, close. Jobs go on."""
        await self._opened.aclose()

    async def _end(self, runner: web.AppRunner) -> None:
        """End all that waits, and journal what was reported."""
        self.jobs.stop()
        self.streams.stop()
        self.link.close()
        self.shell.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await runner.cleanup()
        try:
            async with asyncio.timeout(_STOP_S):
                await self.shell.settle()
        except TimeoutError:
            self.log.warn("not all reports could be journalled; agents make them again", seconds=_STOP_S)

    def _committed(self, committed: Committed) -> None:
        """Hand on an event that is in the journal, and what followed from it."""
        told = partial(tell, self.log, self.host.clock.when)
        for reader in (told, self.metrics.committed, self.jobs.committed, self.streams.committed):
            try:
                reader(committed)
            except Exception as error:
                self.log.fault("an event could not be told", error, seq=committed.seq)
        try:
            starts, jobs = (each for each in committed.instructions if isinstance(each, Start)), self.host.view().jobs
            started = {each.job.id: jobs[each.job.id] for each in starts}
            self.shell.feed(InJournal(committed.event, committed.instructions, started))  # type: ignore[arg-type]
        except Exception as error:
            self.log.fault("an event was not carried out", error, seq=committed.seq)

    def _problem(self, problem: str) -> None:
        if problem:
            self.log.warn("problem", what=problem)
        else:
            self.log.info("well again")


class Identity(NamedTuple):
    """What the service makes of its identity's files."""

    secured: ssl.SSLContext
    key: Ed25519PrivateKey


def identity_of(config: ClusterConfig) -> Identity:
    """What the settings' identity comes to. Raises :class:`BadInput` and :class:`Failed`."""
    directory = Path(config.identity)
    return Identity(server_context(directory, tokens=config.listen.tokens), load_grant_key(directory))


async def _anonymous(_request: web.Request, response: web.StreamResponse) -> None:
    """Which library in which version answers is nobody's business."""
    response.headers["Server"] = "cosched"


def host_of(
    config: ClusterConfig,
    on_committed: Callable[[Committed], None],
    on_problem: Callable[[str], None],
    *,
    take_over: bool = False,
) -> CoreHost:
    """The core's host as the settings have it. Raises :class:`BadInput` and :class:`Failed`.

    An epoch counts starts; one that takes over is the seconds since 1970 (:data:`wire.messages.TAKE_OVER_EPOCH`).
    """
    policy = policy_of(config)
    state = Path(config.state)
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Failed(f"state: {state} cannot be made: {error.strerror}") from None
    settings = Settings(
        state / "journal.db",
        policy,
        config.policy,
        config.order,
        rules_of(config, policy),
        keep_us=config.monitoring.keep_presence_us,
        keep_jobs_us=config.keep_jobs_us,
        least_epoch=max(TAKE_OVER_EPOCH, int(time())) if take_over else 1,
        dividing=config.components.dividing(),
        overdue_after_us=config.time_us("grace") + 2 * config.time_us("heartbeat"),
        eligibility=eligibility_of(config),
    )
    return CoreHost(
        settings, pass_interval_us=config.time_us("pass_interval"), on_committed=on_committed, on_problem=on_problem
    )


async def serve(
    config: ClusterConfig,
    stop: asyncio.Event,
    ready: Callable[[], None],
    *,
    take_over: bool = False,
    record: Path | None = None,
) -> None:
    """Run the service until ``stop`` is set; ``ready`` is called once it listens. The rest as in :class:`Service`."""
    service = Service(config, take_over=take_over, record=record)
    service.log.info("starting", version=cosched.__version__, policy=config.policy, nodes=len(config.nodes))
    await service.start()
    try:
        notify("READY=1")
        ready()
        await stop.wait()
        notify("STOPPING=1")
        service.log.info("stopping")
    finally:
        await service.stop()
    service.log.info("stopped", lease_s=config.time_us("lease") / US_PER_S)

"""A scheduler in the simulated world: the real ServiceCore, the real core and its real journal, and a shell.

A crash leaves the journal's files as they are; what was committed is what the next start finds. Sites: ``scheduler
crash`` (at any moment), ``crash at start`` (its epoch is in the journal, nobody was told), ``scheduler frozen``,
``order twice`` (an order is given again, as it may be), ``clock set`` (the wall clock, by an hour), ``policy changed``
while it runs, ``contract changed`` at a start; of its disk ``journal torn``, ``journal full``, ``journal damaged``. The
worker has its own (``worker``), and so has what becomes of two schedulers (``schedulers``).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cosched.config.cluster import ClusterConfig
from cosched.errors import BadInput, Failed
from cosched.model.job import Job
from cosched.model.node import Node as NodeSize
from cosched.wire import messages as wire
from cosched.wire.api import Submission
from cosched.wire.sequence import Numbering, Turn
from faults import settings
from faults.disk import Disk
from faults.worker import Worker
from faults.world import MS, Connection, S, Sleeper, World
from space_scheduler.eligibility.rule import Rule
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Start
from space_scheduler.policy.interface import Policy
from space_scheduler.progress import ALONE_PPM
from space_scheduler.service.core import worker as fx
from space_scheduler.service.core.journalled import JournalledCore, Opened, Settings, opened
from space_scheduler.service.core.worker import Annotate, AskWanted, Post, WorkerCore
from space_scheduler.service.journal.clock import Sources
from space_scheduler.service.journal.records import Committed, Facts
from space_scheduler.service.launch import values as given
from space_scheduler.service.launch.orders import Orders
from space_scheduler.service.launch.service_core import ServiceCore
from space_scheduler.service.launch.sharing import eligibility_of, policy_of, rules_of
from space_scheduler.service.launch.values import CancelTimer, Cut, Effect, Say, Send, SetTimer, Wake
from space_scheduler.service.link.joining import checked_hello

if TYPE_CHECKING:
    from faults.judge import Judge


class Link:
    """One agent's connection, at the scheduler's end."""

    def __init__(self, connection: Connection, name: str, session: bytes, hello: wire.Hello) -> None:
        self.connection = connection
        self.name = name
        self.turn = Turn(session)
        self.numbering = Numbering(hello.session)
        self.discards: Counter[tuple[int, int]] = Counter()  # ordered, by attempt


class Scheduler:
    """One scheduler, started and crashed again and again on one journal, until it is told to be no more."""

    rules_type: type[ServiceCore] = ServiceCore
    worker_type: type[WorkerCore] = WorkerCore
    thread_type: type[Worker] = Worker

    def __init__(
        self, world: World, directory: Path, config: ClusterConfig, key: Ed25519PrivateKey, judge: "Judge"
    ) -> None:
        """``judge`` is told first what the rules post, and what is in the journal."""
        self.world = world
        self.path = directory / "journal.db"
        self.disk = Disk(world, self.path)
        self.config = config
        self.key = key
        self.alive = False
        self.no_more = False
        self.starts = 0
        self.started_us = 0
        self.core: JournalledCore
        self.worker: Worker
        self.rules: ServiceCore
        self.fence: wire.Fence
        self.process = Sleeper(world)
        self._judge = judge
        self._links: dict[str, Link] = {}
        self._connections: list[Connection] = []
        self._timers: dict[tuple[int, int], int] = {}
        self._timer_numbers = 0

    # --- its life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the journal, recover, adopt what runs; where that cannot be done now, it is tried again."""
        world = self.world
        if self.no_more:
            return
        if self.starts and world.fault("contract changed"):
            drawn = settings.drawn(world, self.path.parent, self.config.nodes)
            contract = msgspec.structs.replace(drawn.contract, cpu_ratio=world.random.choice((0.5, 1.0)))
            self.config = msgspec.structs.replace(drawn, contract=contract, eligibility=self.config.eligibility)
            world.say(f"scheduler: the contract is {contract}, the policy {drawn.policy}")
        try:
            found = self.open()
        except Failed as error:
            world.say(f"scheduler does not start: {error}")
            world.after(world.draw_us(S, 3 * S), self.start)
            return
        self.starts += 1
        self.alive = True
        self.process = Sleeper(world)
        self.started_us = world.now_us
        self.heard_us = dict.fromkeys(self.config.nodes, world.now_us)  # when, or from when on their silence counts
        self.losses: Counter[str] = Counter()
        self._links.clear()
        self._timers.clear()
        self.fence = wire.Fence(found.journal.cluster_id, found.run.epoch, found.run.instance)
        world.say(f"scheduler starts, epoch {found.run.epoch}")
        self._journal, self.core, self.clock = found.journal, found.core, found.clock
        if world.fault("crash at start"):
            self.crash()
            return
        self._serve(found)

    def open(self) -> Opened:
        """Open the journal for this start. Raises ``Failed``."""
        world, config = self.world, self.config
        policy = self.policy(config)
        sources = Sources(lambda: world.wall_us + world.now_us, lambda: world.now_us, lambda: "boot")
        self.disk.is_anew()
        with self.disk.writing():
            return opened(
                Settings(
                    self.path,
                    policy,
                    config.policy,
                    rules=rules_of(config, policy),
                    snapshot_every=40,
                    keep_events=None,
                    sources=sources,
                    eligibility=self.eligibility(config),
                )
            )

    def policy(self, config: ClusterConfig) -> Policy:
        """The policy of these settings."""
        return policy_of(config)

    def eligibility(self, config: ClusterConfig) -> Sequence[Rule]:
        """The rules before the queue of these settings."""
        return eligibility_of(config)

    def _serve(self, found: Opened) -> None:
        config = self.config
        self.rules = self.rules_type(config, config.nodes, self.fence, Orders(config, self.fence, self.key))
        now_us, recovered = found.clock.now_us(), found.recovered
        self._last_job_id = recovered.last_job_id
        progress = {
            job_id: (float(each.left_at(now_us)) / ALONE_PPM, float(each.rate_ppm) / ALONE_PPM)
            for job_id, each in recovered.progress.items()
        }
        start, interval_us = self.starts, config.time_us("pass_interval")
        self.worker = self.thread_type(
            self.world, self.process, found, self.disk, self.worker_type(interval_us), self._hand_on, self.crash
        )
        self.worker.on_ask_wanted = lambda: self._judge.look_who_waits(self)
        jobs = tuple(recovered.jobs.values())
        self.feed(given.Started(jobs, recovered.nodes, progress, recovered.turns, recovered.resizing, recovered.asked))
        self._tick(start)

    def crash(self) -> None:
        """As if it had been killed: nothing more is written or said."""
        if not self.alive:
            return
        self.world.say("scheduler crashes")
        self._end()
        self.disk.crash(self._journal)
        if self.world.fault("journal damaged"):
            policy = self.policy(self.config)
            self.disk.judge_damage(policy, rules_of(self.config, policy))
        self.world.after(self.world.draw_us(100 * MS, 12 * S), self.start)

    def _end(self) -> None:
        self.alive = False
        if hasattr(self, "worker"):
            self.worker.over = True
        for connection in self._connections:
            connection.cut()
        self._connections.clear()
        self._links.clear()

    def unreach(self) -> None:
        """Nobody reaches it any more over the connections that there are."""
        for connection in self._connections:
            connection.cut()

    def stop(self) -> None:
        """It ends, and its journal is closed; it is not started again."""
        self.no_more = True
        if self.alive:
            self._end()
            self._journal.close()

    def freeze(self, for_us: int) -> None:
        """It stands still for so long (SIGSTOP): what comes waits for it, and whose silence it missed is not silent."""
        self.world.say(f"scheduler stands still for {for_us / S:.1f} s")
        self.process.stand_still(for_us)
        for name in self.heard_us:
            self.heard_us[name] += for_us

    def _tick(self, start: int) -> None:
        if not self.alive or self.starts != start:
            return
        world = self.world
        self.feed(given.Ticked())
        if world.fault("scheduler crash"):
            self.crash()
            return
        if world.fault("clock set"):
            world.wall_us += world.random.choice((-1, 1)) * 3600 * S
        if world.fault("policy changed"):
            self._choose()
        if world.fault("journal torn"):
            self.disk.fail("torn", world.draw_us(S, 8 * S))
        if world.fault("journal full"):
            self.disk.fail("full", world.draw_us(S, 8 * S))
        if world.fault("scheduler frozen"):
            self.freeze(world.draw_us(S, 20 * S))
        self._soon(int(self.rules.beat_s * S), partial(self._tick, start))

    def _soon(self, after_us: int, happens: Callable[[], None]) -> None:
        """Have it happen here in so long, or when the process goes on."""
        process = self.process
        self.world.after(after_us, lambda: process.do(happens))

    def joins_anew(self, name: str) -> bool:
        """Whether a node's new size is on its way to the journal, or was not said since this start."""
        entry = self.rules.book.entry(name)
        return entry.joining is not None or not entry.agreed

    def hears(self, name: str) -> bool:
        """Whether what is said to a node and by it arrives now."""
        link = self._links.get(name)
        return link is not None and link.connection.open and not link.connection.late

    def drained(self, name: str) -> str:
        """Why nothing new is started on a node, by the core; empty where something is."""
        nodes = self.core.state.machine.nodes or ()
        return next((each.reason for each in nodes if each.drained and each.node.name == name), "")

    # --- agents -----------------------------------------------------------------------------------------------------

    def accept(self, connection: Connection) -> bool:
        """An agent has called; False where nobody listens."""
        if not self.alive:
            return False
        start, process = self.starts, self.process
        self._connections = [each for each in self._connections if each.open]
        self._connections.append(connection)
        connection.ends["scheduler"] = lambda frame: process.do(lambda: self._first(connection, frame, start))
        return True

    def _first(self, connection: Connection, frame: bytes, start: int) -> None:
        if not self.alive or self.starts != start or not connection.open:
            return
        name, process = connection.node, self.process
        try:
            hello = self.welcome(wire.from_agent(frame), name)
        except BadInput as error:
            self.world.say(f"scheduler: {name} may not join: {error}")
            connection.cut()
            return
        if (old := self._links.pop(name, None)) is not None:
            old.connection.cut()
        session = bytes(self.world.random.getrandbits(8) for _ in range(8))
        link = self._links[name] = Link(connection, name, session, hello)
        connection.ends["scheduler"] = lambda frame: process.do(lambda: self._heard(link, frame))
        connection.ended["scheduler"] = lambda: process.do(lambda: self._ended(link))
        self.heard_us[name] = self.world.now_us
        self.feed(given.Connected(name, hello, session))

    def welcome(self, message: wire.FromAgent, name: str) -> wire.Hello:
        """The hello of an agent that may join. Raises :class:`BadInput`."""
        return checked_hello(message, name, self.fence, last_job_id=self._last_job_id)

    def _heard(self, link: Link, frame: bytes) -> None:
        if self._links.get(link.name) is not link:
            return
        message = wire.from_agent(link.turn.payload(frame))
        self.heard_us[link.name] = self.world.now_us
        self.feed(given.Heard(link.name, message))

    def _ended(self, link: Link) -> None:
        if self._links.get(link.name) is link:
            del self._links[link.name]
            self.feed(given.Disconnected(link.name))

    # --- the rules and what they want done --------------------------------------------------------------------------

    def now_s(self) -> float:
        """The clock that the rules go by."""
        return self.world.now_us / S

    def feed(self, happened: given.AnyInput) -> None:
        """Something has happened."""
        for effect in self.rules.handle(happened, self.now_s()):
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            if (link := self._links.get(effect.node)) is not None:
                frame = wire.encode(effect.message)
                welcome = isinstance(effect.message, wire.Welcome)
                link.connection.send("node", frame if welcome else link.numbering.frame(frame))
                if isinstance(effect.message, wire.Order):
                    self._may_say_again(link, effect.message, frame)
        elif isinstance(effect, Post):
            self._judge.posted(self, effect.event)
            self._post(effect.event, effect.note, effect.facts)
        elif isinstance(effect, Annotate):
            self.worker.put(fx.Annotate(effect.job_id, effect.facts), self._nobody_waits)
        elif isinstance(effect, SetTimer):
            self._timer_numbers += 1
            self._timers[effect.key] = number = self._timer_numbers
            self._soon(effect.after_us, partial(self._timed_out, effect.key, number, self.starts))
        elif isinstance(effect, CancelTimer):
            self._timers.pop(effect.key, None)
        elif isinstance(effect, AskWanted):
            self._ask_wanted(effect.nodes)
        elif isinstance(effect, Wake):
            self._judge.called(self, effect.node)
        elif isinstance(effect, Say):
            self.world.say(f"scheduler: {effect.what} {effect.fields}")
        elif isinstance(effect, Cut) and (link := self._links.pop(effect.node, None)) is not None:
            self.world.after(int(effect.after_s * S), link.connection.cut)

    def _ask_wanted(self, nodes: tuple[NodeSize, ...]) -> None:
        start = self.starts

        def answered(wanted: Any, error: BaseException | None) -> None:
            if error is None and self.alive and self.starts == start:
                self.feed(given.Wanted(wanted))

        self.worker.put(fx.AskWanted(nodes), answered)

    def _may_say_again(self, link: Link, order: wire.Order, frame: bytes) -> None:
        key = order.order.job_id, order.order.attempt
        if isinstance(order, wire.Discard):
            link.discards[key] += 1
        if self.world.fault("order twice"):
            again = partial(self._say_again, link, frame, key, link.discards[key])
            self._soon(self.world.draw_us(MS, 5 * S), again)

    def _say_again(self, link: Link, frame: bytes, key: tuple[int, int], discards: int) -> None:
        """Nobody asks again for what was to be forgotten since: its agent could not know that the order is old."""
        if self._links.get(link.name) is link and link.discards[key] == discards:
            link.connection.send("node", link.numbering.frame(frame))

    def _timed_out(self, key: tuple[int, int], number: int, start: int) -> None:
        if self.alive and self.starts == start and self._timers.get(key) == number:
            del self._timers[key]
            self.feed(given.TimedOut(key))

    # --- the journal ------------------------------------------------------------------------------------------------

    def submit(self, job: Job, submission: Submission, acknowledged: Callable[["Scheduler", int], None]) -> None:
        """Somebody submits a job; whether it is accepted is told after the commit."""

        def answered(job_id: Any, error: BaseException | None) -> None:
            if error is None:
                acknowledged(self, job_id)
            else:
                self.world.say(f"a job is refused: {error}")

        if self.alive:
            self.worker.put(fx.Submit(job, submission, "ann"), answered, wish=True)

    def cancel(self, job_id: int) -> None:
        """Somebody does not want a job any more."""
        if self.alive:
            self._post(ev.JobCancelled(job_id), wish=True)

    def _choose(self) -> None:
        """An operator has another policy decide, until the next start."""
        name = settings.policy(self.world, self.config.contract.mpl)
        policy = self.policy(msgspec.structs.replace(self.config, policy=name))
        rules = rules_of(self.config, policy)
        self.worker.put(fx.Choose(policy, name, None, rules), self._nobody_waits, wish=True)

    def resume_all(self) -> None:
        """An operator takes back all nodes that were set aside."""
        for node in self.core.state.nodes() if self.alive else ():
            if node.drained and node.reason.startswith("set aside"):
                self.losses[node.node.name] = 0  # it is trusted again
                self._post(ev.NodeResumed(node.node.name), wish=True)

    def _post(self, event: ev.Event, note: str = "", facts: Facts | None = None, *, wish: bool = False) -> None:
        self.worker.put(fx.Post(event, note, facts), self._nobody_waits, wish=wish)

    def _nobody_waits(self, _answer: Any, error: BaseException | None) -> None:
        if error is not None:
            self.world.say(f"scheduler: refused: {error}")

    def _hand_on(self, committed: Committed) -> None:
        self._judge.event(self, committed)
        view = self.worker.view
        starts = [each.job.id for each in committed.instructions if isinstance(each, Start)]
        started = {job_id: view.jobs[job_id] for job_id in starts}
        self.feed(given.InJournal(committed.event, committed.instructions, started))  # type: ignore[arg-type]

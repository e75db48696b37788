"""A scheduler in the simulated world: the real ServiceCore, the real core and its real journal, and a shell.

A crash closes the journal in the middle of whatever it was; what was committed is what the next start finds. Sites:
``crash before commit``, ``crash after commit`` (nobody has been told), ``scheduler crash`` (at any moment), ``order
twice`` (an order is given again, as it may be), ``clock set`` (the wall clock, by an hour), ``policy changed``.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cosched.config.cluster import ClusterConfig
from cosched.errors import BadInput
from cosched.model.job import Job
from cosched.wire import messages as wire
from cosched.wire.api import Submission
from cosched.wire.sequence import Numbering, Turn
from faults.world import MS, Connection, S, World
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Start
from space_scheduler.progress import ALONE_PPM
from space_scheduler.service.core.journalled import JournalledCore
from space_scheduler.service.core.opening import Settings, opened
from space_scheduler.service.core.work import MISFITS
from space_scheduler.service.journal.clock import Sources
from space_scheduler.service.journal.records import Committed
from space_scheduler.service.launch import inputs as given
from space_scheduler.service.launch.effects import Annotate, CancelTimer, Cut, Effect, Post, Say, Send, SetTimer
from space_scheduler.service.launch.orders import Orders
from space_scheduler.service.launch.service_core import ServiceCore
from space_scheduler.service.launch.sharing import policy_of, rules_of
from space_scheduler.service.link.joining import checked_hello

_COMMIT_US = 2 * MS
#: Policies of clusters where jobs share nodes, and where they do not.
SHARING = ("normal", "3dbf-light", "uniform-light")
APART = ("easy", "fcfs", "conservative", "firstfit")


class Link:
    """One agent's connection, at the scheduler's end."""

    def __init__(self, connection: Connection, name: str, session: bytes, hello: wire.Hello) -> None:
        self.connection = connection
        self.name = name
        self.turn = Turn(session)
        self.numbering = Numbering(hello.session)


class Scheduler:
    """One scheduler, started and crashed again and again on one journal."""

    rules_type: type[ServiceCore] = ServiceCore

    def __init__(self, world: World, directory: Path, config: ClusterConfig, key: Ed25519PrivateKey) -> None:
        self.world = world
        self.path = directory / "journal.db"
        self.config = config
        self.key = key
        self.alive = False
        self.starts = 0
        self.acknowledged: set[int] = set()
        self.core: JournalledCore
        self.rules: ServiceCore
        self.fence: wire.Fence
        self._links: dict[str, Link] = {}
        self._connections: list[Connection] = []
        self._inbox: deque[tuple[str, Callable[[JournalledCore, int], Any], Callable[[Any], None]]] = deque()
        self._turn_us: int | None = None
        self._timers: dict[tuple[int, int], int] = {}
        self._timer_numbers = 0

    # --- its life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the journal, recover, adopt what runs."""
        world, config = self.world, self.config
        policy = policy_of(config)
        sources = Sources(lambda: world.wall_us + world.now_us, lambda: world.now_us, lambda: "boot")
        found = opened(Settings(self.path, policy, config.policy, None, rules_of(config, policy), 40, None, 1, sources))
        self.starts += 1
        self.alive = True
        self.heard_us = dict.fromkeys(config.nodes, world.now_us)  # when, or from when on their silence counts
        self._journal, self.core, self._clock = found.journal, found.core, found.clock
        self.fence = wire.Fence(found.journal.cluster_id, found.run.epoch, found.run.instance)
        world.say(f"scheduler starts, epoch {found.run.epoch}")
        self.rules = self.rules_type(config, config.nodes, self.fence, Orders(config, self.fence, self.key))
        self._inbox.clear()
        self._links.clear()
        self._timers.clear()
        self._turn_us = None
        now_us, recovered = self._clock.now_us(), found.recovered
        progress = {
            job_id: (float(each.left_at(now_us)) / ALONE_PPM, float(each.rate_ppm) / ALONE_PPM)
            for job_id, each in recovered.progress.items()
        }
        jobs = tuple(recovered.jobs.values())
        self.feed(given.Started(jobs, recovered.nodes, progress, recovered.turns, recovered.resizing))
        self._soon()
        self._tick(self.starts)

    def crash(self) -> None:
        """As if it had been killed: nothing more is written or said."""
        if not self.alive:
            return
        self.alive = False
        self.world.say("scheduler crashes")
        self._journal.close()
        for connection in self._connections:
            connection.cut()
        self._connections.clear()
        self._links.clear()
        self.world.after(self.world.draw_us(100 * MS, 12 * S), self.start)

    def _tick(self, start: int) -> None:
        if self.alive and self.starts == start:
            self.feed(given.Ticked())
            if self.world.fault("scheduler crash"):
                self.crash()
                return
            if self.world.fault("clock set"):
                self.world.wall_us += self.world.random.choice((-1, 1)) * 3600 * S
            if self.world.fault("policy changed"):
                self._choose()
            self.world.after(int(self.rules.beat_s * S), partial(self._tick, start))

    # --- agents -----------------------------------------------------------------------------------------------------

    def accept(self, connection: Connection) -> bool:
        """An agent has called; False where nobody listens."""
        if not self.alive:
            return False
        start = self.starts
        self._connections = [each for each in self._connections if each.open]
        self._connections.append(connection)
        connection.ends["scheduler"] = lambda frame: self._first(connection, frame, start)
        return True

    def _first(self, connection: Connection, frame: bytes, start: int) -> None:
        if not self.alive or self.starts != start:
            return
        name = connection.node
        try:
            hello = checked_hello(wire.from_agent(frame), name, self.fence)
        except BadInput as error:
            self.world.say(f"scheduler: {name} may not join: {error}")
            connection.cut()
            return
        if (old := self._links.pop(name, None)) is not None:
            old.connection.cut()
        session = bytes(self.world.random.getrandbits(8) for _ in range(8))
        link = self._links[name] = Link(connection, name, session, hello)
        connection.ends["scheduler"] = lambda frame: self._heard(link, frame)
        connection.ended["scheduler"] = lambda: self._ended(link)
        self.heard_us[name] = self.world.now_us
        self.feed(given.Connected(name, hello, session))

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

    def feed(self, happened: given.AnyInput) -> None:
        """Something has happened."""
        for effect in self.rules.handle(happened, self.world.now_us / S):
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            if (link := self._links.get(effect.node)) is not None:
                frame = wire.encode(effect.message)
                welcome = isinstance(effect.message, wire.Welcome)
                link.connection.send("node", frame if welcome else link.numbering.frame(frame))
                if isinstance(effect.message, wire.Order) and self.world.fault("order twice"):
                    self.world.after(self.world.draw_us(MS, 5 * S), partial(self._say_again, link, frame))
        elif isinstance(effect, Post):
            post = effect
            self._take_in(
                type(post.event).__name__, lambda core, now_us: core.take_in(post.event, now_us, post.note, post.facts)
            )
        elif isinstance(effect, Annotate):
            note = effect
            self._take_in("annotate", lambda core, _: core.annotate(note.job_id, note.facts))
        elif isinstance(effect, SetTimer):
            self._timer_numbers += 1
            self._timers[effect.key] = number = self._timer_numbers
            self.world.after(effect.after_us, partial(self._timed_out, effect.key, number, self.starts))
        elif isinstance(effect, CancelTimer):
            self._timers.pop(effect.key, None)
        elif isinstance(effect, Say):
            self.world.say(f"scheduler: {effect.what} {effect.fields}")
        elif isinstance(effect, Cut) and (link := self._links.pop(effect.node, None)) is not None:
            self.world.after(int(effect.after_s * S), link.connection.cut)

    def _say_again(self, link: Link, frame: bytes) -> None:
        if self._links.get(link.name) is link:
            link.connection.send("node", link.numbering.frame(frame))

    def _timed_out(self, key: tuple[int, int], number: int, start: int) -> None:
        if self.alive and self.starts == start and self._timers.get(key) == number:
            del self._timers[key]
            self.feed(given.TimedOut(key))

    # --- the journal ------------------------------------------------------------------------------------------------

    def submit(self, job: Job, submission: Submission, acknowledged: Callable[[int], None]) -> None:
        """Somebody submits a job; whether it is accepted is told after the commit."""
        if self.alive:
            self._take_in("submit", lambda core, now_us: core.submit(job, submission, "ann", now_us), acknowledged)

    def cancel(self, job_id: int) -> None:
        """Somebody does not want a job any more."""
        if self.alive:
            self._take_in("cancel", lambda core, now_us: core.take_in(ev.JobCancelled(job_id), now_us))

    def _choose(self) -> None:
        """An operator has another policy decide, until the next start."""
        shared = self.config.contract.mpl > 1
        name = self.world.random.choice(SHARING if shared else APART)
        policy = policy_of(msgspec.structs.replace(self.config, policy=name))
        rules = rules_of(self.config, policy)
        self._take_in("policy", lambda core, now_us: core.choose(policy, name, None, rules, now_us))

    def resume_all(self) -> None:
        """An operator takes back all nodes that were set aside."""
        for node in self.core.state.nodes() if self.alive else ():
            if node.drained and node.reason.startswith("set aside"):
                name = node.node.name
                self._take_in("resume", lambda core, now_us, name=name: core.take_in(ev.NodeResumed(name), now_us))

    def _take_in(
        self,
        what: str,
        apply: Callable[[JournalledCore, int], Any],
        answer: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self._inbox.append((what, apply, answer))
        self._soon()

    def _soon(self, after_us: int = _COMMIT_US) -> None:
        at_us = self.world.now_us + after_us
        if self._turn_us is None or at_us < self._turn_us:
            self._turn_us = at_us
            self.world.at(at_us, partial(self._turn, self.starts, at_us))

    def _turn(self, start: int, at_us: int) -> None:
        """Accept together, commit together, then decide; as the worker's thread does."""
        if not self.alive or self.starts != start or self._turn_us != at_us:
            return
        self._turn_us = None
        answers: list[tuple[Callable[[Any], None], Any]] = []
        while self._inbox:
            _, apply, answer = self._inbox.popleft()
            with suppress(*MISFITS):
                answers.append((answer, apply(self.core, self._clock.now_us())))
        if not self._committed(answers):
            return
        self.core.decide(self._clock.now_us())
        if not self._committed([]):
            return
        self.core.save_if_due()
        if (timer_us := self.core.timer_us) is not None:
            self._soon(max(_COMMIT_US, timer_us - self._clock.now_us()))

    def _committed(self, answers: list[tuple[Callable[[Any], None], Any]]) -> bool:
        """Write what is staged and tell of it; False where it crashed on the way."""
        if self.core.staged and self.world.fault("crash before commit"):
            self.crash()
            return False
        staged = self.core.staged
        committed = self.core.commit()
        if staged and self.world.fault("crash after commit"):
            self.crash()
            return False
        for answer, value in answers:
            answer(value)
        for each in committed:
            self._hand_on(each)
        return True

    def _hand_on(self, committed: Committed) -> None:
        starts = [each.job.id for each in committed.instructions if isinstance(each, Start)]
        started = {job_id: self.core.records[job_id] for job_id in starts}
        self.feed(given.InJournal(committed.event, committed.instructions, started))  # type: ignore[arg-type]

    def stop(self) -> None:
        """It ends in good order: its journal is closed."""
        if self.alive:
            self.alive = False
            self._journal.close()

"""A workstation in the simulated world: the real AgentCore, the guard's model, and a shell with a disk that lasts.

What the agent has persisted outlives it; groups outlive agent and guard; nothing but the disk outlives a reboot. Sites:
``agent crash`` (at any moment), ``agent frozen`` (it stands still, its guard does not), ``crash before persist``,
``crash after persist``, ``disk full`` and ``disk hangs`` (for a job's files), ``reboot``, ``node frozen`` (the machine
is suspended), ``node slow`` (its link, for a while), ``old order`` (one of a scheduler that is not obeyed any more),
``false word`` (it says something of a job of which it has no part, or of a script that another node runs),
``owner contract`` (the owner has changed what he allows, and started the agent anew). The guard (``guarding``), the
desk (``desk``), the machine's sleep (``sleeping``), ranks and resizes (``ranks``) have theirs.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from cosched.errors import BadInput
from cosched.model.contract import SocialContract
from cosched.model.desk import DeskReport
from cosched.model.node import Usage
from cosched.wire import messages as wire
from cosched.wire.grant import verified
from cosched.wire.messages import Exit
from cosched.wire.sequence import Numbering, OutOfTurn, Turn
from faults.desk import Desk
from faults.guarding import Guard
from faults.ranks import Ranks, Resizes
from faults.sleeping import Sleep
from faults.violation import Violation
from faults.world import MS, Connection, S, Sleeper, World
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.agent import AgentCore
from node_agent.core.attempt import Attempt, Key
from node_agent.core.guard_model import GuardModel
from node_agent.core.replies import Declined, Done, ErrorTail, GrantRead, Reply

if TYPE_CHECKING:
    from faults.judge import Judge

CPUS = 2
#: From one heartbeat to the next, and from one look at the desk.
BEAT_US = S
#: What may follow from an order that is not obeyed.
_NOTHING_DONE = (fx.Tell, fx.Complain, fx.Say)


def _says(kind: type[wire.FromAgent], key: Key) -> wire.FromAgent:
    if kind is wire.ProgramEnded:
        return wire.ProgramEnded(*key, Exit(status=0))
    if kind is wire.Started:
        return wire.Started(wire.OrderId(*key, 1), 1)
    if kind is wire.Prepared:
        return wire.Prepared(wire.OrderId(*key, 1))
    if kind is wire.GroupEnded:
        return wire.GroupEnded(*key)
    return wire.Adapted(*key, 1) if kind is wire.Adapted else wire.Asked(*key, 1)


class Node:
    """One workstation. ``runs`` says how long the script of an attempt runs, and how it ends."""

    core_type: type[AgentCore] = AgentCore
    desk_type: type[Desk] = Desk
    guard_type: type[Guard] = Guard
    model_type: type[GuardModel] = GuardModel

    def __init__(
        self,
        world: World,
        name: str,
        dial: Callable[[Connection, wire.Fence | None], bool],
        key: Ed25519PublicKey,
        runs: Callable[[int], tuple[int, Exit]],
        judge: "Judge",
    ) -> None:
        """``dial`` calls a scheduler, of those that are there the one that a node may reach; whether one listens."""
        self.world = world
        self.name = name
        self.machine, self.agent = Sleeper(world), Sleeper(world)
        self.model = self.model_type(cpu_us=1000, procs=CPUS)
        self.ranks = Ranks(world, self)
        self.resizes = Resizes(world, self)
        #: When a job is: early, last, or empty; whoever knows sets it.
        self.moment: Callable[[Key], str] = lambda key: ""
        self.judge = judge
        self.guard = self.guard_type(world, self, runs)
        self.desk = self.desk_type(world, name, self.guard, self.machine)
        self.sleep = Sleep(world, self)
        self.fence: wire.Fence | None = None
        self.owner = SocialContract()
        self.cluster: str | msgspec.UnsetType = msgspec.UNSET
        self._reachable_us = 0  # not before
        self.attempts: dict[Key, bytes] = {}
        self.boots = 1
        self.life = 0  # which agent it is
        self.alive = False
        self.off = False  # the machine
        self._dial_to = dial
        self._key = key
        self._connection: Connection | None = None
        self._numbering: Numbering | None = None
        self._slow_until_us = 0
        self._orders: deque[wire.Order] = deque(maxlen=30)
        world.at(0, self.desk.start)

    def say(self, what: str) -> None:
        """A line of the history."""
        self.world.say(f"{self.name} {what}")

    @property
    def obeys(self) -> bool:
        """Whether its agent and its guard are there, and obey what comes."""
        still = self.machine.stands_still or self.agent.stands_still or self.guard.does_nothing
        return self.alive and self.guard.there and not still and self.world.now_us >= self.resizes.late_until_us

    def awake(self, happens: Callable[[], None]) -> None:
        """Have it happen to the agent, when it and its machine do not stand still."""
        self.machine.do(lambda: self.agent.do(happens))

    def _soon(self, after_us: int, happens: Callable[[], None]) -> None:
        self.world.after(after_us, partial(self.awake, happens))

    # --- its lives --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """The agent starts, with what was persisted; the guard is found a little later."""
        self.life += 1
        self.alive = True
        self.agent = Sleeper(self.world)
        attempts = [msgspec.msgpack.decode(data, type=Attempt) for data in self.attempts.values()]
        self.core = self.core_type(self.name, f"boot-{self.boots}", self.fence, attempts)
        self.desk.lease = lambda: (self.core.lease.heard_us, self.core.lease.lease_us)
        self.desk.agent_starts()
        self._connection = self._numbering = None
        self.guard.lost()
        if self.life > 1 and self.world.fault("owner contract"):
            chance = self.world.random
            self.owner = SocialContract(
                cpu_ratio=chance.choice((0.5, 1.0)), memory_ratio=chance.choice((0.25, 1.0)), mpl=chance.choice((1, 4))
            )
        self.say(f"agent starts with {sorted(self.attempts)}")
        self._soon(self.world.draw_us(MS, 300 * MS), partial(self._find_guard, self.life))
        self._soon(self.world.draw_us(MS, 500 * MS), partial(self._dial, self.life))
        self._soon(BEAT_US, partial(self._beat, self.life))

    def _find_guard(self, life: int) -> None:
        if self.alive and self.life == life:
            self.guard.comes(life)

    def crash(self) -> None:
        """The agent is killed."""
        if not self.alive:
            return
        self.say("agent crashes")
        self._die()
        self.world.after(self.world.draw_us(50 * MS, 3 * S), partial(self.machine.do, self._again))

    def _die(self) -> None:
        self.alive = False
        self.desk.agent_stops()
        self.guard.lost()
        if self._connection is not None:
            self._connection.cut()

    def _again(self) -> None:
        if not self.alive and not self.off:
            self.start()

    def reboot(self) -> None:
        """The machine goes down and comes back: jobs are gone, the disk is not."""
        self.say("reboots")
        self._die()
        self.guard.reboot()
        self.boots += 1
        self.off = True
        self.world.after(self.world.draw_us(1 * S, 20 * S), self._boot)

    def _boot(self) -> None:
        self.off = False
        self.guard.booted()
        self._again()

    def suspend(self, for_us: int) -> None:
        """The machine is suspended: nothing happens there at all, and its clock runs on."""
        self.machine.stand_still(for_us)
        self.guard.scripts.hold()
        self.guard.unwell(for_us)
        self._stop_looking(for_us)
        self.world.after(for_us, self._goes_on)

    def _goes_on(self) -> None:
        if not self.machine.stands_still and not self.model.paused:
            self.guard.scripts.go_on(time_counts=True)

    def _stop_looking(self, for_us: int) -> None:
        life = self.life
        self.desk.agent_stops()
        self.world.after(for_us, lambda: self.awake(lambda: self._looks_again(life)))

    def _looks_again(self, life: int) -> None:
        if self.alive and self.life == life:
            self.desk.agent_goes_on()

    # --- the guard's side -------------------------------------------------------------------------------------------

    def hears_guard(self, event: happened.Input, life: int) -> None:
        """What the guard says to the agent of that life."""
        self.awake(partial(self._hear_guard, event, life))

    def script_started(self, key: Key) -> None:
        """A script runs."""
        self.judge.started(self, key)
        self.ranks.script_started(key)

    def _hear_guard(self, event: happened.Input, life: int) -> None:
        if self.alive and self.life == life:
            self.feed(event)

    # --- the core and what it wants done ----------------------------------------------------------------------------

    def feed(self, event: happened.Input) -> None:
        """Something has happened."""
        life = self.life
        effects = self.core.handle(event, self.world.now_us)
        if isinstance(event, happened.Ordered) and event.order.fence != self.fence:
            self._judge_not_obeyed(event.order, effects)
        for effect in effects:
            if not self.alive or self.life != life:
                return  # it has crashed in the midst of it
            self._carry_out(effect)

    def _judge_not_obeyed(self, order: wire.Order, effects: list[fx.Effect]) -> None:
        """O4: nothing follows from an order of a scheduler that is not the one that was welcomed."""
        answers = [each.message for each in effects if isinstance(each, fx.Tell)]
        if any(not isinstance(each, _NOTHING_DONE) for each in effects) or any(
            not isinstance(each, wire.Refused) or each.code != "fenced" for each in answers
        ):
            raise Violation(f"O4: {self.name} obeys epoch {order.fence.epoch}, after {self.fence}: {effects}")

    def _carry_out(self, effect: fx.Effect) -> None:
        match effect:
            case fx.Persist(attempt):
                self._persist(attempt)
            case fx.Drop(key):
                self.attempts.pop(key, None)
            case fx.Tell(message):
                self.judge.told(self, message)
                self._send(message)
            case fx.AskGuard(number, request) if (refusal := self.resizes.refusal(request)) is not None:
                self.hears_guard(happened.Replied(number, refusal), self.life)
            case fx.AskGuard(number, request):
                self.guard.ask(number, request)
            case fx.AskNode(number, fx.MakeReady() as question) if self.world.fault("disk hangs"):
                hangs_us = self.world.draw_us(2 * S, 40 * S)
                self.resizes.troubled_us[question.key] = self.world.now_us + hangs_us
                self._soon(hangs_us, partial(self._reply, self.life, number, question))
            case fx.AskNode(number, question):
                self._reply(self.life, number, question)
            case fx.KeepFence(fence):
                self.fence = fence
                self.feed(happened.FenceKept(fence))
            case fx.HangUp(reason):
                self.say(f"hangs up: {reason}")
                self._hang_up()
            case _:
                self._aside(effect)

    def _aside(self, effect: fx.Effect) -> None:
        """Timers and words; nothing here depends on files of jobs, on output, or on what is complained of."""
        match effect:
            case fx.SetTimer(number, after_us):
                self._soon(after_us, partial(self._due, self.life, number))
            case fx.Say(_, text):
                self.say(f"says: {text}")

    def _persist(self, attempt: Attempt) -> None:
        if self.world.fault("crash before persist"):
            self.crash()
            return
        kept = self.attempts.get(attempt.id)
        if not self.resizes.loses(attempt, msgspec.msgpack.decode(kept, type=Attempt) if kept else None):
            self.attempts[attempt.id] = msgspec.msgpack.encode(attempt)
        if self.world.fault("crash after persist"):
            self.crash()

    def _reply(self, life: int, number: int, question: fx.NodeQuestion) -> None:
        if self.alive and self.life == life:
            self.feed(happened.Replied(number, self._answered(question)))

    def _answered(self, question: fx.NodeQuestion) -> Reply:
        match question:
            case fx.ReadGrant(grant):
                try:
                    return GrantRead(verified(grant, self._key))
                except BadInput as error:
                    return Declined("failed", str(error))
            case fx.MakeReady() if self.world.fault("disk full"):
                return Declined("failed", "the disk is full")
            case fx.ReadErrorTail():
                return ErrorTail(b"")
            case fx.OfferMap(key, newest):
                return self.ranks.offered(key, newest.number)
            case _:
                return Done()

    def _due(self, life: int, number: int) -> None:
        if self.alive and self.life == life:
            self.feed(happened.TimerDue(number))

    # --- the link ---------------------------------------------------------------------------------------------------

    def _dial(self, life: int) -> None:
        if not self.alive or self.life != life or self._connection is not None:
            return
        world = self.world
        connection = Connection(world, self.name)
        away = world.now_us < self._reachable_us or world.fault("unreachable")
        if away or not self.guard.there or not self._dial_to(connection, self.fence):
            self._soon(world.draw_us(200 * MS, 5 * S), partial(self._dial, life))
            return
        self._connection, self._numbering = connection, None
        session = bytes(world.random.getrandbits(8) for _ in range(8))
        turn = Turn(session)
        arrived, ended = partial(self._arrived, life, connection, turn), partial(self._ended, life, connection)
        connection.ends["node"] = lambda frame: self.awake(partial(arrived, frame))
        connection.ended["node"] = lambda: self.awake(ended)
        hello = wire.Hello(
            wire.VERSION, self.name, f"boot-{self.boots}", CPUS, 4 << 30, "127.0.0.1", 7421, "simulated",
            groups=self.core.reports(), owner=self.owner, obeyed=self.core.fence, session=session,
            cluster=self.cluster,
        )  # fmt: skip
        connection.send("scheduler", wire.encode(hello))

    def _arrived(self, life: int, connection: Connection, turn: Turn, frame: bytes) -> None:
        if not self.alive or self.life != life or self._connection is not connection:
            return
        if self.world.now_us < self.resizes.late_until_us:
            self.world.at(
                self.resizes.late_until_us, lambda: self.awake(partial(self._arrived, life, connection, turn, frame))
            )
            return
        if self._numbering is None:
            message = wire.to_agent(frame)
            if not isinstance(message, wire.Welcome):
                self.say(f"is not welcome: {message}")
                self._hang_up()
                return
            self._numbering = Numbering(message.session)
            self.feed(happened.Welcomed(message.fence, message.lease_us))
            if self.alive and self.life == life and self._connection is connection:
                self._say_beat()
                self.feed(happened.Joined())
            return
        try:
            message = wire.to_agent(turn.payload(frame))
        except OutOfTurn:
            self._hang_up()
            return
        self.feed(happened.Heard())
        if isinstance(message, wire.Order):
            self._ordered(message)
        old = [each for each in self._orders if each.fence != self.fence]
        if self.alive and old and self.world.fault("old order"):
            self.feed(happened.Ordered(self.world.random.choice(old)))

    def _ordered(self, order: wire.Order) -> None:
        self._orders.append(order)
        key = (order.order.job_id, order.order.attempt)
        self.say(f"is ordered {type(order).__name__} {key[0]}.{key[1]}")
        if self.resizes.take(order, self.moment(key)):
            self.feed(happened.Ordered(order))
        elif self.world.now_us < self.resizes.late_until_us:
            self.world.at(self.resizes.late_until_us, lambda: self.awake(partial(self.ordered_again, order, self.life)))

    def ordered_again(self, order: wire.Order, life: int) -> None:
        """An order comes to the agent of that life late, or a second time."""
        if self.alive and self.life == life:
            self.feed(happened.Ordered(order))

    def _send(self, message: wire.FromAgent) -> None:
        if self._connection is not None and self._numbering is not None:
            self._connection.send("scheduler", self._numbering.frame(wire.encode(message)))

    def tell_desk(self, report: DeskReport) -> None:
        """Tell the scheduler of the desk, with a heartbeat."""
        self._send(wire.DeskReported(report))
        self._say_beat()

    def _say_beat(self) -> None:
        self._send(self.core.held())
        self._send(self._heartbeat())

    def _heartbeat(self) -> wire.Heartbeat:
        guard = "" if self.guard.there else "it is away"
        world, present = self.world, self.desk.somebody_is_there
        paused = self.model.paused if self.guard.there else ""
        usage = Usage(cpu_local=0.6, memory_local_bytes=1 << 30) if present else Usage()
        jobs = self.core.signed([], world.now_us)
        return wire.Heartbeat(
            usage, self.desk.presence, "none", paused=paused, asked_us=world.now_us + 1, jobs=jobs, guard=guard
        )

    def _beat(self, life: int) -> None:
        if not self.alive or self.life != life:
            return
        self.desk.look()
        self._say_beat()
        self.feed(happened.LeaseLooked())
        if self.alive and self.life == life:
            self._soon(BEAT_US, partial(self._beat, life))
            self._trouble()

    def _trouble(self) -> None:
        world = self.world
        if world.fault("agent crash"):
            self.crash()
        elif world.fault("reboot"):
            self.reboot()
        elif world.fault("guard dead"):
            self.guard.dies()
        elif world.fault("guard hung"):
            self.guard.hangs(world.draw_us(S, 20 * S))
        elif self._connection is not None and world.fault("partition"):
            self._connection.cut()
        elif world.fault("agent frozen"):
            for_us = world.draw_us(S, 12 * S)
            self.say(f"agent stands still for {for_us / S:.1f} s")
            self.agent.stand_still(for_us)
            self._stop_looking(for_us)
        elif world.fault("node frozen"):
            for_us = world.draw_us(S, 12 * S)
            self.say(f"stands still for {for_us / S:.1f} s")
            self.suspend(for_us)
        elif world.fault("node sleeps"):
            self.sleep.begin()
        elif world.fault("false word"):
            self._send(self._false_word())
        elif world.fault("node slow"):
            self._slow_until_us = world.now_us + world.draw_us(2 * S, 20 * S)
        if self._connection is not None:
            slow = world.now_us < self._slow_until_us
            self._connection.lag_us = world.draw_us(200 * MS, 2 * S) if slow else 0

    def _false_word(self) -> wire.FromAgent:
        """Of a script that another node runs where there is one, else of an attempt that is not here."""
        chance = Random(f"{self.world.seed} {self.world.faults}")  # leaving it out moves nothing else
        parts = [each for each in self.core.attempts if each.prepare and each.prepare.peers[0].name != self.name]
        if parts:
            found = chance.choice(parts)
            key = (found.job_id, found.attempt)
        else:
            here = {(each.job_id, each.attempt) for each in self.core.attempts}
            first = max(1, max(here, default=(0, 0))[0] - 20)
            key = chance.choice([(job_id, 1) for job_id in range(first, first + 30) if (job_id, 1) not in here])
        kinds: list[type[wire.FromAgent]] = [wire.ProgramEnded, wire.Started]
        if not parts:
            kinds += [wire.GroupEnded, wire.Prepared, wire.Adapted, wire.Asked]
        message = _says(chance.choice(kinds), key)
        self.say(f"says falsely: {message}")
        return message

    def out_of_reach(self, for_us: int) -> None:
        """Nobody reaches it for so long, and it reaches nobody."""
        self._reachable_us = max(self._reachable_us, self.world.now_us + for_us)
        if self._connection is not None:
            self._connection.cut()

    def _hang_up(self) -> None:
        connection, self._connection, self._numbering = self._connection, None, None
        if connection is not None:
            connection.cut()
        self._soon(self.world.draw_us(200 * MS, 5 * S), partial(self._dial, self.life))

    def _ended(self, life: int, connection: Connection) -> None:
        if self.alive and self.life == life and self._connection is connection:
            self._connection = self._numbering = None
            self._soon(self.world.draw_us(200 * MS, 5 * S), partial(self._dial, life))

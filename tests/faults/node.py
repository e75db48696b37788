"""A workstation in the simulated world: the real AgentCore, the guard's model, and a shell with a disk that lasts.

What the agent has persisted outlives it; groups outlive agent and guard; nothing but the disk outlives a reboot. Sites:
``agent crash`` (at any moment), ``crash before persist``, ``crash after persist``, ``guard dead``, ``guard slow``,
``disk full`` (for a job's files), ``reboot``; and of the person at the desk ``owner`` (comes or goes), ``paused``.
"""

from collections.abc import Callable
from functools import partial

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from cosched.errors import BadInput
from cosched.model.node import Presence, Usage
from cosched.wire import messages as wire
from cosched.wire.grant import verified
from cosched.wire.messages import Exit
from cosched.wire.sequence import Numbering, OutOfTurn, Turn
from faults.scheduler import Scheduler
from faults.world import MS, Connection, S, World
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.agent import AgentCore
from node_agent.core.attempt import Attempt, Key
from node_agent.core.guard_model import GuardModel
from node_agent.core.replies import Done, ErrorTail, Failed, GrantRead, NoGuard, Reply

_LIMIT = Exit(signal=9, cause="limit")


class Node:
    """One workstation. ``runs`` says how long the script of an attempt runs, and how it ends."""

    core_type: type[AgentCore] = AgentCore

    def __init__(
        self,
        world: World,
        name: str,
        scheduler: Scheduler,
        key: Ed25519PublicKey,
        runs: Callable[[int], tuple[int, Exit]],
        on_started: Callable[["Node", Key], None],
    ) -> None:
        self.world = world
        self.name = name
        self.scheduler = scheduler
        self.guard = GuardModel(cpu_us=1000)
        self.fence: wire.Fence | None = None
        self.attempts: dict[Key, bytes] = {}
        self.ever_prepared: set[Key] = set()
        self.boots = 1
        self.life = 0  # which agent it is
        self.alive = False
        self._key = key
        self._runs = runs
        self._on_started = on_started
        self._guard_there = False
        self._guard_life = 0
        self._connection: Connection | None = None
        self._numbering: Numbering | None = None
        self._timers: dict[int, int] = {}
        self._timer_numbers = 0
        self._present, self._paused_until_us = False, 0
        self._sees_guard = 0  # until when what was asked is answered in order

    def say(self, what: str) -> None:
        """A line of the history."""
        self.world.say(f"{self.name} {what}")

    # --- its lives --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """The agent starts, with what was persisted; the guard is found a little later."""
        self.life += 1
        self.alive = True
        self._timers.clear()
        attempts = [msgspec.msgpack.decode(data, type=Attempt) for data in self.attempts.values()]
        self.core = self.core_type(self.name, f"boot-{self.boots}", self.fence, attempts)
        self._connection = self._numbering = None
        self._guard_there = False
        self.say(f"agent starts with {sorted(self.attempts)}")
        self.world.after(self.world.draw_us(MS, 300 * MS), partial(self._guard_comes, self.life))
        self.world.after(self.world.draw_us(MS, 500 * MS), partial(self._dial, self.life))
        self.world.after(500 * MS, partial(self._beat, self.life))

    def crash(self) -> None:
        """The agent is killed."""
        if not self.alive:
            return
        self.alive = False
        self.say("agent crashes")
        if self._connection is not None:
            self._connection.cut()
        self.world.after(self.world.draw_us(50 * MS, 3 * S), self._again)

    def _again(self) -> None:
        if not self.alive:
            self.start()

    def reboot(self) -> None:
        """The machine goes down and comes back: jobs are gone, the disk is not."""
        self.say("reboots")
        self.alive = False
        if self._connection is not None:
            self._connection.cut()
        self.guard.reboot()
        self.boots += 1
        self.world.after(self.world.draw_us(1 * S, 20 * S), self._again)

    # --- the guard --------------------------------------------------------------------------------------------------

    def _guard_comes(self, life: int) -> None:
        if self.alive and self.life == life and not self._guard_there:
            self._guard_there = True
            self._guard_life += 1
            self.feed(self.guard.report())

    def _guard_goes(self) -> None:
        """The guard is killed, and started again by whoever keeps it; its groups stay."""
        self._guard_there = False
        self._guard_life += 1
        self.feed(happened.GuardLost("it is away"))
        self.world.after(self.world.draw_us(50 * MS, 12 * S), partial(self._guard_comes, self.life))

    def _ask_guard(self, number: int, request: fx.GuardRequest) -> None:
        world, guard_life = self.world, self._guard_life
        if not self._guard_there:
            world.after(0, partial(self._reply, self.life, number, NoGuard("it is away")))
            return
        delay_us = world.draw_us(100, 2 * MS)
        if world.fault("guard slow"):
            delay_us += world.draw_us(100 * MS, 6 * S)
        # asked and answered in order, as one socket does
        self._sees_guard = max(self._sees_guard, world.now_us) + delay_us
        world.at(self._sees_guard, partial(self._obey, self.life, guard_life, number, request))

    def _obey(self, life: int, guard_life: int, number: int, request: fx.GuardRequest) -> None:
        if not self.alive or self.life != life or self._guard_life != guard_life:
            return  # it was not heard, or nobody is there to hear the answer
        if self.world.fault("guard dead"):
            self._guard_goes()
            return
        reply = self.guard.ask(request)
        self.say(f"asks its guard: {type(request).__name__} {request.key}: {reply}")
        if isinstance(request, fx.PrepareGroup) and isinstance(reply, Done):
            self.ever_prepared.add(request.key)
        if isinstance(request, fx.Spawn) and isinstance(reply, Done):
            self._spawned(request)
        if isinstance(request, fx.KillGroup) and isinstance(reply, Done):
            self.world.after(self.world.draw_us(MS, 1500 * MS), self._killed)
        if self.world.fault("guard dead"):  # it has obeyed, and nobody is told
            self._guard_goes()
            return
        self._reply(life, number, reply)

    def _spawned(self, request: fx.Spawn) -> None:
        key, boots = request.key, self.boots
        self.say(f"runs the script of {key}")
        self._on_started(self, key)
        run_us, how = self._runs(key[0])
        limit_us = request.prepare.limit_us
        if limit_us is not None and run_us > limit_us:
            run_us, how = limit_us, _LIMIT
        self.world.after(run_us, partial(self._script_ends, key, how, boots))

    def _script_ends(self, key: Key, how: Exit, boots: int) -> None:
        if self.boots == boots:
            self.guard.end(key, how)
            self._pass_on()

    def _killed(self) -> None:
        self.guard.carry_out_kills()
        self._pass_on()

    def _pass_on(self) -> None:
        """What the guard has to tell, if anybody listens; if not, it is in its next report."""
        if self.alive and self._guard_there:
            for event in self.guard.events():
                self.feed(event)

    def _reply(self, life: int, number: int, reply: Reply) -> None:
        if self.alive and self.life == life:
            self.feed(happened.Replied(number, reply))

    # --- the core and what it wants done ----------------------------------------------------------------------------

    def feed(self, event: happened.Input) -> None:
        """Something has happened."""
        life = self.life
        for effect in self.core.handle(event, self.world.now_us):
            if not self.alive or self.life != life:
                return  # it has crashed in the midst of it
            self._carry_out(effect)

    def _carry_out(self, effect: fx.Effect) -> None:
        match effect:
            case fx.Persist(attempt):
                self._persist(attempt)
            case fx.Drop(key):
                self.attempts.pop(key, None)
            case fx.Tell(message):
                self._send(message)
            case fx.AskGuard(number, request):
                self._ask_guard(number, request)
            case fx.AskNode(number, question):
                self.feed(happened.Replied(number, self._answered(question)))
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
                self._timer_numbers += 1
                self._timers[number] = at = self._timer_numbers
                self.world.after(after_us, partial(self._due, self.life, number, at))
            case fx.CancelTimer(number):
                self._timers.pop(number, None)
            case fx.Say(_, text):
                self.say(f"says: {text}")

    def _persist(self, attempt: Attempt) -> None:
        if self.world.fault("crash before persist"):
            self.crash()
            return
        self.attempts[attempt.job_id, attempt.attempt] = msgspec.msgpack.encode(attempt)
        if self.world.fault("crash after persist"):
            self.crash()

    def _answered(self, question: fx.NodeQuestion) -> Reply:
        match question:
            case fx.ReadGrant(grant):
                try:
                    return GrantRead(verified(grant, self._key))
                except BadInput as error:
                    return Failed(str(error))
            case fx.MakeReady() if self.world.fault("disk full"):
                return Failed("the disk is full")
            case fx.ReadErrorTail():
                return ErrorTail(b"")
            case _:
                return Done()

    def _due(self, life: int, number: int, at: int) -> None:
        if self.alive and self.life == life and self._timers.get(number) == at:
            del self._timers[number]
            self.feed(happened.TimerDue(number))

    # --- the link ---------------------------------------------------------------------------------------------------

    def _dial(self, life: int) -> None:
        if not self.alive or self.life != life or self._connection is not None:
            return
        world = self.world
        connection = Connection(world, self.name)
        if world.fault("unreachable") or not self._guard_there or not self.scheduler.accept(connection):
            world.after(world.draw_us(200 * MS, 5 * S), partial(self._dial, life))
            return
        self._connection, self._numbering = connection, None
        session = bytes(world.random.getrandbits(8) for _ in range(8))
        turn = Turn(session)
        connection.ends["node"] = partial(self._arrived, life, connection, turn)
        connection.ended["node"] = partial(self._ended, life, connection)
        hello = wire.Hello(
            wire.VERSION, self.name, f"boot-{self.boots}", 2, 4 << 30, "127.0.0.1", 7421, "simulated",
            groups=self.core.reports(), obeyed=self.core.fence, session=session,
        )  # fmt: skip
        connection.send("scheduler", wire.encode(hello))

    def _arrived(self, life: int, connection: Connection, turn: Turn, frame: bytes) -> None:
        if not self.alive or self.life != life or self._connection is not connection:
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
                self._send(self._heartbeat())
                self.feed(happened.Joined())
            return
        try:
            message = wire.to_agent(turn.payload(frame))
        except OutOfTurn:
            self._hang_up()
            return
        self.feed(happened.Heard())
        if isinstance(message, wire.Order):
            self.say(f"is ordered {type(message).__name__} {message.order.job_id}.{message.order.attempt}")
            self.feed(happened.Ordered(message))

    def _send(self, message: wire.FromAgent) -> None:
        if self._connection is not None and self._numbering is not None:
            self._connection.send("scheduler", self._numbering.frame(wire.encode(message)))

    def _heartbeat(self) -> wire.Heartbeat:
        guard = "" if self._guard_there else "it is away"
        world = self.world
        if world.fault("owner"):
            self._present = not self._present
        if world.fault("paused"):
            self._paused_until_us = world.now_us + world.draw_us(2 * S, 20 * S)
        paused = "ann has paused parallel work at this desk" if world.now_us < self._paused_until_us else ""
        presence = Presence.PRESENT if self._present else Presence.AWAY
        usage = Usage(cpu_local=0.6, memory_local_bytes=1 << 30) if self._present else Usage()
        return wire.Heartbeat(usage, presence, "none", paused=paused, asked_us=world.now_us + 1, guard=guard)

    def _beat(self, life: int) -> None:
        if not self.alive or self.life != life:
            return
        self._send(self._heartbeat())
        self.feed(happened.LeaseLooked())
        world = self.world
        if world.fault("agent crash"):
            self.crash()
        elif world.fault("reboot"):
            self.reboot()
        elif self._guard_there and world.fault("guard dead"):
            self._guard_goes()
        elif self._connection is not None and world.fault("partition"):
            self._connection.cut()
        if self.alive and self.life == life:
            world.after(500 * MS, partial(self._beat, life))

    def _hang_up(self) -> None:
        connection, self._connection, self._numbering = self._connection, None, None
        if connection is not None:
            connection.cut()
        self.world.after(self.world.draw_us(200 * MS, 5 * S), partial(self._dial, self.life))

    def _ended(self, life: int, connection: Connection) -> None:
        if self.alive and self.life == life and self._connection is connection:
            self._connection = self._numbering = None
            self.world.after(self.world.draw_us(200 * MS, 5 * S), partial(self._dial, life))

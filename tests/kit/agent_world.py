"""An agent's core, a model of its guard and a disk, with everything between them under a test's control.

What travels waits until the test delivers it; the agent can be killed between any two of its effects. The guard here
refuses no command because of what was asked before: so that nothing runs twice is the agent's own doing.
"""

from collections import Counter, deque
from typing import Any

import msgspec

from cosched.wire import messages as wire
from cosched.wire.grant import Grant
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.agent import AgentCore
from node_agent.core.attempt import Attempt, Key
from node_agent.core.guard_model import GuardModel, ModelGroup
from node_agent.core.replies import AWAY, Declined, Done, ErrorTail, GrantRead, Reply

NODE, USER, CLUSTER = "a", "root", "c" * 32
LEASE_US = 1_000_000
FENCE = wire.Fence(CLUSTER, 1, "scheduler 1")
KEY = (5, 1)
END = wire.GroupEnded(5, 1)


class TrustingGuard(GuardModel):
    """Starts whatever it is asked for in a group that it has."""

    def refusal(self, request: fx.Spawn, group: ModelGroup) -> Declined | None:
        return None


def prepare(fence: wire.Fence, order: wire.OrderId, node: str = NODE) -> wire.Prepare:
    """A Prepare with a grant that fits it, for that node."""
    grant = Grant(fence.cluster_id, fence.epoch, order.job_id, order.attempt, USER, (node,))
    peers = (wire.Peer(node, "127.0.0.1", 7421, 1),)
    return wire.Prepare(fence, order, USER, peers, 1, None, None, 0, "/", {}, msgspec.msgpack.encode(grant))


class World:
    """One node."""

    def __init__(self, guard: GuardModel | None = None) -> None:
        self.guard = guard or TrustingGuard()
        self.records: dict[Key, bytes] = {}
        self.fence: bytes | None = None
        self.to_guard: deque[tuple[int, fx.GuardRequest]] = deque()
        self.from_guard: deque[happened.Input] = deque()
        self.timers: dict[int, int] = {}
        self.history: list[wire.FromAgent | fx.Drop] = []  # what was told, and which attempts were dropped
        self.heard: list[wire.FromAgent] = []  # of those, what was told on the link that there is now
        self.said: list[str] = []
        self.complaints: Counter[str] = Counter()
        self.hung_up: list[str] = []
        self.commands: dict[int, Reply] = {}
        self.files_removed: list[Key] = []
        self.maps: list[fx.OfferMap] = []  # that ranks were told
        self.ranks_there = True
        self.connected = self.linked = False
        self.no_room = ""  # why no new work can be taken here
        self.no_descriptors = False
        self.dies_in: int | None = None  # effects that are still carried out before the agent is killed
        self.now_us = 0
        self.boot_id = "boot 1"
        self.core: AgentCore | None = None
        self.start()

    # --- the agent's process ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """An agent starts, with what is on the disk."""
        attempts = [msgspec.msgpack.decode(record, type=Attempt) for record in self.records.values()]
        fence = msgspec.json.decode(self.fence, type=wire.Fence) if self.fence else None
        self.core = AgentCore(NODE, self.boot_id, fence, attempts)

    def die(self) -> None:
        """The agent is killed. What it has sent to the guard still arrives; what was for the agent is lost."""
        self.core, self.dies_in = None, None
        self.linked = self.connected = False
        self.timers.clear()
        while self.to_guard:
            self.guard.ask(self.to_guard.popleft()[1])
        self.from_guard.clear()
        self.guard.events()

    def reboot(self) -> None:
        """The machine goes down and comes up: records are still there, processes are not."""
        self.die()
        self.guard.reboot()
        self.boot_id = f"boot {int(self.boot_id.split()[1]) + 1}"
        self.start()

    def hand_in(self, event: happened.Input) -> None:
        """Something happens: everything that follows at once is carried out."""
        waiting = deque([event])
        while waiting and self.core is not None:
            for effect in self.core.handle(waiting.popleft(), self.now_us):
                if self.dies_in is not None:
                    self.dies_in -= 1
                    if self.dies_in < 0:
                        self.die()
                        return
                if (follows := self._carried_out(effect)) is not None:
                    waiting.append(follows)

    def _carried_out(self, effect: fx.Effect) -> happened.Input | None:
        if isinstance(effect, fx.AskGuard):
            if not self.connected:
                return happened.Replied(effect.number, Declined(AWAY, "no guard"))
            self.to_guard.append((effect.number, effect.request))
        elif isinstance(effect, fx.AskNode):
            return happened.Replied(effect.number, self._reply(effect.question))
        elif isinstance(effect, fx.KeepFence):
            self.fence = msgspec.json.encode(effect.fence)
            return happened.FenceKept(effect.fence)
        else:
            self._carry_out(effect)
        return None

    def _carry_out(self, effect: fx.Effect) -> None:
        match effect:
            case fx.Persist(attempt):
                self.records[attempt.id] = msgspec.msgpack.encode(attempt)
            case fx.Drop(key):
                self.records.pop(key, None)
                self.history.append(effect)
            case fx.RemoveFiles(key):
                self.files_removed.append(key)
            case fx.Tell(message):
                self.tell(message)
            case fx.SetTimer(number, after_us):
                self.timers[number] = self.now_us + after_us
            case fx.AnswerCommand():
                self.commands[effect.number] = effect.reply
            case fx.HangUp(reason):
                self.hung_up.append(reason)
                self.linked = False
            case fx.Complain(kind):
                self.complaints[kind] += 1
            case fx.Say(_, text):
                self.said.append(text)

    def _reply(self, question: fx.NodeQuestion) -> Reply:
        if isinstance(question, fx.ReadGrant):
            try:
                return GrantRead(msgspec.msgpack.decode(question.grant, type=Grant))
            except msgspec.DecodeError as error:
                return Declined("failed", str(error))
        if isinstance(question, fx.MakeReady):
            return Declined("failed", self.no_room) if self.no_room else Done()
        if isinstance(question, fx.OfferMap):
            self.maps.append(question)
            return Done() if self.ranks_there else Declined("failed", "no rank is here")
        if isinstance(question, fx.LookForDescriptors):
            return Declined("failed", "none is left") if self.no_descriptors else Done()
        return ErrorTail(b"the last words")

    def tell(self, message: wire.FromAgent) -> None:
        """The agent says something: it gets lost, unless there is a link."""
        self.history.append(message)
        if self.linked:
            self.heard.append(message)

    # --- time and the guard -------------------------------------------------------------------------------------------

    def pass_time(self, us: int) -> None:
        """Some time passes; what was to happen meanwhile happens."""
        self.now_us += us
        for number in [number for number, due_us in self.timers.items() if due_us <= self.now_us]:
            if self.timers.pop(number, None) is not None:
                self.hand_in(happened.TimerDue(number))

    def connect(self) -> None:
        """The agent reaches the guard."""
        if self.core is not None and not self.connected:
            self.connected = True
            self.hand_in(self.guard.report())

    def lose_guard(self, *, asked: int = 0) -> None:
        """The connection is lost after the guard has taken so many of the requests that wait; answers are lost."""
        if not self.connected:
            return
        for _ in range(min(asked, len(self.to_guard))):
            self.guard.ask(self.to_guard.popleft()[1])
        self.connected = False
        self.to_guard.clear()
        self.from_guard.clear()
        self.guard.events()
        self.hand_in(happened.GuardLost("the guard has gone"))

    def guard_works(self) -> None:
        """The guard takes one request; its answer is on its way."""
        if self.to_guard:
            self._collect()
            number, request = self.to_guard.popleft()
            self.from_guard.append(happened.Replied(number, self.guard.ask(request)))

    def guard_ends(self, key: Key, how: wire.Exit, n: int = 0) -> None:
        """A command ends by itself."""
        self.guard.end(key, how, n)
        self._collect()

    def guard_kills(self) -> None:
        """Whatever is to be killed dies."""
        self.guard.carry_out_kills()
        self._collect()

    def _collect(self) -> None:
        events = self.guard.events()
        if self.connected:
            self.from_guard.extend(events)

    def guard_is_heard(self) -> None:
        """One word of the guard's arrives."""
        if self.from_guard and self.core is not None:
            self.hand_in(self.from_guard.popleft())

    # --- the scheduler ------------------------------------------------------------------------------------------------

    def welcome(self, fence: wire.Fence) -> bool:
        """A scheduler welcomes the agent; whether the agent takes it."""
        if self.core is None:
            return False
        self.linked = True
        self.heard = []
        self.hand_in(happened.Welcomed(fence, LEASE_US))
        if self.linked:
            self.hand_in(happened.Joined())
        return self.linked

    def order(self, order: wire.Order) -> list[wire.FromAgent]:
        """An order arrives; what the agent says at once."""
        before = len(self.history)
        self.hand_in(happened.Ordered(order))
        return [each for each in self.history[before:] if not isinstance(each, fx.Drop)]

    def settle(self) -> None:
        """Everything that is on its way arrives, and what waits is due."""
        if self.core is None:
            self.start()
        self.connect()
        for _ in range(1000):
            if self.to_guard:
                self.guard_works()
            elif self.from_guard:
                self.guard_is_heard()
            else:
                self.guard_kills()
                if not self.from_guard and not self.timers:
                    return
                if not self.from_guard:
                    self.pass_time(1_000_000)
        raise AssertionError(f"no rest: {self.timers} {self.said[-5:]}")


def order(kind: type[wire.Order], n: int, fence: wire.Fence = FENCE, **more: Any) -> Any:
    """The n-th order for the attempt ``KEY``."""
    return kind(fence, wire.OrderId(*KEY, n), **more)


def run(n: int = 2, **more: Any) -> Any:
    return order(wire.Run, n, script=b"#!/bin/sh\n", arguments=(), **more)


def kill(n: int = 3) -> Any:
    return order(wire.Kill, n, grace_us=0)


def prepared(world: World) -> None:
    """Prepare the attempt ``KEY``, and let everything arrive."""
    world.order(prepare(FENCE, wire.OrderId(*KEY, 1)))
    world.settle()


def started(world: World) -> None:
    """Prepare the attempt ``KEY``, and run its script."""
    prepared(world)
    world.order(run())
    world.settle()

"""The shell around the agent's core: hands in what happens, and carries its effects out on the event loop.

No rule about attempts is here. What the guard says is handed in in the order in which it said it.
"""

import asyncio
import itertools
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import convert

from cosched.config.node import NodeConfig
from cosched.errors import BadInput
from cosched.linux.descriptors import has_descriptors
from cosched.linux.process import boottime_us
from cosched.model.stall import Stall
from cosched.wire.grant import Verifier, verified
from cosched.wire.messages import Exit, FromAgent
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.agent import AgentCore
from node_agent.core.attempt import Key
from node_agent.core.replies import AWAY, Declined, Done, ErrorTail, GrantRead, Reply
from node_agent.guard.base import requests
from node_agent.guard.base.client import GuardGone, Message
from node_agent.service.attempts import AttemptFiles
from node_agent.service.complaints import Complaints
from node_agent.service.disk import Disk
from node_agent.service.environment import Environment
from node_agent.service.fence import EpochFile
from node_agent.service.guard import Guard
from node_agent.service.guard_requests import guard_request
from node_agent.service.job_channel import JobChannel
from node_agent.service.spool import Spool

_log = logging.getLogger("cosched.agent")
_ALIVE = frozenset({"preparing", "running", "ending"})


class Groups:
    """The attempts on this node, their files, and the guard that holds their processes.

    ``channel`` is where ranks are told maps; whoever makes it sets it, before anything happens.
    """

    channel: JobChannel

    def __init__(
        self,
        config: NodeConfig,
        core: AgentCore,
        epochs: EpochFile,
        records: AttemptFiles,
        disk: Disk,
        spool: Spool,
        environment: Environment,
        grant_pub: Callable[[], Verifier],
        complaints: Complaints,
    ) -> None:
        """``grant_pub`` reads the key with which grants are verified; it raises :class:`BadInput`."""
        self.config = config
        self.core = core
        self.environment = environment
        self._epochs, self._records, self._disk = epochs, records, disk
        self._spool, self._grant_pub = spool, grant_pub
        self._complain = complaints
        self.guard = Guard(
            os.path.join(config.paths.run, "guard.sock"), self._on_event, self._agree, self._on_guard_lost
        )
        #: Where messages for the scheduler go; whoever has the link sets it. What is lost is sent again later.
        self.tell: Callable[[FromAgent], None] = lambda message: None
        #: Called when the link is of no use, with the reason, which it may raise; whoever has the link sets it.
        self.hang_up: Callable[[str], None] = lambda reason: None
        #: Called after each connection to the guard (its limits are then armed).
        self.on_guard: list[Callable[[], None]] = []
        #: Called with the terminals that the guard has heard a key at, by device number; whoever watches sets it.
        self.on_keys: Callable[[set[int]], None] = lambda terminals: None
        #: Called with what the guard says of the desk when somebody there has decided something; who watches sets it.
        self.on_desk: Callable[[Message], None] = lambda message: None
        self._happened: deque[happened.Input] = deque()
        self._handling = False
        self._numbers = itertools.count(1)
        self._commands: dict[int, asyncio.Future[Reply]] = {}

    # --- what happens -------------------------------------------------------------------------------------------------

    def hand_in(self, event: happened.Input) -> None:
        """Something has happened: carry out what follows.

        Raises OSError where whom to obey cannot be written down, and what :attr:`hang_up` raises.
        """
        self._happened.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._happened:
                for effect in self.core.handle(self._happened.popleft(), boottime_us()):
                    self._carry_out(effect)
        finally:
            self._handling = False
            self._happened.clear()

    def owner(self, key: Key) -> int | None:
        """Whose processes an attempt has that may go on here; None where there is none."""
        attempt = self.core.get(*key)
        return self.environment.uid(attempt) if attempt is not None and attempt.open else None

    async def start_command(self, key: Key, argv: Sequence[str], stream: str) -> Reply:
        """Have a command started in an attempt's group; what became of it."""
        number = next(self._numbers)
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._commands[number] = answer
        try:
            self.hand_in(happened.CommandWanted(number, key, tuple(argv), stream))
            return await answer
        finally:
            del self._commands[number]

    def _on_event(self, message: Message) -> None:
        kind = message.get("event")
        if kind == "keys":
            self.on_keys({int(each) for each in message["terminals"]})
            return
        if kind in {"armed", "desk"}:
            if kind == "armed":
                _log.warning("the guard has armed by itself: %s", message.get("why"))
            else:
                self.on_desk(message)
            for each in self.on_guard:
                each()
            return
        key = int(message["job"]), int(message["attempt"])
        if kind == "exited":
            self.hand_in(happened.CommandEnded(key, int(message["n"]), exit_of(message)))
        elif kind == "empty":
            used = int(message.get("cpu_us") or 0), int(message.get("memory_peak_bytes") or 0)
            self.hand_in(happened.GroupEmpty(key, *used))
        elif kind == "stalled":
            self.hand_in(happened.GroupStalled(key, int(message["since_us"]), convert(message, Stall)))

    def _on_guard_lost(self, problem: str) -> None:
        self.hand_in(happened.GuardLost(problem))

    async def _agree(self) -> None:
        """After each connection: what the guard has is what is true."""
        can = (await self.guard.ask(requests.Status())).get("can") or {}
        self.environment.private_tmp = can.get("private /tmp") == "yes"
        await self.guard.ask(requests.List(), at_once=self._on_report)
        for each in self.on_guard:
            each()

    def _on_report(self, message: Message) -> None:
        for each in message.get("groups", ()):
            self.environment.learn((int(each["job"]), int(each["attempt"])), each.get("uid"))
        self.hand_in(happened.GuardReports(tuple(_group(each) for each in message.get("groups", ()))))

    # --- what is done -------------------------------------------------------------------------------------------------

    def _carry_out(self, effect: fx.Effect) -> None:
        match effect:
            case fx.AskGuard(number, request):
                self._ask_guard(number, request)
            case fx.AskNode(number, question):
                self._happened.append(happened.Replied(number, self._reply(question)))
            case fx.Tell(message):
                self.tell(message)
            case fx.HangUp(reason):
                self.hang_up(reason)
            case fx.AnswerCommand(number, reply):
                if (answer := self._commands.get(number)) is not None and not answer.done():
                    answer.set_result(reply)
            case fx.SetTimer(number, after_us):
                asyncio.get_running_loop().call_later(after_us / 1e6, self.hand_in, happened.TimerDue(number))
            case fx.Complain(kind, message):
                self._complain(kind, message)
            case fx.Say(level, text):
                self._complain.note(logging.INFO if level == "info" else logging.WARNING, text)
            case _:
                self._write(effect)

    def _write(self, effect: fx.Effect) -> None:
        match effect:
            case fx.Persist(attempt):
                self._records.keep(attempt)
            case fx.Drop(key):
                self._spool.remove(*key)  # the record goes last: an agent that is killed in between does both again
                self._records.drop(key)
            case fx.RemoveFiles(key):
                self.environment.forget(key)
                self.channel.forget(key)
            case fx.KeepFence(fence):
                self._epochs.keep(fence)
                self._happened.append(happened.FenceKept(fence))

    def _ask_guard(self, number: int, request: fx.GuardRequest) -> None:
        def answered(found: Message | GuardGone) -> None:
            if isinstance(request, fx.PrepareGroup) and not isinstance(found, GuardGone):
                self.environment.learn(request.key, found.get("uid"))
            self.hand_in(happened.Replied(number, _reply_of(found)))

        try:
            with guard_request(request, self.environment, self._spool) as (made, descriptors):
                self.guard.send(made, descriptors, answered)
        except GuardGone as error:
            self._happened.append(happened.Replied(number, Declined(AWAY, str(error))))
        except (OSError, ValueError) as error:
            self._happened.append(happened.Replied(number, Declined("failed", str(error))))

    def _reply(self, question: fx.NodeQuestion) -> Reply:
        try:
            match question:
                case fx.ReadErrorTail(key):
                    return ErrorTail(self._spool.tail(*key))
                case fx.ReadGrant(grant):
                    return GrantRead(verified(grant, self._grant_pub()))
                case fx.LookForDescriptors():
                    problem = "" if has_descriptors() else "no descriptor is left"
                case fx.OfferMap(key, newest):
                    self.channel.offer(key, newest.number, newest.enabled)
                    problem = "" if self.channel.joined(key) else "no rank is here to be told"
                case fx.MakeReady(key, files, peers):
                    if not (problem := self._disk.problem()):
                        self.environment.write(key, files, peers)
        except (BadInput, OSError, ValueError) as error:
            problem = str(error)
        return Declined("failed", problem) if problem else Done()


def _reply_of(found: Message | GuardGone) -> Reply:
    if isinstance(found, GuardGone):
        return Declined(AWAY, str(found))
    if "error" in found:
        return Declined(str(found["error"]), str(found.get("message", "")))
    return Done(int(found.get("pid", 0)), tuple(map(int, found.get("cpus", ()))))


def _group(found: dict[str, Any]) -> happened.Group:
    """An attempt in the guard's list."""
    return happened.Group(
        (int(found["job"]), int(found["attempt"])),
        found.get("state") in _ALIVE,
        tuple(
            happened.Command(
                int(each["n"]), exit_of(each) if each.get("state") == "ended" else None, each.get("state") != "starting"
            )
            for each in found.get("commands", ())
        ),
    )


def exit_of(message: Message) -> Exit:
    """How a command ended, from what the guard says."""
    return convert({name: value for name, value in message.items() if value is not None}, Exit)

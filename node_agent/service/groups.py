"""The shell around the agent's core: hands in what happens, and carries its effects out on the event loop.

No rule about attempts is here. What the guard says is handed in in the order in which it said it.
"""

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import convert

from cosched.config.node import NodeConfig
from cosched.errors import BadInput
from cosched.linux.descriptors import has_descriptors
from cosched.linux.process import boottime_us
from cosched.model.stall import Stall
from cosched.wire.grant import Verifier, verified
from cosched.wire.messages import Exit
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.agent import AgentCore
from node_agent.core.attempt import Key
from node_agent.core.replies import AWAY, Declined, Done, ErrorTail, GrantRead, Reply
from node_agent.core.shell import Shell
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


class Groups(Shell):
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
        super().__init__(core, boottime_us, epochs.keep)
        self.config = config
        self.environment = environment
        self._records, self._disk = records, disk
        self._spool, self._grant_pub = spool, grant_pub
        self._complain = complaints
        self.guard = Guard(
            os.path.join(config.paths.run, "guard.sock"),
            self._on_event,
            self._agree,
            lambda problem: self.hand_in(happened.GuardLost(problem)),
        )
        #: Called after each connection to the guard (its limits are then armed).
        self.on_guard: list[Callable[[], None]] = []
        #: Called with the terminals that the guard has heard a key at, by device number; whoever watches sets it.
        self.on_keys: Callable[[set[int]], None] = lambda terminals: None
        #: Called with what the guard says of the desk when somebody there has decided something; who watches sets it.
        self.on_desk: Callable[[Message], None] = lambda message: None
        self._numbers = itertools.count(1)
        self._commands: dict[int, asyncio.Future[Reply]] = {}

    # --- what happens -------------------------------------------------------------------------------------------------

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
        match message.get("event"):
            case "keys":
                self.on_keys({int(each) for each in message["terminals"]})
            case "armed":
                _log.warning("the guard has armed by itself: %s", message.get("why"))
                self._tell_parts()
            case "desk":
                self.on_desk(message)
                self._tell_parts()
            case "exited":
                self.hand_in(happened.CommandEnded(_key(message), int(message["n"]), exit_of(message)))
            case "empty":
                used = int(message.get("cpu_us") or 0), int(message.get("memory_peak_bytes") or 0)
                self.hand_in(happened.GroupEmpty(_key(message), *used))
            case "stalled":
                self.hand_in(happened.GroupStalled(_key(message), int(message["since_us"]), convert(message, Stall)))

    def _tell_parts(self) -> None:
        for each in self.on_guard:
            each()

    async def _agree(self) -> None:
        """After each connection: what the guard has is what is true."""
        can = (await self.guard.ask(requests.Status())).get("can") or {}
        self.environment.private_tmp = can.get("private /tmp") == "yes"
        await self.guard.ask(requests.List(), at_once=self._on_report)
        self._tell_parts()

    def _on_report(self, message: Message) -> None:
        for each in message.get("groups", ()):
            self.environment.learn(_key(each), each.get("uid"))
        self.hand_in(happened.GuardReports(tuple(_group(each) for each in message.get("groups", ()))))

    # --- what is done -------------------------------------------------------------------------------------------------

    def _write(self, effect: fx.Effect) -> None:
        match effect:
            case fx.AnswerCommand(number, reply):
                if (answer := self._commands.get(number)) is not None and not answer.done():
                    answer.set_result(reply)
            case fx.SetTimer(number, after_us):
                asyncio.get_running_loop().call_later(after_us / 1e6, self.hand_in, happened.TimerDue(number))
            case fx.Complain(kind, message):
                self._complain(kind, message)
            case fx.Say(level, text):
                self._complain.note(logging.INFO if level == "info" else logging.WARNING, text)
            case fx.Persist(attempt):
                self._records.keep(attempt)
            case fx.Drop(key):
                self._spool.remove(*key)  # the record goes last: an agent that is killed in between does both again
                self._records.drop(key)
            case fx.RemoveFiles(key):
                self.environment.forget(key)
                self.channel.forget(key)

    def _ask_guard(self, number: int, request: fx.GuardRequest) -> None:
        def answered(found: Message | GuardGone) -> None:
            if isinstance(request, fx.PrepareGroup) and not isinstance(found, GuardGone):
                self.environment.learn(request.key, found.get("uid"))
            self.hand_in(happened.Replied(number, _reply_of(found)))

        try:
            with guard_request(request, self.environment, self._spool) as (made, descriptors):
                self.guard.send(made, descriptors, answered)
        except GuardGone as error:
            self.hand_in(happened.Replied(number, Declined(AWAY, str(error))))
        except (OSError, ValueError) as error:
            self.hand_in(happened.Replied(number, Declined("failed", str(error))))

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


def _key(message: Message) -> Key:
    """The attempt that a message of the guard's is about."""
    return int(message["job"]), int(message["attempt"])


def _reply_of(found: Message | GuardGone) -> Reply:
    if isinstance(found, GuardGone):
        return Declined(AWAY, str(found))
    if "error" in found:
        return Declined(str(found["error"]), str(found.get("message", "")))
    return Done(int(found.get("pid", 0)), tuple(map(int, found.get("cpus", ()))))


def _group(found: dict[str, Any]) -> happened.Group:
    """An attempt in the guard's list."""
    return happened.Group(
        _key(found),
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

"""A whole agent that is played: the core, with a guard and a node that are models, and scripts that do nothing.

For tests and measurements of a scheduler: what it hears is what an agent says. What a script "does" its player decides,
who is told when one starts.
"""

from collections import deque
from collections.abc import Callable

from cosched.wire.grant import Grant
from cosched.wire.messages import Exit, Fence, FromAgent
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.agent import AgentCore
from node_agent.core.attempt import Key
from node_agent.core.groups import SCRIPT
from node_agent.core.guard_model import GuardModel
from node_agent.core.replies import Declined, Done, ErrorTail, GrantRead, Reply


class Player:
    """Decides what happens on a node. By itself: nothing is refused, and no script ever ends or says anything."""

    def refusal(self, request: fx.GuardRequest) -> Declined | None:
        """Why the guard does not do it; None where it does."""
        return None

    def script_started(self, key: Key) -> None:
        """The script of an attempt runs, and the scheduler has been told."""

    def error_tail(self, key: Key) -> bytes:
        """The last bytes of a script's error output."""
        return b""


class PlayedAgent:
    """The shell around a core whose guard is a model. Everything is done at once."""

    def __init__(
        self,
        core: AgentCore,
        guard: GuardModel,
        player: Player,
        read_grant: Callable[[bytes], Grant],
        keep_fence: Callable[[Fence], None],
        call_later: Callable[[int, Callable[[], None]], None],
        now_us: Callable[[], int],
    ) -> None:
        """``call_later`` calls something in so many microseconds; ``now_us`` is the time since boot."""
        self.core = core
        self.guard = guard
        self._player = player
        self._read_grant, self._keep_fence = read_grant, keep_fence
        self._call_later, self._now_us = call_later, now_us
        #: Where messages for the scheduler go, and who hangs up; whoever has the link sets them.
        self.tell: Callable[[FromAgent], None] = lambda message: None
        self.hang_up: Callable[[str], None] = lambda reason: None
        self._happened: deque[happened.Input | Callable[[], None]] = deque()
        self._handling = False
        self.hand_in(guard.report())

    def hand_in(self, event: happened.Input | Callable[[], None]) -> None:
        """Something has happened: all that follows is done before this returns, unless it is in hand already."""
        self._happened.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._happened:
                self._handle(self._happened.popleft())
        finally:
            self._handling = False

    def end_script(self, key: Key, how: Exit) -> None:
        """A script ends, if it runs."""
        self.guard.end(key, how)
        self._hear_guard()

    def _handle(self, what: happened.Input | Callable[[], None]) -> None:
        if isinstance(what, happened.Input):
            for effect in self.core.handle(what, self._now_us()):
                self._carry_out(effect)
        else:
            what()

    def _carry_out(self, effect: fx.Effect) -> None:
        match effect:
            case fx.AskGuard(number, request):
                self._ask_guard(number, request)
            case fx.AskNode(number, question):
                self.hand_in(happened.Replied(number, self._reply(question)))
            case fx.KeepFence(fence):
                self._keep_fence(fence)
                self.hand_in(happened.FenceKept(fence))
            case fx.Tell(message):
                self.tell(message)
            case fx.HangUp(reason):
                self.hang_up(reason)
            case fx.SetTimer(number, after_us):
                self._call_later(after_us, lambda: self.hand_in(happened.TimerDue(number)))
            case _:
                pass  # there are no files and no log

    def _ask_guard(self, number: int, request: fx.GuardRequest) -> None:
        reply = self._player.refusal(request) or self.guard.ask(request)
        self.hand_in(happened.Replied(number, reply))
        if isinstance(request, fx.Spawn) and request.n == SCRIPT and isinstance(reply, Done):
            self.hand_in(lambda: self._player.script_started(request.key))
        self.guard.carry_out_kills()
        self._hear_guard()

    def _hear_guard(self) -> None:
        for event in self.guard.events():
            self.hand_in(event)

    def _reply(self, question: fx.NodeQuestion) -> Reply:
        if isinstance(question, fx.ReadGrant):
            return GrantRead(self._read_grant(question.grant))
        if isinstance(question, fx.ReadErrorTail):
            return ErrorTail(self._player.error_tail(question.key))
        if isinstance(question, fx.OfferMap):  # ranks that adopt each map at once
            self.hand_in(happened.RanksAdapted(question.key, question.map.number))
        return Done()

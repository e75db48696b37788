"""A whole agent that is played: the core, with a guard and a node that are models, and scripts that do nothing.

For tests and measurements of a scheduler: what it hears is what an agent says. What a script "does" its player decides,
who is told when one starts.
"""

from collections import deque
from collections.abc import Callable

from cosched.wire.grant import Grant
from cosched.wire.messages import Exit, Fence
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.agent import AgentCore
from node_agent.core.attempt import Key
from node_agent.core.groups import SCRIPT
from node_agent.core.guard_model import GuardModel
from node_agent.core.replies import Declined, Done, ErrorTail, GrantRead, Reply
from node_agent.core.shell import Shell


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


class PlayedAgent(Shell):
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
        super().__init__(core, now_us, keep_fence)
        self.guard = guard
        self._player = player
        self._read_grant, self._call_later = read_grant, call_later
        self._started: deque[Key] = deque()  # attempts whose script runs, and whose player has not been told yet
        self.hand_in(guard.report())

    def hand_in(self, event: happened.Input) -> None:
        """As every shell; then, the scheduler having been told, players are told of scripts that have started."""
        super().hand_in(event)
        while self._started and not self._handling:
            self._player.script_started(self._started.popleft())

    def end_script(self, key: Key, how: Exit) -> None:
        """A script ends, if it runs."""
        self.guard.end(key, how)
        self._hear_guard()

    def _write(self, effect: fx.Effect) -> None:
        if isinstance(effect, fx.SetTimer):  # there are no files and no log
            self._call_later(effect.after_us, lambda: self.hand_in(happened.TimerDue(effect.number)))

    def _ask_guard(self, number: int, request: fx.GuardRequest) -> None:
        reply = self._player.refusal(request) or self.guard.ask(request)
        self.hand_in(happened.Replied(number, reply))
        if isinstance(request, fx.Spawn) and request.n == SCRIPT and isinstance(reply, Done):
            self._started.append(request.key)
        self.guard.carry_out_kills()
        self._hear_guard()

    def _hear_guard(self) -> None:
        for event in self.guard.events():
            self.hand_in(event)

    def _reply(self, question: fx.NodeQuestion) -> Reply:
        match question:
            case fx.ReadGrant(grant):
                return GrantRead(self._read_grant(grant))
            case fx.ReadErrorTail(key):
                return ErrorTail(self._player.error_tail(key))
            case fx.OfferMap(key, newest):  # ranks that adopt each map at once
                self.hand_in(happened.RanksAdapted(key, newest.number))
        return Done()

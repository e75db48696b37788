"""The shell around an agent's core: hands in what happens, one input after the other, and has effects carried out."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from cosched.wire.messages import Fence, FromAgent
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.agent import AgentCore
from node_agent.core.replies import Reply


class Shell(ABC):
    """What all shells have in common. A subclass has the guard, the files and the clock."""

    def __init__(self, core: AgentCore, now_us: Callable[[], int], keep_fence: Callable[[Fence], None]) -> None:
        """``now_us`` gives the time since boot in microseconds.

        ``keep_fence`` writes durably which scheduler this node obeys; it raises OSError.
        """
        self.core, self._now_us, self._keep_fence = core, now_us, keep_fence
        #: Where messages for the scheduler go; the link's owner sets it. A lost message is sent again later.
        self.tell: Callable[[FromAgent], None] = lambda message: None
        #: Called when the link is of no use, with the reason, which it may raise; the link's owner sets it.
        self.hang_up: Callable[[str], None] = lambda reason: None
        self._happened: deque[happened.Input] = deque()
        self._handling = False

    def hand_in(self, event: happened.Input) -> None:
        """Something has happened: carry out all that follows, unless that is being done already.

        Raises OSError where the fence cannot be written, and what :attr:`hang_up` raises.
        """
        self._happened.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._happened:
                for effect in self.core.handle(self._happened.popleft(), self._now_us()):
                    self._carry_out(effect)
        finally:
            self._handling = False
            self._happened.clear()

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
            case _:
                self._write(effect)

    @abstractmethod
    def _ask_guard(self, number: int, request: fx.GuardRequest) -> None:
        """Send the guard a request; its reply is handed in with that number."""

    @abstractmethod
    def _reply(self, question: fx.NodeQuestion) -> Reply:
        """Find something out about this node."""

    @abstractmethod
    def _write(self, effect: fx.Effect) -> None:
        """Carry out any other effect: files, timers, commands and the log."""

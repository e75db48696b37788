"""What is given to the core's thread to do, and how it is answered."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from cosched.errors import Failed
from space_scheduler.machine.nodes import UnknownNode
from space_scheduler.machine.record import IllegalTransition, Infeasible, UnknownJob
from space_scheduler.service.core.journalled import JournalledCore, QueueFull
from space_scheduler.service.core.sizing import SizesUnknown

#: An event that does not fit is its poster's business: the core has changed nothing.
MISFITS: Final = (Infeasible, QueueFull, SizesUnknown, UnknownJob, UnknownNode, IllegalTransition)


class NotAccepting(Failed):
    """The journal cannot be written: nothing new is accepted, what runs goes on (the API's 503)."""


@dataclass(frozen=True)
class Work:
    """Something to do with the core at a time, and who waits for the answer. It may have to be done twice.

    ``answered`` is called with the answer or with an error, by whoever talks to the world. ``wish``: refused while
    nothing is accepted, instead of waiting. ``decides``: it may change what a pass decides. ``reads``: it changes
    nothing.
    """

    apply: Callable[[JournalledCore, int], Any]
    answered: Callable[[Any, BaseException | None], None]
    wish: bool = False
    decides: bool = True
    reads: bool = False

    def answer(self, answer: Any = None, error: BaseException | None = None) -> None:
        """Give the answer, on the event loop."""
        self.answered(answer, error)

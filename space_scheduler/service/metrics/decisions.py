"""What the core took in and decided, counted; every kind of event and of decision is there from the start, at 0."""

from collections import Counter
from typing import Final, get_args

from cosched.monitoring import series
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Kill, Resize, SetAside, SetTimer, SharePlan, Start, Tell
from space_scheduler.reasons import Why
from space_scheduler.service.journal.records import Committed
from space_scheduler.service.metrics.families import Values

_Counted = Start | Resize | Kill | SetTimer | Tell | SharePlan | SetAside
#: The reasons that a decision may have. One that has another is counted with it, from the first time on.
REASONS: Final[dict[type[_Counted], tuple[Why, ...]]] = {
    Start: (
        *(Why.FITS, Why.BEST_FIT, Why.JUMPED, Why.FIRST_FIT, Why.BACKFILLED_BEFORE_SHADOW, Why.BACKFILLED_ON_EXTRA),
        *(Why.BACKFILLED_BESIDE, Why.BACKFILLED_IN_HOLE, Why.BACKFILLED_MOULDED, Why.ADMITTED, Why.RESERVATION_DUE),
    ),
    Resize: (Why.SHRUNK, Why.WIDENED, Why.FOLDED, Why.UNFOLDED, Why.SUSPENDED, Why.RESUMED, Why.ASKED),
    Kill: (Why.CANCELLED, Why.NODE_LOST, Why.ABORTED),
    SetTimer: (Why.WAKE, Why.TRY_AGAIN),
    Tell: (
        *(Why.RESERVED, Why.MOVED_EARLIER, Why.RESCHEDULED, Why.OVERRUN, Why.LATE_LAUNCH, Why.CAPACITY_CHANGED),
        *(Why.OWNER_CHANGED, Why.PROGRESS, Why.PACE, Why.OVERTAKEN, Why.RESTARTED, Why.RULES_CHANGED),
        *(Why.POLICY_CHANGED, Why.TRIED_AGAIN),
    ),
    SharePlan: (Why.TAKE_TURNS, Why.NO_TURNS),
    SetAside: (Why.SET_ASIDE,),
}


class DecisionSeries:
    """Counts commits."""

    def __init__(self) -> None:
        self._events = Counter({kind.__name__: 0 for kind in get_args(ev.AnyEvent)})
        self._instructions = Counter({_labels(kind, why): 0 for kind, whys in REASONS.items() for why in whys})

    def committed(self, committed: Committed) -> None:
        """Count an event and what was decided after it."""
        self._events[type(committed.event).__name__] += 1
        for instruction in committed.instructions:
            if isinstance(instruction, _Counted):
                self._instructions[_labels(type(instruction), instruction.reason.why)] += 1

    def collect(self) -> Values:
        """The counts."""
        return {
            series.EVENTS: (([kind], count) for kind, count in self._events.items()),
            series.INSTRUCTIONS: self._instructions.items(),
        }


def _labels(kind: type[_Counted], why: Why) -> tuple[str, str]:
    return kind.__name__, why.name.lower()

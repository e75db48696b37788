"""What the host is to do. Each instruction carries the event that caused it and the reason of the decision."""

from fractions import Fraction

import msgspec

from cosched.model.allocation import Allocation
from cosched.model.job import Job
from space_scheduler.machine.events import AnyEvent
from space_scheduler.progress import Rate
from space_scheduler.reasons import Reason


class Instruction(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Base of all instructions; the tag names the class in journals and event logs."""


class Start(Instruction, frozen=True, gc=False):
    """Start a job. ``limit_us`` is the run time at which the node kills it, or None where it may run on."""

    job: Job
    allocation: Allocation
    limit_us: int | None
    cause: AnyEvent
    reason: Reason


class Resize(Instruction, frozen=True, gc=False):
    """A running job is to hold ``new`` instead of ``old``; the answer is a ``JobResized`` or a ``ResizeFailed``.

    Until then it holds whatever it had of both: what it gives back is nobody else's before the answer.
    """

    job_id: int
    old: Allocation
    new: Allocation
    cause: AnyEvent
    reason: Reason


class Kill(Instruction, frozen=True, gc=False):
    """End a starting or running job, surely."""

    job_id: int
    cause: AnyEvent
    reason: Reason


class SetTimer(Instruction, frozen=True, gc=False):
    """Send :class:`~space_scheduler.machine.events.TimerDue` at this time. There is one timer; this replaces it."""

    at_us: int
    cause: AnyEvent
    reason: Reason


class Tell(Instruction, frozen=True, gc=False):
    """Tell the user of a job that its promised start is now ``promised_us`` (FOREVER_US: nothing can be promised)."""

    job_id: int
    promised_us: int
    cause: AnyEvent
    reason: Reason


class SetAside(Instruction, frozen=True, gc=False):
    """Tell the user of a job, and operators, that passes leave it out, since it makes them fail: ``problem`` says how.

    It waits as before, or keeps what it holds, and is tried again. Told once, not of each try.
    """

    job_id: int
    problem: str
    cause: AnyEvent
    reason: Reason


class RateChanged(Instruction, frozen=True, gc=False, omit_defaults=True, tag="Pace"):
    """From now on a job does so many millionths of what it does alone: its limit and its end are that much further off.

    Told only when it changes: where jobs share nodes, or where one has another width than it has asked for. A job
    begins at the rate of one that is alone. The rate is ``rate_ppm / per`` exactly.
    """

    job_id: int
    rate_ppm: int
    cause: AnyEvent
    reason: Reason
    per: int = 1

    @property
    def rate(self) -> Rate:
        """The rate itself, in millionths."""
        return self.rate_ppm if self.per == 1 else Fraction(self.rate_ppm, self.per)


class Answer(Instruction, frozen=True, gc=False):
    """A running job that asked for other numbers of processes is given so many more (negative: fewer; 0: refused).

    What it holds is changed by a :class:`Resize`. ``waits``: it does nothing until it is answered again.
    """

    job_id: int
    given: int
    waits: bool
    cause: AnyEvent
    reason: Reason


class Turn(msgspec.Struct, frozen=True, gc=False):
    """A job has the turn ``row`` of ``rows``, on all of its nodes."""

    job_id: int
    row: int
    rows: int


class SharePlan(Instruction, frozen=True, gc=False):
    """From now on these jobs take turns, and no others; told only when that changes."""

    turns: tuple[Turn, ...]
    cause: AnyEvent
    reason: Reason


#: All of them, for decoding: the tag says which.
AnyInstruction = Start | Resize | Kill | SetTimer | Tell | RateChanged | SharePlan | Answer | SetAside

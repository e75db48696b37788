"""What the worker's rules want done, one thing after the other, and what comes of it (``worker_core``).

The first are done with the core and its journal, and have an outcome (``deeds``); the others go to the event loop.
"""

from typing import NamedTuple

from space_scheduler.service.core.work import Work
from space_scheduler.service.journal.records import Committed


class Moment(NamedTuple):
    """How things stand: core time, a monotonic clock, when a pass is due (None: at no time).

    ``snapshot_due``: enough has happened since the last one; ``packed``: one is packed and waits to be written;
    ``save_us``: one is due at that core time though nothing happens (None: never).
    """

    core_us: int
    monotonic_s: float
    pass_due_us: int | None
    snapshot_due: bool = False
    packed: bool = False
    save_us: int | None = None


class Look(NamedTuple):
    """How do things stand? The outcome is a :class:`Moment`."""


class Apply(NamedTuple):
    """Do a work. The outcome is :class:`Applied`, :class:`Misfit` or :class:`Broke`."""

    work: Work
    now_us: int


class Applied(NamedTuple):
    """It is done, and staged where it changes anything."""

    answer: object


class Misfit(NamedTuple):
    """It does not fit, and has changed nothing."""

    error: Exception


class Broke(NamedTuple):
    """It failed, and may be half done: the state is in doubt."""

    error: Exception


class Commit(NamedTuple):
    """Write all that is staged in one transaction. The outcome is :class:`Written`, or :class:`Failure`."""


class Written(NamedTuple):
    """It is durable. ``changed``: anything was staged."""

    committed: list[Committed]
    changed: bool


class Failure(NamedTuple):
    """It could not be done, and why."""

    why: str


class Decide(NamedTuple):
    """Stage a pass. The outcome is :class:`Passed` or :class:`Broke`."""

    now_us: int


class Passed(NamedTuple):
    """Whether the policy was asked; it is not where nothing has changed."""

    asked: bool


class Recover(NamedTuple):
    """Make the state the journal's again. The outcome is None, or :class:`Failure`."""


class Probe(NamedTuple):
    """Try to write. The outcome is None, or :class:`Failure`."""


class PackSnapshot(NamedTuple):
    """Take a snapshot and pack it, beside everything else. No outcome; a :class:`Moment` tells when it is packed."""


class WriteSnapshot(NamedTuple):
    """Write the snapshot that is packed. The outcome is None, or :class:`Failure`."""


class SaveLast(NamedTuple):
    """Take a snapshot and write it before the end. The outcome is None, or :class:`Failure`."""


class Answer(NamedTuple):
    """What somebody who waits is told."""

    work: Work
    value: object = None
    error: BaseException | None = None


class HandOut(NamedTuple):
    """Answer these, then hand on what is in the journal, in this order."""

    answers: list[Answer]
    committed: list[Committed]


class Publish(NamedTuple):
    """Let the state be seen. ``known``: what is in memory is the journal's; if not, what was seen last is all."""

    decided_us: int
    accepting: bool
    problem: str
    known: bool


class TellProblem(NamedTuple):
    """Tell the operator what is wrong; empty: all is well again."""

    problem: str


class Say(NamedTuple):
    """A line for the log. ``error``: whose traceback goes with it."""

    level: int
    text: str
    error: BaseException | None = None


Deed = Look | Apply | Commit | Decide | Recover | Probe | WriteSnapshot | SaveLast
Effect = Deed | PackSnapshot | HandOut | Publish | TellProblem | Say
Outcome = Moment | Applied | Misfit | Broke | Written | Failure | Passed | None

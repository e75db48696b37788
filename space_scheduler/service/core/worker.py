"""The worker's rules without input or output: what is committed together, when a pass runs, what is answered when.

Nothing here decides anything about jobs. What it decides is when: accepted together, committed together, and only then
answered; a pass when something has changed, not sooner than the interval after the last one; later, after one that
failed. While the journal cannot be written, wishes are refused, reports wait, questions are answered from the last good
state, and it is tried again every second.

A turn is a generator: it gives an effect, gets what came of it, and goes on. Requests, effects and outcomes are values
that can be printed, compared and recorded. It knows no clock, no file and no thread; the process that carries the
effects out may be killed between any two of them, and nothing was answered that is not in the journal.
"""

import logging
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from cosched.errors import Failed
from cosched.model.job import Job
from cosched.model.node import Node
from cosched.wire.api import Submission
from space_scheduler.machine import events as ev
from space_scheduler.machine.rules import MachineRules
from space_scheduler.policy.interface import Policy
from space_scheduler.service.journal.records import Committed, Explained, Facts

#: So much is taken in before a commit.
MOST_TOGETHER: Final = 512
_RETRY_S: Final = 1.0
_SLOWEST_RETRY_S: Final = 60.0
_NAP_S: Final = 1.0  # waits are by a clock that stops in suspension: never longer than this
_LONG_NAP_S: Final = 60.0  # where it is about hours
Result = TypeVar("Result")


class NotAccepting(Failed):
    """The journal cannot be written: nothing new is accepted, what runs goes on (the API's 503)."""


class QueueFull(Failed):
    """So many jobs wait already that no more are taken, of this user or of anybody."""


class Most(msgspec.Struct, frozen=True):
    """How many jobs may wait: of all users, and of each; 0: any number."""

    queued: int = 0
    of_user: int = 0

    def check(self, user: str, waiting: Mapping[str, int]) -> None:
        """Raise :class:`QueueFull` where one more would be too many. ``waiting`` are those that wait, by user."""
        if 0 < self.of_user <= waiting.get(user, 0):
            raise QueueFull(f"{waiting[user]} jobs of {user} wait already, as many as may (max_queued_per_user)")
        if 0 < self.queued <= (total := sum(waiting.values())):
            raise QueueFull(f"{total} jobs wait already, as many as may (max_queued)")


# --- requests: what each gives and raises is said by the method of ``CoreHost`` that makes it, if there is one


class Request(msgspec.Struct, Generic[Result], frozen=True, tag=True):
    """What is asked of the core; the answer is of this type. The service's rules have some of these as effects."""


class Submit(Request[int], frozen=True):
    """Accept a job."""

    job: Job
    submission: Submission
    user: str
    hold: bool = False
    most: Most | None = None


class Post(Request[Committed], frozen=True):
    """Take in an event, and journal it with these facts of the job that it names."""

    event: ev.Event
    note: str = ""
    facts: Facts | None = None


class Choose(Request[None], frozen=True):
    """Have another policy decide."""

    policy: Policy
    name: str
    order: str | None
    rules: MachineRules


class Annotate(Request[None], frozen=True):
    """Journal facts of a job, alive or ended."""

    job_id: int
    facts: Facts


class Explain(Request[Explained], frozen=True):
    """Ask why a job is in its state."""

    job_id: int
    owners: bool = False


class AskWanted(Request[tuple[str, ...]], frozen=True):
    """Ask on which of these nodes a job that waits would start, did they join now. Nothing changes by it."""

    nodes: tuple[Node, ...]


class Work(NamedTuple):
    """A request, and the number by which its answer finds the caller. It may have to be done twice.

    ``wish``: refused while nothing is accepted, instead of waiting.
    """

    number: int
    request: Request[Any]
    wish: bool = False

    @property
    def decides(self) -> bool:
        """Whether it may change what a pass decides."""
        return isinstance(self.request, Submit | Post | Choose)

    @property
    def reads(self) -> bool:
        """Whether it changes nothing."""
        return isinstance(self.request, Explain | AskWanted)


# --- effects, and what comes of them


class Moment(NamedTuple):
    """How things stand: core time, a monotonic clock, when a pass is due (None: at no time).

    ``packing``: a snapshot was taken and is not written yet; ``packed``: it only waits for that; ``save_us``: one is
    due from that core time on (None: never).
    """

    core_us: int
    monotonic_s: float
    pass_due_us: int | None
    packing: bool = False
    packed: bool = False
    save_us: int | None = None


class Look(NamedTuple):
    """How do things stand? The outcome is a :class:`Moment`."""


class Apply(NamedTuple):
    """Do a work, and stage it where it changes anything. The outcome is its :class:`Answer`.

    An error in that has changed nothing; where the outcome is an exception itself, the state is in doubt.
    """

    work: Work
    now_us: int


class Commit(NamedTuple):
    """Write all that is staged in one transaction. The outcome are its events, now durable, or a ``Failed``."""


class Decide(NamedTuple):
    """Stage a pass. The outcome is whether the policy was asked, which it is not where nothing has changed.

    An exception: what it raised, and the state is in doubt.
    """

    now_us: int


class Recover(NamedTuple):
    """Make the state the journal's again. The outcome is None, or a ``Failed``."""


class Probe(NamedTuple):
    """Try to write. The outcome is None, or a ``Failed``."""


class PackSnapshot(NamedTuple):
    """Take a snapshot and pack it, beside everything else. No outcome; a :class:`Moment` tells when it is packed."""


class WriteSnapshot(NamedTuple):
    """Write the snapshot that is packed. The outcome is None, or a ``Failed``."""


class SaveLast(NamedTuple):
    """Take a snapshot and write it before the end. The outcome is None, or a ``Failed``."""


class Answer(NamedTuple):
    """The answer to a request: a value, or the error that its caller gets."""

    work: Work
    value: object = None
    error: BaseException | None = None


class HandOut(NamedTuple):
    """Answer these, then hand on what is in the journal, in this order."""

    answers: list[Answer]
    committed: list[Committed]


class Publish(NamedTuple):
    """Let the state be seen, and have the operator told where it is another problem than the one seen last.

    ``problem``: what is wrong; empty: all is well. ``known``: what is in memory is the journal's; if not, what was seen
    last is all.
    """

    decided_us: int
    accepting: bool
    problem: str
    known: bool


class Say(NamedTuple):
    """A line for the log. ``error``: whose traceback goes with it."""

    level: int
    text: str
    error: BaseException | None = None


Deed = Look | Commit | Decide | Recover | Probe | WriteSnapshot | SaveLast
Effect = Deed | Apply | PackSnapshot | HandOut | Publish | Say
Outcome = Moment | Answer | list[Committed] | bool | Exception | None


# --- the rules

Steps = Generator[Effect, Outcome, Result]


class WorkerCore:
    """What the worker remembers from turn to turn. Core times in microseconds, others in seconds that never jump."""

    def __init__(self, pass_interval_us: int) -> None:
        """``pass_interval_us``: from one pass to the next at least."""
        self._pass_interval_us = pass_interval_us
        self._held_back: list[Work] = []  # what nodes reported while nothing could be written
        self._unwritable = ""
        self._in_doubt = False  # the state in memory is not the journal's
        self._policy_problem = ""
        self._told = ""
        self._wanted = True  # a pass; one is run at the start
        self._next_us = 0  # no pass before that core time
        self._decided_us = 0
        self._not_before_s = 0.0  # the next try of what failed, by the monotonic clock
        self._retry_s = _RETRY_S

    # what can be asked of it

    def pause_s(self, moment: Moment) -> float | None:
        """How long there is nothing to do, if nothing is posted; None: for ever."""
        if self._unwritable or (self._policy_problem and self._wanted):
            return max(0.0, self._not_before_s - moment.monotonic_s)
        pass_us = moment.core_us if self._wanted else moment.pass_due_us
        due = (
            (None if pass_us is None else max(pass_us, self._next_us), _NAP_S),
            (None if moment.packing else moment.save_us, _LONG_NAP_S),
        )
        pauses_s = (max(0.0, min(nap_s, (at_us - moment.core_us) / 1e6)) for at_us, nap_s in due if at_us is not None)
        return min(pauses_s, default=None)

    def refusal(self) -> NotAccepting:
        """Why nothing is accepted."""
        return NotAccepting(self._unwritable or "the scheduler is being stopped")

    def failed(self, error: BaseException) -> str:
        """Carrying out has failed in a way that nobody has foreseen: nothing is accepted any more. Says why."""
        self._unwritable = f"the scheduler's core has failed and must be started again: {error}"
        return self._unwritable

    # what happens

    def turn(self, works: Sequence[Work]) -> Steps[None]:
        """Take in what was posted, then decide, if it is time."""
        if self._unwritable and not (yield from self._writable_again()):
            yield from self._refuse(works)
            return
        held_back, self._held_back = self._held_back, []
        yield from self._accept([*held_back, *works])
        if not self._unwritable and (yield from self._pass_due()):
            yield from self._decide()
        if not self._unwritable:
            yield from self._save_if_due()

    def ends(self) -> Steps[None]:
        """It was told to end, and has done what it was given."""
        if not self._unwritable:
            outcome = yield SaveLast()
            if isinstance(outcome, Failed):
                yield Say(logging.ERROR, f"{outcome}; the next start recovers from what is there")

    # taking in

    def _accept(self, works: Sequence[Work]) -> Steps[None]:
        done: list[Answer] = []
        failed: list[Answer] = []
        now_us = (yield from _looked()).core_us
        for at, work in enumerate(works):
            outcome = yield Apply(work, now_us)
            assert isinstance(outcome, Answer | Exception)
            if isinstance(outcome, Answer):
                (done if outcome.error is None else failed).append(outcome)
            elif work.reads:
                yield Say(logging.ERROR, f"a question was not answered: {outcome}", outcome)
                failed.append(Answer(work, error=_named(outcome)))
            else:
                # it may have been left half done (a user's policy orders the queue): keep what came before it
                known = isinstance(outcome, Failed | ValueError)
                yield Say(logging.ERROR, f"an event was refused: {outcome}", None if known else outcome)
                yield from self._commit(done)
                done = []
                if self._unwritable or not (yield from self._rebuilt()):
                    yield from self._refuse(works[at:])
                    break
                failed.append(Answer(work, error=outcome if known else _named(outcome)))
        yield from self._commit(done)
        if failed:
            yield HandOut(failed, [])

    def _commit(self, done: list[Answer]) -> Steps[None]:
        """One transaction; then answers, and what is to be done."""
        outcome = yield Commit()
        if isinstance(outcome, Failed):
            self._in_doubt = True  # the state is ahead of the journal
            yield from self._cannot_write(str(outcome))
            yield from self._refuse([each.work for each in done])
            return
        assert isinstance(outcome, list)
        if done or outcome:
            self._wanted = self._wanted or any(each.work.decides for each in done)
            if outcome or not all(each.work.reads for each in done):
                yield from self.publish()
            yield HandOut(done, outcome)

    # deciding

    def _pass_due(self) -> Steps[bool]:
        moment = yield from _looked()
        if self._policy_problem and moment.monotonic_s < self._not_before_s:
            return False
        if moment.pass_due_us is not None and moment.pass_due_us <= moment.core_us:
            self._wanted = True
        return self._wanted and moment.core_us >= self._next_us

    def _decide(self) -> Steps[None]:
        now_us = (yield from _looked()).core_us
        self._wanted = False
        outcome = yield Decide(now_us)
        if isinstance(outcome, Exception):
            yield from self._pass_failed(outcome, now_us)
            return
        if outcome:
            self._decided_us, self._next_us = now_us, now_us + self._pass_interval_us
        self._policy_problem, self._retry_s = "", _RETRY_S
        yield from self._commit([])
        if self._unwritable:
            self._wanted = True
        elif self._told:
            yield from self.publish()

    def _pass_failed(self, error: Exception, now_us: int) -> Steps[None]:
        """It is undone, shown, and tried again, later and later."""
        known = isinstance(error, Failed)
        problem = str(error if known else _named(error))
        yield Say(logging.ERROR, f"a scheduling pass failed: {problem}", None if known else error)
        self._wanted, self._next_us = True, now_us + self._pass_interval_us
        self._not_before_s = (yield from _looked()).monotonic_s + self._retry_s
        self._retry_s = min(2 * self._retry_s, _SLOWEST_RETRY_S)
        self._policy_problem = f"the policy fails, nothing is started: {problem}"
        yield from self._rebuilt()
        yield from self.publish()

    def _save_if_due(self) -> Steps[None]:
        """Snapshots: taken now, packed beside (that takes long), written when they are packed."""
        moment = yield from _looked()
        if not moment.packing and moment.save_us is not None and moment.save_us <= moment.core_us:
            yield PackSnapshot()
        elif moment.packed:
            outcome = yield WriteSnapshot()
            if isinstance(outcome, Failed):  # what was accepted and decided is written all the same
                yield from self._cannot_write(str(outcome))

    # when the journal cannot be written

    def _cannot_write(self, why: str) -> Steps[None]:
        problem = f"{why}; nothing is accepted until it can be"
        yield from self._accept_nothing(problem, f"{problem}, what runs goes on")
        if not self._in_doubt or (yield from self._rebuilt()):
            yield from self.publish()

    def _accept_nothing(self, problem: str, why: str) -> Steps[None]:
        """Say the problem in the log, and refuse for that reason until the next try."""
        yield Say(logging.ERROR, problem)
        self._unwritable = why
        self._not_before_s = (yield from _looked()).monotonic_s + _RETRY_S

    def _writable_again(self) -> Steps[bool]:
        now_s = (yield from _looked()).monotonic_s
        if now_s < self._not_before_s:
            return False
        self._not_before_s = now_s + _RETRY_S
        if isinstance((yield Probe()), Failed) or (self._in_doubt and not (yield from self._rebuilt())):
            return False
        self._unwritable, self._wanted = "", True
        yield Say(logging.WARNING, "the journal can be written again")
        yield from self.publish()
        return True

    def _rebuilt(self) -> Steps[bool]:
        """Make the state the journal's again; where that cannot be read either, it is tried again later."""
        outcome = yield Recover()
        self._in_doubt = isinstance(outcome, Failed)
        if self._in_doubt:
            yield from self._accept_nothing(str(outcome), f"{outcome}; nothing is accepted until it can be read")
            yield from self.publish()
        return not self._in_doubt

    def _refuse(self, works: Sequence[Work]) -> Steps[None]:
        """Wishes are refused, reports wait, questions are answered from the last good state."""
        for work in works:
            if work.reads and not self._in_doubt:
                yield HandOut([(yield from _read(work))], [])
            elif work.wish or work.reads:
                yield HandOut([Answer(work, error=self.refusal())], [])
            else:
                self._held_back.append(work)

    def publish(self) -> Steps[None]:
        """Let the state be seen, first of all when the journal is open and recovered."""
        self._told = self._unwritable or self._policy_problem
        yield Publish(self._decided_us, not self._unwritable, self._told, known=not self._in_doubt)


def _looked() -> Steps[Moment]:
    moment = yield Look()
    assert isinstance(moment, Moment)
    return moment


def _read(work: Work) -> Steps[Answer]:
    """The answer to a question."""
    outcome = yield Apply(work, (yield from _looked()).core_us)
    assert isinstance(outcome, Answer | Exception)
    return outcome if isinstance(outcome, Answer) else Answer(work, error=outcome)


def _named(error: Exception) -> Failed:
    """What nobody expected, for people."""
    return Failed(f"{type(error).__name__}: {error}")

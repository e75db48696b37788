"""What a policy sees and what it answers: a snapshot in, a plan out.

A policy is any object with ``order`` (a key function, see ``policy.order``) and ``plan(snapshot) -> Plan``. It must not
change the snapshot: whatever it wants to remember goes into ``Plan.memory``, a value that it never changes afterwards,
and comes back as ``Snapshot.memory`` at the next pass. For the memory to survive a restart of the live service, the
policy declares its type as ``memory_type`` (see ``policy.memory``); without one it begins again with none. What else it
may declare is in :class:`PolicyTraits`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from cosched.model.allocation import Allocation
from cosched.model.job import Job
from space_scheduler.feasibility import Room
from space_scheduler.lookahead import Progress
from space_scheduler.policy.order import Order
from space_scheduler.policy.queue import JobQueue
from space_scheduler.progress import Occupancy, Rate
from space_scheduler.reasons import Reason, Why

Held = tuple[int, Job, Allocation]


class Changes(msgspec.Struct, omit_defaults=True):
    """What happened since the last pass; an empty one means that no pass is needed.

    ``vacated`` has (time until which the processors had been expected to be busy, processors) for every job that
    ended; the time is not after now where it ended when expected. ``released`` is set when processors came free at a
    job's limit, by rule, before its end was handled: what had been predicted came true. ``resized`` is set when a job
    holds what it was resized to. ``asked`` is set when
    a job has asked for more or fewer processes. ``disturbed`` is set when
    predicted ends moved later or the machine's size changed: then no earlier promise holds as such. ``overdue`` are
    the numbers of that cause where it is a job that runs past its estimate and the host wants it named.
    """

    submitted: list[Job] = []
    vacated: list[tuple[int, int]] = []
    withdrawn: list[Job] = []
    released: bool = False
    due: bool = False
    disturbed: Why | None = None
    resized: bool = False
    asked: bool = False
    overdue: Mapping[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self.submitted or self._more_than_submissions())

    @property
    def only_submissions(self) -> bool:
        """Whether jobs were submitted and nothing else happened: who had no place has none now."""
        return bool(self.submitted) and not self._more_than_submissions()

    def moved(self, otherwise: Why) -> Reason:
        """Why promises move that are made anew in the coming pass; ``otherwise`` where nothing has disturbed them."""
        return Reason(self.disturbed or otherwise, self.overdue)

    def _more_than_submissions(self) -> bool:
        return bool(
            self.vacated or self.withdrawn or self.released or self.due or self.disturbed or self.resized or self.asked
        )


@dataclass(slots=True)
class Nodes:
    """The nodes of a machine where they have names: what is free on each in service, and what its jobs hold.

    Both are made when they are first asked for, during the pass. Where jobs share nodes, ``occupancy`` gives rates
    (``space_scheduler.progress``) and ``progress`` is how far each job is; predicted ends are then those at the rates
    of now. ``opens``: when nodes are to be resumed that are out of service until a known time, in µs, by name.
    """

    make_room: Callable[[], Room]
    make_held: Callable[[], Sequence[Held]]
    occupancy: Occupancy | None = None
    progress: Sequence[Progress] = ()
    opens: Mapping[str, int] = field(default_factory=dict)
    make_ahead: Callable[[], Room] | None = None
    _room: Room | None = None
    _held: Sequence[Held] | None = None

    @property
    def room(self) -> Room:
        """What is free as the pass begins: one for all who ask, and only read. Who plans starts on it has a copy."""
        if self._room is None:
            self._room = self.make_room()
        return self._room

    @property
    def ahead(self) -> Room:
        """The same with the nodes of ``opens``, as they will be then; only read."""
        return self.make_ahead() if self.opens and self.make_ahead else self.room

    @property
    def held(self) -> Sequence[Held]:
        """(predicted end, job, what it holds), in order of time, all after now."""
        if self._held is None:
            self._held = self.make_held()
        return self._held


class RunningJob(NamedTuple):
    """A job that runs, for a policy that resizes: what it is to hold, the time alone that it has left, and its rate.

    ``left_us`` is work, by the user's estimate: microseconds alone in the width that it asked for. ``rate_ppm`` are
    millionths of that width's speed, sharing included. ``resizable``: it runs, and no change of it is under way.
    ``rank`` is its place in the order of arrival. ``asks``: how many processes more (negative: fewer) it asks for, each
    request for itself, since ``asked_us``; ``given``: how many more or fewer it was given since it started; ``waits``:
    it has been told to wait for an answer, and does nothing.
    ``overran``: it has done the work of its estimate, and still runs. ``polls``: its processes are seen to compute
    while they wait for messages.
    """

    job: Job
    allocation: Allocation
    started_us: int
    left_us: Rate
    rate_ppm: Rate
    resizable: bool
    rank: int = 0
    asks: tuple[int, ...] = ()
    asked_us: int = 0
    given: int = 0
    waits: bool = False
    overran: bool = False
    polls: bool = False


@dataclass(slots=True)
class Snapshot:
    """The state as a policy sees it at ``now_us``. ``free_procs`` of ``procs_total`` processors are free now.

    ``ends`` are (predicted end, job id, processors) of what runs, in order of time, all after now. ``procs_total``
    counts processors in service: drained and lost ones are neither free nor coming back. ``nodes`` is None where
    processors are counted. ``running()`` lists what runs, in the order in which the jobs came; it is made when asked.
    """

    now_us: int
    procs_total: int
    free_procs: int
    queue: JobQueue
    ends: Sequence[tuple[int, int, int]]
    changes: Changes
    memory: Any = None
    nodes: Nodes | None = None
    running: Callable[[], list[RunningJob]] = list


class PlannedStart(msgspec.Struct, frozen=True, gc=False):
    """One job to start now, and why. ``allocation`` says on which named nodes; None: the machine places it."""

    job: Job
    reason: Reason
    allocation: Allocation | None = None


class PlannedResize(msgspec.Struct, frozen=True, gc=False):
    """One running job to hold something else from now on, and why: a width that its shape allows."""

    job: Job
    reason: Reason
    allocation: Allocation


class PlannedRequeue(msgspec.Struct, frozen=True, gc=False):
    """One running job to be ended and to wait again in its old place, and why: it begins anew."""

    job: Job
    reason: Reason


class PlannedAnswer(msgspec.Struct, frozen=True, gc=False):
    """An answer to a running job that asked for other numbers of processes, and why.

    It is given so many more (negative: fewer); what it holds is changed by a :class:`PlannedResize`. To the requests
    that are ``left`` it has no answer yet, and does nothing until it has; where none are left, the rest is refused.
    """

    job: Job
    reason: Reason
    given: int = 0
    left: tuple[int, ...] = ()


#: What a plan can change, each a type of its own.
PlannedChange = PlannedStart | PlannedResize | PlannedRequeue | PlannedAnswer


class Plan(msgspec.Struct, frozen=True, gc=False):
    """A policy's answer, applied at once or not at all.

    ``changes`` in the order in which they are to happen, but that jobs are ended and shrunk before any other is started
    or grows. A change that needs what another gives back is sent when that has happened. ``memory`` replaces the
    policy's memory; ``wake_us`` asks for a pass at that time even if nothing happens; ``told`` are promises made or
    moved: (job id, promised start, reason).
    """

    changes: Sequence[PlannedChange] = ()
    memory: Any = None
    wake_us: int | None = None
    told: Sequence[tuple[int, int, Reason]] = ()

    @property
    def starts(self) -> list[PlannedStart]:
        """The changes that are starts."""
        return [change for change in self.changes if isinstance(change, PlannedStart)]


@runtime_checkable
class SelfChecking(Protocol):
    """A policy that can check its memory against the state (called by ``SchedulerState.validate``)."""

    def validate(self, snapshot: Snapshot) -> None:
        """Raise AssertionError when the memory contradicts the snapshot."""
        ...


@runtime_checkable
class Explaining(Protocol):
    """A policy that can tell why the head of its queue waits where processors are lacking."""

    def waits(self, snapshot: Snapshot, head: Job) -> Reason | None:
        """The reason, with the number ``blocking_job`` of the job that it waits for; None: no more than the lack."""
        ...


class PolicyTraits(NamedTuple):
    """What a policy declares of itself, by attributes of these names; one that it lacks has the value given here.

    ``shares``: it can be had where jobs share nodes, so that their predicted ends move. ``place``: how tasks are laid
    on named nodes, a name in ``policy.place`` with its variants; empty: as the machine has it. ``mpl``: how many tasks
    may share a CPU; None: as many as nodes offer. ``memory_type``: of what type its memory is (``policy.memory``).
    ``alone_because``: why it cannot be had where jobs share nodes, for whoever asks it to. ``reshapes``: it gives jobs
    other widths than they ask for, or changes what they hold while they run.
    """

    shares: bool = False
    place: str = ""
    mpl: int | None = None
    memory_type: Any = None
    alone_because: str = "it does not declare that it goes with predicted ends that move"
    reshapes: bool = False


def traits_of(policy: "Policy") -> PolicyTraits:
    """What a policy declares."""
    names = [name for name in PolicyTraits._fields if hasattr(policy, name)]
    return PolicyTraits(**{name: getattr(policy, name) for name in names})


class Policy(Protocol):
    """A scheduling policy. See docs/guide/own-policy.md for one of twenty lines."""

    @property
    def order(self) -> Order:
        """The sort key of the queue."""
        ...

    def plan(self, snapshot: Snapshot) -> Plan:
        """Decide what starts now."""
        ...

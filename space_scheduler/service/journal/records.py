"""What the live service knows of a job besides what the core does: who wants it, its script, its story, how it ended.

The journal keeps these for every job it ever accepted (``keep_jobs``: for so long after its end), the host's view has
them for those alive.
"""

from collections.abc import Iterator, Mapping, MutableMapping, Sequence, ValuesView
from itertools import chain
from typing import Any, Final, TypeVar

import msgspec

from cosched.model.allocation import Allocation
from cosched.model.effort import Effort
from cosched.model.job import TERMINAL, Job, JobState
from cosched.wire.api import Failure, Submission
from cosched.wire.messages import Exit, Peer
from cosched.wire.output_names import expanded
from space_scheduler.eligibility.set_aside import SetAside
from space_scheduler.machine.events import Event
from space_scheduler.machine.explain import OnNode
from space_scheduler.machine.instructions import Instruction
from space_scheduler.reasons import Reason, Why

#: Of a job that is resized again and again.
MOST_RESHAPED: Final = 100
_PAGE_BITS: Final = 6
Value = TypeVar("Value")


class Transition(msgspec.Struct, frozen=True, gc=False):
    """One step of a job's life: at ``now_us`` (core time) it became ``state``, by the event ``seq`` of the journal.

    ``reason`` is the decision's own where the core decided; ``cause`` says in words which event it was; ``note`` is
    what whoever posted the event had to say (a node's refusal, an operator's name).
    """

    seq: int
    now_us: int
    state: JobState
    reason: Reason | None = None
    cause: str = ""
    note: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What nodes report of a job and the core does not want to know. None: not known (yet).

    Given to ``CoreHost.post`` or ``annotate``, fields that are not None replace what was known. ``cpu_us``,
    ``memory_peak_bytes`` and ``efforts`` are by node's name, so that a report that comes twice is not counted twice;
    they are merged.
    """

    exit: Exit | None = None
    failure: Failure | None = None
    cpu_us: dict[str, int] | None = None
    memory_peak_bytes: dict[str, int] | None = None
    efforts: dict[str, Effort] | None = None
    output: str | None = None
    error: str | None = None
    peers: tuple[Peer, ...] | None = None

    def merged(self, newer: "Facts") -> "Facts":
        """These facts with newer ones over them."""
        known = {name: value for name, value in msgspec.structs.asdict(newer).items() if value is not None}
        merged = {name: (getattr(self, name) or {}) | value for name, value in known.items() if isinstance(value, dict)}
        return msgspec.structs.replace(self, **known | merged)


class Reshaped(msgspec.Struct, frozen=True, gc=False):
    """At ``now_us`` (core time) a running job had another shape: so many processes on so many processors, and why."""

    now_us: int
    processes: int
    procs: int
    reason: Reason


class Kept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a journal's row of a job keeps as one text. Times in core time, microseconds.

    ``attempt`` counts how often it was started; ``limit_us`` is the run time its last start allows; ``promised_us`` the
    start last promised (FOREVER_US: nothing can be promised). ``reshaped``: the last changes of what it holds since its
    last start, at most :data:`MOST_RESHAPED`.
    """

    job: Job
    submit_us: int
    start_us: int | None = None
    end_us: int | None = None
    allocation: Allocation | None = None
    attempt: int = 0
    limit_us: int | None = None
    promised_us: int | None = None
    facts: Facts = Facts()
    reshaped: tuple[Reshaped, ...] = ()


class JobRecord(Kept, frozen=True, kw_only=True, omit_defaults=False, gc=False):
    """A job, alive or ended."""

    user: str
    submission: Submission
    state: JobState
    history: tuple[Transition, ...] = ()

    @property
    def id(self) -> int:
        """The job's number."""
        return self.job.id

    @property
    def alive(self) -> bool:
        """Whether it can still change."""
        return self.state not in TERMINAL

    @property
    def kept_back(self) -> Why | None:
        """Why a job may not be queued yet; None: it does not wait for that."""
        if self.state is not JobState.WAITING:
            return None
        step = self.history[-1] if self.history else None
        if step is None or step.state is not JobState.WAITING:  # of version 0.1, which listed it as queued
            return Why.SET_ASIDE
        return Why.HELD if step.reason is None else step.reason.why

    @property
    def output(self) -> str | None:
        """The file that it was asked to write its output to."""
        return self._named(self.submission.output)

    @property
    def error(self) -> str | None:
        """The same of its error output."""
        return self._named(self.submission.error)

    def _named(self, path: str | None) -> str | None:
        node = self.allocation.nodes[0].node if self.allocation and self.allocation.nodes else ""
        return None if path is None else expanded(path, self.id, self.submission.name, self.user, node)


class Committed(msgspec.Struct, frozen=True):
    """An event that is in the journal for good, and what followed from it: what a host hands on, after the commit."""

    seq: int
    now_us: int
    event: Event
    instructions: tuple[Instruction, ...] = ()
    transitions: tuple[tuple[int, Transition], ...] = ()  # (job id, its step)
    ended: tuple[JobRecord, ...] = ()  # those of them that have ended


class Explained(msgspec.Struct, frozen=True):
    """Why a job is in the state it is in: the decision's reason, when it was decided, and the event that led to it."""

    state: JobState
    reason: Reason | None
    decided_us: int
    cause: str = ""
    note: str = ""
    promised_us: int | None = None
    nodes: tuple[OnNode, ...] = ()


#: Of so many jobs that wait, lists say why they wait now; of the others, why they were queued.
EXPLAINED: Final = 50


class PagedDict(MutableMapping[int, Value]):
    """A dict by whole numbers, in their order of entry within and between pages of them.

    A copy costs one step for each page, a change after it the copy of one page.
    """

    __slots__ = ("_own", "_pages")

    def __init__(self, values: Mapping[int, Value]) -> None:
        self._pages: dict[int, dict[int, Value]] = {}
        self._own: set[int] = set()  # pages that no copy shares
        self.update(values)

    def copy(self) -> "PagedDict[Value]":
        """The same, independent of what becomes of this one."""
        other = PagedDict[Value]({})
        other._pages = self._pages.copy()
        self._own.clear()
        return other

    def __getitem__(self, number: int) -> Value:
        return self._pages.get(number >> _PAGE_BITS, {})[number]

    def __setitem__(self, number: int, value: Value) -> None:
        self._page(number)[number] = value

    def __delitem__(self, number: int) -> None:
        page = self._page(number)
        del page[number]
        if not page:
            del self._pages[number >> _PAGE_BITS]
            self._own.remove(number >> _PAGE_BITS)

    def _page(self, number: int) -> dict[int, Value]:
        """The page of a number, to be changed."""
        at = number >> _PAGE_BITS
        if at not in self._own:
            self._own.add(at)
            self._pages[at] = self._pages.get(at, {}).copy()
        return self._pages[at]

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self._pages.values())

    def __len__(self) -> int:
        return sum(map(len, self._pages.values()))

    def values(self) -> ValuesView[Value]:
        """As of any mapping, and fast."""
        return _Values(self)


class _Values(ValuesView[Value]):
    _mapping: PagedDict[Value]

    def __iter__(self) -> Iterator[Value]:
        return chain.from_iterable(page.values() for page in self._mapping._pages.values())


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The service's state at one moment; never changes, and reading it blocks nobody.

    ``jobs`` are those alive, by number; ``line`` those that are queued, behind their keys, in the queue's order;
    ``waiting`` how many are queued or may not be yet, by user; ``kept_back`` how many may not be, by reason; ``alive``
    how many there are, by state; ``ended`` counts all ends, by state.
    ``accepting`` is False while the journal cannot be written; ``problem`` then says why, and also when a policy's pass
    has failed (jobs go on running either way). ``decided_us``: the last pass. ``out_since_us``: since when each node is
    drained or lost that is; None: not known. ``aside``: the jobs that the pass has set aside, by number.
    ``without_place``: of the first :data:`EXPLAINED` jobs of ``line``, by number,
    why the nodes in service have no place for them even while no job is there.
    """

    seq: int = 0
    now_us: int = 0
    jobs: Mapping[int, JobRecord] = {}
    line: Sequence[tuple[Any, Job]] = ()
    waiting: dict[str, int] = {}
    kept_back: dict[Why, int] = {}
    alive: dict[JobState, int] = {}
    procs_total: int = 0
    free_procs: int = 0
    passes: int = 0
    decided_us: int = 0
    ended: dict[JobState, int] = {}
    accepting: bool = True
    problem: str = ""
    out_since_us: dict[str, int | None] = {}
    aside: dict[int, SetAside] = {}
    without_place: dict[int, Reason] = {}

    @property
    def queue(self) -> tuple[int, ...]:
        """The numbers of the jobs that may start, in the queue's order."""
        return tuple(job.id for _, job in self.line)

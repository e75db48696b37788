"""The waiting jobs, in order, and by shape.

Two views of the same jobs. In order, for whoever walks the queue. By *shape* (processors, estimate, memory, nodes to
avoid, other widths or components, which of kind and use of a CPU the place looks at, and the user where some nodes take
none of that one's jobs), because jobs of one shape are alike to every feasibility question: a scan that asks each shape
once, in the order of their first jobs, finds what a scan of the whole queue finds, and a queue of ten thousand jobs has
only some hundred shapes.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from heapq import heapify, heappop, heapreplace
from itertools import islice
from typing import Final, overload

from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from cosched.model.width import Shape
from space_scheduler.on_nodes import FIELDS, Field
from space_scheduler.policy.order import Key, Order, fcfs

Entry = tuple[Key, Job]
Rest = int | tuple[int, tuple[str, ...], str, int, Shape | None, int]
Rank = tuple[int, ...]
RankOf = Callable[[Entry], Rank]
_COMPACT_AT = 512
#: From how many jobs on a walk keeps lines by width: for fewer a look at each shape costs less than keeping them.
_LONG: Final = 256
_BLOCK: Final = 64
#: What a task is taken to use of a CPU where nobody has said.
WHOLE_CPU_PERMILLE: Final = Job(0, 1, 1, 0).cpu_permille


class JobQueue:
    """A queue sorted by an order's key. Adding at the end and taking from the front are cheap, the rest bisects.

    ``alike_in``: which fields of two jobs, besides processors, estimate, memory and nodes to avoid, have to be the same
    for the jobs to be alike: what the place looks at (``feasibility.Place``), or all of them.
    """

    __slots__ = ("_apart", "_by_shape", "_cpu", "_entries", "_first", "_kind", "_lines", "_order", "_shared", "_sorted")

    def __init__(self, order: Order = fcfs, alike_in: Collection[Field] = FIELDS) -> None:
        self._order = order
        self._kind, self._cpu = Field.KIND in alike_in, Field.CPU in alike_in
        self._entries: dict[int, Entry] = {}
        self._sorted: list[Entry] = []  # from _first on; before it lie jobs already taken from the front
        self._first = 0
        self._shared = False  # lines refer to the list
        self._by_shape: dict[int, dict[Rest, deque[Entry]]] = {}
        self._apart: frozenset[int] = frozenset()
        self._lines: dict[RankOf, dict[int, Line]] = {}  # by width, while the queue is long and walked so

    def only(self, job_ids: Collection[int], more: Iterable[tuple[Job, int]] = ()) -> "JobQueue":
        """A queue of those of its jobs that are among these, and of others with their ranks."""
        other = JobQueue(self._order)
        other._kind, other._cpu, other._apart = self._kind, self._cpu, self._apart
        for entry in self.line():
            if entry[1].id in job_ids:
                other._entries[entry[1].id] = entry
                other._sorted.append(entry)
                other._enter(entry)
        for job, rank in more:
            other.add(job, rank)
        return other

    def tell_apart(self, users: Collection[int]) -> None:
        """From now on jobs of these users are alike to none of others: some nodes do not take them."""
        if self._apart == frozenset(users):
            return
        self._apart = frozenset(users)
        self._by_shape = {}
        for entry in self._sorted[self._first :]:  # in order, so each shape's are
            self._enter(entry)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._entries

    def ids(self) -> Set[int]:
        """The jobs' numbers: a view, for whoever asks for thousands."""
        return self._entries.keys()

    def __iter__(self) -> Iterator[Job]:
        """The jobs in order."""
        jobs = self._sorted
        return (jobs[i][1] for i in range(self._first, len(jobs)))

    def line(self) -> Sequence[Entry]:
        """The keys and the jobs in order, as a value of its own; the list is copied when its midst is to change."""
        self._shared = True
        return InOrder(self._sorted, self._first, len(self._sorted))

    def _own(self) -> list[Entry]:
        """The list, to be changed anywhere."""
        if self._shared:
            self._sorted, self._first, self._shared = self._sorted[self._first :], 0, False
        return self._sorted

    def head(self) -> Job | None:
        """The first job in order, or None."""
        return self._sorted[self._first][1] if self._first < len(self._sorted) else None

    def key(self, job_id: int) -> Key:
        """The sort key of a queued job."""
        return self._entries[job_id][0]

    def has(self, job: Job) -> bool:
        """Whether this very job waits, and not another of its number."""
        entry = self._entries.get(job.id)
        return entry is not None and (entry[1] is job or entry[1] == job)

    def job(self, job_id: int) -> Job:
        """A queued job by its id."""
        return self._entries[job_id][1]

    def entry(self, job: Job, rank: int) -> Entry:
        """A job behind the key that it has here; ``rank`` is its place in the order of arrival and unique."""
        return self._order(job, rank), job

    def add(self, job: Job, rank: int) -> None:
        """Enter a job; ``rank`` as for :meth:`entry`."""
        key, _ = entry = self.entry(job, rank)
        self._entries[job.id] = entry
        jobs = self._sorted
        if len(jobs) == self._first or jobs[-1][0] < key:
            jobs.append(entry)
        else:
            insort(self._own(), entry, self._first)  # keys are unique: jobs are never compared
        self._enter(entry)
        for by, lines in self._lines.items():
            _line_up(lines, by, entry)

    def _enter(self, entry: Entry) -> None:
        """Put a job to those of its shape."""
        key, job = entry
        within = self._by_shape.setdefault(job.procs, {})
        shape = self._within_width(job)
        same = within.get(shape)
        if same is None:
            within[shape] = deque((entry,))
        elif same[-1][0] < key:
            same.append(entry)
        else:  # a released job comes back to its old place
            insort(same, entry)

    def remove(self, job: Job) -> None:
        """Take a job out."""
        entry = self._entries.pop(job.id)
        jobs, first = self._sorted, self._first
        if jobs[first] is entry:
            self._first = first = first + 1
            if first >= _COMPACT_AT and first * 2 >= len(jobs):
                del self._own()[: self._first]
                self._first = 0
        else:
            jobs = self._own()
            del jobs[bisect_left(jobs, entry, self._first)]
        within = self._by_shape[job.procs]
        shape = self._within_width(job)
        same = within[shape]
        if same[0] is entry:
            same.popleft()
        else:
            same.remove(entry)
        if not same:
            del within[shape]
            if not within:
                del self._by_shape[job.procs]
        for by, lines in self._lines.items():
            lines[job.procs].remove(by(entry))

    def narrowest(self) -> int:
        """The fewest processors any queued job needs (the queue must not be empty)."""
        return min(self._by_shape)

    def scan(
        self,
        free_procs: int,
        *,
        longest_us: Callable[[int], int] | None = None,
        shortest_first: bool = False,
        widest_first: bool = False,
    ) -> "Scan | LongScan":
        """Walk the jobs of at most ``free_procs`` processors, a shape at a time (see :class:`Scan`).

        ``longest_us`` says the longest estimate that the walk is to have of so many processors, and never rises during
        the walk. Only where processors and estimate are all that decides: then a long queue is not walked job by job.
        """
        by = _shortest_first if shortest_first else _widest_first if widest_first else _in_order
        if longest_us is not None and len(self._entries) >= _LONG:
            lines = self._lines.get(by)
            if lines is None:
                lines = self._lines[by] = {}
                for entry in self.line():
                    _line_up(lines, by, entry)
            return LongScan(lines, free_procs, longest_us)
        self._lines.clear()
        shapes = []
        for procs, within in self._by_shape.items():
            if procs <= free_procs:
                most_us = FOREVER_US if longest_us is None else longest_us(procs)
                shapes += [same for same in within.values() if same[0][1].estimate_us <= most_us]
        return Scan(shapes, by)

    def _within_width(self, job: Job) -> Rest:
        """The rest of a job's shape: as one number its estimate (below 2 to the 62nd) and above that its memory.

        Of the fields that the place does not look at, all jobs have the same value; so has a job of which nothing is
        known.
        """
        rest = job.estimate_us
        if job.memory_bytes:
            rest |= job.memory_bytes << 62
        kind = job.kind if self._kind or job.shape is not None else ""  # the link between clusters costs it by kind
        cpu_permille = job.cpu_permille if self._cpu else WHOLE_CPU_PERMILLE
        user = job.user if job.user in self._apart else -1
        if job.avoid or kind or cpu_permille != WHOLE_CPU_PERMILLE or job.shape is not None or user != -1:
            return rest, job.avoid, kind, cpu_permille, job.shape, user
        return rest


class InOrder(Sequence[Entry]):
    """Those of a sorted list from ``first`` to ``end``, which never change: the list grows at its end, or is copied."""

    __slots__ = ("_end", "_entries", "_first")

    def __init__(self, entries: list[Entry], first: int, end: int) -> None:
        self._entries, self._first, self._end = entries, first, end

    def __len__(self) -> int:
        return self._end - self._first

    def __iter__(self) -> Iterator[Entry]:
        return islice(self._entries, self._first, self._end)

    @overload
    def __getitem__(self, at: int) -> Entry: ...
    @overload
    def __getitem__(self, at: slice) -> list[Entry]: ...
    def __getitem__(self, at: int | slice) -> Entry | list[Entry]:
        places = range(self._first, self._end)[at]
        return self._entries[places] if isinstance(places, int) else [self._entries[each] for each in places]


class Scan:
    """A walk over the queue for one pass, in order (or by another rank), that can leave a shape out.

    ``peek()`` gives the next job; ``drop()`` after it says that its shape is out for the rest of the walk. Correct
    because room only shrinks while the place looks at what is free alone: a shape that did not fit will not fit later.
    Where a start can make room (``Place.by_company``), another walk finds it.
    """

    __slots__ = ("_heap", "_rank")

    def __init__(self, shapes: Iterable[deque[Entry]], rank: RankOf) -> None:
        # (sort key, index within the shape, the shape's jobs): keys are unique, so the rest is never compared
        self._heap: list[tuple[Rank, int, deque[Entry]]] = [(rank(same[0]), 0, same) for same in shapes]
        heapify(self._heap)
        self._rank = rank

    def peek(self) -> Job | None:
        """The next job in order, or None when no shape is left."""
        if not self._heap:
            return None
        _, index, same = self._heap[0]
        return same[index][1]

    def drop(self) -> None:
        """Leave out the rest of the shape of the job that ``peek`` gives."""
        heappop(self._heap)

    def advance(self) -> None:
        """Go past the job that ``peek`` gives, to the next of its shape or of another."""
        _, index, same = self._heap[0]
        index += 1
        if index == len(same):
            heappop(self._heap)
            return
        heapreplace(self._heap, (self._rank(same[index]), index, same))


class Line:
    """The queued jobs of one width by rank, in blocks with the shortest estimate of each.

    Finding the next job of at most a given estimate, adding and removing look at one block and at one number of each
    other.
    """

    __slots__ = ("_blocks", "_shortest_us")

    def __init__(self) -> None:
        self._blocks: list[list[tuple[Rank, Job]]] = []
        self._shortest_us: list[int] = []

    def _block_of(self, rank: Rank) -> int:
        """The first block with a job of this rank or one behind it; the last where there is none."""
        return min(bisect_left(self._blocks, rank, key=_last_rank), len(self._blocks) - 1)

    def add(self, rank: Rank, job: Job) -> None:
        """Enter a job."""
        if not self._blocks:
            self._blocks, self._shortest_us = [[(rank, job)]], [job.estimate_us]
            return
        at = self._block_of(rank)
        block = self._blocks[at]
        insort(block, (rank, job))
        self._shortest_us[at] = min(self._shortest_us[at], job.estimate_us)
        if len(block) > 2 * _BLOCK:
            self._blocks[at : at + 1] = halves = [block[:_BLOCK], block[_BLOCK:]]
            self._shortest_us[at : at + 1] = [min(each[1].estimate_us for each in half) for half in halves]

    def remove(self, rank: Rank) -> None:
        """Take out the job of a rank."""
        at = self._block_of(rank)
        block = self._blocks[at]
        _, job = block.pop(bisect_left(block, rank, key=_rank))
        if not block:
            del self._blocks[at], self._shortest_us[at]
        elif job.estimate_us == self._shortest_us[at]:
            self._shortest_us[at] = min(each[1].estimate_us for each in block)

    def next(self, most_us: int, after: Rank = ()) -> tuple[Rank, Job] | None:
        """The first job behind a rank whose estimate is at most this, with its rank."""
        if not self._blocks:
            return None
        for at in range(self._block_of(after), len(self._blocks)):
            if self._shortest_us[at] <= most_us:
                for entry in self._blocks[at]:
                    if entry[1].estimate_us <= most_us and entry[0] > after:
                        return entry
        return None


class LongScan:
    """A :class:`Scan` that goes from one job that may start to the next, width by width, and past all that may not."""

    __slots__ = ("_heap", "_lines", "_longest_us")

    def __init__(self, lines: Mapping[int, Line], free_procs: int, longest_us: Callable[[int], int]) -> None:
        self._lines, self._longest_us = lines, longest_us
        firsts = (line.next(longest_us(procs)) for procs, line in lines.items() if procs <= free_procs)
        self._heap = [first for first in firsts if first is not None]
        heapify(self._heap)

    def peek(self) -> Job | None:
        """As :meth:`Scan.peek`."""
        return self._heap[0][1] if self._heap else None

    def advance(self) -> None:
        """Go past the job that ``peek`` gives, to the next that may start, of its width or of another."""
        rank, job = self._heap[0]
        following = self._lines[job.procs].next(self._longest_us(job.procs), rank)
        if following is None:
            heappop(self._heap)
        else:
            heapreplace(self._heap, following)

    drop = advance  # what kept this job keeps the rest of its shape: their estimate is the same


def _line_up(lines: dict[int, Line], by: RankOf, entry: Entry) -> None:
    procs = entry[1].procs
    if procs not in lines:
        lines[procs] = Line()
    lines[procs].add(by(entry), entry[1])


def _rank(ranked: tuple[Rank, Job]) -> Rank:
    return ranked[0]


def _last_rank(block: Sequence[tuple[Rank, Job]]) -> Rank:
    return block[-1][0]


def _in_order(entry: Entry) -> Rank:
    return entry[0]


def _shortest_first(entry: Entry) -> Rank:
    (_, rank), job = entry
    return job.estimate_us, rank


def _widest_first(entry: Entry) -> Rank:
    key, job = entry
    return -job.procs, *key

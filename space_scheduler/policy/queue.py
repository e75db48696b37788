"""The waiting jobs, in order, and by shape.

Two views of the same jobs. In order, for whoever walks the queue. By *shape* (processors, estimate, memory, nodes to
avoid, kind, use of a CPU), because jobs of one shape are alike to every feasibility question: a scan that asks each
shape once, in the order of their first jobs, finds what a scan of the whole queue finds, and a queue of ten thousand
jobs has only some hundred shapes.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final

from cosched.model.job import Job
from space_scheduler.policy.order import Key, Order, fcfs

Entry = tuple[Key, Job]
Rest = int | tuple[int, tuple[str, ...], str, int]
_COMPACT_AT = 512
#: What a task is taken to use of a CPU where nobody has said.
WHOLE_CPU_PERMILLE: Final = Job(0, 1, 1, 0).cpu_permille


class JobQueue:
    """A queue sorted by an order's key. Adding at the end and taking from the front are cheap, the rest bisects."""

    __slots__ = ("_by_shape", "_entries", "_first", "_order", "_sorted")

    def __init__(self, order: Order = fcfs) -> None:
        self._order = order
        self._entries: dict[int, Entry] = {}
        self._sorted: list[Entry] = []  # from _first on; before it lie jobs already taken from the front
        self._first = 0
        self._by_shape: dict[int, dict[Rest, deque[Entry]]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._entries

    def __iter__(self) -> Iterator[Job]:
        """The jobs in order."""
        jobs = self._sorted
        return (jobs[i][1] for i in range(self._first, len(jobs)))

    def line(self) -> Sequence[Entry]:
        """The keys and the jobs in order, as a value of its own: a copy that costs next to nothing."""
        return self._sorted[self._first :]

    def head(self) -> Job | None:
        """The first job in order, or None."""
        return self._sorted[self._first][1] if self._first < len(self._sorted) else None

    def key(self, job_id: int) -> Key:
        """The sort key of a queued job."""
        return self._entries[job_id][0]

    def job(self, job_id: int) -> Job:
        """A queued job by its id."""
        return self._entries[job_id][1]

    def add(self, job: Job, rank: int) -> None:
        """Enter a job; ``rank`` is its place in the order of arrival and unique."""
        key = self._order(job, rank)
        entry = (key, job)
        self._entries[job.id] = entry
        jobs = self._sorted
        if len(jobs) == self._first or jobs[-1][0] < key:
            jobs.append(entry)
        else:
            insort(jobs, entry, self._first, key=_key_of)
        within = self._by_shape.setdefault(job.procs, {})
        shape = _within_width(job)
        same = within.get(shape)
        if same is None:
            within[shape] = deque((entry,))
        elif same[-1][0] < key:
            same.append(entry)
        else:  # a released job comes back to its old place
            insort(same, entry, key=_key_of)

    def remove(self, job: Job) -> None:
        """Take a job out."""
        key, _ = self._entries.pop(job.id)
        jobs, first = self._sorted, self._first
        if jobs[first][0] == key:
            self._first = first = first + 1
            if first >= _COMPACT_AT and first * 2 >= len(jobs):
                del jobs[:first]
                self._first = 0
        else:
            del jobs[bisect_left(jobs, key, first, key=_key_of)]
        within = self._by_shape[job.procs]
        shape = _within_width(job)
        same = within[shape]
        if same[0][0] == key:
            same.popleft()
        else:
            same.remove((key, job))
        if not same:
            del within[shape]
            if not within:
                del self._by_shape[job.procs]

    def narrowest(self) -> int:
        """The fewest processors any queued job needs (the queue must not be empty)."""
        return min(self._by_shape)

    def scan(self, free_procs: int, *, shortest_first: bool = False) -> "Scan":
        """Walk the jobs of at most ``free_procs`` processors, a shape at a time (see :class:`Scan`)."""
        return Scan(self._by_shape, free_procs, shortest_first)


class Scan:
    """A walk over the queue for one pass, in order (or shortest estimate first), that can leave a shape out.

    ``next()`` gives the next job; ``drop()`` after it says that its shape is out for the rest of the pass. Correct
    because in a pass room only shrinks: a shape that did not fit will not fit later.
    """

    __slots__ = ("_heap", "_shortest_first")

    def __init__(self, by_shape: dict[int, dict[Rest, deque[Entry]]], free_procs: int, shortest_first: bool) -> None:
        # (sort key, index within the shape, the shape's jobs): keys are unique, so the rest is never compared
        self._heap: list[tuple[Key, int, deque[Entry]]] = [
            ((same[0][1].estimate_us, same[0][0][1]) if shortest_first else same[0][0], 0, same)
            for procs, within in by_shape.items()
            if procs <= free_procs
            for same in within.values()
        ]
        heapify(self._heap)
        self._shortest_first = shortest_first

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
        key, job = same[index]
        heapreplace(self._heap, ((job.estimate_us, key[1]) if self._shortest_first else key, index, same))


def _within_width(job: Job) -> Rest:
    """The rest of a job's shape: as one number its estimate (below 2 to the 62nd) and above that its memory.

    A job that avoids nodes, or of which its kind or its use of a CPU is known, is alike to those alone that have the
    same: where nodes are shared, company is chosen by them.
    """
    rest = job.estimate_us if not job.memory_bytes else job.memory_bytes << 62 | job.estimate_us
    if job.avoid or job.kind or job.cpu_permille != WHOLE_CPU_PERMILLE:
        return rest, job.avoid, job.kind, job.cpu_permille
    return rest


def _key_of(entry: Entry) -> Key:
    return entry[0]

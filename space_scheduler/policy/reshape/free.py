"""What is free for jobs of several widths, as a copy to plan with: counted processors, or named nodes."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

from cosched.model.allocation import Allocation, Share, on_nodes, partition
from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from cosched.model.width import Range
from space_scheduler.feasibility import Room
from space_scheduler.policy.interface import Snapshot
from space_scheduler.progress import Rate, speed_up


class FreeProcs:
    """Processors that are free in a plan. On named nodes, which are ``room``, memory is free or not as well."""

    __slots__ = ("procs", "room")

    def __init__(self, snapshot: Snapshot) -> None:
        self.room: Room | None = None if snapshot.nodes is None else snapshot.nodes.room.copy()
        self.procs = snapshot.free_procs if self.room is None else self.room.free_procs

    def copy(self) -> "FreeProcs":
        """An independent copy."""
        other = FreeProcs.__new__(FreeProcs)
        other.room, other.procs = None if self.room is None else self.room.copy(), self.procs
        return other

    def take(self, job: Job, allocation: Allocation) -> None:
        """A job will hold this."""
        if self.room is None:
            self.procs -= allocation.procs
        else:
            self.room.take(job, allocation)
            self.procs = self.room.free_procs

    def give(self, job: Job, allocation: Allocation) -> None:
        """A job will hold this no more."""
        if self.room is None:
            self.procs += allocation.procs
        else:
            self.room.give(job, allocation)
            self.procs = self.room.free_procs

    def place(self, job: Job, processes: int) -> Allocation | None:
        """A place for so many processes of a job, each with a processor of its own, or None."""
        if processes > self.procs:
            return None
        return Allocation(processes) if self.room is None else self.room.placed(job.at(processes))

    def place_folded(self, job: Job, processes: int, most: int) -> Allocation | None:
        """A place for so many processes, up to ``most`` on a processor and as few as can be, or None."""
        if self.room is None:
            procs = min(processes, self.procs)
            return partition(processes, procs) if procs > 0 and -(-processes // procs) <= most else None
        for fold in range(1, most + 1):
            if (found := _folded_place(self.room, job, processes, fold)) is not None:
                return found
        return None

    def largest(self, job: Job, most: int | None = None) -> Allocation | None:
        """A place for a job in the largest of its sizes that fits, of those of at most so many processes; or None."""
        size = job.width.largest(self.procs if most is None else min(most, self.procs))
        while size is not None:
            if (found := self.place(job, size)) is not None:
                return found
            size = job.width.largest(size - 1)
        return None

    def widened(self, job: Job, held: Allocation, procs: int) -> Allocation:
        """What a folded or resident job holds, and up to so many processors more of its nodes, the first ones first.

        For each process it has one at most.
        """
        if self.room is None:
            more = min(procs, self.procs, held.processes - held.procs)
            return partition(held.processes, held.procs + max(0, more))
        room, shares = self.room, []
        for share in held.nodes:
            at = room.index.get(share.node)
            free = 0 if at is None else max(0, room.procs[at])
            more = min(free, procs, share.tasks - share.procs)
            procs -= more
            shares.append((share.node, share.tasks, share.procs + more))
        return on_nodes(shares)

    def wider(self, job: Job, held: Allocation, processes: int) -> Allocation | None:
        """What a malleable job holds and what it needs for so many processes, or None where that has no place."""
        if self.room is None:
            return Allocation(processes) if processes - held.procs <= self.procs else None
        if any(share.node not in self.room.index for share in held.nodes):
            return None  # one of its nodes is out of service: it may keep what it has, not grow
        room = self.room.on_clusters_of(self.room.index[share.node] for share in held.nodes)
        more = room.placed(job.at(processes - held.procs))
        if more is None:
            return None
        tasks = {share.node: share.tasks for share in held.nodes}
        for share in more.nodes:
            tasks[share.node] = tasks.get(share.node, 0) + share.tasks
        if len(tasks) > max(self.room.most_nodes, len(held.nodes)):
            return None
        return Allocation(processes, tuple(Share(node, count) for node, count in tasks.items()))


def narrower(held: Allocation, processes: int) -> Allocation:
    """What a malleable job keeps of what it holds for so many processes: those of its first nodes."""
    if not held.nodes:
        return Allocation(processes)
    kept, left = [], processes
    for share in held.nodes:
        if tasks := min(share.tasks, left):
            kept.append(Share(share.node, tasks))
            left -= tasks
    return Allocation(processes, tuple(kept))


def done_us(now_us: int, job: Job, allocation: Allocation, left_us: Rate) -> int:
    """When a job is done that has so much to do, in microseconds alone in its own width, with that allocation."""
    return int(now_us - -left_us // speed_up(job, allocation))


def shadow(ends: Iterable[tuple[int, int]], free: int, needed: int) -> tuple[int, int]:
    """When so many processors are free, and how many are left over then; (FOREVER_US, 0): never.

    ``ends``: (predicted end, processors that come free); ``free``: those that are free now.
    """
    for end_us, freed in groupby(sorted(ends), key=itemgetter(0)):
        free += sum(procs for _, procs in freed)
        if free >= needed:
            return end_us, free - needed
    return FOREVER_US, 0


def smallest(job: Job) -> int:
    """The fewest processes that a job can be started with."""
    width = job.width
    return width.sizes[0] if isinstance(width, Range) and width.sizes else width.least


def sizes_down(job: Job, most: int) -> Iterable[int]:
    """The sizes that a job can be started with, from the largest of at most so many processes down."""
    size = job.width.largest(most)
    while size is not None:
        yield size
        size = job.width.largest(size - 1)


def _folded_place(room: Room, job: Job, processes: int, fold: int) -> Allocation | None:
    """So many processes on the nodes with most free processors, at most ``fold`` on each of them; or None.

    Of several clusters each of its components lies on one.
    """
    most = []
    for index in range(len(room.names)):
        tasks = fold * max(0, room.procs[index])
        if job.memory_bytes:
            tasks = min(tasks, max(0, room.memory_bytes[index]) // job.memory_bytes)
        most.append(room.tasks_on(index, job, tasks, room.memory_bytes[index]))
    laid = room.laid_over_clusters(job.at(processes), most, lambda width, here: _on_freest(room, here, width))
    if laid is None or len(laid) > room.most_nodes:
        return None
    return on_nodes([(room.names[index], here, min(here, room.procs[index])) for index, here in sorted(laid)])


def _on_freest(room: Room, most: Sequence[int], processes: int) -> list[tuple[int, int]] | None:
    """(index of a node, processes) on the nodes with most free processors, at most so many on each; or None."""
    laid, left = [], processes
    freest = sorted((at for at, here in enumerate(most) if here), key=lambda at: (-room.procs[at], at))
    for index in freest[: room.most_nodes]:
        if here := min(most[index], left):
            laid.append((index, here))
            left -= here
    return None if left else laid

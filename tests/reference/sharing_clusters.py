"""3DBackfilling over components, once more: clusters whose CPUs jobs share, plain and slow.

Hanzich et al. 2005, section 3 (3DBackfilling), over Ngubiri & van Vliet's components, as the design has it (sections 3,
5 and 7). What a component is, and where Worst Fit puts it, is that of ``coallocation``; a cluster is one node with so
many places for tasks and fewer CPUs, each task computes all the time, nobody sits there, and sharing costs nothing
beyond the CPU that it takes.

**How fast a job goes**: as fast as its slowest component. On each node tasks have equal parts of the CPUs, none more
than one; what a job leaves unused on one node because it is slower on another is lost. That is counted in whole
millionths (rounded to the even one, at least one); on more than one cluster it is divided by 1 + ``cost``, exactly. An
estimate is work, and a limit: a job ends in the first whole microsecond at which so much is done.

**Who starts**: the head while it has a place. Then the *reservation* of the head is the first predicted end after which
Worst Fit has a place for it, if nobody else starts. Another job, the first of the queue, starts if Worst Fit has a
place for it now, and with it there, and everybody as slow as it makes them, such an end still comes by that moment.
After each start all of that anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

from reference.coallocation import Divided, Placed, clusters_of, worst_fit

MILLION = 1_000_000


@dataclass(frozen=True)
class Share:
    """A job that runs: ``left`` is what it has to do, by its estimate or really, in microseconds alone."""

    job: Divided
    placed: Placed
    left: Fraction
    really: Fraction


@dataclass
class Sharing:
    """Nodes with so many places for tasks and so many CPUs, and who runs on them at a moment."""

    places: Sequence[int]
    cpus: Sequence[int]
    cost: Fraction
    now: int
    running: list[Share]

    def copy(self) -> "Sharing":
        return replace(self, running=[*self.running])

    def free(self) -> list[int]:
        used = [0] * len(self.places)
        for share in self.running:
            for cluster, width in share.placed:
                used[cluster - 1] += width
        return [places - here for places, here in zip(self.places, used, strict=True)]

    def place(self, job: Divided) -> Placed | None:
        free = self.free()
        return next((placed for split in job.splits if (placed := worst_fit(split, free))), None)

    def start(self, job: Divided, placed: Placed) -> None:
        work = Fraction(min(job.run, job.estimate))
        self.running.append(Share(job, placed, Fraction(job.estimate), work))

    def rate(self, share: Share) -> Fraction:
        free = self.free()
        parts = []
        for cluster in clusters_of(share.placed):
            tasks = self.places[cluster - 1] - free[cluster - 1]
            parts.append(min(Fraction(1), Fraction(self.cpus[cluster - 1], tasks)))
        slowest = Fraction(max(1, round(min(parts) * MILLION)), MILLION)
        return slowest / (1 + self.cost) if len(parts) > 1 else slowest

    def ends(self, *, really: bool) -> dict[Divided, int]:
        """When each would end if nothing else happened."""
        return {
            share.job: self.now + ceil((share.really if really else share.left) / self.rate(share))
            for share in self.running
        }

    def go_on(self, until: int) -> None:
        went = [(share, (until - self.now) * self.rate(share)) for share in self.running]
        self.running = [replace(share, left=share.left - done, really=share.really - done) for share, done in went]
        self.now = until

    def leave(self, gone: set[Divided]) -> None:
        self.running = [share for share in self.running if share.job not in gone]

    def first_place_for(self, head: Divided) -> int:
        """The first predicted end after which a job has a place; it changes this moment into that one."""
        while not self.place(head):
            ends = self.ends(really=False)
            self.go_on(min(ends.values()))
            self.leave({job for job, end in ends.items() if end == self.now})
        return self.now


def simulate(jobs: Sequence[Divided], places: Sequence[int], cpus: Sequence[int], cost: Fraction) -> None:
    """Have each job start, lie and end; of ends ``takes`` tells, of the first reservation ``promised``."""
    here = Sharing(places, cpus, cost, 0, [])
    to_come, waiting = [*jobs], list[Divided]()
    while to_come or here.running:
        ends = here.ends(really=True)
        here.go_on(min([*ends.values(), *(job.submit for job in to_come[:1])]))
        gone = {job for job, end in ends.items() if end == here.now}
        for job in gone:
            assert job.start is not None
            job.takes = here.now - job.start
        here.leave(gone)
        waiting += [job for job in to_come if job.submit == here.now]
        to_come = [job for job in to_come if job.submit > here.now]
        decide(here, waiting)
    assert not waiting


def decide(here: Sharing, waiting: list[Divided]) -> None:
    """One pass; who starts waits no more."""
    while waiting:
        head, *others = waiting
        if placed := here.place(head):
            start(here, waiting, head, placed)
            continue
        reserved = here.copy().first_place_for(head)
        harmless = ((job, placed) for job in others if (placed := keeps(here, job, head, reserved)))
        if (found := next(harmless, None)) is None:
            if head.promised is None:
                head.promised = reserved
            return
        start(here, waiting, *found)


def keeps(here: Sharing, job: Divided, head: Divided, reserved: int) -> Placed | None:
    """Where a job can start now so that the head's moment comes no later."""
    placed = here.place(job)
    if placed is None:
        return None
    ahead = here.copy()
    ahead.start(job, placed)
    return placed if ahead.first_place_for(head) <= reserved else None


def start(here: Sharing, waiting: list[Divided], job: Divided, placed: Placed) -> None:
    waiting.remove(job)
    job.start, job.placed = here.now, placed
    here.start(job, placed)

"""Jobs of several components on several clusters, once more: plain, slow, read from the paper and the design.

Ngubiri & van Vliet, "Group-wise Performance Evaluation of Processor Co-allocation in Multi-cluster Systems", 2006, and
the design, section 3 (fpfs, worst-fit, backfill, conservative) and section 7 (``--clusters``). The clock, FCFS and
FPFS are those of ``world`` and ``rules``; what is here knows of clusters. The processors of a cluster are
interchangeable, a component lies on one cluster, and all components of a job start and end together. Times are whole
microseconds; clusters are numbered from 1.

**Worst Fit** (section 3): the i-th widest component goes to the i-th freest cluster, each to another one; the job fits
if all do. ``share``: each component in turn, the widest first, to the cluster that is then the freest, so that a
cluster may get several.

**What paper and design leave open, and how it is read here**

1.  *Ties*: of clusters that are equally free the lower number is the freer one. Of jobs submitted together the one with
    the lower number is first.
2.  *Communication*: a job that lies on more than one cluster runs 1 + ``cost`` times as long, rounded up to the
    microsecond, and its estimate is stretched in the same way, since it is work. With ``kill`` the estimate is a limit
    too: whoever asked for too little ends when as much is done as it asked for. Without, the estimate of a job that
    is still there grows by the steps of ``world``, which are work too.
3.  *Who is refused*: whoever Worst Fit does not place on empty clusters. It never starts, and nobody waits for it.
4.  *Adaptive*: a job has, at the time at which it is placed, the first of all splits of its size into at most ``most``
    components that Worst Fit then places, in this order: the narrowest widest component, then the fewest components,
    then the narrowest second widest, and so on. If that one may not start (EASY), no other one is tried. Its components
    lie on different clusters, also with ``share``: two on one would be one.
5.  *EASY's shadow time* is the earliest predicted end of a running job at which Worst Fit places the head (an adaptive
    one: any of its splits), by what is then free on each cluster if nobody starts meanwhile. That suffices for the
    whole of its estimate: after that moment those who run can only give processors back, and the head then lies on its
    own. On which clusters that will be is not fixed; it starts wherever Worst Fit places it when it does.
6.  *Who may be backfilled*: whom Worst Fit places now, if it places the head at the shadow time with that job there
    too, on the clusters that it has now; one that ends by the shadow time holds nothing then (intervals are half-open).
    Extra nodes, as in Feitelson & Weil 1998, Fig. 5, would be a number for each cluster that depends on where the head
    comes to lie; this asks the same without saying where.
7.  *Again and again* (Fig. 5): after each start the queue is searched from its beginning, with the shadow time found
    anew. On one cluster a start only makes it harder for others; here it may send a job to another cluster, where it is
    not in the head's way. Only the head itself is not asked again: a start leaves no cluster freer than it was.
8.  *A reservation of conservative backfilling* is a time, clusters and widths, fixed when it is made. The time is the
    earliest from which Worst Fit places the job, each cluster taken as free as at its least free moment within the
    whole of its estimate. Now and predicted ends are all that have to be looked at: between them nothing gets freer.
9.  *How long is that estimate*, as long as nobody knows on how many clusters the job will lie (adaptive ones, and with
    ``share``)? As long as it can be: stretched, if the job has a place on several clusters. What is then reserved is as
    long as it takes on the clusters that it got. So a reservation of such a job may be later than would be possible on
    one cluster; the paper has neither reservations nor a cost, and the design decides it (``docs/design/clusters.md``).
10. *Compression in order of arrival* (section 2.1 of Feitelson & Weil 1998), at each end of a job: each reservation in
    turn is taken out, and made anew if that is earlier; otherwise it is put back as it was, with its clusters. So no
    job is ever delayed, also with ``share``, where Worst Fit may not find again what was there.
11. *Several reservations* (backfill(n), design, section 3): the first n of the queue have each the earliest time that
    (8) gives it beside those before it; whom that lets start now, starts. Behind them Worst Fit's place for a job now
    is good if each of them then still has a place at its time, in their order, whichever that is. On
    several clusters all of it is done anew after a start (7). They are of one pass: the next one makes others.
12. *Order within a pass* of conservative backfilling: compression, then reservations for those who are new, in order of
    submission, then everybody whose time has come starts, on the clusters of its reservation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import ceil
from typing import NamedTuple

from reference.rules import JustTheHead, NoAppointments
from reference.world import Job, News, Rule, World

#: The components of a job, in any order.
Split = tuple[int, ...]


class Component(NamedTuple):
    cluster: int
    width: int


#: Where a job lies, the widest component first.
Placed = tuple[Component, ...]

# partitions


def by_floor(size: int, n: int) -> Split:
    """The paper's: n − 1 components of ⌊size / n⌋, and the last takes the whole remainder."""
    return (*[size // n] * (n - 1), size - (n - 1) * (size // n))


def balanced(size: int, n: int) -> Split:
    """Widths that differ by at most one, the wider ones first."""
    return tuple(size // n + (i < size % n) for i in range(n))


def phased(size: int, threshold: int, bounds: Sequence[int]) -> int:
    """How many components a job has: one up to the threshold, two up to the first bound, three up to the second."""
    return 1 + sum(size > bound for bound in (threshold, *bounds))


@cache
def splits(size: int, most: int) -> tuple[Split, ...]:
    """Every way to divide a size among at most so many components, in the order of *adaptive*."""

    def descending(left: int, widest: int, parts: int) -> list[Split]:
        if not left:
            return [()]
        if not parts:
            return []
        return [(w, *rest) for w in range(1, min(left, widest) + 1) for rest in descending(left - w, w, parts - 1)]

    return tuple(sorted(descending(size, size, most), key=lambda split: (split[0], len(split), split)))


# Worst Fit


def worst_fit(split: Split, free: Sequence[int], *, share: bool = False) -> Placed | None:
    """Where the components lie if so many processors are free on the clusters 1, 2, …; None: they do not fit."""
    left = dict(enumerate(free, 1))
    placed = []
    for width in sorted(split, reverse=True):
        if not left:
            return None
        freest = max(left, key=lambda cluster: (left[cluster], -cluster))
        if left[freest] < width:
            return None
        placed.append(Component(freest, width))
        if share:
            left[freest] -= width
        else:
            del left[freest]
    return tuple(placed)


def clusters_of(placed: Placed) -> set[int]:
    return {component.cluster for component in placed}


# the clusters


@dataclass(eq=False)
class Divided(Job):
    """A job and its possible splits, the preferred one first; one alone, if it is not adaptive."""

    splits: tuple[Split, ...] = ()
    adaptive: bool = False
    placed: Placed = ()
    takes: int = 0

    @property
    def end(self) -> int:
        assert self.start >= 0
        return self.start + self.takes


class Clusters(World[Divided]):
    """A world whose processors are on clusters of these sizes."""

    def __init__(
        self,
        sizes: Sequence[int],
        jobs: Sequence[Divided],
        *,
        cost: Fraction = Fraction(0),
        share: bool = False,
        sequential: bool = False,
        kill: bool = True,
    ) -> None:
        self.sizes = sizes
        self.cost = cost
        self.share = share
        able = [job for job in jobs if self.place(job, lambda _: sizes)]
        super().__init__(sum(sizes), able, lambda job: (job.submit, job.number), sequential=sequential, kill=kill)

    def stretched(self, time: int, placed: Placed) -> int:
        """How long so much work takes there."""
        return ceil(time * (1 + self.cost)) if len(clusters_of(placed)) > 1 else time

    def free_at(self, moment: int) -> list[int]:
        """What is free on each cluster then, if predictions are right and nobody starts."""
        return self.without([job.placed for job in self.holding() if moment == self.now or job.expected_end > moment])

    def without(self, held: Sequence[Placed]) -> list[int]:
        """What these leave free on each cluster."""
        return [
            size - sum(width for placed in held for cluster, width in placed if cluster == number)
            for number, size in enumerate(self.sizes, 1)
        ]

    def place(self, job: Divided, free_for: Callable[[int], Sequence[int]]) -> Placed | None:
        """Where a job comes to lie if so much is free on each cluster for a given time; None: nowhere."""
        free = free_for(self.longest(job))
        return next((placed for split in job.splits if (placed := self.fit(job, split, free))), None)

    def fit(self, job: Divided, split: Split, free: Sequence[int]) -> Placed | None:
        return worst_fit(split, free, share=self.share and not job.adaptive)

    def longest(self, job: Divided) -> int:
        """How long the estimate can be, wherever the job comes to lie."""
        places = [placed for split in job.splits if (placed := self.fit(job, split, self.sizes))]
        crosses = any(len(placed) > 1 for placed in places) and len(self.sizes) > 1
        return ceil(job.estimate * (1 + self.cost)) if crosses else job.estimate

    def place_at(self, job: Divided, moment: int) -> Placed | None:
        return self.place(job, lambda _: self.free_at(moment))

    def lasting(self, job: Divided, work: int) -> int:
        return self.stretched(work, job.placed)

    def fits(self, job: Divided) -> bool:
        return self.place_at(job, self.now) is not None

    def start(self, job: Divided, placed: Placed | None = None) -> None:
        placed = placed or self.place_at(job, self.now)
        assert placed is not None
        job.placed = placed
        assert min(self.without([job.placed, *(other.placed for other in self.holding())])) >= 0
        self.waiting.remove(job)
        self.running.append(job)
        job.start = self.now
        job.takes = self.lasting(job, min(job.run, job.estimate) if self.kill else job.run)
        job.expected_end = self.now + self.lasting(job, job.estimate)


# policies: FCFS and FPFS are those of ``rules``


class Easy(NoAppointments):
    """``went_back``: how often a start let somebody pass who stands before that job in the queue (7)."""

    def __init__(self) -> None:
        self.went_back = 0

    def decide(self, world: Clusters, news: News[Divided]) -> None:
        JustTheHead().decide(world, news)
        last = None
        while job := self.find_a_backfill_job(world):
            self.went_back += last is not None and world.key(job) < world.key(last)
            last = job
            world.start(job)

    def find_a_backfill_job(self, world: Clusters) -> Divided | None:
        if not world.waiting:
            return None
        head, *others = world.queue()
        ends = sorted(job.expected_end for job in world.holding())
        shadow = next(end for end in ends if world.place_at(head, end))
        if head.promised is None:
            head.promised = shadow
        return next((job for job in others if self.leaves_room(world, job, head, shadow)), None)

    def leaves_room(self, world: Clusters, job: Divided, head: Divided, shadow: int) -> bool:
        """Whether a job fits now, and the head at its time beside it."""
        placed = world.place_at(job, world.now)
        if placed is None:
            return False
        still_there = [other.placed for other in world.holding() if other.expected_end > shadow]
        if world.now + world.stretched(job.estimate, placed) > shadow:
            still_there.append(placed)
        return world.place(head, lambda _: world.without(still_there)) is not None


class Reservation(NamedTuple):
    start: int
    placed: Placed


class Conservative:
    """A reservation for every job at its submission, compressed at each end in order of ``arrival``, or never."""

    def __init__(self, choice: str) -> None:
        self.choice = choice
        self.reserved: dict[Divided, Reservation] = {}

    def wants_to_look_at(self, world: Clusters) -> list[int]:
        return [reservation.start for reservation in self.reserved.values() if reservation.start > world.now]

    def decide(self, world: Clusters, news: News[Divided]) -> None:
        if news.ended and self.choice == "arrival":
            for job in [job for job in world.queue() if job in self.reserved]:
                before = self.reserved.pop(job)
                anew = self.earliest(world, job)
                self.reserved[job] = anew if anew.start < before.start else before
        for job in sorted(news.submitted, key=world.key):
            self.reserved[job] = self.earliest(world, job)
        for job in world.queue():
            if self.reserved[job].start <= world.now:
                world.start(job, self.reserved.pop(job).placed)
            elif job.promised is None:
                job.promised = self.reserved[job].start

    def earliest(self, world: Clusters, job: Divided) -> Reservation:
        return earliest(world, job, self.reserved)


#: Who holds what, from when until when.
Span = tuple[int, int, Placed]


def spans(world: Clusters, reserved: Mapping[Divided, Reservation]) -> list[Span]:
    running = [(world.now, job.expected_end, job.placed) for job in world.holding()]
    return running + [span(world, job, *reservation) for job, reservation in reserved.items()]


def span(world: Clusters, job: Divided, start: int, placed: Placed) -> Span:
    return start, start + world.stretched(job.estimate, placed), placed


def place_from(world: Clusters, job: Divided, start: int, held: Sequence[Span]) -> Placed | None:
    """A place for the whole of a job's estimate from that time on, each cluster as free as at its least free moment."""

    def least_free(length: int) -> list[int]:
        moments = [start] + [begin for begin, _, _ in held if start < begin < start + length]
        free = [world.without([held for begin, end, held in held if begin <= at < end]) for at in moments]
        return [min(of_cluster) for of_cluster in zip(*free, strict=True)]

    return world.place(job, least_free)


def earliest(world: Clusters, job: Divided, reserved: Mapping[Divided, Reservation]) -> Reservation:
    """The earliest time at which a job has a place for the whole of its estimate, and that place."""
    held = spans(world, reserved)
    for start in sorted({world.now} | {end for _, end, _ in held if end > world.now}):
        if placed := place_from(world, job, start, held):
            return Reservation(start, placed)
    raise AssertionError("a job that empty clusters have no place for")


class Backfill(NoAppointments):
    """Reservations for the first ``n`` who wait, made anew at each pass and after each start."""

    def __init__(self, n: int) -> None:
        self.n = n

    def decide(self, world: Clusters, news: News[Divided]) -> None:
        JustTheHead().decide(world, news)
        alone = len(world.sizes) == 1
        while True:
            waited = len(world.waiting)
            others = world.queue()[self.n :]
            reserved = self.reservations(world)
            while harmless := next((job for job in others if self.leaves_room(world, job, reserved)), None):
                world.start(harmless)
                others.remove(harmless)
                if not alone:
                    break
            if alone or len(world.waiting) == waited:
                break
        for job, reservation in reserved.items():
            if job.promised is None:
                job.promised = reservation.start

    def reservations(self, world: Clusters) -> dict[Divided, Reservation]:
        """Those of the first n, but who can start now, who does."""
        reserved: dict[Divided, Reservation] = {}
        for job in world.queue()[: self.n]:
            found = earliest(world, job, reserved)
            if found.start == world.now:
                world.start(job, found.placed)
            else:
                reserved[job] = found
        return reserved

    def leaves_room(self, world: Clusters, job: Divided, reserved: Mapping[Divided, Reservation]) -> bool:
        """Whether a job fits now, and everybody at the time of its reservation beside it, one after the other."""
        placed = world.place_at(job, world.now)
        if placed is None:
            return False
        held = [*spans(world, {}), span(world, job, world.now, placed)]
        for other, (start, _) in reserved.items():
            if not (found := place_from(world, other, start, held)):
                return False
            held.append(span(world, other, start, found))
        return True


# a whole run


def given(number: int, submit: int, components: Split, run: int, estimate: int | None = None) -> Divided:
    """A job of these components. Times in microseconds; without an estimate it is right."""
    return Divided(number, submit, sum(components), estimate or run, run, splits=(components,))


def adaptive(number: int, submit: int, size: int, most: int, run: int, estimate: int | None = None) -> Divided:
    """A job that is divided when it starts, into at most so many components."""
    return Divided(number, submit, size, estimate or run, run, splits=splits(size, most), adaptive=True)


def simulate(clusters: Clusters, rule: Rule[Clusters]) -> dict[int, tuple[int, Placed]]:
    """When and where each job starts, by its number; those that are refused are not there."""
    clusters.play(rule)
    return {job.number: (job.start, job.placed) for job in clusters.jobs}

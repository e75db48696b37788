"""Backfilling with malleability, its rivals, and FJT, once more: plain, slow, read from the paper and the design.

Utrera, Corbalán & Labarta, "Another approach to backfilled jobs: applying Virtual Malleability to expired windows",
ICS 2005, and the design, section 3 (partition, bfm, FJT). CPUs are interchangeable and of one node.

**Rates.** n processes on c CPUs go at 1 / ⌈n/c⌉ of their speed on n CPUs; while c < n, times 1 − ``fold_cost``.

**FJT** says on what a job can start. ``largest``: the largest allowed size that is free, so its *need* is the smallest.
FJT4, for a Long job: the largest allowed n with ⌈n/4⌉ free, n processes on min(n, free) CPUs, so its need is
⌈smallest/4⌉. FIFO: the largest size that the machine has, and no other.

**Windows.** A job is marked *backfilled* if it starts behind a waiting head, until it ends or loses its CPUs; one that
starts as head is not. The window has expired when a head waits and every running job is marked.

**The pass**, from its beginning again after each start of a head:

1. The head starts, if it can.
2. Else, if there is backfilling and the window has expired: the running jobs, oldest first, each give what they can,
   until the head's need is free; then the head starts. If all together cannot give enough, none gives anything.
3. Else each of the others in order that can start does. After that nothing of 1 or 2 can follow.
4. When nobody waits any more: each job with fewer CPUs than processes, oldest first, gets all it lacks of what is free.

**What paper and design leave open, and how it is read here**

1.  *Who gives?* Of those whose window has expired (all that run), from the earliest last start, ties by submission and
    number, each in turn until it suffices. Who cannot give is passed over: told not to be folded, of one process, on
    ⌈n/4⌉ already. A younger one that would suffice alone is not preferred.
2.  *Is one folded that lies on a part of the CPUs for its processes* (unfolded in part, FJT4)? Yes, from what it holds
    to ⌈n/4⌉; n are its processes.
3.  *On how much does the head start?* On FJT's choice of all that is free then. Its need, which is its smallest size,
    decides how many give; not how wide it starts.
4.  *What goes on after a window expired in vain?* Backfilling, in the same pass, as the design says; so always under
    ``remain``, where nobody ever gives. (``remain_closes=True``: under ``remain`` nobody is backfilled from then on
    until the head has started; the paper's "we continue until the window expires".)
5.  *When does an aborted job wait again?* At once, at its old rank, with nothing done. What is left of the same pass
    sees it in the queue, perhaps as head, and may start it again. The head for which it was aborted starts before
    that, also if its rank is the later one (the aborted job passed another head once).
6.  *What is a partial fold?* Each that gives is folded two, three or four times (to ⌈n/2⌉, ⌈n/3⌉ or ⌈n/4⌉ CPUs): as
    few times as suffice, four if none does, and then the next one too. CPUs between these would make nobody faster.
7.  *What is suspended?* It waits at its old rank, as an aborted job does, and keeps its work and its processes: it
    needs as many CPUs (under FJT4 a Long one a quarter) and starts with that number only. That is a start for
    ``Outcome.start``, for its age and for its mark. Its row while it waits is (n processes, 0 CPUs).
8.  *Who is* ``short``? Who is not Long. Without a class a job is Short.
9.  *A* ``long_minimum`` *above all sizes of a Long job?* It has its largest alone. Otherwise its smaller ones are not
    used, neither for its need nor when it is backfilled.
10. *Sizes that the machine does not have* are not used; a job with no other is refused and stays without a start.
11. *May a Long job start folded under FJT4 if it must not be folded?* No, it is treated as a Short one.
12. *"FJT4 expands queue first, then oldest": also while somebody waits that cannot start on what is free?* No: when
    nobody waits, as under BFM and as in the paper's section 4. (``expand_beside_queue=True``: yes.)
13. *Folded for the head and unfolded with what the head leaves over*, in one pass, if nobody else waits: yes. Its row
    says what it holds after the pass; there is none if that is what it held before.
14. *Under* ``window="estimates"`` *who may be backfilled?* In order, each with the largest of its sizes with which it
    either ends by the shadow time, by its estimate, or lies on extra CPUs. Shadow time and extra CPUs are those of the
    head's need, by the predicted ends of that moment, asked anew for each. If the shadow time is not known, everybody.
15. *... and when does a window expire?* That of a backfilled job: when it has done the work of its estimate (without
    corrections) and still runs. Those alone give, whoever else runs; the rest is as above. There is a pass at each
    predicted end. Where estimates are limits nothing expires so.
16. *A malleable job* is a moldable one here.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from reference.shaped import Job, Machine, Outcome, Running

FOLDS = 4


@dataclass(frozen=True)
class Policy:
    fifo: bool = False
    long_folds: int = 1  # how often a Long job may be folded when it starts
    backfills: bool = True
    expired: str = "fold"  # or abort, remain, suspend
    candidates: str = "any"  # or short
    window: str = "order"  # or estimates
    partial: bool = False
    long_minimum: int = 1
    fold_cost: Fraction = Fraction(0)
    remain_closes: bool = False
    expand_beside_queue: bool = False


PRESETS = {
    "fifo": Policy(fifo=True, backfills=False),
    "fjt4": Policy(long_folds=FOLDS, backfills=False),
    "fjt4+bfa": Policy(long_folds=FOLDS, expired="abort"),
    "fjt1+bfa": Policy(expired="abort"),
    "fjt1+bfm": Policy(expired="fold"),
}


class Partition(NamedTuple):
    """On what a job can start."""

    processes: int
    cpus: int


def folded(*tasks: int, times: int = FOLDS) -> int:
    """On how many CPUs a job lies that is folded, by the tasks that it has on each of its nodes."""
    return sum(-(-count // times) for count in tasks)


def simulate(cpus: int, jobs: list[Job], policy: Policy, *, kill: bool = True) -> dict[int, Outcome]:
    """What becomes of each job, by its number."""
    return Folding(cpus, jobs, policy, kill=kill).play()


class Folding(Machine[Running]):
    def __init__(self, cpus: int, jobs: list[Job], policy: Policy, *, kill: bool = True) -> None:
        super().__init__(cpus, jobs, kill=kill)
        self.policy = policy
        self.predicts = policy.window == "estimates"
        self.backfilled: set[int] = set()  # numbers of running jobs
        self.suspended: dict[int, Running] = {}

    def rate(self, running: Running) -> Fraction:
        job, processes, cpus = running.job, running.processes, running.cpus
        ideal = Fraction(job.speed(processes), -(-processes // cpus))
        return ideal if cpus == processes else ideal * (1 - self.policy.fold_cost)

    # FJT

    def sizes(self, job: Job) -> list[int]:
        """How many processes it may start with, rising."""
        if job.number in self.suspended:
            return [self.suspended[job.number].processes]
        sizes = [size for size in job.sizes if size <= self.cpus]
        if self.policy.fifo:
            return sizes[-1:]
        if job.long:
            return [size for size in sizes if size >= self.policy.long_minimum] or sizes[-1:]
        return sizes

    def folds(self, job: Job) -> int:
        """How often a job may be folded when it starts."""
        return self.policy.long_folds if job.long and job.foldable else 1

    def need(self, job: Job) -> int:
        """With how many free CPUs it can start."""
        return folded(self.sizes(job)[0], times=self.folds(job))

    def partitions(self, job: Job) -> list[Partition]:
        """What it can start on now, largest first."""
        free, folds = self.free(), self.folds(job)
        sizes = [size for size in reversed(self.sizes(job)) if folded(size, times=folds) <= free]
        return [Partition(size, min(size, free)) for size in sizes]

    # the pass

    def decide(self) -> None:
        while self.queue and (self.start_head() or self.make_room()):
            pass
        if self.queue and self.policy.backfills and not self.closed():
            self.backfill()
        if not self.queue or self.policy.expand_beside_queue:
            self.unfold()

    def start_head(self) -> bool:
        for partition in self.partitions(self.queue[0]):
            self.start(self.queue[0], partition)
            return True
        return False

    def start(self, job: Job, partition: Partition) -> None:
        running = self.suspended.pop(job.number, None) or Running(job, partition.processes, self.now)
        self.begin(running, partition.cpus)

    def backfill(self) -> None:
        head, *others = self.queue
        for job in others:
            if self.policy.candidates == "short" and job.long:
                continue
            allowed = (partition for partition in self.partitions(job) if self.harmless(job, partition, head))
            if (partition := next(allowed, None)) is not None:
                self.start(job, partition)
                self.backfilled.add(job.number)

    def unfold(self) -> None:
        for running in self.in_order():
            self.hold(running, min(running.processes, running.cpus + self.free()))

    # windows

    def expired(self) -> list[Running]:
        """The jobs whose window has expired while the head waits, oldest first."""
        if self.policy.window == "estimates":
            return [running for running in self.in_order() if self.marked(running) and overdue(running)]
        return self.in_order() if all(map(self.marked, self.running)) else []

    def marked(self, running: Running) -> bool:
        return running.job.number in self.backfilled

    def closed(self) -> bool:
        return self.policy.remain_closes and self.policy.expired == "remain" and bool(self.expired())

    def make_room(self) -> bool:
        """Take from the expired what the head needs, and start it; or nothing."""
        if not self.policy.backfills:
            return False
        head = self.queue[0]
        lacking = self.need(head) - self.free()
        giving: list[tuple[Running, int]] = []
        for running in self.expired():
            if lacking > 0 and (left := self.left(running, lacking)) < running.cpus:
                giving.append((running, left))
                lacking -= running.cpus - left
        if lacking > 0:
            return False
        for running, left in giving:
            self.give(running, left)
        self.start(head, self.partitions(head)[0])
        return True

    def left(self, running: Running, lacking: int) -> int:
        """How many CPUs an expired job keeps, of which so many would be needed."""
        if self.policy.expired == "remain":
            return running.cpus
        if self.policy.expired in ("abort", "suspend"):
            return 0
        if not running.job.foldable:
            return running.cpus
        times = range(2 if self.policy.partial else FOLDS, FOLDS + 1)
        options = [folded(running.processes, times=n) for n in times]
        return next((cpus for cpus in options if running.cpus - cpus >= lacking), options[-1])

    def give(self, running: Running, left: int) -> None:
        if left:
            self.hold(running, left)
            return
        self.backfilled.discard(running.job.number)
        if self.policy.expired == "suspend":
            self.suspended[running.job.number] = running
            self.take_away(running, running.processes)
        else:
            self.take_away(running)

    # estimates

    def harmless(self, job: Job, partition: Partition, head: Job) -> bool:
        """Whether a job may be backfilled so; without estimates anybody may."""
        if self.policy.window != "estimates":
            return True
        shadow, extra = self.shadow(head)
        if shadow is None or partition.cpus <= extra:
            return True
        end = self.would_end(job, partition)
        return end is not None and end <= shadow

    def shadow(self, head: Job) -> tuple[int | None, int]:
        """When the head's need will be free, by the predicted ends of now, and how many CPUs will be left over then."""
        known = [(running.predicted_end(), running.cpus) for running in self.running]
        ends = sorted((end, cpus) for end, cpus in known if end is not None)
        for moment, _ in ends:
            free = self.free() + sum(cpus for end, cpus in ends if end <= moment)
            if free >= self.need(head):
                return moment, free - self.need(head)
        return None, 0

    def would_end(self, job: Job, partition: Partition) -> int | None:
        """When a job would end, by its estimate, that starts so now; None: nobody knows."""
        before = self.suspended.get(job.number) or Running(job, partition.processes, self.now)
        running = replace(before, cpus=partition.cpus, as_of=self.now)
        running.rate = self.rate(running)
        return running.predicted_end()


def overdue(running: Running) -> bool:
    return running.job.estimate is not None and running.done >= running.job.estimate
